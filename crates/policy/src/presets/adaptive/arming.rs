// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many pages are armed for hint faults, which say whose accesses they are ([`super::accessors`]).
//!
//! ```text
//! short   while 2 * pages are not armed since it began:   pages * what a hint fault takes / (5 % * processors)        a pass
//! rest    pages / the larger of the horizon and a pass at 1 % in place of 5 %                                         pages a second
//! ```
//!
//! Each page that is armed faults once, if at all. Only where sockets see memory differently, of processes that may run on several, and once some memory is slow:
//! until then the kernel's own balancing goes on, whose hint faults tell as much. Two short passes tell of all there is, as a huge page has one fault in each.
//! Then one page after the other is told of anew once in a horizon: what is known is as old as a saving counts ahead. Two short ones again when a process comes, does
//! something new, or has twice the memory, once the last two are paid for at 1 %.
//!
//! The kernel arms no less than 2 MiB at a time and so more than was asked for where there is little memory: what it has armed counts, and
//! at rest the scanner is on for a sixteenth of the pages and then off until those are due.

use std::time::Duration;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;

use super::Adaptive;
use super::accessors::ALL;
use super::classes::CLASSES;
use super::decide::SIZES;
use super::pace::BUSY_SHARE;
use super::pace::REST_SHARE;
use super::places::PLACES;
use crate::event::Action;
use crate::event::ScanScope;
use crate::kit::pages::split;

/// What a hint fault takes where nobody tells, ns (measured on a virtual machine: 1,000 to 1,500).
const FAULT_NS: f64 = 1_500.0;
/// Passes that tell of all there is.
const SHORT: f64 = 2.0;
/// At rest so much of all pages is armed at a time.
const PART: f64 = 1.0 / 16.0;
const SHORTEST_PASS: Nanos = Nanos::from_secs(1);
const LONGEST_PASS: Nanos = Nanos::from_secs(3_600);

/// Whose accesses are asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wanted {
    /// Base pages and huge ones.
    pages: f64,
    /// Processors that they run on.
    runs: f64,
}

fn seconds(seconds: f64) -> Nanos {
    Nanos::from(Duration::from_secs_f64(seconds))
}

/// See the module.
#[derive(Debug)]
pub(super) struct Arming {
    /// Not wanted, or nobody does that here.
    off: bool,
    /// Hint faults whose time is told, and that time, ns.
    told: f64,
    took: f64,
    /// The pass that was asked for; the longest time where nothing is armed.
    asked: Nanos,
    /// Passes are short, since when they are or are not, and pages that were armed since then.
    short: bool,
    since: Nanos,
    armed: f64,
    /// No short ones before.
    again: Nanos,
    /// Something is new.
    hurries: bool,
    /// Pages that there were when short ones last ended.
    pages: f64,
    /// When to look again, at so many armed pages or then.
    until: f64,
    pub(super) at: Nanos,
}

impl Arming {
    pub(super) const fn new(wanted: bool) -> Self {
        Self {
            off: !wanted,
            told: 0.0,
            took: 0.0,
            asked: Nanos::MAX,
            short: false,
            since: Nanos::ZERO,
            armed: 0.0,
            again: Nanos::ZERO,
            hurries: true,
            pages: 0.0,
            until: f64::INFINITY,
            at: Nanos::MAX,
        }
    }

    /// There is no such tracker, or the scanner cannot be set.
    pub(super) const fn refused(&mut self) {
        self.off = true;
        self.at = Nanos::MAX;
    }

    /// Something is new: all is to be told soon.
    pub(super) const fn hurry(&mut self) {
        self.hurries = true;
    }

