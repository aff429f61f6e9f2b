// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fast and a slow node whose pages are accessed at known rates, under the Chrono policy.
//!
//! Each page has a period; the first access after an arming or a clearing comes after a time that is spread evenly over
//! it (appendix B, equation 1). At the true cut t as many pages are below it in both of two rounds as the fast node
//! holds: the sum over pages of min(1, t / period)^2 (equation 7).
#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::ladder;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Policy;
use terrace_policy::ScanScope;
use terrace_policy::Verdict;
use terrace_policy::presets::chrono::Chrono;
use terrace_policy::presets::chrono::Params;
use terrace_policy::presets::chrono::params::Probe;
use terrace_policy::presets::chrono::params::Source;

use super::machine::FAST;
use super::machine::PAGE;
use super::machine::SLOW;
use super::machine::tiers;

/// Base pages of both nodes.
pub(crate) const PAGES: usize = 8 * CHUNK_PAGES;
/// Those that the fast node has room for.
pub(crate) const FAST_SIZE: usize = PAGES / 4;
/// Free in the beginning.
const FREE: usize = 40;
const HIGH: u64 = 4;
const PID: Pid = Pid(1);

/// Periods by page, s.
pub(crate) type Heat = Vec<f64>;

/// See the module.
pub(crate) struct World {
    pub(crate) policy: Chrono,
    pub(crate) now: Nanos,
    pub(crate) heat: Heat,
    pub(crate) node: Vec<NodeId>,
    /// Pages stay where they are, whatever is ordered.
    pub(crate) stay: bool,
    pub(crate) migrations: usize,
    random: u64,
    /// Rungs as asked for.
    rungs: Vec<Nanos>,
    scanned: Nanos,
    /// Pages that are armed.
    armed: BTreeSet<usize>,
    /// Their hint faults: when, which page, since when it was armed.
    faults: BTreeSet<(Nanos, usize, Nanos)>,
}

