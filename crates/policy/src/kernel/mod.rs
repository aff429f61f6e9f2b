// SPDX-License-Identifier: MIT OR Apache-2.0
//! What presets that stand for the kernel's own tiering have in common: NUMA balancing as far as it is
//! alike in all its modes ([`Balancing`]), and background demotion.
//!
//! All of them get hint faults from a scanner whose period the kernel controls ([`scan_period`]),
//! promote in the fault, to the faulting processor's node, where that has room, and demote from a fast
//! node that is short of memory: by two lists ([`kswapd`]) or by generations ([`mglru`]). What each
//! promotes, and between which watermarks it demotes, is its [`Mode`], in the preset's folder.
//!
//! They know all memory beforehand ([`KernelView`]), so they are for a simulated machine only.

mod kswapd;
mod mglru;
pub(crate) mod scan_period;

use std::collections::VecDeque;

use terrace_core::Addr;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Space;
use terrace_core::Tiers;

use crate::Capabilities;
use crate::KernelScanner;
use crate::MachineOptions;
use crate::Policy;
use crate::event::Action;
use crate::event::Event;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::ScanScope;
use crate::event::Verdict;
use crate::preset::Host;
use crate::settings::SettingError;
use crate::settings::Settings;
use kswapd::Kswapd;
pub(crate) use kswapd::List;
use mglru::Mglru;
use mglru::Prices;
use scan_period::ScanPeriod;

/// What all of them need.
pub(crate) const NEEDS: Capabilities =
    Capabilities::HINT_FAULTS.union(Capabilities::PROMOTION_IN_FAULT);

const TICK: Nanos = Nanos::from_millis(10);

/// What a kernel knows that a policy is not told by events.
#[derive(Debug, Clone)]
pub struct KernelView {
    /// All memory there will be.
    pub space: Space,
    /// Threads of the program with the most.
    pub threads: u32,
    /// Bytes that the scanner looks at in one go (`scan_size_mb`).
    pub scan_bytes: u64,
    /// What a look at a page costs its thread, ns.
    pub look_ns: f64,
    /// What an entry of a walked page table costs, ns.
    pub entry_ns: f64,
}

impl Default for KernelView {
    /// Of a machine without programs.
    fn default() -> Self {
        Self {
            space: Space::new(Pid(1), Addr(0)),
            threads: 1,
            scan_bytes: 256 << 20,
            look_ns: 1.0,
            entry_ns: 1.0,
        }
    }
}

/// What comes of a hint fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The page stays where it is.
    Stays,
    /// It stays for now, and the access faults again.
    FaultsAgain,
    /// It is one to promote.
    Promotes,
}

impl Answer {
    pub(crate) const fn promotes_if(yes: bool) -> Self {
        if yes { Self::Promotes } else { Self::Stays }
    }
}

/// What a mode of NUMA balancing decides.
pub(crate) trait Mode: std::fmt::Debug + Send {
    /// The preset's name.
    const NAME: &'static str;
    /// Which pages get hint faults. [`ScanScope::All`] also means that a page of whatever node but the
    /// faulting processor's is away, and that nothing is demoted.
    const SCOPE: ScanScope;
    /// As with `numa_balancing=2`: the scan's period follows promotions, not faults.
    const TIERS: bool;
    /// Demoted pages are armed on arrival.
    const ARMS_DEMOTED: bool = false;

