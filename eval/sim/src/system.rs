// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which systems there are, and what each is made of: a policy, a way to move pages, a placement.

use terrace_core::Nanos;
use terrace_core::Tiers;
use terrace_policy::Goes;
use terrace_policy::PRESETS;
use terrace_policy::Policy;
use terrace_policy::Preset;
use terrace_policy::SettingError;
use terrace_policy::Settings;
use terrace_policy::presets::hemem;
use terrace_policy::presets::nomad;

use crate::Setup;
use crate::SimError;
use crate::baseline;
use crate::hardware::Hardware;
use crate::protected::Copying;
use crate::scanner::Pace;
use crate::space::Space;
use crate::world::Movement;

/// The systems beside the presets: what presets are compared with.
pub const BASELINES: [&str; 6] = [
    "random",
    "oracle",
    "autonuma",
    "kernel-tiering",
    "tpp",
    "memory-mode",
];

/// The systems that can be simulated: presets and baselines.
#[must_use]
pub fn systems() -> Vec<&'static str> {
    let presets = PRESETS.iter().map(|preset| preset.name);
    presets.chain(BASELINES).collect()
}

/// Systems of the papers that are not built yet.
pub const PLANNED: [&str; 6] = [
    "hemem-page-table",
    "mtm",
    "chrono",
    "autotiering",
    "thermostat",
    "damon",
];

/// Where pages are, apart from what the policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// As allocated.
    Normal,
    /// The best for what comes, at once and for nothing.
    Best,
    /// All on slow nodes; the fast one is a cache.
    Cache,
}

/// A system.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) tiers: Tiers,
    pub(crate) movement: Movement,
    pub(crate) placement: Placement,
    /// Accesses for one sample, where they are sampled.
    pub(crate) sample_period: Option<u64>,
}

const TRANSACTIONS: Movement = Movement {
    transactions: true,
    synchronous: false,
    protected: None,
    supervised: true,
    pace: Pace::Even,
};
const ORDINARY: Movement = Movement {
    transactions: false,
    synchronous: false,
    protected: None,
    supervised: false,
    pace: Pace::Even,
};
const SUPERVISED: Movement = Movement {
    supervised: true,
    ..ORDINARY
};
const IN_FAULT: Movement = Movement {
    transactions: false,
    synchronous: true,
    protected: None,
    supervised: false,
    pace: Pace::Even,
};

/// Makes the system of a set-up.
pub(crate) fn make(setup: &Setup, hardware: &Hardware, space: &Space) -> Result<System, SimError> {
    let name = setup.system.as_str();
    if PLANNED.contains(&name) {
        return Err(SimError::NotBuilt(name.to_owned()));
    }
    if !systems().contains(&name) {
        return Err(SimError::System(name.to_owned()));
    }
    let tiers = hardware.tiers(0);
    if name != "none" && tiers.count() < 2 {
        return Err(SimError::OneTier(name.to_owned()));
    }
    let mut params = Params::new(setup);
    let none = || Box::new(terrace_policy::presets::none::None) as Box<dyn Policy>;
    check_priorities(setup)?;
    let mut sample_period = None;
    let (policy, tiers, movement, placement) = match name {
        "nomad" => {
            let policy = nomad::Nomad::new(nomad::Params::read(&mut params.0)?, tiers.clone());
            let policy = Box::new(policy) as Box<dyn Policy>;
            let memory = tiers.nodes().iter().map(|n| n.capacity_bytes).sum();
            let movement = Movement {
                pace: Pace::InService(Goes::new(setup.costs.scan_bytes, memory)),
                ..TRANSACTIONS
            };
            (policy, tiers, movement, Placement::Normal)
        }
        "hemem" => {
            let own = hemem::Params::read(&mut params.0)?;
            let movement = Movement {
                protected: Some(Copying {
                    threads: own.copy_threads,
                    dma: params.switch("dma", false)?,
                }),
                ..SUPERVISED
            };
            sample_period = Some(own.sample_period);
            let policy = Box::new(hemem::Hemem::new(own, &tiers)) as Box<dyn Policy>;
            (policy, tiers, movement, Placement::Normal)
        }
        "random" => {
            let policy = baseline::random::Random::new(&mut params, &tiers, space, setup.seed)?;
            let policy = Box::new(policy) as Box<dyn Policy>;
            (policy, tiers, ORDINARY, Placement::Normal)
        }
        "oracle" => (none(), tiers, ORDINARY, Placement::Best),
        "memory-mode" => (none(), tiers, ORDINARY, Placement::Cache),
        "none" => (none(), tiers, ORDINARY, Placement::Normal),
        // Another preset: it moves pages from outside, as `terrace run` does.
        _ if let Some(preset) = Preset::of(name) => {
            let policy = (preset.build)(&mut params.0, &tiers)?;
            (policy, tiers, SUPERVISED, Placement::Normal)
        }
        _ => {
            let tiers = hardware.kernel_tiers(0);
            let (policy, pace) = baseline::make(setup, &mut params, &tiers, space)?;
            let movement = Movement { pace, ..IN_FAULT };
            (policy, tiers, movement, Placement::Normal)
        }
    };
    params.0.finish()?;
    Ok(System {
        policy,
        tiers,
        movement,
        placement,
        sample_period,
    })
}

/// That they are of programs there are, under a system that heeds them.
fn check_priorities(setup: &Setup) -> Result<(), SimError> {
    let names = || setup.workload.programs.iter().map(|p| p.name.as_str());
    if let Some(name) = setup.priorities.keys().find(|n| !names().any(|p| p == *n)) {
        return Err(SimError::Priority {
            name: name.clone(),
            known: names().collect::<Vec<_>>().join(", "),
        });
    }
    let heeds = Preset::of(&setup.system).is_some_and(|preset| preset.priorities);
    if !heeds && !setup.priorities.is_empty() {
        return Err(SimError::NoPriorities(setup.system.clone()));
    }
    Ok(())
}

/// Reads a system's parameters; a name that nothing asked for is an error.
#[derive(Debug)]
pub(crate) struct Params(Settings);

impl Params {
    fn new(setup: &Setup) -> Self {
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let given = setup.params.iter().map(|(k, v)| (k.clone(), text(v)));
        Self(Settings::new(&setup.system, given.collect()))
    }

    /// A whole number of at most `most`.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        default: u64,
        most: u64,
    ) -> Result<u64, SimError> {
        Ok(self.0.number(name, default, 0..=most)?)
    }

    /// A time: ns, or text.
    pub(crate) fn time(&mut self, name: &'static str, default: Nanos) -> Result<Nanos, SimError> {
        Ok(self.0.time(name, default)?)
    }

    /// Yes or no.
    pub(crate) fn switch(&mut self, name: &'static str, default: bool) -> Result<bool, SimError> {
        Ok(self.0.switch(name, default)?)
    }
}

impl From<SettingError> for SimError {
    fn from(error: SettingError) -> Self {
        match error {
            SettingError::Unknown {
                policy,
                name,
                known,
            } => Self::Parameter {
                system: policy,
                name,
                known,
            },
            SettingError::Value {
                policy,
                name,
                value,
                wanted,
            } => Self::Value {
                system: policy,
                name,
                value,
                wanted,
            },
            SettingError::Form(text) => Self::Limit(text),
        }
    }
}
