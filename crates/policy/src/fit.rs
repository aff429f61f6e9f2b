// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which trackers and which mover go with a policy: what it needs is compared with what each gives.
//!
//! Pure: nothing is opened here, and what is given here may turn out not to work on the machine at hand.
//! Trackers that are named are used together, and together give all that the policy needs of accesses; `auto` adds the
//! fewest that give what is missing still, and what the policy uses where it is there. Where several would do, the
//! first that work are taken. A policy that
//! looks at nothing goes with every tracker. Who runs policies states what there is ([`Offer`]).

mod mover;
mod tracker;

use terrace_core::Nanos;
use thiserror::Error;

use crate::Capabilities;
use crate::Preset;

pub use mover::Mover;
pub use mover::UnknownMover;
pub use tracker::TrackerKind;
pub use tracker::UnknownTracker;
pub use tracker::names;

/// A pass over all pages where hint faults stand in for samples ([`Fit::stands_in`]).
pub const PASS_AS_SAMPLES: Nanos = Nanos::from_secs(5);

/// What there is where policies run.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// What is told of any process, with whatever tracker and mover.
    pub always: Capabilities,
    /// The trackers, in the order in which they are tried.
    pub trackers: &'static [TrackerKind],
    /// The movers.
    pub movers: &'static [Mover],
    /// There are several sockets ([`Preset::on_sockets`]).
    pub sockets: bool,
}

/// What goes together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// What the policy does not work without.
    pub needs: Capabilities,
    /// What it takes of what there is.
    pub takes: Capabilities,
    /// The sets of trackers to try, in order; all of a set are used at once.
    pub trackers: Vec<Vec<TrackerKind>>,
    /// Who moves pages; never [`Mover::Auto`].
    pub mover: Mover,
}

impl Fit {
    /// Whether the agent is to be in the program.
    #[must_use]
    pub fn agent(&self) -> bool {
        self.mover == Mover::Agent
    }

    /// Whether hint faults are told as samples: the policy takes those, not hint faults, and nothing else of the
    /// set gives any. A policy that looks at nothing gets what each tracker costs, and so this.
    #[must_use]
    pub fn stands_in(&self, set: &[TrackerKind]) -> bool {
        let samples = |one: &TrackerKind| one.gives().contains(Capabilities::SAMPLES);
        let wanted = self.needs.is_empty() || self.takes.contains(Capabilities::SAMPLES);
        let faults = self.takes.contains(Capabilities::HINT_FAULTS);
        wanted && !faults && !set.iter().any(samples)
    }
}

/// What does not go together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Misfit {
    /// The trackers lack something.
    #[error(
        "--tracker {tracker}: policy '{policy}' needs {missing}, which it does not give; {advice}"
    )]
    Tracker {
        /// Which.
        tracker: String,
        /// Whose.
        policy: &'static str,
        /// What is lacking.
        missing: Capabilities,
        /// What to do.
        advice: String,
    },
    /// The mover, or who runs the policy, lacks something.
    #[error("--mover {mover}: policy '{policy}' needs {missing}, which it does not give; {advice}")]
    Mover {
        /// Which.
        mover: &'static str,
        /// Whose.
        policy: &'static str,
        /// What it lacks.
        missing: Capabilities,
        /// What to do.
        advice: String,
    },
    /// There is none of that name where the policy is to run.
    #[error("--{option} {name}: there is none here; there are: auto, {there}")]
    Absent {
        /// `tracker` or `mover`.
        option: &'static str,
        /// What was named.
        name: &'static str,
        /// What there is.
        there: String,
    },
}

/// Whether a policy goes with these trackers and this mover, of what there is.
///
/// # Errors
///
/// Where one of them is not there, or lacks what the policy needs.
pub fn fit(
    preset: &Preset,
    trackers: &[TrackerKind],
    mover: Mover,
    offer: &Offer,
) -> Result<Fit, Misfit> {
    are_there(trackers, mover, offer)?;
    let seen = preset.needs.intersection(Capabilities::ACCESSES);
    let mover = mover.resolve(preset, offer.movers);
    let given = seen.union(offer.always).union(mover.gives());
    let missing = preset.needs.difference(given);
    if !missing.is_empty() {
        let giving = offer.movers.iter().find(|m| m.gives().contains(missing));
        let advice = giving.map(|giving| format!("use {} or auto", giving.name()));
        return Err(Misfit::Mover {
            mover: mover.name(),
            policy: preset.name,
            missing,
            advice: advice.unwrap_or_else(|| "nothing here does".to_owned()),
        });
    }
    let sets = with_uses(preset, trackers, seen, offer);
    if sets.is_empty() {
        return Err(misfit(preset, trackers, seen, offer));
    }
    let given = sets.iter().map(|set| gives(set, seen));
    let given = given.fold(offer.always.union(mover.gives()), Capabilities::union);
    Ok(Fit {
        needs: preset.needs,
        takes: preset.needs.union(uses(preset, offer)).intersection(given),
        trackers: sets,
        mover,
    })
}

