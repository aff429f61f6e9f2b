// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default policy keeps to what any policy must keep to, whatever happens.

#[path = "adaptive/nodes.rs"]
mod nodes;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use nodes::FAST;
use nodes::PAGE;
use nodes::tiers;
use nodes::two_sockets;
use proptest::prelude::*;
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
use terrace_core::Range;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Share;
use terrace_policy::Verdict;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

/// Anything at all, in terms of numbers that are made to fit.
#[derive(Debug, Clone, Copy)]
enum Step {
    Read {
        chunk: u8,
        bits: [u64; 4],
        rung: u8,
        huge: bool,
    },
    Over,
    Memory {
        free: [u8; 4],
    },
    Runs {
        node: Option<u16>,
    },
    Faults {
        chunk: u8,
        node: u16,
        times: u8,
    },
    Share {
        floor: u8,
        ceiling: Option<u8>,
    },
    End {
        which: u8,
        luck: u8,
    },
    Unmap {
        chunk: u8,
        pages: u16,
    },
    Gone,
    Wait {
        ms: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_u8, any::<[u64; 4]>(), 0..8_u8, prop::bool::weighted(0.1))
            .prop_map(|(chunk, bits, rung, huge)| Step::Read { chunk, bits, rung, huge }),
        1 => Just(Step::Over),
        2 => any::<[u8; 4]>().prop_map(|free| Step::Memory { free }),
        1 => prop::option::of(0..3_u16).prop_map(|node| Step::Runs { node }),
        2 => (0..3_u8, 0..3_u16, any::<u8>())
            .prop_map(|(chunk, node, times)| Step::Faults { chunk, node, times }),
        1 => any::<(u8, Option<u8>)>().prop_map(|(floor, ceiling)| Step::Share { floor, ceiling }),
        6 => any::<(u8, u8)>().prop_map(|(which, luck)| Step::End { which, luck }),
        1 => (0..3_u8, 0..600_u16).prop_map(|(chunk, pages)| Step::Unmap { chunk, pages }),
        1 => Just(Step::Gone),
        4 => (0..2_000_u16).prop_map(|ms| Step::Wait { ms }),
    ]
}

const PID: Pid = Pid(3);
const LOW: u64 = 2;

/// A page, what is asked for, and where it is.
type Order = (PageRef, Migration, Option<NodeId>);

/// What must hold: the orders under way, and the nodes' memory as the policy can know of it.
struct Watch {
    policy: Adaptive,
    now: Nanos,
    under_way: Vec<Order>,
    /// Bytes of each node that are free.
    free: Vec<u64>,
    /// Where pages were when they were told of, or moved, last.
    at: BTreeMap<PageRef, NodeId>,
}

impl Watch {
    fn new(policy: Adaptive, nodes: usize) -> Self {
        Self {
            policy,
            now: Nanos::ZERO,
            under_way: Vec::new(),
            free: vec![0; nodes],
            at: BTreeMap::new(),
        }
    }

    /// Bytes of a node that further orders to it may take.
    fn room(&self, node: NodeId) -> i128 {
        let coming = self.under_way.iter().filter(|(_, m, _)| m.target() == node);
        let coming: u64 = coming.map(|(page, ..)| page.size.bytes()).sum();
        i128::from(self.free[usize::from(node.0)]) - i128::from(coming + LOW * PAGE)
    }

    fn poll(&mut self) {
        if self.policy.next_deadline() <= self.now {
            self.policy.tick(self.now);
        }
        while let Some(action) = self.policy.poll_action() {
            let Action::Migrate {
                page, migration, ..
            } = action
            else {
                continue;
            };
            let overlaps = |other: &Order| {
                let (a, b) = (page, other.0);
                a.addr.0 < b.addr.0 + b.size.bytes() && b.addr.0 < a.addr.0 + a.size.bytes()
            };
            assert!(
                !self.under_way.iter().any(overlaps),
                "{page:?} is in two orders"
            );
            let from = self.at.get(&page).copied();
            assert_ne!(from, Some(migration.target()), "{page:?} is there");
            self.under_way.push((page, migration, from));
            assert!(self.room(migration.target()) >= 0, "no room for {page:?}");
        }
    }

    fn end(&mut self, which: u8, luck: u8) {
        if self.under_way.is_empty() {
            return;
        }
        let (page, migration, from) = self
            .under_way
            .swap_remove(usize::from(which) % self.under_way.len());
        let (to, bytes) = (usize::from(migration.target().0), page.size.bytes());
        let verdict = match luck {
            // Others took the memory before the order came to it.
            _ if self.free[to] < bytes => Verdict::NoMemory,
            0..=180 => Verdict::Moved { shadow: false },
            181..=210 => Verdict::Busy,
            211..=230 => Verdict::NoMemory,
            _ => Verdict::Lost,
        };
        if let Verdict::Moved { .. } = verdict {
            self.free[to] -= bytes;
            self.at.insert(page, migration.target());
            if let Some(from) = from {
                self.free[usize::from(from.0)] += bytes;
            }
        }
        let event = Event::Ended {
            from: None,
            page,
            migration,
            verdict,
            mechanism: Mechanism::MovePages,
            took: Nanos::ZERO,
            inaccessible: Nanos::ZERO,
        };
        self.policy.observe(self.now, &event);
    }

