// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine of several sockets under the policy, in small ([`super::layouts`]). Orders are checked.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Views;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Verdict;
use terrace_policy::presets::autotiering::Autotiering;
use terrace_policy::presets::autotiering::Params;

use super::layouts::Layout;

pub(crate) const PAGE: u64 = 4096;
/// Every node's high watermark, pages.
pub(crate) const HIGH: u64 = 2;
/// Pages of 2 MiB that are used: a few, so that there are several of 2 MiB.
pub(crate) const EACH: u64 = 8;
/// From here on 2 MiB are one huge page, which has the number of their first.
pub(crate) const HUGE: u64 = 6 * EACH;
pub(crate) const MOVED: Verdict = Verdict::Moved { shadow: false };

/// The chunk and the page in it of a page's number.
const fn at(n: u64) -> (u64, usize) {
    (n / EACH, (n % EACH) as usize)
}

/// Of 4 KiB that a page has.
pub(crate) const fn units(n: u64) -> u64 {
    if n < HUGE { 1 } else { 512 }
}

pub(crate) fn page(n: u64) -> PageRef {
    let (chunk, index) = at(n);
    PageRef {
        pid: Pid(1),
        addr: Addr(chunk * CHUNK_BYTES + index as u64 * PAGE),
        size: if n < HUGE {
            PageSize::Base4K
        } else {
            PageSize::Huge2M
        },
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
    /// By number of a node: 4 KiB that it can have.
    pub(crate) capacity: Vec<u64>,
    pub(crate) flying: BTreeMap<u64, Migration>,
    limit: usize,
    layout: &'static Layout,
    views: Views,
}

impl Machine {
    /// With these pages on these nodes, which have no memory until they are given some.
    pub(crate) fn new(
        layout: &'static Layout,
        params: Params,
        exchanges: bool,
        node: BTreeMap<u64, u16>,
    ) -> Self {
        let mut machine = Self {
            policy: Autotiering::new(params, layout.views(), exchanges),
            now: Nanos::from_secs(1),
            node,
            capacity: vec![0; layout.numbers()],
            flying: BTreeMap::new(),
            limit: params.inflight_pages,
            layout,
            views: layout.views(),
        };
        assert!(machine.orders().is_empty());
        machine
    }

    pub(crate) fn used(&self, node: u16) -> u64 {
        let there = self.node.iter().filter(|(_, on)| **on == node);
        there.map(|(n, _)| units(*n)).sum()
    }

    pub(crate) fn free(&self, node: u16) -> u64 {
        self.capacity[usize::from(node)].saturating_sub(self.used(node))
    }

    pub(crate) fn sample(&mut self) {
        for id in self.layout.ids() {
            let memory = NodeMemory {
                free_bytes: self.free(id) * PAGE,
                low_bytes: PAGE,
                high_bytes: HIGH * PAGE,
                total_bytes: self.capacity[usize::from(id)] * PAGE,
            };
            let node = NodeId(id);
            self.policy
                .observe(self.now, &Event::Memory { node, memory });
        }
    }

    /// Every node is as full as it can be: none has room.
    pub(crate) fn fill(&mut self) {
        for node in self.layout.ids() {
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
            let nodes: Vec<_> = self.layout.ids().map(on).collect();
            let touched = bits(&|n| accessed(n));
            let reading = ChunkReading {
                pid: Pid(1),
                parts: 1,
                start: Addr(chunk * CHUNK_BYTES),
                since: Nanos::ZERO,
                until: Nanos::from_secs(1),
                ran: None,
                last: true,
                huge: chunk * EACH >= HUGE,
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
                let lower = |view: &terrace_core::View| view.demotion(from).any(|node| node == to);
                assert!(
                    self.views.all().iter().any(lower),
                    "{from} to {to} is not down"
                );
                None
            }
            Migration::Exchange { with, .. } => {
                let with = number(with);
                assert!(!busy(self, with) && with != n, "{with} twice");
                assert_eq!(units(with), units(n), "of one size");
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
