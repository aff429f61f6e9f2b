// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders and their ends: promotion from the queue at the limit's rate (3.1.2), demotion up to the pro watermark (3.3.1).

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;

use super::Chrono;
use super::queue::Entry;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;
use crate::kit::free_memory::HIGH;
use crate::kit::rate::bytes_in;
use crate::kit::two_lists::List;

/// Pages that demotion takes from a list at a time (`SWAP_CLUSTER_MAX`).
const CLUSTER: usize = 32;

/// The gap below the pro watermark is at most such a part of the node: what is free serves nobody.
const GAP_MOST: u64 = 10;

/// A migration under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    from: NodeId,
    /// Of a promotion.
    idle: Nanos,
}

impl Chrono {
    /// Migrations for the first of the queue, as far as the limit lets them. One that finds no room waits, and all behind it.
    pub(super) fn promote(&mut self, now: Nanos) {
        // What a second brings is kept. The last page may take more, so that a limit below a huge page a second promotes
        // huge pages, too.
        let limit = self.tuning.limit();
        self.allowance.fill(now, limit, limit);
        self.starved = false;
        while self.inflight.len() < self.params.inflight_pages && self.allowance.any() {
            let Some(Entry { page, idle }) = self.queue.first() else {
                return;
            };
            let top = self.tiers.top().map(|node| node.id);
            let to = self.memory.roomiest(top, HIGH);
            let (Some(from), Some((to, room))) = (self.waits_on(page), to) else {
                self.queue.pop();
                continue;
            };
            if room < page.size.bytes() {
                self.starved = true;
                return;
            }
            self.queue.pop();
            if let Some((key, chunk, index)) = self.residents.pages.find(page) {
                chunk.own.queued.clear(index);
                self.residents.unlist(from, key, index);
            }
            let bytes = page.size.bytes();
            self.allowance.take(bytes);
            self.tuning.now.dequeued += bytes;
            let keep_shadow = false;
            let migration = Migration::Promote { to, keep_shadow };
            self.order(page, Flight { from, idle }, migration, Reason::ShortIdle);
        }
    }

    /// Where a page is that waits still.
    fn waits_on(&mut self, page: PageRef) -> Option<NodeId> {
        if self.inflight.contains_key(&page) {
            return None;
        }
        let (_, chunk, index) = self.residents.pages.find(page)?;
        let on = chunk.node(index).filter(|_| chunk.own.queued.get(index));
        on.filter(|node| !self.tiers.is_top(*node))
    }

    /// Below the high watermark, or where a promotion finds no room, pages go from the inactive tail until there is as
    /// much free as the pro watermark says.
    pub(super) fn demote(&mut self) {
        let nodes: Vec<NodeId> = self.residents.lists.keys().copied().collect();
        for node in nodes {
            let starved = self.starved && self.tiers.is_top(node);
            if starved || self.memory.shortage(node, |memory| memory.high_bytes) > 0 {
                self.demoting.insert(node);
            }
            while self.demoting.contains(&node) {
                let shortage = self.shortage(node);
                if shortage == 0 {
                    self.demoting.remove(&node);
                }
                let most = self.params.inflight_pages - self.inflight.len();
                let inflight = &self.inflight;
                let below = self.tiers.below(node).map(|below| below.id);
                let to = self.memory.roomiest(below, HIGH);
                let cluster =
                    self.residents
                        .take_coldest(node, shortage, most.min(CLUSTER), |page| {
                            inflight.contains_key(page)
                        });
                let Some((to, _)) = to.filter(|_| !cluster.is_empty()) else {
                    break;
                };
                for page in cluster {
                    let flight = Flight {
                        from: node,
                        idle: Nanos::ZERO,
                    };
                    let migration = Migration::Demote { to };
                    self.order(page, flight, migration, Reason::FastPressure);
                }
            }
        }
    }

    /// Bytes that the node is short of its pro watermark; of one that is not in the fastest tier, of high.
    pub(super) fn shortage(&self, node: NodeId) -> u64 {
        let gap = if self.tiers.is_top(node) {
            self.gap()
        } else {
            0
        };
        self.memory.shortage(node, |memory| pro(memory, gap))
    }

    /// "twice the default scan interval multiplied by the promotion rate limit", bytes.
    fn gap(&self) -> u64 {
        let periods = self.params.scan_period + self.params.scan_period;
        bytes_in(periods, self.tuning.limit())
    }

    /// The pro watermarks of the fastest tier's nodes.
    pub(super) fn pro_watermark(&self) -> u64 {
        let top = self.tiers.top();
        top.filter_map(|node| self.memory.sample(node.id))
            .map(|memory| pro(&memory, self.gap()))
            .sum()
    }

    /// Free memory of the fastest tier above its pro watermarks.
    pub(super) fn spare(&self) -> u64 {
        let above = |id| {
            let memory = self.memory.sample(id).unwrap_or_default();
            let gap = pro(&memory, self.gap()) - memory.high_bytes;
            self.memory.room(id, HIGH).saturating_sub(gap)
        };
        self.tiers.top().map(|node| above(node.id)).sum()
    }

    fn order(&mut self, page: PageRef, flight: Flight, migration: Migration, reason: Reason) {
        if let Some((_, chunk, index)) = self.residents.pages.find(page) {
            chunk.flying.set(index);
        }
        let bytes = page.size.bytes();
        self.memory.ordered(flight.from, migration.target(), bytes);
        self.inflight.insert(page, flight);
        self.actions.push_back(Action::Migrate {
            page,
            migration,
            mechanism: None,
            reason,
        });
    }

    /// A migration ended.
    pub(super) fn ended(
        &mut self,
        now: Nanos,
        page: PageRef,
        migration: Migration,
        verdict: Verdict,
    ) {
        let Some(flight) = self.inflight.remove(&page) else {
            return;
        };
        // Half of what may be under way has ended: there is more to order.
        if self.inflight.len() * 2 < self.params.inflight_pages {
            self.deadline = self.deadline.min(now);
        }
        let (to, bytes) = (migration.target(), page.size.bytes());
        let up = matches!(migration, Migration::Promote { .. });
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        self.memory.ended((flight.from, to), bytes, moved, moved);
        if up && moved {
            self.tuning.now.promoted += bytes;
        }
        if verdict == Verdict::NoMemory {
            self.memory.mark_full(to);
        }
        let Some((key, chunk, index)) = self.residents.pages.find(page) else {
            return;
        };
        if !chunk.flying.get(index) {
            return;
        }
        chunk.flying.clear(index);
        if moved {
            self.dcsc.moved(now, page);
            chunk.place(index, to);
            if !up {
                chunk.own.demoted.set(index);
                self.demoted.add(now, key, index);
                if self.params.arms_demoted() {
                    self.actions.push_back(Action::Arm { page });
                }
            }
            let list = if up { List::Active } else { List::Inactive };
            self.residents.list(to, key, index, list);
        } else if verdict == Verdict::Lost {
            let one = terrace_core::PageBits::one(index);
            self.residents.forget(key, &one);
        } else {
            // Its idle times still hold where only memory was short; else it has to be a candidate again.
            if up && verdict == Verdict::NoMemory {
                chunk.own.queued.set(index);
                self.enqueue(Entry {
                    page,
                    idle: flight.idle,
                });
            }
            self.residents.list(flight.from, key, index, List::Inactive);
        }
    }
}

/// The pro watermark of a node, with so large a gap at most.
fn pro(memory: &NodeMemory, gap: u64) -> u64 {
    memory.high_bytes + gap.min(memory.total_bytes / GAP_MOST)
}
