// SPDX-License-Identifier: MIT OR Apache-2.0
//! What benches share: a Nomad policy in its engine, and a machine of two nodes that ends every migration at once; two nodes of known
//! latencies.
#![allow(dead_code, reason = "each bench uses a part")]

use std::time::Duration;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
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
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Machine;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Reason;
use terrace_policy::Served;
use terrace_policy::Verdict;

pub(crate) const FAST: NodeId = NodeId(0);
pub(crate) const SLOW: NodeId = NodeId(1);
pub(crate) const PAGE: u64 = 4096;

/// Ends what it is told at once, and knows where its pages are.
#[derive(Debug)]
pub(crate) struct AtOnce {
    pub(crate) node: Vec<NodeId>,
    pub(crate) free: u64,
    fast_pages: u64,
    pub(crate) orders: Vec<(PageRef, Migration)>,
    pub(crate) migrations: u64,
}

impl Machine for AtOnce {
    fn migrate(
        &mut self,
        _: Nanos,
        page: PageRef,
        migration: Migration,
        _: Option<Mechanism>,
        _: Reason,
    ) -> Served {
        self.orders.push((page, migration));
        Ok(())
    }
}

impl AtOnce {
    fn memory(&self) -> NodeMemory {
        NodeMemory {
            free_bytes: self.free * PAGE,
            low_bytes: 0,
            high_bytes: 64 * PAGE,
            total_bytes: self.fast_pages * PAGE,
        }
    }

    fn finish(&mut self, now: Nanos, engine: &mut Engine, orders: &mut Vec<(PageRef, Migration)>) {
        std::mem::swap(&mut self.orders, orders);
        for (page, migration) in orders.drain(..) {
            let at = usize::try_from(page.addr.0 / PAGE).expect("an index of a table");
            let verdict = match migration {
                Migration::Promote { .. } if self.free == 0 => Verdict::NoMemory,
                Migration::Promote { keep_shadow, .. } => {
                    self.free -= 1;
                    Verdict::Moved {
                        shadow: keep_shadow,
                    }
                }
                Migration::Demote { .. } => {
                    self.free += 1;
                    Verdict::MovedOntoShadow
                }
                Migration::Exchange { .. } => Verdict::Moved { shadow: false },
            };
            if !matches!(verdict, Verdict::NoMemory) {
                self.node[at] = migration.target();
                self.migrations += 1;
            }
            engine.observe(now, &ended(page, migration, verdict));
        }
    }
}

/// A migration's end, as an agent tells it.
pub(crate) const fn ended(page: PageRef, migration: Migration, verdict: Verdict) -> Event {
    Event::Ended {
        page,
        migration,
        from: None,
        verdict,
        mechanism: Mechanism::Transaction,
        took: Nanos::ZERO,
        inaccessible: Nanos::ZERO,
    }
}

fn tiers(fast_pages: u64, slow_pages: u64) -> Tiers {
    let node = |id, tier, pages: u64| NodeInfo {
        id,
        tier: TierId(tier),
        capacity_bytes: pages * PAGE,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    Tiers::new(vec![node(FAST, 0, fast_pages), node(SLOW, 1, slow_pages)])
}

/// Two nodes of so many bytes each, whose latencies are known.
pub(crate) fn read_tiers(bytes: u64) -> Tiers {
    let node = |id, tier, cpus, ns| NodeInfo {
        id,
        tier: TierId(tier),
        capacity_bytes: bytes,
        cpus,
        read_latency_ns: Some(ns),
        write_latency_ns: Some(ns),
        read_bandwidth_mbps: Some(20_000),
    };
    Tiers::new(vec![
        node(FAST, 0, vec![0, 1], 80),
        node(SLOW, 1, Vec::new(), 250),
    ])
}

/// A counter of the policy.
pub(crate) fn counter(engine: &Engine, name: &str) -> u64 {
    let counters = engine.policy().counters();
    let found = counters.iter().find(|(figure, _)| figure.name == name);
    found.expect("the policy counts it").1
}

/// Processor time of this thread.
pub(crate) fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    let first = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(first.expect("nanoseconds"))
}

pub(crate) fn page(n: u64) -> PageRef {
    PageRef {
        pid: Pid(1),
        addr: Addr(n * PAGE),
        size: PageSize::Base4K,
    }
}

/// An engine, its machine and the time.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) machine: AtOnce,
    pub(crate) now: Nanos,
    spare: Vec<(PageRef, Migration)>,
}

impl Bench {
    /// `fast` of `pages` fit on the fast node; all start on `node`.
    pub(crate) fn new(pages: u64, fast: u64, node: NodeId) -> Self {
        let policy = terrace_policy::by_name("nomad", &tiers(fast, pages)).expect("two tiers");
        let mut bench = Self {
            engine: Engine::new(policy),
            machine: AtOnce {
                node: vec![node; usize::try_from(pages).expect("a length in memory")],
                free: if node == FAST {
                    fast.saturating_sub(pages)
                } else {
                    fast
                },
                fast_pages: fast,
                orders: Vec::new(),
                migrations: 0,
            },
            now: Nanos::from_secs(1),
            spare: Vec::new(),
        };
        bench.sample();
        bench
    }

    /// A pass over the accessed bits of all pages ends: all were accessed, or none.
    pub(crate) fn pass(&mut self, accessed: bool) {
        let pages = self.machine.node.len();
        for (chunk, nodes) in (0_u64..).zip(self.machine.node.chunks(CHUNK_PAGES)) {
            let on = [FAST, SLOW].map(|id| {
                let mut bits = PageBits::NONE;
                let here = nodes.iter().enumerate().filter(|(_, node)| **node == id);
                here.for_each(|(page, _)| bits.set(page));
                (id, bits)
            });
            let present = on[0].1.or(&on[1].1);
            let seen = if accessed { present } else { PageBits::NONE };
            let reading = ChunkReading {
                pid: Pid(1),
                parts: 1,
                start: Addr(chunk * CHUNK_BYTES),
                since: Nanos::ZERO,
                until: Nanos(1),
                ran: None,
                last: true,
                huge: false,
                present,
                accessed: seen,
                fresh: seen,
                nodes: &on,
            };
            self.engine.accessed(self.now, &reading);
        }
        let event = Event::Watched {
            pid: Pid(1),
            parts: 1,
            pages: pages as u64,
            busy: Nanos(1),
            lost: Nanos::ZERO,
        };
        self.engine.observe(self.now, &event);
    }

    pub(crate) fn sample(&mut self) {
        let memory = self.machine.memory();
        self.engine.memory(self.now, FAST, memory);
    }

    pub(crate) fn pump(&mut self) {
        self.engine.pump(self.now, &mut self.machine);
        self.machine
            .finish(self.now, &mut self.engine, &mut self.spare);
    }
}
