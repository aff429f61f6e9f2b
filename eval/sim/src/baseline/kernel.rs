// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's ways with hint faults, as policies. Promotion is synchronous, in the fault.
//!
//! * `autonuma` (`numa_balancing=1`): all pages get hint faults, a page of another node moves to the
//!   faulting processor's node if that is above its high watermark. Nothing is demoted.
//! * `kernel-tiering` (`numa_balancing=2`, `should_numa_migrate_memory`): pages of lower tiers get hint
//!   faults. With plenty of free fast memory (1 GiB or 1/16 of the node above the promo watermark) each
//!   is promoted; else those whose hint-fault latency is below the threshold, as far as the rate limit
//!   lets it. Every 60 s the threshold moves by an eighth towards as many candidates as the limit
//!   allows, and once when it first matters: the last time was before the run. A promotion that finds
//!   no room wakes kswapd, which demotes by recency up to the promo watermark: by generations, as
//!   today's kernels do, or by the two lists (`mglru = false`: a kernel of the papers' time, whose
//!   scanner does not ask either who faults where).
//! * `tpp` (TPP, and Nomad 2.2 on it): a hint fault on a page that is on the active list promotes it,
//!   the first one only puts it there. Demotion starts at a watermark of its own (2 % of the node
//!   above high), so that allocations and promotions find room; promotion goes below high.

use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Tiers;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Reason;
use terrace_policy::ScanScope;
use terrace_policy::Verdict;

use super::kswapd::Kswapd;
use super::kswapd::List;
use super::mglru::Mglru;
use super::mglru::Prices;
use super::numa_scan::ScanPeriod;
use crate::Setup;
use crate::SimError;
use crate::scanner::Pace;
use crate::space::Space;
use crate::system::Params;

const TICK: Nanos = Nanos::from_millis(10);
/// `sysctl_numa_balancing_scan_period_max`.
const ADJUST_PERIOD: Nanos = Nanos::from_secs(60);
/// `NUMA_MIGRATION_ADJUST_STEPS`.
const ADJUST_STEPS: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    AutoNuma,
    Tiering,
    Tpp,
}

/// `numa_promotion_adjust_threshold` and `numa_promotion_rate_limit`, in bytes and ns.
#[derive(Debug, Clone, Copy)]
struct Threshold {
    default: u64,
    /// 0: the default.
    now: u64,
    /// Bytes a second.
    limit: u64,
    candidates: u64,
    /// `None`: before the run.
    adjusted: Option<Nanos>,
    at_adjustment: u64,
    window: Nanos,
    at_window: u64,
}

impl Threshold {
    fn adjust(&mut self, now: Nanos) {
        if self
            .adjusted
            .is_some_and(|at| now.since(at) <= ADJUST_PERIOD)
        {
            return;
        }
        let wanted = u128::from(self.limit) * 60;
        let seen = u128::from(self.candidates - self.at_adjustment);
        let unit = self.default * 2 / ADJUST_STEPS;
        let threshold = if self.now == 0 {
            self.default
        } else {
            self.now
        };
        self.now = if seen > wanted * 11 / 10 {
            threshold.saturating_sub(unit).max(unit)
        } else if seen < wanted * 9 / 10 {
            (threshold + unit).min(self.default * 2)
        } else {
            threshold
        };
        self.adjusted = Some(now);
        self.at_adjustment = self.candidates;
    }

