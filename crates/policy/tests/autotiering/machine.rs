// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paper's two sockets (figure 1) under the policy, in small: DRAM 0 and 1, slow memory 2 and 3. Orders are checked.

use std::collections::BTreeMap;

use terrace_core::AccessPath;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Verdict;
use terrace_policy::presets::autotiering::Autotiering;
use terrace_policy::presets::autotiering::Params;

pub(crate) const PAGE: u64 = 4096;
/// Every node's high watermark, pages.
pub(crate) const HIGH: u64 = 2;
/// Pages of 2 MiB that are used: a few, so that there are several of 2 MiB.
pub(crate) const EACH: u64 = 8;
pub(crate) const MOVED: Verdict = Verdict::Moved { shadow: false };

/// What a socket sees: read latency of each node (MTM, table 1).
const LATENCIES: [[u32; 4]; 2] = [[90, 145, 275, 340], [145, 90, 340, 275]];

pub(crate) fn views() -> Views {
    let node = |id: u16| NodeInfo {
        id: NodeId(id),
        tier: TierId(id / 2),
        capacity_bytes: 1 << 20,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    let tiers = Tiers::new((0..4).map(node).collect());
    let paths = (0_u16..2).zip(LATENCIES).flat_map(|(from, seen)| {
        (0_u16..4).zip(seen).map(move |(to, latency)| AccessPath {
            from: NodeId(from),
            to: NodeId(to),
            read_latency_ns: Some(latency),
            ..AccessPath::default()
        })
    });
    let paths: Vec<AccessPath> = paths.collect();
    Views::new(&tiers, &[NodeId(0), NodeId(1)], &paths)
}

/// The chunk and the page in it of a page's number.
const fn at(n: u64) -> (u64, usize) {
    (n / EACH, (n % EACH) as usize)
}

pub(crate) fn page(n: u64) -> PageRef {
    let (chunk, index) = at(n);
    PageRef {
        pid: Pid(1),
        addr: Addr(chunk * CHUNK_BYTES + index as u64 * PAGE),
        size: PageSize::Base4K,
    }
}

pub(crate) fn number(page: PageRef) -> u64 {
    page.addr.0 / CHUNK_BYTES * EACH + page.addr.0 % CHUNK_BYTES / PAGE
}

/// An order: page, where to, and which other comes back.
pub(crate) type Order = (u64, u16, Option<u64>);

/// See the module.
pub(crate) struct Machine {
    pub(crate) policy: Autotiering,
    pub(crate) now: Nanos,
    /// Where pages are; those that are not here are not mapped.
    pub(crate) node: BTreeMap<u64, u16>,
    /// Pages that each node can have.
    pub(crate) capacity: [u64; 4],
    pub(crate) flying: BTreeMap<u64, Migration>,
    limit: usize,
    views: Views,
}

impl Machine {
    pub(crate) fn new(params: Params, exchanges: bool, on: &[u16]) -> Self {
        let mut machine = Self {
            policy: Autotiering::new(params, views(), exchanges),
            now: Nanos::from_secs(1),
            node: (0..).zip(on.iter().copied()).collect(),
            capacity: [12, 12, 40, 40],
            flying: BTreeMap::new(),
            limit: params.inflight_pages,
            views: views(),
        };
        assert!(machine.orders().is_empty());
        machine
    }

    pub(crate) fn used(&self, node: u16) -> u64 {
        self.node.values().filter(|on| **on == node).count() as u64
    }

    pub(crate) fn sample(&mut self) {
        for node in 0..4 {
            let free = self.capacity[usize::from(node)].saturating_sub(self.used(node));
            let memory = NodeMemory {
                free_bytes: free * PAGE,
                low_bytes: PAGE,
                high_bytes: HIGH * PAGE,
                total_bytes: self.capacity[usize::from(node)] * PAGE,
            };
            let node = NodeId(node);
            self.policy
                .observe(self.now, &Event::Memory { node, memory });
        }
    }

    /// Every node is as full as it can be: none has room.
    pub(crate) fn fill(&mut self) {
        for node in 0..4 {
            self.capacity[usize::from(node)] = self.used(node) + HIGH;
        }
        self.sample();
    }

    pub(crate) fn fault(&mut self, n: u64, cpu: Option<u16>) -> Vec<Order> {
        let event = Event::HintFault {
            page: page(n),
            node: NodeId(self.node[&n]),
            write: false,
            idle: None,
            cpu_node: cpu.map(NodeId),
        };
        self.policy.observe(self.now, &event);
        self.orders()
    }

    /// A round is over in which these pages were accessed.
    pub(crate) fn round(&mut self, accessed: impl Fn(u64) -> bool) {
        let mut chunks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for n in self.node.keys() {
            chunks.entry(at(*n).0).or_default().push(*n);
        }
        for (chunk, pages) in chunks {
            let bits = |of: &dyn Fn(u64) -> bool| {
                let mut bits = PageBits::NONE;
                let those = pages.iter().filter(|n| of(**n));
                those.for_each(|n| bits.set(at(*n).1));
                bits
            };
            let on = |id: u16| (NodeId(id), bits(&|n| self.node[&n] == id));
            let nodes: Vec<_> = (0..4).map(on).collect();
            let touched = bits(&|n| accessed(n));
            let reading = ChunkReading {
                pid: Pid(1),
                parts: 1,
                start: Addr(chunk * CHUNK_BYTES),
                since: Nanos::ZERO,
                until: Nanos::from_secs(1),
                ran: None,
                last: true,
                huge: false,
                present: bits(&|_| true),
                accessed: touched,
                fresh: touched,
                nodes: &nodes,
            };
            self.policy.accessed(self.now, &reading);
        }
    }

    /// Lets the policy act where it wants to, as the engine does.
    pub(crate) fn orders(&mut self) -> Vec<Order> {
        self.now = self.now + Nanos(1_000);
        if self.now >= self.policy.next_deadline() {
            self.policy.tick(self.now);
        }
        let mut orders = Vec::new();
        while let Some(action) = self.policy.poll_action() {
            if let Action::Migrate {
                page, migration, ..
            } = action
            {
                orders.push(self.take(number(page), migration));
            }
        }
        assert!(self.flying.len() <= self.limit, "too many under way");
        orders
    }

    fn take(&mut self, n: u64, migration: Migration) -> Order {
        let busy = |this: &Self, n| {
            let partner =
                |m: &Migration| matches!(m, Migration::Exchange { with, .. } if number(*with) == n);
            this.flying.contains_key(&n) || this.flying.values().any(partner)
        };
        assert!(!busy(self, n), "{n} twice");
        let (from, to) = (NodeId(self.node[&n]), migration.target());
        let with = match migration {
            Migration::Promote { keep_shadow, .. } => {
                assert!(!keep_shadow);
                let better = |view: &terrace_core::View| view.better(from).any(|node| node == to);
                assert!(
                    self.views.all().iter().any(better),
                    "{from} to {to} is up for nobody"
                );
                None
            }
            Migration::Demote { .. } => {
                let view = &self.views.all()[0];
                assert!(
                    view.demotion(from).any(|node| node == to),
                    "{from} to {to} is not down"
                );
                None
            }
            Migration::Exchange { with, .. } => {
                let with = number(with);
                assert!(!busy(self, with) && with != n, "{with} twice");
                assert_eq!(NodeId(self.node[&with]), to, "the partner is there");
                Some(with)
            }
        };
        assert_ne!(from, to);
        self.flying.insert(n, migration);
        (n, to.0, with)
    }

    /// A migration ends. What is unmapped by then is lost.
    pub(crate) fn finish(&mut self, n: u64, verdict: Verdict) -> (Verdict, Vec<Order>) {
        let migration = self.flying.remove(&n).expect("it is under way");
        let with = match migration {
            Migration::Exchange { with, .. } => Some(number(with)),
            _ => None,
        };
        let gone = [Some(n), with]
            .into_iter()
            .flatten()
            .any(|n| !self.node.contains_key(&n));
        let verdict = if gone { Verdict::Lost } else { verdict };
        let from = self.node.get(&n).copied();
        if let (Some(from), true) = (from, verdict == MOVED) {
            self.node.insert(n, migration.target().0);
            with.map(|with| self.node.insert(with, from));
        }
        let event = Event::Ended {
            page: page(n),
            migration,
            from: from.map(NodeId),
            verdict,
            mechanism: Mechanism::MovePages,
            took: Nanos::ZERO,
            inaccessible: Nanos::ZERO,
        };
        self.policy.observe(self.now, &event);
        (verdict, self.orders())
    }

    /// All pages of 2 MiB are unmapped.
    pub(crate) fn unmap(&mut self, chunk: u64) {
        self.node.retain(|n, _| at(*n).0 != chunk);
        let range = terrace_core::Range {
            start: Addr(chunk * CHUNK_BYTES),
            end: Addr((chunk + 1) * CHUNK_BYTES),
        };
        let pid = Pid(1);
        self.policy
            .observe(self.now, &Event::Unmapped { pid, range });
    }

    /// A figure of the policy.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let figures = self.policy.counters();
        let found = figures.iter().find(|(figure, _)| figure.name == name);
        found.map(|(_, value)| *value).expect("a figure")
    }
}