    /// So many hint faults took so long.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(super) fn took(&mut self, faults: u32, took: Nanos) {
        self.told += f64::from(faults);
        self.took += took.0 as f64;
    }

    fn fault_ns(&self) -> f64 {
        // What nobody has measured counts as one more.
        (self.took + FAULT_NS) / (self.told + 1.0)
    }

    /// A pass over what is wanted at that share.
    fn pass_at(&self, wanted: Wanted, share: f64) -> Nanos {
        let pass = wanted.pages * self.fault_ns() / (share * wanted.runs) / 1e9;
        seconds(pass.min(LONGEST_PASS.as_secs_f64())).max(SHORTEST_PASS)
    }

    /// So many pages were armed.
    fn armed(&mut self, now: Nanos, pages: f64) {
        self.armed += pages;
        if !self.off && self.armed >= self.until {
            self.at = now;
        }
    }

    /// Whether a short pass is over.
    fn has_told(&self) -> bool {
        self.short && self.armed >= self.until
    }

    /// What pass is to be asked for now, if that is another; the longest time where nothing is to be armed.
    fn next(&mut self, now: Nanos, wanted: Option<Wanted>, horizon: Nanos) -> Option<Nanos> {
        (self.until, self.at) = (f64::INFINITY, Nanos::MAX);
        let Some(wanted) = wanted else {
            if !self.short {
                self.begin(now, false);
            }
            return self.ask(Nanos::MAX);
        };
        let told = SHORT * wanted.pages;
        if self.short && self.armed >= told {
            let paid = now.since(self.since).as_secs_f64() * BUSY_SHARE / REST_SHARE;
            self.again = self.since + seconds(paid);
            self.pages = wanted.pages;
            self.begin(now, false);
        }
        self.hurries |= !self.short && wanted.pages > 2.0 * self.pages;
        if !self.short && self.hurries && now >= self.again {
            self.hurries = false;
            self.begin(now, true);
        }
        let pass = if self.short {
            let passes = (self.armed / wanted.pages).floor() + 1.0;
            self.until = passes * wanted.pages;
            self.pass_at(wanted, BUSY_SHARE)
        } else {
            self.rest(now, wanted, horizon)
        };
        self.ask(pass)
    }

    /// The pass at rest, or that nothing is due.
    fn rest(&mut self, now: Nanos, wanted: Wanted, horizon: Nanos) -> Nanos {
        let pass = self.pass_at(wanted, REST_SHARE);
        let each = wanted.pages / pass.max(horizon).as_secs_f64();
        let due = each * now.since(self.since).as_secs_f64() - self.armed;
        let part = wanted.pages * PART;
        let least = if self.asked == Nanos::MAX { part } else { 0.0 };
        if due > least {
            self.until = self.armed + due;
            pass
        } else {
            self.at = now + seconds((part - due) / each);
            Nanos::MAX
        }
    }

    const fn begin(&mut self, now: Nanos, short: bool) {
        (self.short, self.since, self.armed) = (short, now, 0.0);
    }

    fn ask(&mut self, pass: Nanos) -> Option<Nanos> {
        let other = self.asked.0.abs_diff(pass.0) > self.asked.0 / 4;
        other.then(|| {
            self.asked = pass;
            pass
        })
    }
}

impl Adaptive {
    /// A hint fault says whose access it was.
    pub(super) fn faulted(&mut self, page: PageRef, cpu_node: Option<NodeId>) {
        let Some(socket) = cpu_node.and_then(|node| self.latencies.socket(node)) else {
            return;
        };
        let runs_on = |pid| Some(self.processes.get(pid)?.runs_on);
        if self.params.accessors && runs_on(&page.pid) == Some(None) {
            self.counters.faults += 1;
            let of = (socket, self.latencies.sockets());
            if self.chunks.accessed(split(page).0, of) {
                self.sides_change();
            }
        }
    }

    /// The pages of a range were armed.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    pub(super) fn armed(&mut self, now: Nanos, pid: Pid, range: Range) {
        let process = self.processes.get(&pid);
        if process.is_some_and(|process| process.sights.differ()) {
            let pages = self.chunks.pages_in(pid, range);
            self.arming.armed(now, pages as f64);
        }
    }

    /// Has as many pages armed as there are to be now. Where a short pass has told of all there is, a plan is made by that.
    pub(super) fn arm(&mut self, now: Nanos) {
        if self.arming.off {
            return;
        }
        let wanted = self.wanted();
        if self.arming.has_told() && self.told_apart() > 0 {
            let counts = self.chunks.census().clone();
            self.plan(&counts);
        }
        if let Some(period) = self.arming.next(now, wanted, self.params.horizon) {
            let scope = ScanScope::All;
            self.asks.push_back(Action::Scan { scope, period });
        }
    }

    /// Whose accesses are asked for, if any.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    fn wanted(&self) -> Option<Wanted> {
        if !self.has_slow_pages() {
            return None;
        }
        let mut wanted = Wanted {
            pages: 0.0,
            runs: 0.0,
        };
        let all = self.processes.iter();
        for (pid, process) in all.filter(|(_, process)| process.sights.differ()) {
            for (_, census) in self.chunks.census_of(*pid) {
                let sizes = census.1.into_iter().zip(SIZES);
                let pages = sizes.map(|(pages, size)| pages as f64 / size.base_pages() as f64);
                wanted.pages += pages.sum::<f64>();
            }
            wanted.runs += process.clock.runs;
        }
        (wanted.pages > 0.0 && wanted.runs > 0.0).then_some(wanted)
    }

    /// Whether any page is not in the fastest tier.
    fn has_slow_pages(&self) -> bool {
        let is_slow = |place: usize| {
            let nodes = self.places.nodes(place).iter();
            nodes.clone().any(|node| !self.tiers.is_top(*node))
        };
        let slow: Vec<usize> = (0..self.places.len()).filter(|at| is_slow(*at)).collect();
        let there = |size: &[[u64; CLASSES]; PLACES]| {
            let mut pages = slow.iter().flat_map(|place| &size[*place]);
            pages.any(|pages| *pages > 0)
        };
        self.chunks
            .census()
            .values()
            .any(|census| census.0.iter().any(there))
    }

    /// Base pages that one socket accesses mostly.
    pub(super) fn told_apart(&self) -> u64 {
        let all = self.chunks.census().iter();
        let parts = all.filter(|((pid, accessor), _)| {
            let process = self.processes.get(pid);
            *accessor != ALL && process.is_some_and(|process| process.runs_on.is_none())
        });
        parts.map(|(_, census)| census.1.iter().sum::<u64>()).sum()
    }
}

#[cfg(test)]
#[path = "arming_tests.rs"]
mod tests;
