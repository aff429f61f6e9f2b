// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine with a fast and a slow node that carries out what it is told, and complains about orders
//! that make no sense.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::NodeMemory;
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
use terrace_policy::presets::hemem::Hemem;

pub(crate) const FAST: NodeId = NodeId(0);
pub(crate) const SLOW: NodeId = NodeId(1);
pub(crate) const PAGE: u64 = 4096;
pub(crate) const PID: Pid = Pid(1);
/// The kernel's watermarks.
pub(crate) const LOW_PAGES: u64 = 2;
pub(crate) const HIGH_PAGES: u64 = 3;

pub(crate) fn tiers(fast_pages: u64) -> Tiers {
    let node = |id, tier, pages: u64| NodeInfo {
        id,
        tier: TierId(tier),
        capacity_bytes: pages * PAGE,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    Tiers::new(vec![node(FAST, 0, fast_pages), node(SLOW, 1, 1 << 20)])
}

pub(crate) fn page(n: u64) -> PageRef {
    PageRef {
        pid: PID,
        addr: Addr(n * PAGE),
        size: PageSize::Base4K,
    }
}

/// See the module.
pub(crate) struct Machine {
    node: BTreeMap<u64, NodeId>,
    pid: BTreeMap<u64, Pid>,
    fast_pages: u64,
}

impl Machine {
    pub(crate) fn new(fast_pages: u64, pages: u64) -> Self {
        Self {
            node: (0..pages).map(|n| (n, SLOW)).collect(),
            pid: BTreeMap::new(),
            fast_pages,
        }
    }

    pub(crate) fn place(&mut self, n: u64, node: NodeId) {
        self.node.insert(n, node);
    }

    /// Pages of another process, on the slow node.
    pub(crate) fn adopt(&mut self, pid: Pid, pages: std::ops::Range<u64>) {
        for n in pages {
            self.node.insert(n, SLOW);
            self.pid.insert(n, pid);
        }
    }

    /// What of a process is on the slow node.
    pub(crate) fn slow_of(&self, pid: Pid) -> Vec<PageRef> {
        let slow = self.node.iter().filter(|(_, node)| **node == SLOW);
        let its = slow.filter(|(n, _)| self.pid.get(n) == Some(&pid));
        its.map(|(n, _)| PageRef { pid, ..page(*n) }).collect()
    }

    pub(crate) fn node(&self, n: u64) -> NodeId {
        self.node[&n]
    }

    pub(crate) fn memory(&self) -> NodeMemory {
        let used = self.node.values().filter(|node| **node == FAST).count() as u64;
        NodeMemory {
            free_bytes: (self.fast_pages - used) * PAGE,
            low_bytes: LOW_PAGES * PAGE,
            high_bytes: HIGH_PAGES * PAGE,
            total_bytes: self.fast_pages * PAGE,
        }
    }

    pub(crate) fn slow_memory(&self) -> NodeMemory {
        Self::some_memory(1 << 32)
    }

    pub(crate) fn some_memory(free: u64) -> NodeMemory {
        NodeMemory {
            free_bytes: free,
            low_bytes: PAGE,
            high_bytes: 2 * PAGE,
            total_bytes: 1 << 33,
        }
    }

    /// The policy's orders: page, and whether it is promoted.
    pub(crate) fn take_orders(&self, policy: &mut Hemem) -> Vec<(u64, bool)> {
        let mut orders: Vec<(u64, bool)> = Vec::new();
        while let Some(action) = policy.poll_action() {
            let Action::Migrate {
                page, migration, ..
            } = action
            else {
                continue;
            };
            let n = page.addr.0 / PAGE;
            assert!(orders.iter().all(|(other, _)| *other != n), "{n} twice");
            let (promote, at, to) = match migration {
                Migration::Promote { to, keep_shadow } => {
                    assert!(!keep_shadow);
                    (true, SLOW, to)
                }
                Migration::Demote { to } => (false, FAST, to),
                Migration::Exchange { .. } => panic!("{migration:?}"),
            };
            assert_eq!((self.node(n), to == FAST), (at, promote), "page {n}");
            orders.push((n, promote));
        }
        orders
    }

    /// Carries an order out, as `luck` will.
    pub(crate) fn finish(&mut self, n: u64, promote: bool, luck: u8) -> Verdict {
        match luck {
            0..=200 if promote && self.memory().free_bytes < PAGE => Verdict::NoMemory,
            0..=200 => {
                self.place(n, if promote { FAST } else { SLOW });
                Verdict::Moved { shadow: false }
            }
            luck => Self::any_verdict(luck),
        }
    }

    pub(crate) fn any_verdict(luck: u8) -> Verdict {
        match luck {
            0..=200 => Verdict::Moved { shadow: false },
            201..=225 => Verdict::Busy,
            226..=235 => Verdict::Dirtied,
            236..=245 => Verdict::NoMemory,
            _ => Verdict::Lost,
        }
    }

    pub(crate) fn ended(n: u64, promote: bool, verdict: Verdict) -> Event {
        let migration = if promote {
            Migration::Promote {
                to: FAST,
                keep_shadow: false,
            }
        } else {
            Migration::Demote { to: SLOW }
        };
        Event::Ended {
            from: None,
            page: page(n),
            migration,
            verdict,
            mechanism: Mechanism::MovePages,
            took: Nanos::ZERO,
            inaccessible: Nanos::ZERO,
        }
    }
}
