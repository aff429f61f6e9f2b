// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default policy keeps to what any policy must keep to, whatever happens.

#[path = "adaptive/nodes.rs"]
mod nodes;

use std::collections::BTreeSet;

use nodes::FAST;
use nodes::PAGE;
use nodes::SLOW;
use nodes::tiers;
use proptest::prelude::*;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Verdict;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

/// Anything at all, in terms of numbers that are made to fit.
#[derive(Debug, Clone, Copy)]
enum Step {
    Read {
        chunk: u8,
        bits: [u64; 3],
        rung: u8,
        huge: bool,
    },
    Over,
    Memory {
        free: u8,
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
        8 => (0..3_u8, any::<[u64; 3]>(), 0..8_u8, prop::bool::weighted(0.1))
            .prop_map(|(chunk, bits, rung, huge)| Step::Read { chunk, bits, rung, huge }),
        1 => Just(Step::Over),
        2 => any::<u8>().prop_map(|free| Step::Memory { free }),
        6 => any::<(u8, u8)>().prop_map(|(which, luck)| Step::End { which, luck }),
        1 => (0..3_u8, 0..600_u16).prop_map(|(chunk, pages)| Step::Unmap { chunk, pages }),
        1 => Just(Step::Gone),
        4 => (0..2_000_u16).prop_map(|ms| Step::Wait { ms }),
    ]
}

const PID: Pid = Pid(3);
const LOW: u64 = 2;

/// What must hold: the orders under way, and fast memory as the policy can know of it.
struct Watch {
    policy: Adaptive,
    now: Nanos,
    under_way: Vec<(PageRef, Migration)>,
    /// Bytes of fast memory that are free.
    free: u64,
}

impl Watch {
    /// Bytes of fast memory that further promotions may take.
    fn room(&self) -> i128 {
        let promoted = self.under_way.iter().filter(|(_, m)| m.target() == FAST);
        let coming: u64 = promoted.map(|(page, _)| page.size.bytes()).sum();
        i128::from(self.free) - i128::from(coming + LOW * PAGE)
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
            let overlaps = |other: &(PageRef, Migration)| {
                let (a, b) = (page, other.0);
                a.addr.0 < b.addr.0 + b.size.bytes() && b.addr.0 < a.addr.0 + a.size.bytes()
            };
            assert!(
                !self.under_way.iter().any(overlaps),
                "{page:?} is in two orders"
            );
            self.under_way.push((page, migration));
            if let Migration::Promote { to, .. } = migration {
                assert_eq!(to, FAST);
                assert!(self.room() >= 0, "no room for {page:?}");
            }
        }
    }

    fn end(&mut self, which: u8, luck: u8) {
        if self.under_way.is_empty() {
            return;
        }
        let (page, migration) = self
            .under_way
            .swap_remove(usize::from(which) % self.under_way.len());
        let (up, bytes) = (migration.target() == FAST, page.size.bytes());
        let verdict = match luck {
            // Others took the memory before the order came to it.
            _ if up && self.free < bytes => Verdict::NoMemory,
            0..=180 => Verdict::Moved { shadow: false },
            181..=210 => Verdict::Busy,
            211..=230 => Verdict::NoMemory,
            _ => Verdict::Lost,
        };
        match verdict {
            Verdict::Moved { .. } if up => self.free -= bytes,
            Verdict::Moved { .. } => self.free += bytes,
            _ => {}
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

    fn read(&mut self, chunk: u8, bits: [u64; 3], rung: u8, huge: bool) {
        let until = Nanos(1_000_000 << rung);
        let words = |word: u64| PageBits([word, 0, word, 0, 0, 0, 0, 1]);
        let (present, accessed, fast) = (words(bits[0]), words(bits[1]), words(bits[2]));
        let accessed = accessed.and(&present);
        let fast = fast.and(&present);
        let reading = ChunkReading {
            pid: PID,
            parts: 1,
            start: Addr(u64::from(chunk) * CHUNK_BYTES),
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
            nodes: &[(FAST, fast), (SLOW, present.without(&fast))],
        };
        self.policy.accessed(self.now, &reading);
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
                let free = u64::from(free) * 8;
                self.free = free * PAGE;
                let memory = |free: u64| NodeMemory {
                    free_bytes: free * PAGE,
                    low_bytes: LOW * PAGE,
                    high_bytes: LOW * PAGE,
                    total_bytes: 1 << 30,
                };
                for (node, memory) in [(FAST, memory(free)), (SLOW, memory(1 << 16))] {
                    self.policy
                        .observe(self.now, &Event::Memory { node, memory });
                }
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
        let mut watch = Watch {
            policy: Adaptive::new(Params { reserve: Some(0), ..Params::default() }, tiers(1 << 18)),
            now: Nanos::ZERO,
            under_way: Vec::new(),
            free: 0,
        };
        for step in steps {
            watch.take(step);
        }
        let distinct: BTreeSet<PageRef> = watch.under_way.iter().map(|(page, _)| *page).collect();
        prop_assert_eq!(distinct.len(), watch.under_way.len());
        prop_assert!(watch.policy.counters().iter().any(|(figure, _)| figure.name == "passes"));
    }
}
