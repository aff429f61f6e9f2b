// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tracker a run has: the one it was told to have, or the best there is for its policy.
//!
//! A policy says what it decides by ([`Evidence`]). Accessed bits are read as the policy asks for it. Hint
//! faults come from the kernel's scanner, which the policy steers. Samples come from the processor's PMU, else from the lab's emulated one, else
//! hint faults stand in for them: each is one sample, and the scanner is armed for all pages at an
//! even pace. Where samples come from a PMU the scanner stays off: no page is armed and none faults.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::Tiers;
use terrace_policy::Evidence;
use terrace_policy::ScanScope;
use terrace_sys::clock;
use terrace_sys::settings::SettingsError;
use terrace_sys::zones;
use terrace_track::AccessedBits;
use terrace_track::AccessedBitsConfig;
use terrace_track::EmulatedPmu;
use terrace_track::EmulatedPmuConfig;
use terrace_track::HintFaultTracker;
use terrace_track::HintFaultTrackerConfig;
use terrace_track::PmuConfig;
use terrace_track::PmuTracker;
use terrace_track::TrackError;
use terrace_track::TrackEvent;
use terrace_track::TrackStats;
use terrace_track::Tracker;
use terrace_track::accessed_bits::Told;
use thiserror::Error;

use crate::footprint;
use crate::options::Options;
use crate::options::Target;
use crate::scanner::Quiet;
use crate::scanner::Scanner;

/// A pass of the scanner where hint faults stand in for samples.
const PASS_AS_SAMPLES: Nanos = Nanos::from_secs(5);

/// A tracker by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// What suits the policy: for samples `pmu`, `emulated-pmu`, `hint-faults`, the first that works.
    Auto,
    /// The accessed bits of all pages, through BPF.
    AccessedBits,
    /// The kernel's hint faults, through BPF.
    HintFaults,
    /// The processor's PMU.
    Pmu,
    /// The lab's.
    EmulatedPmu,
}

/// No tracker has that name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("Unknown tracker '{0}'; there are: auto, accessed-bits, hint-faults, pmu, emulated-pmu")]
pub struct UnknownTracker(String);

impl FromStr for Choice {
    type Err = UnknownTracker;

    fn from_str(name: &str) -> Result<Self, UnknownTracker> {
        match name {
            "auto" => Ok(Self::Auto),
            "accessed-bits" => Ok(Self::AccessedBits),
            "hint-faults" => Ok(Self::HintFaults),
            "pmu" => Ok(Self::Pmu),
            "emulated-pmu" => Ok(Self::EmulatedPmu),
            other => Err(UnknownTracker(other.to_owned())),
        }
    }
}

/// The trackers to try for a policy, in order. `None` where one was asked for that does not give
/// what the policy decides by.
#[must_use]
pub fn candidates(evidence: Evidence, asked: &[Choice]) -> Option<Vec<Choice>> {
    let all: &[Choice] = match evidence {
        Evidence::Nothing => &[],
        Evidence::AccessedBits => &[Choice::AccessedBits],
        Evidence::HintFaults => &[Choice::HintFaults],
        Evidence::Samples => &[Choice::Pmu, Choice::EmulatedPmu, Choice::HintFaults],
    };
    let mut tried = Vec::new();
    for choice in asked {
        match choice {
            Choice::Auto => tried.extend_from_slice(all),
            _ if evidence == Evidence::Nothing => tried.push(*choice),
            one if all.contains(one) => tried.push(*one),
            _ => return None,
        }
    }
    Some(tried)
}

#[derive(Debug)]
enum Source {
    AccessedBits(
        AccessedBits,
        #[expect(dead_code, reason = "held until the end")] Option<Quiet>,
    ),
    HintFaults(Box<HintFaultTracker>, Scanner),
    Pmu(PmuTracker),
    EmulatedPmu(EmulatedPmu),
}

/// The tracker of a run.
#[derive(Debug)]
pub struct Tracking {
    source: Source,
    /// The policy decides by samples.
    samples: bool,
    /// What the policy last asked to scan.
    scan: Option<Scan>,
    paused: bool,
}

