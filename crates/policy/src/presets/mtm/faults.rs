// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hint faults, which say whose accesses they are (6.2): how many pages are armed for them.
//!
//! One for every 12 scans. The scanner is on until there have been as many, or they have had their part of the interval's budget; then it is
//! off until an interval wants more: in a step it arms 2 MiB at least, which may be more than an interval is to have.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;

use super::Mtm;
use super::overhead::SCANS_A_FAULT;
use crate::event::Action;
use crate::event::ScanScope;

/// A pass over hint faults takes so long at least and at most.
const FASTEST_PASS: Nanos = Nanos::from_secs(1);
const SLOWEST_PASS: Nanos = Nanos::from_secs(3_600);

/// What the scanner was asked for.
#[derive(Debug)]
pub(super) struct Arming {
    /// Nobody arms hint faults.
    pub(super) unserved: bool,
    /// Hint faults that there are to be still; below 0 where there were more than that.
    wanted: i64,
    /// The pass that was asked for; none while no pages are armed.
    pass: Option<Nanos>,
}

impl Arming {
    pub(super) const fn new(unserved: bool) -> Self {
        Self {
            unserved,
            wanted: 0,
            pass: None,
        }
    }
}

impl Mtm {
    /// Hint faults are asked for: where processors see memory differently.
    pub(super) fn has_faults(&self) -> bool {
        !self.arming.unserved && self.views.several()
    }

    /// What an interval is to have: a pass over all pages would take as many intervals as that makes.
    pub(super) fn ask_for_faults(&mut self) {
        if !self.has_faults() {
            return;
        }
        let pages = self.counters.scanned.min(self.counters.samples);
        let scans = pages * (u64::from(self.params.num_scans) + 1);
        let faults = (scans / SCANS_A_FAULT).max(1);
        let more = i64::try_from(faults).unwrap_or(i64::MAX);
        let arming = &mut self.arming;
        // What an interval did not get is not made up for.
        arming.wanted = arming.wanted.saturating_add(more).min(more);
        let known = u128::from(self.regions.known_pages());
        let period = u128::from(self.params.interval.0) * known / u128::from(faults);
        let period = u64::try_from(period).map_or(SLOWEST_PASS, Nanos);
        let period = period.clamp(FASTEST_PASS, SLOWEST_PASS);
        let other = |before: Nanos| before.0.abs_diff(period.0) > before.0 / 4;
        if arming.wanted > 0 && arming.pass.is_none_or(other) {
            arming.pass = Some(period);
            self.pass(period);
        }
    }

    fn pass(&mut self, period: Nanos) {
        self.actions.push_back(Action::Scan {
            scope: ScanScope::All,
            period,
        });
    }

    fn stop(&mut self) {
        if self.arming.pass.take().is_some() {
            self.pass(Nanos::MAX);
        }
    }

    /// A hint fault says whose access it was.
    pub(super) fn faulted(&mut self, page: PageRef, cpu_node: Option<NodeId>) {
        self.arming.wanted = self.arming.wanted.saturating_sub(1);
        let enough = self.overhead.faulted(&self.params) && self.params.overhead_control;
        if enough || self.arming.wanted <= 0 {
            self.stop();
        }
        self.counters.faults += 1;
        if let Some(cpu_node) = cpu_node
            && let Some(region) = self.regions.find_mut(page.pid, page.addr.0)
        {
            self.counters.accessors += u64::from(self.views.accessed(region, cpu_node));
        }
    }
}
