// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fast and a slow node under a policy: accessed bits that are read as asked for, orders that are checked.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::BTreeMap;
use std::collections::BTreeSet;

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
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Verdict;

pub(crate) const FAST: NodeId = NodeId(0);
pub(crate) const SLOW: NodeId = NodeId(1);
pub(crate) const PAGE: u64 = 4096;
/// The fast node's.
pub(crate) const FAST_PAGES: u64 = 100;
/// Its high watermark.
pub(crate) const HIGH: u64 = 4;
/// Pages of 2 MiB that are used: a few, so that there are several of 2 MiB.
const EACH: u64 = 16;

pub(crate) fn tiers() -> Tiers {
    let node = |id, tier, pages: u64| NodeInfo {
        id,
        tier: TierId(tier),
        capacity_bytes: pages * PAGE,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    Tiers::new(vec![node(FAST, 0, FAST_PAGES), node(SLOW, 1, 1 << 20)])
}

/// The chunk and the page in it of a page's number.
pub(crate) const fn at(n: u64) -> (u64, usize) {
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

/// One reading of 2 MiB, as the reference takes it: page numbers.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) cleared: Nanos,
    pub(crate) last: bool,
    pub(crate) pages: Vec<u64>,
    pub(crate) accessed: Vec<u64>,
    pub(crate) fresh: Vec<u64>,
}

/// See the module.
pub(crate) struct Machine {
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) now: Nanos,
    pub(crate) node: BTreeMap<u64, NodeId>,
    pub(crate) flying: BTreeMap<u64, Migration>,
    accessed: BTreeSet<u64>,
    seen: BTreeSet<u64>,
    pub(crate) cleared: Nanos,
    /// The reading before in this pass.
    before: Nanos,
    /// Migrations under way at most.
    limit: usize,
    /// Whether promotions are to keep a shadow.
    shadows: bool,
    pub(crate) scans: Vec<Nanos>,
    pub(crate) reclaims: Vec<u64>,
    /// Pages that were armed by themselves.
    pub(crate) armed: Vec<u64>,
}

impl Machine {
    /// `fast` pages on the fast node, the rest of `pages` on the slow one.
    pub(crate) fn new(
        policy: impl Policy + 'static,
        (limit, shadows): (usize, bool),
        fast: u64,
        pages: u64,
    ) -> Self {
        let node = (0..pages).map(|n| (n, if n < fast { FAST } else { SLOW }));
        Self {
            policy: Box::new(policy),
            now: Nanos::from_secs(1),
            node: node.collect(),
            flying: BTreeMap::new(),
            accessed: BTreeSet::new(),
            seen: BTreeSet::new(),
            cleared: Nanos::from_secs(1),
            before: Nanos::ZERO,
            limit,
            shadows,
            scans: Vec::new(),
            reclaims: Vec::new(),
            armed: Vec::new(),
        }
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now = self.now + Nanos::from_millis(ms);
    }

    /// Free pages of the fast node.
    pub(crate) fn free(&self) -> u64 {
        FAST_PAGES - self.node.values().filter(|node| **node == FAST).count() as u64
    }

    pub(crate) fn memory(&self) -> NodeMemory {
        NodeMemory {
            free_bytes: self.free() * PAGE,
            low_bytes: 2 * PAGE,
            high_bytes: HIGH * PAGE,
            total_bytes: FAST_PAGES * PAGE,
        }
    }

    pub(crate) fn touch(&mut self, n: u64) {
        self.accessed.insert(n);
    }

    /// The access faults; it sets the accessed bit.
    pub(crate) fn fault(&mut self, n: u64) {
        self.fault_after(n, None);
    }

    /// As [`Self::fault`], so long after the page was armed.
    pub(crate) fn fault_after(&mut self, n: u64, idle: Option<Nanos>) {
        self.touch(n);
        let event = Event::HintFault {
            cpu_node: None,
            page: page(n),
            node: self.node[&n],
            write: false,
            idle,
        };
        self.policy.observe(self.now, &event);
    }