/// What is to be armed: which pages, each once in how long, and the bytes of the largest process.
#[derive(Debug, Clone, Copy)]
struct Scan {
    scope: ScanScope,
    period: Nanos,
    largest: u64,
}

/// How it came to be.
#[derive(Debug)]
pub struct Opened {
    /// The tracker, if one works.
    pub tracking: Option<Tracking>,
    /// What the operator should know.
    pub limit: Option<String>,
}

/// Opens the first tracker of the list that works.
#[must_use]
pub fn open(evidence: Evidence, list: &[Choice], options: &Options, tiers: &Tiers) -> Opened {
    let mut failures = Vec::new();
    for choice in list {
        match open_source(*choice, options, tiers) {
            Ok(source) => {
                let mut tracking = Tracking {
                    source,
                    samples: matches!(evidence, Evidence::Samples | Evidence::Nothing),
                    scan: None,
                    paused: false,
                };
                let stand_in = tracking.begin();
                let limit = (!failures.is_empty()).then(|| {
                    let name = tracking.name();
                    format!(
                        "samples come from {name}{stand_in}: {}",
                        failures.join("; ")
                    )
                });
                return Opened {
                    tracking: Some(tracking),
                    limit,
                };
            }
            Err(error) => failures.push(error),
        }
    }
    let what = match evidence {
        Evidence::AccessedBits => "no accessed bits",
        Evidence::HintFaults => "no hint faults",
        _ => "no samples",
    };
    let limit = (!failures.is_empty())
        .then(|| format!("{what}, nothing will be promoted: {}", failures.join("; ")));
    Opened {
        tracking: None,
        limit,
    }
}

fn open_source(choice: Choice, options: &Options, tiers: &Tiers) -> Result<Source, String> {
    let (period, pmu) = (options.sample_period, &options.pmu);
    let opened: anyhow::Result<Source> = match choice {
        Choice::Auto => Err(anyhow::anyhow!("nothing suits this policy")),
        Choice::Pmu => {
            let config = PmuConfig {
                period: period.unwrap_or(pmu.period),
                ..pmu.clone()
            };
            PmuTracker::open(&config)
                .map(Source::Pmu)
                .map_err(Into::into)
        }
        Choice::EmulatedPmu => {
            let max_rate = None;
            EmulatedPmu::open(EmulatedPmuConfig { period, max_rate })
                .map(Source::EmulatedPmu)
                .map_err(Into::into)
        }
        Choice::HintFaults => open_hint_faults(tiers, options),
        Choice::AccessedBits => open_accessed_bits().map_err(Into::into),
    };
    opened.map_err(|error| format!("{error:#}"))
}