impl World {
    pub(crate) fn new(params: Params, heat: Heat) -> Self {
        let fast = |n| {
            if n * 7 % PAGES < FAST_SIZE - FREE {
                FAST
            } else {
                SLOW
            }
        };
        Self {
            policy: Chrono::new(params, tiers()),
            now: Nanos::from_secs(1),
            heat,
            node: (0..PAGES).map(fast).collect(),
            stay: false,
            migrations: 0,
            random: 7,
            rungs: ladder(Nanos::from_millis(10), Nanos::from_secs(1)),
            scanned: Nanos::ZERO,
            armed: BTreeSet::new(),
            faults: BTreeSet::new(),
        }
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695);
        (self.random >> 33) as f64 / f64::from(1_u32 << 31)
    }

    /// The first access to a page, from now.
    fn first(&mut self, n: usize) -> f64 {
        self.uniform() * self.heat[n]
    }

    /// For so many seconds; the scanner goes over all pages at once, each scan period.
    pub(crate) fn run(&mut self, seconds: u64, params: &Params) {
        let end = self.now + Nanos::from_secs(seconds);
        let scans = params.cit == Source::Faults || params.probe == Probe::Faults;
        while self.now < end {
            if scans && self.now.since(self.scanned) >= params.scan_period {
                self.arm(params.probe == Probe::Faults);
            }
            self.pass();
        }
    }

    /// Arms the slow node's pages, or all, that are not armed yet.
    fn arm(&mut self, all: bool) {
        self.scanned = self.now;
        for n in 0..PAGES {
            let first = self.first(n);
            if all || self.node[n] == SLOW {
                self.arm_one(n, first);
            }
        }
        let range = Range {
            start: Addr(0),
            end: Addr(PAGES as u64 * PAGE),
        };
        let scope = if all { ScanScope::All } else { ScanScope::Slow };
        let armed = Event::Armed {
            pid: PID,
            range,
            scope,
        };
        self.policy.observe(self.now, &armed);
    }

    /// Arms a page, if it is not armed, that is accessed after so many seconds.
    fn arm_one(&mut self, n: usize, first: f64) {
        if self.armed.insert(n) {
            let at = self.now + Nanos::from(Duration::from_secs_f64(first));
            self.faults.insert((at, n, self.now));
        }
    }

    /// The hint faults up to now.
    fn fault(&mut self) {
        while let Some(&(at, n, armed)) = self.faults.first().filter(|(at, ..)| *at <= self.now) {
            self.faults.pop_first();
            self.armed.remove(&n);
            let event = Event::HintFault {
                page: page(n),
                node: self.node[n],
                write: false,
                idle: Some(at.since(armed)),
                cpu_node: None,
            };
            self.policy.observe(at, &event);
            // What is armed again is armed then.
            let now = std::mem::replace(&mut self.now, at);
            while let Some(action) = self.policy.poll_action() {
                self.carry_out(action);
            }
            self.now = now;
        }
    }

    fn pass(&mut self) {
        let cleared = self.now;
        let first: Vec<f64> = (0..PAGES).map(|n| self.first(n)).collect();
        let rungs = self.rungs.clone();
        let mut before = Nanos::ZERO;
        for (rung, until) in rungs.iter().enumerate() {
            self.now = cleared + *until;
            self.fault();
            let last = rung + 1 == rungs.len();
            for chunk in 0..PAGES / CHUNK_PAGES {
                self.tell(chunk, (before, *until), &first, last);
            }
            before = *until;
            self.act();
        }
        let (pages, busy) = (PAGES as u64, Nanos(1));
        let watched = Event::Watched {
            pid: PID,
            parts: 1,
            pages,
            busy,
            lost: busy,
        };
        self.policy.observe(self.now, &watched);
        self.act();
    }

    fn tell(&mut self, chunk: usize, (since, until): (Nanos, Nanos), first: &[f64], last: bool) {
        let of = |holds: &dyn Fn(usize) -> bool| {
            let mut bits = PageBits::NONE;
            (0..CHUNK_PAGES)
                .filter(|i| holds(chunk * CHUNK_PAGES + i))
                .for_each(|i| bits.set(i));
            bits
        };
        let seen = |n: usize| first[n] <= until.as_secs_f64();
        let fresh = |n: usize| seen(n) && first[n] > since.as_secs_f64();
        let nodes = [FAST, SLOW].map(|id| (id, of(&|n| self.node[n] == id)));
        let reading = ChunkReading {
            pid: PID,
            parts: 1,
            start: Addr(chunk as u64 * CHUNK_BYTES),
            since,
            until,
            ran: None,
            last,
            huge: false,
            present: PageBits::ALL,
            accessed: of(&seen),
            fresh: of(&fresh),
            nodes: &nodes,
        };
        self.policy.accessed(self.now, &reading);
    }

    fn act(&mut self) {
        let fast = self.node.iter().filter(|node| **node == FAST).count();
        let memory = NodeMemory {
            free_bytes: (FAST_SIZE - fast) as u64 * PAGE,
            low_bytes: 0,
            high_bytes: HIGH * PAGE,
            total_bytes: FAST_SIZE as u64 * PAGE,
        };
        self.policy
            .observe(self.now, &Event::Memory { node: FAST, memory });
        self.policy.tick(self.now);
        while let Some(action) = self.policy.poll_action() {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Migrate {
                page, migration, ..
            } => {
                let n = number(page);
                let mut verdict = Verdict::Busy;
                if !self.stay {
                    self.node[n] = migration.target();
                    self.migrations += 1;
                    verdict = Verdict::Moved { shadow: false };
                }
                let event = Event::Ended {
                    page,
                    migration,
                    from: None,
                    verdict,
                    mechanism: Mechanism::MovePages,
                    took: Nanos::ZERO,
                    inaccessible: Nanos::ZERO,
                };
                self.policy.observe(self.now, &event);
            }
            Action::Arm { page } => {
                let n = number(page);
                let first = self.first(n);
                self.arm_one(n, first);
            }
            Action::ReadAccessed { shortest, pass, .. } => self.rungs = ladder(shortest, pass),
            _ => {}
        }
    }

    /// A figure that the policy tells of itself; 0 where it tells nothing.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counters = self.policy.counters();
        let found = counters.iter().find(|(figure, _)| figure.name == name);
        found.map_or(0, |(_, value)| *value)
    }

    /// Pages that are below the threshold in both rounds, on average, for each that fits into the fast node: by what the
    /// heat maps are made from.
    pub(crate) fn below(&self, params: &Params) -> f64 {
        let threshold = self.counter("cit_threshold") as f64 / 1e6;
        let last = *self.rungs.last().expect("a rung");
        let pass = match params.probe {
            Probe::AccessedBits => last.as_secs_f64(),
            _ => f64::INFINITY,
        };
        let below = |period: &f64| idle_below(threshold, *period, pass).powi(2);
        self.heat.iter().map(below).sum::<f64>() / FAST_SIZE as f64
    }

    /// Accesses to the fast node's pages against those of the hottest pages that fit there.
    pub(crate) fn share(&self) -> f64 {
        let rate = |n: &usize| 1.0 / self.heat[*n];
        let of_fast = (0..PAGES).filter(|n| self.node[*n] == FAST);
        let fast: f64 = of_fast.map(|n| rate(&n)).sum();
        let mut all: Vec<f64> = (0..PAGES).map(|n| rate(&n)).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        fast / all[..FAST_SIZE].iter().sum::<f64>()
    }
}

/// The share of idle times below x, of pages whose first access is drawn anew when the next pass clears their bit, if it did not come in this
/// one; s.
fn idle_below(x: f64, period: f64, pass: f64) -> f64 {
    let passes = (x / pass).floor();
    let rest = if pass.is_finite() {
        x - passes * pass
    } else {
        x
    };
    let not_in = |time: f64| 1.0 - (time / period).min(1.0);
    1.0 - not_in(pass).powf(passes) * not_in(rest)
}

fn number(page: PageRef) -> usize {
    usize::try_from(page.addr.0 / PAGE).expect("a page")
}

fn page(n: usize) -> PageRef {
    PageRef {
        pid: PID,
        addr: Addr(n as u64 * PAGE),
        size: PageSize::Base4K,
    }
}

/// Periods of pages by how the heat is spread; where the hottest are is moved by `shift` pages, and all are accessed so
/// many times as often.
pub(crate) fn heats(shift: usize, faster: f64) -> BTreeMap<&'static str, Heat> {
    let make = |rate: &dyn Fn(f64) -> f64| -> Heat {
        let at = |n: usize| ((n + shift) % PAGES) as f64 / PAGES as f64;
        (0..PAGES).map(|n| 1.0 / faster / rate(at(n))).collect()
    };
    BTreeMap::from([
        ("uniform", make(&|_| 2.5)),
        (
            "normal",
            make(&|x| 0.02 + 10.0 * (-(x - 0.5).powi(2) / 0.03).exp()),
        ),
        ("zipf", make(&|x| 0.02 / (x + 1e-3))),
        ("two-level", make(&|x| if x < 0.22 { 20.0 } else { 0.2 })),
    ])
}