    /// Reads the bits; the last reading of a pass clears them. What was told, by 2 MiB.
    pub(crate) fn read(&mut self, last: bool) -> Vec<Told> {
        let mut chunks: BTreeMap<u64, Told> = BTreeMap::new();
        for &n in self.node.keys() {
            let told = chunks.entry(at(n).0).or_insert_with(|| Told {
                cleared: self.cleared,
                last,
                pages: Vec::new(),
                accessed: Vec::new(),
                fresh: Vec::new(),
            });
            told.pages.push(n);
            if self.accessed.contains(&n) {
                told.accessed.push(n);
                if self.seen.insert(n) {
                    told.fresh.push(n);
                }
            }
        }
        chunks.retain(|_, told| last || !told.fresh.is_empty());
        for (chunk, told) in &chunks {
            self.tell(*chunk, told);
        }
        if last {
            self.accessed.clear();
            self.seen.clear();
            self.cleared = self.now;
        }
        self.before = Nanos(self.now.0 - self.cleared.0);
        chunks.into_values().collect()
    }

    fn tell(&mut self, chunk: u64, told: &Told) {
        let bits = |pages: &mut dyn Iterator<Item = u64>| {
            let mut bits = PageBits::NONE;
            pages.for_each(|n| bits.set(at(n).1));
            bits
        };
        let all = || told.pages.iter().copied();
        let nodes = [FAST, SLOW].map(|id| (id, bits(&mut all().filter(|n| self.node[n] == id))));
        let reading = ChunkReading {
            pid: Pid(1),
            parts: 1,
            start: Addr(chunk * CHUNK_BYTES),
            since: self.before,
            until: Nanos(self.now.0 - self.cleared.0),
            ran: None,
            last: told.last,
            huge: false,
            present: bits(&mut all()),
            accessed: bits(&mut told.accessed.iter().copied()),
            fresh: bits(&mut told.fresh.iter().copied()),
            nodes: &nodes,
        };
        self.policy.accessed(self.now, &reading);
    }

    /// Samples memory and lets the policy act: what it orders, promotions true.
    pub(crate) fn tick(&mut self) -> Vec<(u64, bool)> {
        let memory = self.memory();
        self.policy
            .observe(self.now, &Event::Memory { node: FAST, memory });
        self.policy.tick(self.now);
        self.orders()
    }

    pub(crate) fn orders(&mut self) -> Vec<(u64, bool)> {
        let mut orders = Vec::new();
        while let Some(action) = self.policy.poll_action() {
            match action {
                Action::Migrate {
                    page, migration, ..
                } => {
                    let n = number(page);
                    let up = match migration {
                        Migration::Promote { to, keep_shadow } => {
                            assert_eq!(
                                (self.node[&n], to, keep_shadow),
                                (SLOW, FAST, self.shadows)
                            );
                            true
                        }
                        Migration::Demote { to } => {
                            assert_eq!((self.node[&n], to), (FAST, SLOW));
                            false
                        }
                        Migration::Exchange { .. } => panic!("{migration:?}"),
                    };
                    assert_eq!(self.flying.insert(n, migration), None, "{n} twice");
                    assert!(self.flying.len() <= self.limit);
                    orders.push((n, up));
                }
                Action::Scan { period, .. } => self.scans.push(period),
                Action::Arm { page } => self.armed.push(number(page)),
                Action::ReclaimShadows { bytes, .. } => self.reclaims.push(bytes / PAGE),
                _ => {}
            }
        }
        orders
    }

    /// A migration ends.
    pub(crate) fn finish(&mut self, n: u64, verdict: Verdict) {
        let migration = self.flying.remove(&n).expect("it is under way");
        if matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow) {
            self.node.insert(n, migration.target());
        }
        let event = Event::Ended {
            from: None,
            page: page(n),
            migration,
            verdict,
            mechanism: Mechanism::MovePages,
            took: Nanos::ZERO,
            inaccessible: Nanos::ZERO,
        };
        self.policy.observe(self.now, &event);
    }

    /// Hint faults, and their bits are seen again in the pass that follows.
    pub(crate) fn make_pending(&mut self, pages: &[u64]) {
        for n in pages {
            self.fault(*n);
        }
        self.wait(1);
        self.read(true);
        self.wait(1);
        for n in pages {
            self.touch(*n);
            self.read(false);
        }
    }
}
