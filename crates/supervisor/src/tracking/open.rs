// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the trackers of a run: the first set of those to try that works here.

use std::path::Path;

use terrace_core::Tiers;
use terrace_policy::Capabilities;
use terrace_policy::Fit;
use terrace_policy::MachineOptions;
use terrace_policy::TrackerKind;
use terrace_policy::fit;
use terrace_sys::settings::restore_stale;
use terrace_sys::zones;
use terrace_track::AccessedBits;
use terrace_track::AccessedBitsConfig;
use terrace_track::ChosenFaultTracker;
use terrace_track::EmulatedPmu;
use terrace_track::EmulatedPmuConfig;
use terrace_track::HintFaultTracker;
use terrace_track::HintFaultTrackerConfig;
use terrace_track::PmuConfig;
use terrace_track::PmuTracker;
use terrace_track::TrackError;

use super::Source;
use super::Trackers;
use super::Tracking;
use crate::footprint;
use crate::options::Options;
use crate::options::Target;
use crate::scanner::Scanner;

/// How they came to be.
#[derive(Debug)]
pub struct Opened {
    /// The trackers of the first set that works; none if none does.
    pub trackers: Trackers,
    /// What the operator should know.
    pub limits: Vec<String>,
}

/// A tracker that was tried: at work, or why not.
type Tried = (TrackerKind, Result<Source, String>);

/// Opens the first set of trackers that works as a whole.
#[must_use]
pub fn open(fit: &Fit, options: &Options, wanted: MachineOptions, tiers: &Tiers) -> Opened {
    put_back();
    let mut tried: Vec<Tried> = Vec::new();
    let works = fit.trackers.iter().find(|set| {
        set.iter().all(|kind| {
            if !tried.iter().any(|(of, _)| of == kind) {
                tried.push((*kind, open_source(*kind, options, wanted, tiers)));
            }
            tried.iter().any(|(of, found)| of == kind && found.is_ok())
        })
    });
    let set = works.map_or(&[][..], Vec::as_slice);
    let mut opened = Vec::new();
    let mut failures = Vec::new();
    for (kind, found) in tried {
        match found {
            Ok(source) if set.contains(&kind) => opened.push((kind, source)),
            Ok(_) => {}
            Err(error) => failures.push(error),
        }
    }
    opened.sort_by_key(|(kind, _)| set.iter().position(|of| of == kind));
    let failures = failures.join("; ");
    let limit = (!failures.is_empty()).then(|| limit(fit, works, &failures));
    let stands_in = fit.stands_in(set);
    let armed_by_us = stands_in && set.contains(&TrackerKind::HintFaults);
    let balancing = !set.is_empty() && !armed_by_us;
    let mut sources: Vec<Source> = opened.into_iter().map(|(_, source)| source).collect();
    let mut limits: Vec<String> = limit.into_iter().collect();
    // Behind the others: it does not say who comes and goes.
    if wanted.arms_chosen && !sources.is_empty() {
        match ChosenFaultTracker::open() {
            Ok(tracker) => sources.push(Source::ChosenFaults(Box::new(tracker))),
            Err(error) => limits.push(format!("no page can be armed by itself: {error:#}")),
        }
    }
    let all = sources.into_iter();
    Opened {
        trackers: Trackers {
            all: all.map(|one| Tracking::new(one, stands_in)).collect(),
            balancing,
            quiet: None,
        },
        limits,
    }
}

/// What is used in place of what did not work, or that nothing is.
fn limit(fit: &Fit, works: Option<&Vec<TrackerKind>>, failures: &str) -> String {
    match works {
        None => {
            let needed = fit.needs.intersection(Capabilities::ACCESSES);
            format!("no {needed}, nothing will be promoted: {failures}")
        }
        Some(set) => {
            let faults = set.contains(&TrackerKind::HintFaults) && fit.stands_in(set);
            let each = if faults {
                ", each hint fault one sample"
            } else {
                ""
            };
            format!("accesses are told by {}{each}: {failures}", fit::names(set))
        }
    }
}

/// What a crashed supervisor has left is no setting of the machine's.
fn put_back() {
    match restore_stale(Path::new("/")) {
        Ok(all) => {
            for restored in all {
                tracing::info!("Put back {restored:?}, which a crashed supervisor had left");
            }
        }
        Err(error) => tracing::warn!("Not put back what a crashed supervisor had left: {error}"),
    }
}

fn open_source(
    kind: TrackerKind,
    options: &Options,
    wanted: MachineOptions,
    tiers: &Tiers,
) -> Result<Source, String> {
    let (period, pmu) = (options.sample_period, &options.pmu);
    let opened: anyhow::Result<Source> = match kind {
        TrackerKind::Auto => Err(anyhow::anyhow!("nothing suits this policy")),
        TrackerKind::Pmu => {
            let config = PmuConfig {
                period: period.or(wanted.sample_period).unwrap_or(pmu.period),
                ..pmu.clone()
            };
            PmuTracker::open(&config)
                .map(Source::Pmu)
                .map_err(Into::into)
        }
        TrackerKind::EmulatedPmu => {
            let max_rate = None;
            EmulatedPmu::open(EmulatedPmuConfig { period, max_rate })
                .map(Source::EmulatedPmu)
                .map_err(Into::into)
        }
        TrackerKind::HintFaults => open_hint_faults(tiers, options),
        TrackerKind::AccessedBits => open_accessed_bits(wanted).map_err(Into::into),
    };
    opened.map_err(|error| format!("{error:#}"))
}

fn open_accessed_bits(wanted: MachineOptions) -> Result<Source, TrackError> {
    let mut config = AccessedBitsConfig {
        zones: zones::read(Path::new("/")),
        ..AccessedBitsConfig::default()
    };
    if wanted.reads_regardless {
        config.budget_permille = 1_000;
    }
    Ok(Source::AccessedBits(AccessedBits::open(config)?))
}

fn open_hint_faults(tiers: &Tiers, options: &Options) -> anyhow::Result<Source> {
    let mut config = HintFaultTrackerConfig::default();
    config.source.ring_bytes = footprint::ring_bytes(tiers, config.source.ring_bytes);
    config.source.node = footprint::slowest(tiers).map_or(0, |node| u32::from(node.0));
    config.top = tiers.top().map(|node| node.id).collect();
    let tracker = HintFaultTracker::open(config)?;
    let running = matches!(options.target, Target::Running(_));
    let memory = tiers.nodes().iter().map(|n| n.capacity_bytes).sum();
    let scanner = Scanner::open(options.scan_bytes, running, memory)?;
    Ok(Source::HintFaults(Box::new(tracker), scanner))
}

#[cfg(test)]
mod tests {
    use terrace_core::Pid;
    use terrace_policy::Mover;
    use terrace_policy::Preset;
    use terrace_policy::fit::fit;

    use super::*;
    use crate::host::LINUX;

    #[test]
    fn what_does_not_work_is_said_in_one_line() {
        let tiers = Tiers::new(Vec::new());
        let options = Options::new(Target::Running(Pid(1)));
        let hemem = Preset::of("hemem").expect("a preset");
        let fit = fit(hemem, &[TrackerKind::EmulatedPmu], Mover::Auto, &LINUX).expect("samples");
        let opened = open(&fit, &options, MachineOptions::default(), &tiers);
        if terrace_sys::ivshmem::devices(Path::new("/")).is_empty() {
            let limit = opened.limits.first().expect("no such device here");
            assert!(limit.starts_with("no samples, nothing"), "{limit}");
            assert!(!limit.contains('\n'));
        }
    }
}
