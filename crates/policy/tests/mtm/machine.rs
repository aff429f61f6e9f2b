// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes under the policy, one process, each 2 MiB with a heat of its own: named pages are scanned; orders
//! are checked and done at once.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Host;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::ScanScope;
use terrace_policy::Verdict;
use terrace_policy::kit::Random;
use terrace_policy::presets::mtm::Mtm;
use terrace_policy::presets::mtm::Params;

pub(crate) const PID: Pid = Pid(1);
pub(crate) const BASE: u64 = 1 << 32;
const MEMORY_EVERY: u64 = 200;

/// 2 MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk {
    pub(crate) node: NodeId,
    /// Accesses a second to each of its pages.
    pub(crate) heat: f64,
    pub(crate) huge: bool,
}

/// See the module.
pub(crate) struct Machine {
    pub(crate) policy: Mtm,
    pub(crate) now: Nanos,
    pub(crate) chunks: Vec<Chunk>,
    /// Chunks that fit on each node.
    pub(crate) room: Vec<u64>,
    /// Bytes of the last of them that others have, on each node.
    pub(crate) others: u64,
    /// What a scan of a page takes of who scans, and of the program.
    pub(crate) scan: Nanos,
    pub(crate) lost: Nanos,
    /// What profiling took, in this interval and in each before.
    pub(crate) spent: Nanos,
    pub(crate) intervals: Vec<Nanos>,
    /// Scans of this interval: page and whether it was accessed; all of them, in order.
    pub(crate) scans: Vec<(u64, bool)>,
    pub(crate) moves: Vec<(PageRef, Migration)>,
    pub(crate) sampling: bool,
    pub(crate) armed: Option<Nanos>,
    /// Chunks that the scanner arms in a step at least; none are where that is 0.
    pub(crate) step: u64,
    /// What a hint fault takes, where that is told; else it takes as long as 12 scans.
    pub(crate) fault_takes: Option<Nanos>,
    /// Of the hint faults that there are to be, those of the last page, in 1/2^32.
    due: u64,
    faulted: usize,
    /// When a page's bit was cleared last.
    cleared: BTreeMap<u64, Nanos>,
    random: Random,
    memory_at: Nanos,
    /// A scan is answered after so long.
    pub(crate) answers_after: Nanos,
    /// The one that was not answered yet, and when it is.
    open: Option<(Nanos, Vec<PageRef>)>,
}

