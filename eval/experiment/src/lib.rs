// SPDX-License-Identifier: MIT OR Apache-2.0
//! What simulations, claims and the lab's comparisons have in common.
//!
//! * [`make`]: simulations on several threads, with progress; [`Kept`]: finished runs, of whatever kind, by [`Key`].
//! * [`RunInfo`]: what a result was made with, beside each that is written as JSON.
//! * [`looks`]: how each system's line is drawn.
//! * [`presets_and`]: the systems that a comparison takes where none are named.
//!
//! Presets come from [`PRESETS`] and the simulator's baselines from [`BASELINES`]: a new one is here
//! without being named.
#![forbid(unsafe_code)]

mod kept;
mod parallel;
pub mod run_info;
mod runs;

use terrace_chart::Look;
use terrace_chart::Stroke;
use terrace_policy::DEFAULT;
use terrace_policy::PRESETS;
use terrace_policy::Preset;
use terrace_policy::UNMANAGED;
use terrace_policy::preset::Colour;
use terrace_sim::BASELINES;
use terrace_sim::ORACLE;

pub use kept::Kept;
pub use kept::Key;
pub use kept::hash_of;
pub use kept::hash_of_bytes;
pub use kept::simulator_revision;
pub use run_info::RunInfo;
pub use runs::Job;
pub use runs::Progress;
pub use runs::RunError;
pub use runs::make;

/// Of every preset and baseline.
#[must_use]
pub fn looks() -> Vec<Look> {
    let presets = PRESETS.iter().map(|preset| (preset.name, preset.colour));
    let baselines = BASELINES.iter().map(|one| (one.name, one.colour));
    let all = presets.chain(baselines);
    all.map(|(name, colour)| look(name, colour)).collect()
}

/// Of a system of that name and colour.
#[must_use]
pub fn look(name: &'static str, colour: Colour) -> Look {
    let stroke = match name {
        _ if name == DEFAULT.name => Stroke::Wide,
        _ if name == UNMANAGED.name => Stroke::Dotted,
        _ if name == ORACLE.name => Stroke::Dashed,
        _ => Stroke::Plain,
    };
    Look {
        name,
        light: colour.light,
        dark: colour.dark,
        stroke,
    }
}

/// The presets that are wanted, in their order, with others after the one that moves nothing; the
/// oracle is last. As the command line writes them.
#[must_use]
pub fn presets_and(others: &[&str], wanted: impl Fn(&Preset) -> bool) -> String {
    let (none, rest): (Vec<&str>, Vec<&str>) = PRESETS
        .iter()
        .filter(|preset| wanted(preset))
        .map(|preset| preset.name)
        .partition(|name| *name == UNMANAGED.name);
    let all = [none.as_slice(), others, &rest, &[ORACLE.name]];
    all.concat().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_of_the_simulator_has_colours_of_its_own() {
        let looks = looks();
        let names: Vec<&str> = looks.iter().map(|look| look.name).collect();
        assert_eq!(names, terrace_sim::systems());
        for (index, look) in looks.iter().enumerate() {
            for other in &looks[..index] {
                assert_ne!(look.light, other.light, "{} {}", look.name, other.name);
                assert_ne!(look.dark, other.dark, "{} {}", look.name, other.name);
            }
        }
    }

    #[test]
    fn every_preset_is_compared_where_none_is_named() {
        let named = presets_and(&["kernel"], |_| true);
        assert!(named.starts_with("none,kernel,") && named.ends_with(",oracle"));
        for preset in PRESETS {
            assert!(named.split(',').any(|name| name == preset.name), "{named}");
        }
    }
}
