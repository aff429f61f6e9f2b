// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hint faults, which say whose accesses they are (6.2): how many are asked for.

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

impl Mtm {
    /// One hint fault for every 12 scans (6.2), where processors see memory differently: a pass over all pages takes as
    /// many intervals as that makes.
    pub(super) fn ask_for_faults(&mut self, took: Nanos) {
        if self.unarmed || !self.views.several() {
            return;
        }
        let pages = self.counters.scanned.min(self.counters.samples);
        let scans = pages * (u64::from(self.params.num_scans) + 1);
        let faults = u128::from((scans / SCANS_A_FAULT).max(1));
        let as_long = |time: u128| Nanos(u64::try_from(time).unwrap_or(u64::MAX));
        let known = u128::from(self.regions.known_pages());
        let period = as_long(u128::from(self.params.interval.0) * known / faults);
        let told =
            self.counters.faults - std::mem::replace(&mut self.faults_before, self.counters.faults);
        let before = self.faults.unwrap_or(Nanos::ZERO);
        // The scanner has a pace of its own: more faults than are wanted make the pass longer.
        let stopped = self.stopped.take();
        let armed = stopped.map_or(took, |at| at.since(self.begun)).0.max(1);
        let at_that_pace = u128::from(told) * u128::from(took.0) / u128::from(armed);
        let longer = as_long(u128::from(before.0) * at_that_pace / faults);
        let period = period.clamp(FASTEST_PASS, SLOWEST_PASS);
        let period = period.max(longer).min(SLOWEST_PASS);
        if stopped.is_some() || before.0.abs_diff(period.0) > before.0 / 4 {
            self.faults = Some(period);
            self.pass(period);
        }
    }

    fn pass(&mut self, period: Nanos) {
        self.actions.push_back(Action::Scan {
            scope: ScanScope::All,
            period,
        });
    }

    /// A hint fault says whose access it was. Where there are more in an interval than its budget has room for, the
    /// longest pass is asked for until it ends; nothing stops the scanner altogether.
    pub(super) fn faulted(&mut self, now: Nanos, page: PageRef, cpu_node: Option<NodeId>) {
        let enough = self.overhead.faulted(&self.params) && self.params.overhead_control;
        if enough && self.faults.is_some() && self.stopped.is_none() {
            self.stopped = Some(now);
            self.pass(SLOWEST_PASS);
        }
        self.counters.faults += 1;
        if let Some(cpu_node) = cpu_node
            && let Some(region) = self.regions.find_mut(page.pid, page.addr.0)
        {
            self.counters.accessors += u64::from(self.views.accessed(region, cpu_node));
        }
    }
}