fn open_accessed_bits() -> Result<Source, TrackError> {
    let config = AccessedBitsConfig {
        zones: zones::read(Path::new("/")),
        ..AccessedBitsConfig::default()
    };
    let bits = AccessedBits::open(config)?;
    let quiet = match Quiet::keep() {
        Ok(quiet) => quiet,
        // Another supervisor of ours has them, and has it off or steers it.
        Err(SettingsError::Held { .. }) => None,
        Err(error) => {
            tracing::warn!("The kernel's own balancing goes on beside us: {error}");
            None
        }
    };
    Ok(Source::AccessedBits(bits, quiet))
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

impl Tracking {
    /// Starts what needs no policy to start it; says how the source stands in, if it does.
    fn begin(&mut self) -> &'static str {
        if !self.samples || !matches!(self.source, Source::HintFaults(..)) {
            return "";
        }
        self.scan(ScanScope::All, PASS_AS_SAMPLES, 0);
        ", each hint fault one sample"
    }

    fn tracker(&self) -> &dyn Tracker {
        match &self.source {
            Source::AccessedBits(tracker, _) => tracker,
            Source::HintFaults(tracker, _) => tracker.as_ref(),
            Source::Pmu(tracker) => tracker,
            Source::EmulatedPmu(tracker) => tracker,
        }
    }

    fn tracker_mut(&mut self) -> &mut dyn Tracker {
        match &mut self.source {
            Source::AccessedBits(tracker, _) => tracker,
            Source::HintFaults(tracker, _) => tracker.as_mut(),
            Source::Pmu(tracker) => tracker,
            Source::EmulatedPmu(tracker) => tracker,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.tracker().name()
    }

    /// Whether the policy is to see hint faults as samples.
    #[must_use]
    pub const fn samples(&self) -> bool {
        self.samples
    }

    /// As [`Tracker::add`].
    ///
    /// # Errors
    ///
    /// Where the source refuses.
    pub fn add(&mut self, pid: Pid, follow: bool) -> Result<(), TrackError> {
        self.tracker_mut().add(pid, follow)
    }

    /// Hands out all that is there now.
    ///
    /// # Errors
    ///
    /// Where the source is broken.
    pub fn poll(&mut self, mut sink: impl FnMut(TrackEvent)) -> Result<(), TrackError> {
        self.tracker_mut().poll(Duration::ZERO, &mut sink)
    }

    /// Hands out what was read of accessed bits since the call before; [`Self::poll`] comes first.
    pub fn told(&mut self, sink: impl FnMut(Told)) {
        if let Source::AccessedBits(tracker, _) = &mut self.source {
            tracker.told(sink);
        }
    }

    /// Reads accessed bits in passes of that length, where that is the source.
    pub fn read(&mut self, shortest: Nanos, pass: Nanos) {
        if let Source::AccessedBits(tracker, _) = &self.source {
            tracker.ask(shortest, pass);
        }
    }

    /// Readable when there is much to read, if the source has such a descriptor.
    #[must_use]
    pub fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.tracker().fd()
    }

    /// The source's counters; none where they cannot be read.
    #[must_use]
    pub fn stats(&self) -> Option<TrackStats> {
        self.tracker().stats().ok()
    }

    /// A page was moved by us.
    pub fn moved(&mut self, page: PageRef, now: Nanos) {
        if let Source::HintFaults(tracker, _) = &mut self.source {
            tracker.moved(page, now);
        }
    }

    /// A range was unmapped.
    pub fn unmapped(&mut self, pid: Pid, range: Range) {
        if let Source::HintFaults(tracker, _) = &mut self.source {
            tracker.unmapped(pid, range);
        }
    }

    /// Arms pages, where hint faults are the source; the largest process has so many bytes.
    pub fn scan(&mut self, scope: ScanScope, period: Nanos, largest: u64) {
        self.scan = Some(Scan {
            scope,
            period,
            largest,
        });
        if self.paused {
            return;
        }
        if let Err(error) = self.arm() {
            tracing::warn!("Scan rate not changed: {error:#}");
        }
    }

    /// Has the scanner do what was asked for, if anything was.
    fn arm(&mut self) -> Result<(), SettingsError> {
        let (Source::HintFaults(tracker, scanner), Some(scan)) = (&mut self.source, self.scan)
        else {
            return Ok(());
        };
        // A scan that may have been of either kind counts as one that leaves out the top tier.
        let before = clock::now();
        scanner.apply(scan.scope, scan.period, scan.largest)?;
        match scan.scope {
            ScanScope::Slow => tracker.mode(false, before),
            ScanScope::All => tracker.mode(true, clock::now()),
        }
        Ok(())
    }

    /// The largest process has so many bytes now: a pass is to take as long as was asked for all the same.
    pub fn resized(&mut self, largest: u64) {
        if let Some(scan) = self.scan
            && scan.largest.abs_diff(largest) > scan.largest / 4
        {
            self.scan(scan.scope, scan.period, largest);
        }
    }

    /// Stops looking, or goes on.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        let done = match (&mut self.source, paused) {
            (Source::EmulatedPmu(pmu), _) => {
                pmu.enable(!paused);
                Ok(())
            }
            (Source::AccessedBits(bits, _), _) => {
                bits.pause(paused);
                Ok(())
            }
            // It goes on at its small cost; a paused engine takes no notice.
            (Source::Pmu(_), _) => Ok(()),
            (Source::HintFaults(_, scanner), true) => scanner.stop(),
            (Source::HintFaults(..), false) => self.arm(),
        };
        if let Err(error) = done {
            tracing::warn!("Scanner not switched: {error:#}");
        }
    }

    /// The source's own figures, for `terrace status`.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let own = match &self.source {
            Source::AccessedBits(bits, _) => bits.counters(),
            Source::EmulatedPmu(pmu) => emulated_counters(pmu),
            Source::Pmu(pmu) => pmu_counters(pmu),
            Source::HintFaults(..) => {
                let stats = self.stats().unwrap_or_default();
                vec![
                    ("accesses", stats.accesses),
                    ("lost", stats.lost_accesses),
                    ("unmatched", stats.unmatched),
                ]
            }
        };
        own.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

