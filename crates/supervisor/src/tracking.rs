// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trackers of a run: those it was told to have, or the fewest that give what its policy needs.
//!
//! Which go with a policy is [`terrace_policy::fit`]'s business. Accessed bits are read as the policy asks for it. Hint
//! faults come from the kernel's scanner, which the policy steers. Samples come from the processor's PMU, else from the lab's emulated one, else
//! hint faults stand in for them: each is one sample, and the scanner is armed for all pages at an
//! even pace. Without the tracker of hint faults the scanner is off once there is something to move: no page is armed and none faults. Beside them there is that
//! of pages which are armed one by one, where a policy does that ([`terrace_policy::MachineOptions::arms_chosen`]).
//!
//! A [`Tracking`] is one tracker at work, `set` all of a run, `open` opens them.

mod open;
mod set;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_policy::Served;
use terrace_policy::fit::PASS_AS_SAMPLES;
use terrace_sys::clock;
use terrace_sys::settings::SettingsError;
use terrace_track::AccessedBits;
use terrace_track::ChosenFaultTracker;
use terrace_track::EmulatedPmu;
use terrace_track::HintFaultTracker;
use terrace_track::PmuTracker;
use terrace_track::TrackError;
use terrace_track::TrackEvent;
use terrace_track::TrackStats;
use terrace_track::Tracker;
use terrace_track::accessed_bits::Told;

pub use open::Opened;
pub use open::open;
pub use set::Trackers;

use crate::scanner::Scanner;

#[derive(Debug)]
enum Source {
    AccessedBits(AccessedBits),
    ChosenFaults(Box<ChosenFaultTracker>),
    HintFaults(Box<HintFaultTracker>, Scanner),
    Pmu(PmuTracker),
    EmulatedPmu(EmulatedPmu),
}

/// A tracker at work.
#[derive(Debug)]
pub struct Tracking {
    source: Source,
    /// Its hint faults are told as samples.
    stands_in: bool,
    /// What the policy last asked to scan.
    scan: Option<Scan>,
    paused: bool,
    /// The policy wants no samples at present.
    held: bool,
}

/// What is to be armed: which pages, each once in how long, and the bytes of the largest process.
#[derive(Debug, Clone, Copy)]
struct Scan {
    scope: ScanScope,
    period: Nanos,
    largest: u64,
}

impl Tracking {
    /// With what it has to tell by itself started: `stands_in` if hint faults are to be samples.
    fn new(source: Source, stands_in: bool) -> Self {
        let mut tracking = Self {
            stands_in: stands_in && matches!(source, Source::HintFaults(..)),
            source,
            scan: None,
            paused: false,
            held: false,
        };
        if tracking.stands_in {
            // That it cannot be armed has been said.
            let _ = tracking.scan(ScanScope::All, PASS_AS_SAMPLES, 0);
        }
        tracking
    }

    fn tracker(&self) -> &dyn Tracker {
        match &self.source {
            Source::AccessedBits(tracker) => tracker,
            Source::ChosenFaults(tracker) => tracker.as_ref(),
            Source::HintFaults(tracker, _) => tracker.as_ref(),
            Source::Pmu(tracker) => tracker,
            Source::EmulatedPmu(tracker) => tracker,
        }
    }

