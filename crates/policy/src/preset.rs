// SPDX-License-Identifier: MIT OR Apache-2.0
//! A preset is one value: what it is called, what it needs, what can be set, how it is made.
//!
//! Each is defined in its own folder ([`crate::presets`]) and listed once in [`PRESETS`]; whoever offers
//! policies goes through that list and knows no name.

use std::collections::BTreeMap;

use serde::Serialize;
use terrace_core::Figure;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;

use crate::Capabilities;
use crate::Policy;
use crate::PolicyError;
use crate::kernel::KernelView;
use crate::presets;
use crate::settings::Parameter;
use crate::settings::SettingError;
use crate::settings::Settings;

/// What a policy is made for.
#[derive(Debug, Clone)]
pub struct Host {
    /// The machine's tiers.
    pub tiers: Tiers,
    /// Its memory as each node of processors sees it.
    pub views: Views,
    /// What is there for the policy to take ([`crate::Fit::takes`]).
    pub given: Capabilities,
    /// What its kernel knows, for policies that stand for the kernel's own.
    pub kernel: KernelView,
}

impl Host {
    /// A machine with these tiers, of which nothing else is known.
    #[must_use]
    pub fn new(tiers: Tiers) -> Self {
        Self {
            views: Views::of_tiers(&tiers),
            given: Capabilities::empty(),
            tiers,
            kernel: KernelView::default(),
        }
    }
}

/// Makes a policy for a machine, of parameters as they were written.
pub type Build = fn(&mut Settings, &Host) -> Result<Box<dyn Policy>, SettingError>;

/// Parameters and their values on a machine whose times are longer by this factor.
pub type Dilated = fn(f64) -> Vec<(&'static str, String)>;

/// A colour in charts, as CSS writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    /// On a light page.
    pub light: &'static str,
    /// On a dark page.
    pub dark: &'static str,
}

/// A policy that can be asked for by its name.
#[derive(Debug)]
pub struct Preset {
    /// What it is asked for by.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// Where it was published.
    pub paper: Option<&'static str>,
    /// What it does not work without.
    pub needs: Capabilities,
    /// What it takes where it is there.
    pub uses: Capabilities,
    /// What it takes besides where there are several sockets, which see memory differently.
    pub on_sockets: Capabilities,
    /// Whether it puts programs with a priority before others.
    pub priorities: bool,
    /// Whether it keeps to floors and ceilings of what programs have of the fast tier.
    pub limits: bool,
    /// Its line in charts.
    pub colour: Colour,
    /// What each parameter does, in a sentence, in the order in which `build` asks for them.
    pub help: &'static [(&'static str, &'static str)],
    /// Parameters that follow the machine's times, as they are where all of those are longer by a factor.
    pub dilated: Dilated,
    /// Makes it.
    pub build: Build,
}

/// The presets there are, in the order in which they are shown.
pub static PRESETS: &[&Preset] = &[
    &presets::none::PRESET,
    &presets::nomad::PRESET,
    &presets::hemem::PRESET,
    &presets::hemem::PAGE_TABLE,
    &presets::chrono::PRESET,
    &presets::mtm::PRESET,
    &presets::autotiering::PRESET,
    &presets::adaptive::PRESET,
    &presets::linux_nb::PRESET,
    &presets::kernel_tiering::PRESET,
    &presets::tpp::PRESET,
];

/// The one that is taken where none is asked for.
pub static DEFAULT: &Preset = &presets::adaptive::PRESET;

/// The one that moves nothing: what all are compared with.
pub static UNMANAGED: &Preset = &presets::none::PRESET;

/// A parameter as a preset lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Name, default and range.
    #[serde(flatten)]
    pub parameter: Parameter,
    /// What it does.
    pub help: &'static str,
}