pub(crate) fn tiers(room: &[u64]) -> Tiers {
    let node = |(id, chunks): (u16, &u64)| NodeInfo {
        id: NodeId(id),
        tier: TierId(id),
        capacity_bytes: chunks * CHUNK_BYTES,
        cpus: if id == 0 { vec![0] } else { Vec::new() },
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    Tiers::new((0..).zip(room).map(node).collect())
}

impl Machine {
    pub(crate) fn new(params: Params, room: &[u64], chunks: Vec<Chunk>) -> Self {
        Self::on(&Host::new(tiers(room)), params, room, chunks)
    }

    pub(crate) fn on(host: &Host, params: Params, room: &[u64], chunks: Vec<Chunk>) -> Self {
        let mut machine = Self {
            policy: Mtm::new(params, host),
            now: Nanos::from_secs(1),
            chunks,
            room: room.to_vec(),
            others: 0,
            scan: Nanos(80),
            lost: Nanos::ZERO,
            spent: Nanos::ZERO,
            intervals: Vec::new(),
            scans: Vec::new(),
            moves: Vec::new(),
            sampling: true,
            armed: None,
            step: 0,
            fault_takes: None,
            due: 0,
            faulted: 0,
            cleared: BTreeMap::new(),
            random: Random::new(1),
            memory_at: Nanos::ZERO,
            answers_after: Nanos::ZERO,
            open: None,
        };
        let range = machine.range();
        let event = Event::Mapped { pid: PID, range };
        machine.policy.observe(machine.now, &event);
        machine
    }

    pub(crate) fn range(&self) -> Range {
        Range {
            start: Addr(BASE),
            end: Addr(BASE + self.chunks.len() as u64 * CHUNK_BYTES),
        }
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counters = self.policy.counters();
        let found = counters.iter().find(|(figure, _)| figure.name == name);
        found.expect("a figure").1
    }

    pub(crate) fn on_node(&self, node: u16, hot: impl Fn(&Chunk) -> bool) -> usize {
        let all = self.chunks.iter().filter(|chunk| hot(chunk));
        all.filter(|chunk| chunk.node == NodeId(node)).count()
    }

    fn free(&self, node: u16) -> u64 {
        self.room[usize::from(node)] - self.on_node(node, |_| true) as u64
    }

    fn tell_memory(&mut self) {
        for node in 0..self.room.len() {
            let id = u16::try_from(node).expect("few nodes");
            let memory = NodeMemory {
                free_bytes: (self.free(id) * CHUNK_BYTES).saturating_sub(self.others),
                low_bytes: 0,
                high_bytes: 0,
                total_bytes: self.room[node] * CHUNK_BYTES,
            };
            let node = NodeId(id);
            self.policy
                .observe(self.now, &Event::Memory { node, memory });
        }
        self.memory_at = self.now + Nanos::from_millis(MEMORY_EVERY);
    }

    /// Runs until so many more intervals have ended.
    pub(crate) fn intervals(&mut self, more: usize) {
        let wanted = self.intervals.len() + more;
        while self.intervals.len() < wanted {
            self.go_on();
        }
    }

    /// The next thing that happens.
    pub(crate) fn go_on(&mut self) {
        let answer = self.open.as_ref().map_or(Nanos::MAX, |(at, _)| *at);
        let next = self.policy.next_deadline().min(self.memory_at).min(answer);
        let next = self.now.max(next);
        self.arm(next.since(self.now));
        self.now = next;
        if self.now >= answer
            && let Some((_, pages)) = self.open.take()
        {
            self.look(&pages);
        }
        if self.now >= self.memory_at {
            self.tell_memory();
        }
        if self.now >= self.policy.next_deadline() {
            let before = self.counter("intervals");
            self.policy.tick(self.now);
            if self.counter("intervals") > before {
                self.intervals.push(std::mem::take(&mut self.spent));
            }
        }
        self.carry_out();
    }

    /// The scanner's steps in so long: the pass takes the period, and a step is of some 2 MiB at least. Each page that is armed is
    /// accessed at once.
    fn arm(&mut self, span: Nanos) {
        let Some(period) = self.armed.filter(|period| *period < Nanos::MAX) else {
            return;
        };
        if self.step == 0 {
            return;
        }
        let pages = self.chunks.len() as u64;
        let due = (u128::from(span.0 * pages) << 32) / u128::from(period.0);
        self.due += u64::try_from(due).expect("a short time");
        while self.due >> 32 > 0 && self.armed == Some(period) {
            let pages = (self.due >> 32).max(self.step);
            self.due -= (self.due >> 32) << 32;
            self.arm_step(pages);
        }
    }

    fn arm_step(&mut self, pages: u64) {
        let first = self.faulted as u64;
        let end = (first + pages).min(self.chunks.len() as u64);
        let at = |chunk: u64| Addr(BASE + chunk * CHUNK_BYTES);
        let (start, end_at) = (at(first), at(end));
        let armed = Event::Armed {
            pid: PID,
            range: Range { start, end: end_at },
            scope: ScanScope::All,
        };
        self.policy.observe(self.now, &armed);
        for chunk in first..end {
            self.fault(chunk);
        }
        self.faulted = usize::try_from(end).expect("small") % self.chunks.len();
        self.carry_out();
    }

    fn fault(&mut self, chunk: u64) {
        let page = PageRef {
            pid: PID,
            addr: Addr(BASE + chunk * CHUNK_BYTES),
            size: PageSize::Huge2M,
        };
        let fault = Event::HintFault {
            page,
            node: self.chunks[usize::try_from(chunk).expect("small")].node,
            write: false,
            cpu_node: Some(NodeId(0)),
            idle: None,
        };
        self.policy.observe(self.now, &fault);
        let scans = Nanos(12 * (self.scan.0 + self.lost.0));
        self.spent = self.spent + self.fault_takes.unwrap_or(scans);
        if let Some(took) = self.fault_takes {
            let told = Event::Faulted { faults: 1, took };
            self.policy.observe(self.now, &told);
        }
    }

    fn carry_out(&mut self) {
        let mut looks = Vec::new();
        while let Some(action) = self.policy.poll_action() {
            match action {
                Action::ProbeRange { page, node, pages } => {
                    assert_eq!((node, pages), (None, 1));
                    looks.push(page);
                }
                Action::Migrate {
                    page, migration, ..
                } => self.migrate(page, migration),
                Action::Sample { on } => self.sampling = on,
                Action::Scan { period, .. } => self.armed = Some(period),
                other => panic!("nobody asked for {other:?}"),
            }
        }
        if looks.is_empty() {
        } else if self.answers_after == Nanos::ZERO {
            self.look(&looks);
        } else {
            let before = self.open.replace((self.now + self.answers_after, looks));
            assert!(before.is_none(), "the one before was not answered");
        }
    }

    fn chunk(&mut self, addr: u64) -> Option<&mut Chunk> {
        let index = usize::try_from(addr.checked_sub(BASE)? / CHUNK_BYTES).ok()?;
        self.chunks.get_mut(index)
    }

    /// Whether a page was accessed in so long, by its heat.
    fn drawn(&mut self, heat: f64, span: Nanos) -> bool {
        let chance = 1.0 - (-heat * span.0 as f64 / 1e9).exp();
        let draw = self.random.below(1 << 30) as f64 / f64::from(1 << 30);
        draw < chance
    }

    fn look(&mut self, pages: &[PageRef]) {
        for page in pages {
            let Some(chunk) = self.chunk(page.addr.0).copied() else {
                continue;
            };
            let size = if chunk.huge {
                PageSize::Huge2M
            } else {
                PageSize::Base4K
            };
            let page = PageRef {
                addr: page.addr.align_down(size),
                size,
                ..*page
            };
            let before = self.cleared.insert(page.addr.0, self.now);
            let span = self.now.since(before.unwrap_or(Nanos::ZERO));
            let accessed = self.drawn(chunk.heat, span);
            self.scans.push((page.addr.0, accessed));
            let node = chunk.node;
            let event = Event::Probed {
                page,
                node,
                accessed,
            };
            self.policy.observe(self.now, &event);
        }
        let pages = pages.len() as u64;
        self.watched(pages);
    }

    fn watched(&mut self, pages: u64) {
        let busy = Nanos(pages * self.scan.0);
        self.spent = self.spent + busy + Nanos(pages * self.lost.0);
        let pid = PID;
        self.policy.observe(
            self.now,
            &Event::Watched {
                pid,
                parts: 1,
                pages,
                busy,
                lost: Nanos(pages * self.lost.0),
            },
        );
    }

    fn migrate(&mut self, page: PageRef, migration: Migration) {
        let to = migration.target();
        let room = self.free(to.0);
        let now = self.now;
        let chunk = self.chunk(page.addr.0).expect("a page of the process");
        let from = Some(chunk.node);
        // Base pages go with the first of their 2 MiB here.
        let first = page.size == PageSize::Huge2M || page.addr.0.is_multiple_of(CHUNK_BYTES);
        assert!(
            !chunk.huge || page.size == PageSize::Huge2M,
            "a huge page is moved whole"
        );
        let verdict = if first && room == 0 {
            Verdict::NoMemory
        } else {
            if first {
                chunk.node = to;
            }
            Verdict::Moved { shadow: false }
        };
        self.moves.push((page, migration));
        self.policy.observe(
            now,
            &Event::Ended {
                page,
                migration,
                from,
                verdict,
                mechanism: Mechanism::MovePages,
                took: Nanos::ZERO,
                inaccessible: Nanos::ZERO,
            },
        );
    }
}