    /// Counts a candidate; whether it is beyond the limit.
    fn limited(&mut self, now: Nanos, bytes: u64) -> bool {
        self.candidates += bytes;
        if now.since(self.window) > Nanos::from_secs(1) {
            self.window = now;
            self.at_window = self.candidates;
        }
        self.candidates - self.at_window >= self.limit
    }
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Kernel {
    mode: Mode,
    tiers: Tiers,
    space: Space,
    /// The node of the processors that fault.
    home: NodeId,
    nodes: Vec<Kswapd>,
    /// For each of them; empty with the two lists.
    generations: Vec<Mglru>,
    /// Whether the generations know what is on the nodes.
    listed: bool,
    scan: ScanPeriod,
    threshold: Threshold,
    /// By unit: its list. Empty without lists.
    lists: Vec<List>,
    /// When the next tick is due.
    due: Nanos,
    actions: VecDeque<Action>,
    candidates: u64,
    no_room: u64,
}

impl Kernel {
    pub(crate) fn new(
        mode: Mode,
        setup: &Setup,
        params: &mut Params,
        tiers: &Tiers,
        space: &Space,
    ) -> Result<Self, SimError> {
        let min = params.time("scan_period_min", Nanos::from_secs(1))?;
        let max = params.time("scan_period_max", Nanos::from_secs(60))?;
        let (mut hot, mut limit, mut mglru) = (Nanos::from_secs(1), 65_536, false);
        if mode == Mode::Tiering {
            hot = params.time("hot_threshold", hot)?;
            limit = params.number("promote_rate_limit_mbps", limit, 1 << 30)?;
            mglru = params.switch("mglru", true)?;
        }
        let top = tiers.top();
        let looks = crate::world::round(TICK.as_secs_f64() * 1e9 / setup.costs.probe_ns.max(1.0));
        let threads = setup.workload.programs.iter().map(|p| p.threads).max();
        let nodes: Vec<Kswapd> = top
            .clone()
            .map(|n| {
                Kswapd::new(
                    n.id,
                    tiers.below(n.id).next().map_or(n.id, |below| below.id),
                    looks,
                )
            })
            .collect();
        let home = top
            .clone()
            .find(|n| n.cpus.contains(&0))
            .or_else(|| top.clone().next())
            .map_or(NodeId(0), |n| n.id);
        let prices = Prices {
            page: setup.costs.probe_ns,
            entry: setup.costs.scan_work_ns,
        };
        let of = nodes.iter().filter(|_| mglru);
        let generations = of.map(|n| Mglru::new(n.node, space, prices)).collect();
        let chunks = if mglru { chunks(setup, space) } else { 1 };
        let min = Nanos(min.0 * chunks);
        let scan = ScanPeriod::new(min, max, threads.unwrap_or(1));
        let lists = if mode == Mode::AutoNuma || mglru {
            Vec::new()
        } else {
            vec![List::default(); space.units() as usize]
        };
        Ok(Self {
            mode,
            tiers: tiers.clone(),
            space: space.clone(),
            home,
            nodes,
            generations,
            listed: false,
            scan: if mode == Mode::Tiering {
                scan.with_tiers()
            } else {
                scan
            },
            threshold: Threshold {
                default: hot.0,
                now: 0,
                limit: limit << 20,
                candidates: 0,
                adjusted: None,
                at_adjustment: 0,
                window: Nanos::ZERO,
                at_window: 0,
            },
            lists,
            due: Nanos::ZERO,
            actions: VecDeque::new(),
            candidates: 0,
            no_room: 0,
        })
    }

    /// How the scanner goes about its passes, as far as that is modelled.
    pub(crate) fn pace(&self) -> Pace {
        match (self.mode, self.generations.is_empty()) {
            (Mode::Tiering, true) => Pace::Pauses,
            (Mode::Tiering, false) => Pace::PausesForAll,
            _ => Pace::Even,
        }
    }

    fn reclaim(&mut self) {
        for (kswapd, generations) in self.nodes.iter_mut().zip(&mut self.generations) {
            generations.go(kswapd, &mut self.actions);
        }
    }

    fn kswapd(&mut self, node: NodeId) -> Option<&mut Kswapd> {
        self.nodes.iter_mut().find(|k| k.node == node)
    }

