// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many pages are armed for hint faults, which say whose accesses they are ([`super::accessors`]).
//!
//! ```text
//! a page's cost = a mark + hint faults for each armed page so far * what one takes, of the program and of us
//! pass(share)   = pages * cost / share / (part of all pages whose accesses are asked for):  the longest of all programs, by the processors that each runs on,
//!                 and of us on one
//! short   pass(5 %),  until all base pages were armed twice, or huge ones 8 times: one tells in each pass what 512 tell
//! rest    pages / the larger of the horizon and pass(1 %)                                                    pages a second
//! ```
//!
//! Only where sockets see memory differently, of processes that may run on several, and once some memory is slow: until then the kernel's own
//! balancing goes on, whose hint faults tell as much. After the short passes one page after the other is told of anew once in a horizon: what is known is as old as
//! a saving counts ahead. Short ones again when a process comes, does something new, or has twice the memory, once the last are paid for at 1 %.
//!
//! The kernel arms no less than 2 MiB at a time and so more than was asked for where there is little memory: what it has armed counts, and
//! at rest the scanner is on for a sixteenth of the pages and then off until those are due. What it never arms, as memory with a policy of its own, counts as armed after
//! twice the time of a short pass.

use std::time::Duration;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;

use super::Adaptive;
use super::accessors::ALL;
use super::classes::CLASSES;
use super::pace::BUSY_SHARE;
use super::pace::REST_SHARE;
use super::places::PLACES;
use crate::event::Action;
use crate::event::Refusal;
use crate::event::ScanScope;
use crate::kit::pages::split;

/// What a hint fault takes a program at least, what it takes us, and to mark a page, ns (docs/simulator.md).
const FAULT_NS: f64 = 2_800.0;
const SERVED_NS: f64 = 3_900.0;
const MARK_NS: f64 = 100.0;
/// Short passes over base pages, and over huge ones.
const PASSES: [f64; 2] = [2.0, 8.0];
/// At rest so much of all pages is armed at a time.
const PART: f64 = 1.0 / 16.0;
/// Who runs less is taken not to run.
const RUNS: f64 = REST_SHARE;
/// It is not looked at sooner.
const SOON: Nanos = Nanos::from_millis(10);
const SHORTEST_PASS: Nanos = Nanos::from_secs(1);
const LONGEST_PASS: Nanos = Nanos::from_secs(24 * 3_600);

/// Whose accesses are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Wanted {
    /// Base pages and huge ones of those, and how many of these are huge.
    pages: f64,
    huge: f64,
    /// The same of all programs, as all are armed, and the most of one for each processor that it runs on.
    all: f64,
    slowest: f64,
}

impl Wanted {
    /// Pages that short passes arm.
    fn short(&self) -> f64 {
        PASSES[0] * (self.pages - self.huge) + PASSES[1] * self.huge
    }
}

fn seconds(seconds: f64) -> Nanos {
    Nanos::from(Duration::from_secs_f64(seconds))
}

/// See the module.
#[derive(Debug)]
pub(super) struct Arming {
    /// Not wanted, or nobody does that here.
    off: bool,
    /// Pages that were armed, hint faults whose time is told, and that time, ns.
    marked: f64,
    told: f64,
    took: f64,
    /// The pass that was asked for; the longest time where nothing is armed.
    asked: Nanos,
    /// When that was looked at last, and pages that were armed since then.
    looked: Nanos,
    armed: f64,
    /// Passes are short, and for how long they have been, s.
    short: bool,
    spent: f64,
    /// Pages that are to be armed still.
    due: f64,
    /// No short ones before.
    again: Nanos,
    /// Something is new.
    hurries: bool,
    /// Pages that there were when short ones last ended.
    pages: f64,
    /// When to look again: at so many armed pages or then.
    until: f64,
    pub(super) at: Nanos,
}

impl Arming {
    pub(super) const fn new(wanted: bool) -> Self {
        Self {
            off: !wanted,
            marked: 0.0,
            told: 0.0,
            took: 0.0,
            asked: Nanos::MAX,
            looked: Nanos::ZERO,
            armed: 0.0,
            short: false,
            spent: 0.0,
            due: 0.0,
            again: Nanos::ZERO,
            hurries: true,
            pages: 0.0,
            until: f64::INFINITY,
            at: Nanos::MAX,
        }
    }

    /// There is no such tracker; or the scanner could not be set this time, and is as it was.
    pub(super) const fn refused(&mut self, why: Refusal) {
        match why {
            Refusal::Unserved => {
                self.off = true;
                self.at = Nanos::MAX;
            }
            // Asked for again when it is looked at next.
            Refusal::Denied | Refusal::Unknown | Refusal::Busy => self.asked = Nanos::ZERO,
        }
    }

    /// Something is new: all is to be told soon.
    pub(super) const fn hurry(&mut self) {
        self.hurries = true;
    }

    /// A process is gone, or runs elsewhere: to be looked at soon.
    pub(super) const fn look(&mut self, now: Nanos) {
        if !self.off {
            self.at = now;
        }
    }