    fn tracker_mut(&mut self) -> &mut dyn Tracker {
        match &mut self.source {
            Source::AccessedBits(tracker) => tracker,
            Source::ChosenFaults(tracker) => tracker.as_mut(),
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

    /// Whether what it tells are samples: a PMU's, or hint faults in their place.
    #[must_use]
    pub const fn samples(&self) -> bool {
        self.stands_in || matches!(self.source, Source::Pmu(_) | Source::EmulatedPmu(_))
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
        if let Source::AccessedBits(tracker) = &mut self.source {
            tracker.told(sink);
        }
    }

    /// Reads accessed bits in passes of that length, one in so many of all memory.
    ///
    /// # Errors
    ///
    /// Where that is not the source.
    pub fn read(&self, shortest: Nanos, pass: Nanos, parts: u32) -> Served {
        let Source::AccessedBits(tracker) = &self.source else {
            return Err(Refusal::Unserved);
        };
        tracker.ask(shortest, pass, parts);
        Ok(())
    }

    /// Whether named pages can be looked at.
    #[must_use]
    pub const fn looks(&self) -> bool {
        matches!(self.source, Source::AccessedBits(_))
    }

    /// Looks at named pages, if that is the source.
    pub fn look(&self, pages: Vec<PageRef>) {
        if let Source::AccessedBits(tracker) = &self.source {
            tracker.look(pages);
        }
    }

    /// Takes samples, or none. A processor's PMU goes on at its small cost.
    ///
    /// # Errors
    ///
    /// Where samples are not the source, or cannot be held.
    pub fn sample(&mut self, on: bool) -> Served {
        let Source::EmulatedPmu(pmu) = &self.source else {
            return Err(Refusal::Unserved);
        };
        self.held = !on;
        pmu.enable(on && !self.paused);
        Ok(())
    }

    /// As [`Tracker::fds`].
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.tracker().fds()
    }

    /// As [`Tracker::tells`].
    #[must_use]
    pub fn tells(&self) -> bool {
        self.tracker().tells()
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
        match &mut self.source {
            Source::HintFaults(tracker, _) => tracker.unmapped(pid, range),
            Source::ChosenFaults(tracker) => tracker.unmapped(pid, range),
            _ => {}
        }
    }

    /// The tracker of pages that are armed one by one, if that is the source.
    pub(crate) fn chosen(&mut self) -> Option<&mut ChosenFaultTracker> {
        match &mut self.source {
            Source::ChosenFaults(tracker) => Some(tracker),
            _ => None,
        }
    }

    /// Arms pages; the largest process has so many bytes.
    ///
    /// # Errors
    ///
    /// Where hint faults are not the source, or the scanner cannot be set.
    pub fn scan(&mut self, scope: ScanScope, period: Nanos, largest: u64) -> Served {
        if !matches!(self.source, Source::HintFaults(..)) {
            return Err(Refusal::Unserved);
        }
        self.scan = Some(Scan {
            scope,
            period,
            largest,
        });
        if self.paused {
            return Ok(());
        }
        self.arm().map_err(|error| {
            tracing::warn!("Scan rate not changed: {error:#}");
            Refusal::Denied
        })
    }

    /// Has the scanner do what was asked for, if anything was.
    fn arm(&mut self) -> Result<(), SettingsError> {
        let (Source::HintFaults(tracker, scanner), Some(scan)) = (&mut self.source, self.scan)
        else {
            return Ok(());
        };
        // A scan that may have been of either kind counts as one that leaves out the top tier.
        let before = clock::now();
        if scan.period == Nanos::MAX {
            // What it arms all the same is slow.
            tracker.mode(false, before);
            return scanner.stop();
        }
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
            // Nobody has asked; that it cannot be set has been said.
            let _ = self.scan(scan.scope, scan.period, largest);
        }
    }

    /// Stops looking, or goes on.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        let done = match (&mut self.source, paused) {
            (Source::EmulatedPmu(pmu), _) => {
                pmu.enable(!paused && !self.held);
                Ok(())
            }
            (Source::AccessedBits(bits), _) => {
                bits.pause(paused);
                Ok(())
            }
            // They go on at their small cost; a paused engine takes no notice.
            (Source::Pmu(_) | Source::ChosenFaults(_), _) => Ok(()),
            // Who has asked for nothing yet leaves the kernel's own balancing on.
            (Source::HintFaults(_, scanner), true) if self.scan.is_some() => scanner.stop(),
            (Source::HintFaults(..), true) => Ok(()),
            (Source::HintFaults(..), false) => self.arm(),
        };
        if let Err(error) = done {
            tracing::warn!("Scanner not switched: {error:#}");
        }
    }

    /// The tracker's own figures.
    #[must_use]
    pub fn counters(&self) -> Vec<Measurement> {
        self.tracker().counters()
    }
}