    fn fault(&mut self, now: Nanos, page: PageRef, node: NodeId, idle: Option<Nanos>) {
        if self.mode != Mode::Tiering {
            self.scan.fault(node == self.home);
        }
        let away = if self.mode == Mode::AutoNuma {
            node != self.home
        } else {
            !self.tiers.is_top(node)
        };
        if !away || !self.wanted(now, page, idle) {
            return;
        }
        self.candidates += 1;
        let (bytes, mode) = (page.size.bytes(), self.mode);
        let Some(target) = self.kswapd(self.home) else {
            return;
        };
        let memory = target.memory;
        let floor = match mode {
            Mode::Tpp => memory.low_bytes,
            _ => memory.high_bytes,
        };
        if memory.free_bytes < floor + bytes {
            if mode != Mode::AutoNuma {
                target.wake();
            }
            self.no_room += 1;
            self.scan.migration_failed();
            return;
        }
        self.actions.push_back(Action::Migrate {
            page,
            migration: Migration::Promote {
                to: self.home,
                keep_shadow: false,
            },
            reason: Reason::HintFault,
        });
    }

    /// Whether the fault makes the page one to promote.
    fn wanted(&mut self, now: Nanos, page: PageRef, idle: Option<Nanos>) -> bool {
        match self.mode {
            Mode::AutoNuma => true,
            Mode::Tpp => {
                let Some(unit) = self.space.find(page) else {
                    return false;
                };
                std::mem::replace(&mut self.lists[unit as usize], List::Active) == List::Active
            }
            Mode::Tiering => {
                let Some(memory) = self.kswapd(self.home).map(|k| k.memory) else {
                    return false;
                };
                let enough = (1 << 30).max(memory.total_bytes >> 4);
                if memory.free_bytes > promo(&memory) + enough {
                    self.threshold.now = 0;
                    return true;
                }
                self.threshold.adjust(now);
                let threshold = match self.threshold.now {
                    0 => self.threshold.default,
                    now => now,
                };
                // The kernel counts in ms: what it did not see scanned has waited forever.
                idle.is_some_and(|idle| idle.0 < threshold)
                    && !self.threshold.limited(now, page.size.bytes())
            }
        }
    }

    /// A page is on a fast node now, or still.
    fn came(&mut self, unit: Option<u32>, node: NodeId) {
        let index = self.nodes.iter().position(|k| k.node == node);
        let generations = index.and_then(|index| self.generations.get_mut(index));
        if let (Some(generations), Some(unit)) = (generations, unit) {
            generations.add(unit);
        }
    }

    /// A page was looked at.
    fn probed(&mut self, page: PageRef, node: NodeId, accessed: bool) {
        let Some(index) = self.nodes.iter().position(|k| k.node == node) else {
            return;
        };
        let Some(unit) = self.space.find(page) else {
            return;
        };
        let kswapd = &mut self.nodes[index];
        if let Some(generations) = self.generations.get_mut(index) {
            if generations.probed(unit, accessed, &mut self.actions) {
                kswapd.demote(page, &mut self.actions);
            }
        } else if let Some(list) = self.lists.get_mut(unit as usize) {
            kswapd.probed(page, accessed, list, &mut self.actions);
        }
    }

    /// A page was promoted: the first of a pass has the kernel think about the period.
    fn promoted(&mut self) {
        if let Some(period) = self.scan.promoted() {
            let scope = ScanScope::Slow;
            self.actions.push_back(Action::Scan { scope, period });
        }
    }