    /// So many hint faults took so long.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(super) fn took(&mut self, faults: u32, took: Nanos) {
        self.told += f64::from(faults);
        self.took += took.0 as f64;
    }

    /// A pass at that share.
    fn pass_at(&self, wanted: Wanted, share: f64) -> Nanos {
        let each = ((self.told + 1.0) / (self.marked + 1.0)).min(1.0);
        let fault = (self.took / self.told.max(1.0)).max(FAULT_NS);
        let theirs = wanted.slowest * (MARK_NS + each * fault);
        let ours = wanted.all * each * SERVED_NS;
        // All are armed for those.
        let share = share * wanted.pages / wanted.all;
        let pass = theirs.max(ours) / share / 1e9;
        seconds(pass.min(LONGEST_PASS.as_secs_f64())).max(SHORTEST_PASS)
    }

    /// So many pages were armed.
    fn armed(&mut self, now: Nanos, pages: f64) {
        self.marked += pages;
        self.armed += pages;
        if self.armed >= self.until {
            self.look(now);
        }
    }

    /// What pass is to be asked for now, if that is another; the longest time where nothing is to be armed. And whether short passes have just told of
    /// all there is.
    fn next(
        &mut self,
        now: Nanos,
        wanted: Option<Wanted>,
        horizon: Nanos,
    ) -> (Option<Nanos>, bool) {
        let time = now.since(std::mem::replace(&mut self.looked, now));
        let armed = std::mem::take(&mut self.armed);
        (self.until, self.at) = (f64::INFINITY, Nanos::MAX);
        let Some(wanted) = wanted else {
            self.hurries |= self.short;
            self.end_short(now);
            return (self.ask(Nanos::MAX), false);
        };
        let time = time.as_secs_f64();
        let asked = match self.asked {
            Nanos::ZERO => 0.0,
            pass => wanted.pages * time / pass.as_secs_f64(),
        };
        let slow = if self.short { 2.0 } else { 1.0 };
        self.due -= armed.max(asked / slow);
        if self.short {
            self.spent += time;
        }
        let told = self.short && self.due <= 0.0;
        if told {
            self.end_short(now);
            self.pages = wanted.pages;
        }
        self.hurries |= !self.short && wanted.pages > 2.0 * self.pages;
        if !self.short && self.hurries && now >= self.again {
            (self.short, self.hurries) = (true, false);
            (self.due, self.spent) = (wanted.short(), 0.0);
        }
        let pass = if self.short {
            self.pass_at(wanted, BUSY_SHARE)
        } else {
            self.rest(time, wanted, horizon)
        };
        if pass < Nanos::MAX {
            self.until = self.due;
            // What is never armed counts as slower.
            let left = 2.0 * self.due / wanted.pages * pass.as_secs_f64();
            self.at = now + seconds(left).max(SOON);
        }
        (self.ask(pass), told)
    }

    fn end_short(&mut self, now: Nanos) {
        if std::mem::take(&mut self.short) {
            let unpaid = self.spent * (BUSY_SHARE / REST_SHARE - 1.0);
            self.again = now + seconds(unpaid);
        }
        self.due = 0.0;
    }

    /// The pass at rest, or that nothing is due, after so many seconds more.
    fn rest(&mut self, time: f64, wanted: Wanted, horizon: Nanos) -> Nanos {
        let pass = self.pass_at(wanted, REST_SHARE);
        let each = wanted.pages / pass.max(horizon).as_secs_f64();
        let part = wanted.pages * PART;
        self.due = (self.due + each * time).clamp(-part, wanted.pages);
        let least = if self.asked == Nanos::MAX { part } else { 0.0 };
        if self.due > least {
            return pass;
        }
        self.at = self.looked + seconds((part - self.due) / each).max(SOON);
        Nanos::MAX
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

    /// The pages of a range were armed. Those of slow memory alone tell of no other.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    pub(super) fn armed(&mut self, now: Nanos, (pid, range): (Pid, Range), scope: ScanScope) {
        if scope != ScanScope::All {
            return;
        }
        let process = self.processes.get(&pid);
        if process.is_some_and(|process| process.sights.differ()) {
            let pages = self.chunks.pages_in(pid, range);
            self.arming.armed(now, pages as f64);
        }
    }

    /// Has as many pages armed as there are to be now. Whether short passes have just told of something.
    pub(super) fn arm(&mut self, now: Nanos) -> bool {
        if self.arming.off {
            return false;
        }
        let wanted = self.wanted();
        let (pass, told) = self.arming.next(now, wanted, self.params.horizon);
        if let Some(period) = pass {
            let scope = ScanScope::All;
            self.asks.push_back(Action::Scan { scope, period });
        }
        told && self.told_apart() > 0
    }

    /// Whose accesses are asked for, if any.
    fn wanted(&self) -> Option<Wanted> {
        let mut all = self.processes.values();
        if !all.any(|process| process.sights.differ()) || !self.has_slow_pages() {
            return None;
        }
        let mut wanted = Wanted::default();
        for (pid, process) in &self.processes {
            // Who does not run is neither armed nor slowed down.
            if process.clock.runs < RUNS {
                continue;
            }
            let [base, huge] = self.chunks.pages_of(*pid);
            let pages = base + huge;
            wanted.all += pages;
            wanted.slowest = wanted.slowest.max(pages / process.clock.runs);
            if process.sights.differ() {
                wanted.pages += pages;
                wanted.huge += huge;
            }
        }
        (wanted.pages > 0.0 && wanted.slowest > 0.0).then_some(wanted)
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