fn are_there(trackers: &[TrackerKind], mover: Mover, offer: &Offer) -> Result<(), Misfit> {
    let absent = |one: &&TrackerKind| **one != TrackerKind::Auto && !offer.trackers.contains(one);
    if let Some(one) = trackers.iter().find(absent) {
        let there: Vec<&str> = offer.trackers.iter().map(|one| one.name()).collect();
        return Err(Misfit::Absent {
            option: "tracker",
            name: one.name(),
            there: there.join(", "),
        });
    }
    if mover != Mover::Auto && !offer.movers.contains(&mover) {
        let there: Vec<&str> = offer.movers.iter().map(|one| one.name()).collect();
        return Err(Misfit::Absent {
            option: "mover",
            name: mover.name(),
            there: there.join(", "),
        });
    }
    Ok(())
}

/// What trackers give together to a policy that decides by this. To one that does not decide by hint faults each
/// of them can be a sample.
fn gives(set: &[TrackerKind], seen: Capabilities) -> Capabilities {
    let all = set.iter().map(|one| one.gives());
    let all = all.fold(Capabilities::empty(), Capabilities::union);
    let faults = Capabilities::HINT_FAULTS;
    if all.contains(faults) && !seen.contains(faults) {
        all.union(Capabilities::SAMPLES)
    } else {
        all
    }
}

/// What a policy takes there that it does not need.
const fn uses(preset: &Preset, offer: &Offer) -> Capabilities {
    if offer.sockets {
        preset.uses.union(preset.on_sockets)
    } else {
        preset.uses
    }
}

/// The sets that give this: with `auto` those first that give most of what the policy can use besides.
fn with_uses(
    preset: &Preset,
    trackers: &[TrackerKind],
    seen: Capabilities,
    offer: &Offer,
) -> Vec<Vec<TrackerKind>> {
    let auto = trackers.contains(&TrackerKind::Auto);
    let uses = uses(preset, offer).intersection(Capabilities::ACCESSES);
    let uses: Vec<Capabilities> = uses.iter().filter(|_| auto).collect();
    let mut choices: Vec<u32> = (0..1 << uses.len()).rev().collect();
    choices.sort_by_key(|choice| std::cmp::Reverse(choice.count_ones()));
    let mut found: Vec<Vec<TrackerKind>> = Vec::new();
    for choice in choices {
        let chosen = (0..).zip(&uses).filter(|(bit, _)| choice >> bit & 1 == 1);
        let more = chosen.fold(Capabilities::empty(), |all, (_, one)| all.union(*one));
        for set in sets(trackers, seen.union(more), offer) {
            // A hint fault in place of a sample is for who needs samples.
            let own = set.iter().map(|one| one.gives());
            let own = own.fold(Capabilities::empty(), Capabilities::union);
            if own.contains(more) && !found.contains(&set) {
                found.push(set);
            }
        }
    }
    found
}

/// The sets that give this: what is named, and where `auto` is among it each fewest more that do, the smallest
/// first, of equal ones in the order in which trackers are tried.
fn sets(trackers: &[TrackerKind], seen: Capabilities, offer: &Offer) -> Vec<Vec<TrackerKind>> {
    let is_named = |one: &TrackerKind| trackers.contains(one);
    let all = offer.trackers;
    // What may be added, by bits of a choice.
    let more: Vec<&TrackerKind> = if trackers.contains(&TrackerKind::Auto) {
        all.iter().filter(|one| !is_named(one)).collect()
    } else {
        Vec::new()
    };
    let mut choices: Vec<u32> = (0..1 << more.len()).collect();
    choices.sort_by_key(|choice| choice.count_ones());
    let mut fewest: Vec<u32> = Vec::new();
    let mut sets = Vec::new();
    for choice in choices {
        let chosen = |one: &TrackerKind| {
            let at = more.iter().position(|other| *other == one);
            at.is_some_and(|at| choice >> at & 1 == 1)
        };
        let set = all.iter().copied();
        let set: Vec<TrackerKind> = set.filter(|one| is_named(one) || chosen(one)).collect();
        if gives(&set, seen).contains(seen) && !fewest.iter().any(|few| few & choice == *few) {
            fewest.push(choice);
            sets.push(set);
        }
    }
    sets
}

fn misfit(preset: &Preset, trackers: &[TrackerKind], seen: Capabilities, offer: &Offer) -> Misfit {
    let fitting = sets(&[TrackerKind::Auto], seen, offer);
    let fitting: Vec<String> = fitting.iter().map(|set| names(set)).collect();
    let advice = if fitting.is_empty() {
        "no trackers here give all of it".to_owned()
    } else {
        format!("use {} or auto", fitting.join(" or "))
    };
    Misfit::Tracker {
        tracker: names(trackers),
        policy: preset.name,
        missing: seen.difference(gives(trackers, seen)),
        advice,
    }
}

#[cfg(test)]
mod tests;