    fn read(&mut self, chunk: u8, bits: [u64; 4], rung: u8, huge: bool) {
        let until = Nanos(1_000_000 << rung);
        let words = |word: u64| PageBits([word, 0, word, 0, 0, 0, 0, 1]);
        let [present, accessed, first, second] = bits.map(words);
        let accessed = accessed.and(&present);
        // Two bits say the node, as far as there are so many.
        let mut nodes: Vec<(NodeId, PageBits)> = Vec::new();
        let mut left = present;
        for (node, pages) in [(1, first), (2, second), (3, first.and(&second))] {
            if node + 1 < self.free.len() {
                let there = left.and(&pages);
                left = left.without(&there);
                nodes.push((NodeId(u16::try_from(node).expect("few")), there));
            }
        }
        let rest = left.and(&first);
        let last = u16::try_from(self.free.len() - 1).expect("few");
        nodes.extend([(FAST, left.without(&rest)), (NodeId(last), rest)]);
        let start = u64::from(chunk) * CHUNK_BYTES;
        for (node, pages) in &nodes {
            let named = pages.pages().map(|page| PageRef {
                pid: PID,
                addr: Addr(start + page as u64 * PAGE),
                size: if huge {
                    PageSize::Huge2M
                } else {
                    PageSize::Base4K
                },
            });
            self.at.extend(named.map(|page| (page, *node)));
        }
        let reading = ChunkReading {
            pid: PID,
            parts: 1,
            start: Addr(start),
            since: if rung == 0 {
                Nanos::ZERO
            } else {
                Nanos(until.0 / 2)
            },
            until,
            ran: None,
            last: rung >= 6,
            huge,
            present,
            accessed,
            fresh: accessed,
            nodes: &nodes,
        };
        self.policy.accessed(self.now, &reading);
    }

    /// As many hint faults of a chunk's first page by processors of that node.
    fn fault(&mut self, chunk: u8, node: NodeId, times: u8) {
        let fault = Event::HintFault {
            page: PageRef {
                pid: PID,
                addr: Addr(u64::from(chunk) * CHUNK_BYTES),
                size: PageSize::Base4K,
            },
            node: NodeId(0),
            write: false,
            idle: None,
            cpu_node: Some(node),
        };
        for _ in 0..times {
            self.policy.observe(self.now, &fault);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Read {
                chunk,
                bits,
                rung,
                huge,
            } => self.read(chunk, bits, rung, huge),
            Step::Over => {
                let over = Event::Watched {
                    pid: PID,
                    parts: 1,
                    pages: 3,
                    busy: Nanos::from_millis(1),
                    lost: Nanos::from_millis(1),
                };
                self.policy.observe(self.now, &over);
            }
            Step::Memory { free } => {
                // The last node has room for all.
                let last = self.free.len() - 1;
                for (node, free) in free.into_iter().enumerate().take(last + 1) {
                    let pages = if node == last {
                        1 << 16
                    } else {
                        u64::from(free) * 8
                    };
                    self.free[node] = pages * PAGE;
                    let memory = NodeMemory {
                        free_bytes: pages * PAGE,
                        low_bytes: LOW * PAGE,
                        high_bytes: LOW * PAGE,
                        total_bytes: 1 << 30,
                    };
                    let node = NodeId(u16::try_from(node).expect("few"));
                    self.policy
                        .observe(self.now, &Event::Memory { node, memory });
                }
            }
            Step::Runs { node } => {
                let (pid, cpu_node) = (PID, node.map(NodeId));
                self.policy
                    .observe(self.now, &Event::Runs { pid, cpu_node });
            }
            Step::Faults { chunk, node, times } => self.fault(chunk, NodeId(node), times),
            Step::Share { floor, ceiling } => {
                let bytes = |some: u8| u64::from(some) * 16 * PAGE;
                let share = Share {
                    floor_bytes: bytes(floor),
                    ceiling_bytes: ceiling.map(bytes),
                    ..Share::default()
                };
                let event = Event::Share { pid: PID, share };
                self.policy.observe(self.now, &event);
            }
            Step::End { which, luck } => self.end(which, luck),
            Step::Unmap { chunk, pages } => {
                let start = u64::from(chunk) * CHUNK_BYTES;
                let range = Range {
                    start: Addr(start),
                    end: Addr(start + u64::from(pages) * PAGE),
                };
                self.policy
                    .observe(self.now, &Event::Unmapped { pid: PID, range });
            }
            Step::Gone => self.policy.observe(self.now, &Event::Gone { pid: PID }),
            Step::Wait { ms } => self.now = self.now + Nanos::from_millis(u64::from(ms)),
        }
        self.poll();
    }
}

proptest! {
    #[test]
    fn whatever_happens_orders_fit_and_no_page_is_in_two(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let params = || Params { reserve: Some(0), ..Params::default() };
        let (tiers_of_two, views) = two_sockets(1 << 18);
        let watches = [
            Watch::new(Adaptive::new(params(), tiers(1 << 18)), 2),
            Watch::new(Adaptive::on(params(), tiers_of_two, views), 4),
        ];
        for mut watch in watches {
            for step in &steps {
                watch.take(*step);
            }
            let distinct: BTreeSet<PageRef> = watch.under_way.iter().map(|(page, ..)| *page).collect();
            prop_assert_eq!(distinct.len(), watch.under_way.len());
            prop_assert!(watch.policy.counters().iter().any(|(figure, _)| figure.name == "passes"));
        }
    }
}