    fn ended(&mut self, page: PageRef, migration: Migration, verdict: Verdict) {
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        let bytes = page.size.bytes();
        let unit = self.space.find(page);
        let list = unit.and_then(|unit| self.lists.get(unit as usize).copied());
        match migration {
            Migration::Promote { to, .. } => {
                if moved && let Some(target) = self.kswapd(to) {
                    target.took(bytes, list.unwrap_or_default());
                    self.came(unit, to);
                }
                if moved && self.mode == Mode::Tiering {
                    self.promoted();
                }
                if !moved {
                    self.scan.migration_failed();
                }
            }
            Migration::Demote { to } => {
                if let Some(unit) = unit
                    && let Some(list) = self.lists.get_mut(unit as usize)
                {
                    *list = List::Inactive;
                }
                // Which node it came from: the one that ordered it.
                let from = self.nodes.iter_mut().find(|k| k.sends_to(to));
                if let Some(from) = from {
                    from.ended(bytes, moved);
                    let node = from.node;
                    if !moved {
                        self.came(unit, node);
                    }
                }
            }
        }
    }
}

/// Chunks of the scanner's pass over the first program.
fn chunks(setup: &Setup, space: &Space) -> u64 {
    let bytes = space.program_bytes(0);
    bytes.div_ceil(setup.costs.scan_bytes).max(1)
}

/// The promo watermark: as far above high as high is above low.
fn promo(memory: &terrace_core::NodeMemory) -> u64 {
    memory.high_bytes + memory.high_bytes.saturating_sub(memory.low_bytes)
}

impl Policy for Kernel {
    fn name(&self) -> &'static str {
        match self.mode {
            Mode::AutoNuma => "autonuma",
            Mode::Tiering => "kernel-tiering",
            Mode::Tpp => "tpp",
        }
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::HintFault {
                page, node, idle, ..
            } => self.fault(now, page, node, idle),
            Event::Ended {
                page,
                migration,
                verdict,
            } => self.ended(page, migration, verdict),
            Event::Memory { node, memory } => {
                let mode = self.mode;
                if let Some(kswapd) = self.kswapd(node) {
                    let (target, wake) = match mode {
                        Mode::AutoNuma => (0, 0),
                        Mode::Tiering => (promo(&memory), memory.low_bytes),
                        Mode::Tpp => {
                            let mark = memory.high_bytes + memory.total_bytes / 50;
                            (mark, mark)
                        }
                    };
                    kswapd.sample(memory, target);
                    if memory.free_bytes < wake {
                        kswapd.wake();
                    }
                }
            }
            Event::Probed {
                page,
                node,
                accessed,
            } => self.probed(page, node, accessed),
            Event::Resident { page, node } => {
                let unit = self.space.find(page);
                self.came(unit, node);
            }
            Event::Armed { pid, range, .. } => {
                // One period for all programs: the first one's.
                if pid == crate::space::pid(0) && range.start.0 == crate::space::BASE {
                    self.scan.pass();
                }
            }
            Event::Sampled { .. }
            | Event::Mapped { .. }
            | Event::Moved { .. }
            | Event::Watched { .. }
            | Event::Latency { .. }
            | Event::Priority { .. }
            | Event::ShadowLost { .. }
            | Event::Unmapped { .. }
            | Event::Gone { .. } => {}
        }
    }

    fn tick(&mut self, now: Nanos) {
        if now < self.due {
            self.reclaim();
            return;
        }
        if let Some(period) = self.scan.tick(now) {
            let scope = if self.mode == Mode::AutoNuma {
                ScanScope::All
            } else {
                ScanScope::Slow
            };
            self.actions.push_back(Action::Scan { scope, period });
        }
        if !self.generations.is_empty() {
            if !std::mem::replace(&mut self.listed, true) {
                self.actions.push_back(Action::Inventory);
            }
            for generations in &mut self.generations {
                generations.tick(TICK.as_secs_f64() * 1e9);
            }
            self.reclaim();
        } else if self.mode != Mode::AutoNuma {
            for node in &mut self.nodes {
                self.actions.extend(node.round());
            }
        }
        self.due = now + TICK;
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_deadline(&self) -> Nanos {
        let mut each = self.nodes.iter().zip(&self.generations);
        if each.any(|(kswapd, generations)| generations.ready(kswapd)) {
            Nanos::ZERO
        } else {
            self.due
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("candidates", self.candidates),
            ("no_room", self.no_room),
            ("threshold_ms", self.threshold.now / 1_000_000),
            ("scan_period_ms", self.scan.period.0 / 1_000_000),
        ]
    }
}