fn pmu_counters(pmu: &PmuTracker) -> Vec<(&'static str, u64)> {
    let stats = pmu.pmu_stats();
    vec![
        ("period", stats.period),
        ("period_changes", stats.period_changes),
        ("reported", stats.counts.reported),
        ("lost", stats.counts.lost + stats.queue_lost),
        ("throttled", stats.counts.throttled),
        ("broken_bytes", stats.broken_bytes),
        ("thread_ns", stats.thread_time.0),
    ]
}

fn emulated_counters(pmu: &EmulatedPmu) -> Vec<(&'static str, u64)> {
    let counts = pmu.counts();
    let period = pmu.control().map_or(0, |control| control.period);
    vec![
        ("period", period),
        ("seen", counts.seen),
        ("reported", counts.reported),
        ("foreign", counts.foreign),
        ("enrolled", counts.enrolled),
        ("checks_confirmed", counts.confirmed),
        ("checks_mismatched", counts.mismatched),
        ("checks_unclear", counts.unclear),
        ("misses", counts.misses),
        ("lost", counts.lost),
        ("torn", counts.torn),
        ("throttled", counts.throttled),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_gets_what_it_decides_by_or_nothing() {
        let auto = [Choice::Auto];
        assert_eq!(
            candidates(Evidence::Samples, &auto),
            Some(vec![Choice::Pmu, Choice::EmulatedPmu, Choice::HintFaults])
        );
        assert_eq!(
            candidates(Evidence::HintFaults, &auto),
            Some(vec![Choice::HintFaults])
        );
        assert_eq!(candidates(Evidence::Nothing, &auto), Some(vec![]));
        let own = [Choice::EmulatedPmu, Choice::HintFaults];
        assert_eq!(candidates(Evidence::Samples, &own), Some(own.to_vec()));
        assert_eq!(candidates(Evidence::HintFaults, &own), None);
        assert_eq!(
            candidates(Evidence::Nothing, &own[..1]),
            Some(vec![Choice::EmulatedPmu]),
            "to look at the samples themselves"
        );
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for (name, choice) in [
            ("auto", Choice::Auto),
            ("accessed-bits", Choice::AccessedBits),
            ("hint-faults", Choice::HintFaults),
            ("pmu", Choice::Pmu),
            ("emulated-pmu", Choice::EmulatedPmu),
        ] {
            assert_eq!(name.parse(), Ok(choice));
        }
        let error = "pebs".parse::<Choice>().expect_err("no such");
        assert!(error.to_string().contains("emulated-pmu"), "{error}");
    }

    #[test]
    fn what_does_not_work_is_said_in_one_line() {
        let tiers = Tiers::new(Vec::new());
        let options = Options::new(Target::Running(Pid(1)));
        let opened = open(Evidence::Samples, &[Choice::EmulatedPmu], &options, &tiers);
        if terrace_sys::ivshmem::devices(std::path::Path::new("/")).is_empty() {
            let limit = opened.limit.expect("no such device here");
            assert!(limit.starts_with("no samples, nothing"), "{limit}");
            assert!(!limit.contains('\n'));
        }
    }
}