    /// Free memory below which a promotion finds no room.
    fn floor(memory: &NodeMemory) -> u64;
    /// Free memory that demotion is to reach, and that below which it begins by itself.
    fn marks(&self, memory: &NodeMemory) -> (u64, u64);
    /// What comes of a hint fault on a page that is away. `memory` is that of the node it would go to,
    /// `list` the page's, where there are lists.
    fn answer(
        &mut self,
        now: Nanos,
        page: PageRef,
        idle: Option<Nanos>,
        memory: &NodeMemory,
        list: Option<&mut List>,
    ) -> Answer;
    /// The hint-fault latency above which nothing is promoted, where it is one; for the figures.
    fn threshold(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// The scan's shortest and longest period, as they were set.
pub(crate) fn periods(settings: &mut Settings) -> Result<(Nanos, Nanos), SettingError> {
    let min = settings.time("scan_period_min", Nanos::from_secs(1))?;
    let max = settings.time("scan_period_max", Nanos::from_secs(60))?;
    Ok((min, max))
}

/// What [`periods`] asks for.
pub(crate) const PERIODS_HELP: [(&str, &str); 2] = [
    (
        "scan_period_min",
        "Shortest scan pass (numa_balancing_scan_period_min_ms).",
    ),
    (
        "scan_period_max",
        "Longest scan pass (numa_balancing_scan_period_max_ms).",
    ),
];

/// How pages are chosen for demotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaim {
    /// Nothing is demoted.
    Nothing,
    /// By the two lists.
    Lists,
    /// By generations, as kernels do today; their scanner asks who faults where.
    Generations,
}

terrace_core::figures! {
    struct Figures {
        /// Pages that were to be promoted.
        candidates: u64 as Count,
        /// Promotions that found no room.
        no_room: u64 as Count,
        /// Hint-fault latency below which a page is a candidate; 0 while it is the default, or none.
        threshold_ms: u64 as Milliseconds,
        /// How long a pass of the scanner is to take.
        scan_period_ms: u64 as Milliseconds,
    }
}

/// A policy: NUMA balancing in a mode.
#[derive(Debug)]
pub(crate) struct Balancing<M> {
    mode: M,
    reclaim: Reclaim,
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
    /// By unit: its list. Empty without lists.
    lists: Vec<List>,
    /// When the next tick is due.
    due: Nanos,
    actions: VecDeque<Action>,
    candidates: u64,
    no_room: u64,
}

impl<M: Mode> Balancing<M> {
    pub(crate) fn new(
        mode: M,
        reclaim: Reclaim,
        (min, max): (Nanos, Nanos),
        Host { tiers, kernel, .. }: &Host,
    ) -> Self {
        let top = tiers.top();
        let looks = looks_in_a_tick(kernel.look_ns);
        let below = |id: NodeId| tiers.below(id).next().map_or(id, |below| below.id);
        let nodes: Vec<Kswapd> = top
            .clone()
            .map(|n| Kswapd::new(n.id, below(n.id), looks))
            .collect();
        let home = top
            .clone()
            .find(|n| n.cpus.contains(&0))
            .or_else(|| top.clone().next())
            .map_or(NodeId(0), |n| n.id);
        let space = &kernel.space;
        let prices = Prices {
            page: kernel.look_ns,
            entry: kernel.entry_ns,
        };
        let of = nodes.iter().filter(|_| reclaim == Reclaim::Generations);
        let generations = of.map(|n| Mglru::new(n.node, space, prices)).collect();
        // Today's scanner takes its shortest period for each step of a pass.
        let steps = match reclaim {
            Reclaim::Generations if space.programs() > 0 => {
                space.program_bytes(0).div_ceil(kernel.scan_bytes).max(1)
            }
            _ => 1,
        };
        let scan = ScanPeriod::new(Nanos(min.0 * steps), max, kernel.threads);
        let lists = if reclaim == Reclaim::Lists {
            space.units() as usize
        } else {
            0
        };
        Self {
            mode,
            reclaim,
            tiers: tiers.clone(),
            space: space.clone(),
            home,
            nodes,
            generations,
            listed: false,
            scan: if M::TIERS { scan.with_tiers() } else { scan },
            lists: vec![List::default(); lists],
            due: Nanos::ZERO,
            actions: VecDeque::new(),
            candidates: 0,
            no_room: 0,
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

    fn fault(
        &mut self,
        now: Nanos,
        page: PageRef,
        (node, cpu_node): (NodeId, Option<NodeId>),
        idle: Option<Nanos>,
    ) {
        // The kernel promotes to the node of the processor that faulted.
        let own = cpu_node.filter(|id| self.nodes.iter().any(|k| k.node == *id));
        let home = own.unwrap_or(self.home);
        if !M::TIERS {
            self.scan.fault(node == home);
        }
        let away = match M::SCOPE {
            ScanScope::All => node != home,
            ScanScope::Slow => !self.tiers.is_top(node),
        };
        let Some(memory) = self.kswapd(home).map(|k| k.memory) else {
            return;
        };
        if !away {
            return;
        }
        let unit = self.space.find(page);
        let list = unit.and_then(|unit| self.lists.get_mut(unit as usize));
        match self.mode.answer(now, page, idle, &memory, list) {
            Answer::Stays => return,
            Answer::FaultsAgain => {
                self.actions.push_back(Action::FaultAgain { page });
                return;
            }
            Answer::Promotes => {}
        }
        self.candidates += 1;
        if memory.free_bytes < M::floor(&memory) + page.size.bytes() {
            let demotes = self.reclaim != Reclaim::Nothing;
            if let Some(target) = self.kswapd(home).filter(|_| demotes) {
                target.wake();
            }
            self.no_room += 1;
            self.scan.migration_failed();
            return;
        }
        self.actions.push_back(Action::Migrate {
            page,
            migration: Migration::Promote {
                to: home,
                keep_shadow: false,
            },
            mechanism: None,
            reason: Reason::HintFault,
        });
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
            let scope = M::SCOPE;
            self.actions.push_back(Action::Scan { scope, period });
        }
    }

    fn ended(
        &mut self,
        page: PageRef,
        from: Option<NodeId>,
        migration: Migration,
        verdict: Verdict,
    ) {
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        let bytes = page.size.bytes();
        let unit = self.space.find(page);
        let list = unit.and_then(|unit| self.lists.get(unit as usize).copied());
        match migration {
            Migration::Promote { to, .. } => {
                if moved && let Some(target) = self.kswapd(to) {
                    target.took(bytes, list.unwrap_or_default());
                    let memory = target.memory;
                    self.sampled(to, memory);
                    self.came(unit, to);
                }
                if moved && M::TIERS {
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
                // Where the mover does not say, of the nodes that demote there the first.
                let ordered = |k: &&mut Kswapd| from.map_or(k.sends_to(to), |from| k.node == from);
                let from = self.nodes.iter_mut().find(ordered);
                if let Some(from) = from {
                    from.ended(bytes, moved);
                    let node = from.node;
                    if !moved {
                        self.came(unit, node);
                    }
                }
            }
            // None is ordered.
            Migration::Exchange { .. } => {}
        }
    }

    /// A node's memory is so: wakes who demotes where that is below the mark.
    fn sampled(&mut self, node: NodeId, memory: NodeMemory) {
        let (target, wake) = self.mode.marks(&memory);
        if let Some(kswapd) = self.kswapd(node) {
            kswapd.sample(memory, target);
            if memory.free_bytes < wake {
                kswapd.wake();
            }
        }
    }

    /// The scanner has armed a range: a pass begins where the first program's memory does. There is
    /// one period for all programs, the first one's.
    fn armed(&mut self, pid: Pid, start: Addr) {
        let first = (self.space.units() > 0).then(|| self.space.page(0));
        if first.is_some_and(|first| first.pid == pid && first.addr == start) {
            self.scan.pass();
        }
    }
}

/// Pages that one thread can look at in a tick.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most the tick's ns, and not negative"
)]
fn looks_in_a_tick(look_ns: f64) -> u64 {
    (TICK.as_secs_f64() * 1e9 / look_ns.max(1.0)).round() as u64
}

impl<M: Mode> Policy for Balancing<M> {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn machine_options(&self) -> MachineOptions {
        MachineOptions {
            scanner: match self.reclaim {
                Reclaim::Generations => KernelScanner::PausesForAll,
                Reclaim::Lists | Reclaim::Nothing => KernelScanner::Pauses,
            },
            arms_demoted: M::ARMS_DEMOTED,
            ..MachineOptions::default()
        }
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::HintFault {
                page,
                node,
                idle,
                cpu_node,
                ..
            } => self.fault(now, page, (node, cpu_node), idle),
            Event::Ended {
                page,
                from,
                migration,
                verdict,
                ..
            } => self.ended(page, from, migration, verdict),
            Event::Memory { node, memory } => self.sampled(node, memory),
            Event::Probed {
                page,
                node,
                accessed,
            } => self.probed(page, node, accessed),
            Event::Resident { page, node } => {
                let unit = self.space.find(page);
                self.came(unit, node);
            }
            Event::Armed { pid, range, .. } => self.armed(pid, range.start),
            _ => {}
        }
    }

    fn tick(&mut self, now: Nanos) {
        if now < self.due {
            self.reclaim();
            return;
        }
        if let Some(period) = self.scan.tick(now) {
            let scope = M::SCOPE;
            self.actions.push_back(Action::Scan { scope, period });
        }
        match self.reclaim {
            Reclaim::Nothing => {}
            Reclaim::Lists => {
                for node in &mut self.nodes {
                    self.actions.extend(node.round());
                }
            }
            Reclaim::Generations => {
                if !std::mem::replace(&mut self.listed, true) {
                    self.actions.push_back(Action::Inventory);
                }
                for generations in &mut self.generations {
                    generations.tick(TICK.as_secs_f64() * 1e9);
                }
                self.reclaim();
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

    fn counters(&self) -> Vec<Measurement> {
        Figures {
            candidates: self.candidates,
            no_room: self.no_room,
            threshold_ms: self.mode.threshold().0 / 1_000_000,
            scan_period_ms: self.scan.period.0 / 1_000_000,
        }
        .values()
    }
}