impl Preset {
    /// The preset of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name).copied()
    }

    /// As [`Self::of`], for who was asked for it.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn named(name: &str) -> Result<&'static Self, PolicyError> {
        Self::of(name).ok_or_else(|| PolicyError::Unknown(name.to_owned()))
    }

    /// What it takes.
    #[must_use]
    pub const fn takes(&self) -> Capabilities {
        self.needs.union(self.uses)
    }

    /// Whether its mechanism is in the program's process.
    #[must_use]
    pub const fn is_in_process(&self) -> bool {
        self.takes().intersects(Capabilities::IN_PROCESS)
    }

    /// All names, as a message lists them.
    #[must_use]
    pub fn names() -> String {
        Self::names_of(|_| true)
    }

    /// The names of those of which something holds, as a message lists them.
    #[must_use]
    pub fn names_of(holds: impl Fn(&Self) -> bool) -> String {
        let those = PRESETS.iter().filter(|preset| holds(preset));
        let names: Vec<&str> = those.map(|preset| preset.name).collect();
        names.join(", ")
    }

    /// Whether it can manage programs of a real machine; else it is simulated only.
    #[must_use]
    pub fn in_user_space(&self) -> bool {
        !self.needs.contains(Capabilities::PROMOTION_IN_FAULT)
    }

    /// Whether it decides by samples of a PMU.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.needs.contains(Capabilities::SAMPLES)
    }

    /// What its policy tells of itself: name, unit and sentence of each.
    #[must_use]
    pub fn figures(&self) -> Vec<&'static Figure> {
        let mut settings = Settings::new(self.name, BTreeMap::new());
        let made = (self.build)(&mut settings, &Host::new(two_tiers()));
        let policy = made.expect("defaults are values that can be");
        policy
            .counters()
            .iter()
            .map(|(figure, _)| *figure)
            .collect()
    }

    /// Its parameters: those that making it asks for.
    #[must_use]
    pub fn parameters(&self) -> Vec<Listed> {
        let mut settings = Settings::new(self.name, BTreeMap::new());
        let made = (self.build)(&mut settings, &Host::new(two_tiers()));
        debug_assert!(made.is_ok(), "defaults are values that can be");
        let sentence = |name: &str| {
            let help = self.help.iter().find(|(of, _)| *of == name);
            help.map_or("", |(_, help)| help)
        };
        let known = settings.known().iter().cloned();
        known
            .map(|parameter| Listed {
                help: sentence(parameter.name),
                parameter,
            })
            .collect()
    }
}

/// The smallest machine on which every policy works.
fn two_tiers() -> Tiers {
    let node = |id: u16| NodeInfo {
        id: NodeId(id),
        tier: TierId(id),
        capacity_bytes: 1 << 30,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    Tiers::new(vec![node(0), node(1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_what_making_it_asks_for() {
        for preset in PRESETS {
            let listed = preset.parameters();
            let names: Vec<&str> = listed.iter().map(|one| one.parameter.name).collect();
            let helped: Vec<&str> = preset.help.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, helped, "{}: a sentence each", preset.name);
            assert!(preset.help.iter().all(|(_, help)| help.ends_with('.')));
            // Each is accepted with its default as it is shown, where that is a value.
            for one in &listed {
                let Parameter { name, default, .. } = &one.parameter;
                if default.contains(" of ") {
                    continue;
                }
                let given = BTreeMap::from([((*name).to_owned(), default.clone())]);
                let mut settings = Settings::new(preset.name, given);
                let made = (preset.build)(&mut settings, &Host::new(two_tiers()));
                assert!(made.is_ok(), "{} {name}={default}: {made:?}", preset.name);
                assert_eq!(settings.finish(), Ok(()));
            }
            let dilated = (preset.dilated)(1000.0).into_iter();
            let dilated = dilated.map(|(name, value)| (name.to_owned(), value));
            let mut settings = Settings::new(preset.name, dilated.collect());
            (preset.build)(&mut settings, &Host::new(two_tiers()))
                .expect("made for a slower machine");
            assert_eq!(settings.finish(), Ok(()), "{}", preset.name);
            let given = BTreeMap::from([("no_such".to_owned(), "1".to_owned())]);
            let mut settings = Settings::new(preset.name, given);
            let made = (preset.build)(&mut settings, &Host::new(two_tiers())).expect("made");
            assert!(settings.finish().is_err());
            assert_eq!(made.name(), preset.name);
            assert!(!preset.needs.intersects(preset.uses), "{}", preset.name);
            let taken = preset.takes();
            assert!(!taken.intersects(preset.on_sockets), "{}", preset.name);
        }
    }

    #[test]
    fn names_are_unlike() {
        let mut names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PRESETS.len());
        assert!(PRESETS.iter().any(|one| std::ptr::eq(*one, DEFAULT)));
        assert!(PRESETS.iter().any(|one| std::ptr::eq(*one, UNMANAGED)));
        assert!(Preset::of("nimad").is_none());
    }
}
