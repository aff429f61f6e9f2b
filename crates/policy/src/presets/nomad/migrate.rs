// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders and their ends: transactions for what is pending, demotion from the inactive tail under the mark.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::Nomad;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;
use crate::kit::free_memory::HIGH;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;
use crate::kit::two_lists::List;

/// Pages that demotion takes from a list at a time (`SWAP_CLUSTER_MAX`).
const CLUSTER: usize = 32;

/// A migration under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    from: NodeId,
    /// How often it was tried before.
    tries: u8,
}

impl Nomad {
    /// `kpromote`, one for each node that pages come from: a transaction for each that is pending, the first first.
    /// One that finds no room waits, and all of its node behind it.
    pub(super) fn promote_pending(&mut self) {
        for node in self.mpq.nodes() {
            self.promote_from(node);
        }
    }

    fn promote_from(&mut self, queue: NodeId) {
        while self.inflight.len() < self.params.inflight_pages {
            let Some(first) = self.mpq.first(queue) else {
                return;
            };
            let page = first.page;
            let on = self.pending_on(page);
            let to = on.and_then(|(from, ..)| {
                let above = self.tiers.above(from).map(|node| node.id);
                self.memory.roomiest(above, HIGH)
            });
            let (Some((from, key, index)), Some((to, room))) = (on, to) else {
                self.mpq.pop(queue);
                continue;
            };
            if room < page.size.bytes() {
                return;
            }
            self.mpq.pop(queue);
            if let Some(chunk) = self.residents.pages.get_mut(key) {
                chunk.own.pending.clear(index);
            }
            self.residents.unlist(from, key, index);
            let migration = Migration::Promote {
                to,
                keep_shadow: page.size == PageSize::Base4K,
            };
            let reason = if first.tries > 0 {
                self.counters.retries += 1;
                Reason::Retry
            } else {
                Reason::ReferencedTwice
            };
            let flight = Flight {
                from,
                tries: first.tries,
            };
            self.order(page, flight, migration, reason);
        }
    }

    /// Where a page is that is pending still.
    fn pending_on(&mut self, page: PageRef) -> Option<(NodeId, Key, usize)> {
        if self.inflight.contains_key(&page) {
            return None;
        }
        let (key, chunk, index) = self.residents.pages.find(page)?;
        let on = chunk.node(index).filter(|_| chunk.own.pending.get(index));
        on.map(|node| (node, key, index))
    }

    /// `kswapd`: under the mark pages go from the inactive tail, by clusters; of each those with a shadow first,
    /// which are remapped only.
    pub(super) fn demote_cold(&mut self) {
        let nodes: Vec<NodeId> = self.residents.lists.keys().copied().collect();
        for node in nodes {
            loop {
                let below = self.tiers.below(node).map(|below| below.id);
                let Some((to, _)) = self.memory.roomiest(below, HIGH) else {
                    break;
                };
                let mut cluster = self.coldest(node);
                if cluster.is_empty() {
                    break;
                }
                cluster.sort_by_key(|page| !self.has_shadow(*page));
                for page in cluster {
                    let flight = Flight {
                        from: node,
                        tries: 0,
                    };
                    let migration = Migration::Demote { to };
                    self.order(page, flight, migration, Reason::FastPressure);
                }
            }
        }
    }

    /// Takes a cluster from the node's lists, as far as it is under its mark.
    fn coldest(&mut self, node: NodeId) -> Vec<PageRef> {
        let factor = self.params.demote_scale_factor;
        let shortage = self.memory.shortage(node, |memory| mark(memory, factor));
        let most = self.params.inflight_pages - self.inflight.len();
        let inflight = &self.inflight;
        self.residents
            .take_coldest(node, shortage, most.min(CLUSTER), |page| {
                inflight.contains_key(page)
            })
    }

    fn has_shadow(&mut self, page: PageRef) -> bool {
        let found = self.residents.pages.find(page);
        found.is_some_and(|(_, chunk, index)| chunk.own.shadow.get(index))
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
        let onto_shadow = verdict == Verdict::MovedOntoShadow;
        let up = matches!(migration, Migration::Promote { .. });
        let shadow = up && verdict == Verdict::Moved { shadow: true };
        let moved = onto_shadow || matches!(verdict, Verdict::Moved { .. });
        let ways = (flight.from, to);
        self.memory
            .ended(ways, bytes, moved && !onto_shadow, moved && !shadow);
        if verdict == Verdict::NoMemory {
            self.no_memory(page, migration);
        }
        let Some((key, chunk, index)) = self.residents.pages.find(page) else {
            return;
        };
        if !chunk.flying.get(index) {
            return;
        }
        chunk.flying.clear(index);
        match verdict {
            Verdict::Moved { .. } | Verdict::MovedOntoShadow => {
                if let Some(chunk) = self.residents.pages.get_mut(key) {
                    chunk.place(index, to);
                    if shadow {
                        chunk.own.shadow.set(index);
                    } else {
                        chunk.own.shadow.clear(index);
                    }
                }
                let list = if up { List::Active } else { List::Inactive };
                self.residents.list(to, key, index, list);
            }
            Verdict::Lost => {
                self.forget(key, &PageBits::one(index));
            }
            Verdict::Dirtied | Verdict::Busy | Verdict::NoMemory => {
                self.residents.list(flight.from, key, index, List::Inactive);
                if up {
                    self.again(flight, key, index);
                }
            }
        }
    }

    /// An aborted transaction waits for its turn again; after too many the page must fault anew.
    fn again(&mut self, flight: Flight, key: Key, index: usize) {
        if flight.tries >= self.params.max_retries {
            self.counters.given_up += 1;
            return;
        }
        if let Some(chunk) = self.residents.pages.get_mut(key) {
            let page = page_of(key, index, chunk.size());
            if self.mpq.push(flight.from, page, flight.tries + 1) {
                chunk.own.pending.set(index);
            }
        }
    }

    /// 3.2: where an allocation on the slow node fails, many times the request is freed of shadows.
    fn no_memory(&mut self, page: PageRef, migration: Migration) {
        self.memory.mark_full(migration.target());
        if matches!(migration, Migration::Demote { .. }) {
            let bytes = page.size.bytes() * self.params.shadow_reclaim_factor;
            let reason = Reason::AllocationFailed;
            self.actions
                .push_back(Action::ReclaimShadows { bytes, reason });
        }
    }
}

/// What demotion keeps free: `vm.demote_scale_factor` / 10,000 of the node above its high watermark.
fn mark(memory: &NodeMemory, factor: u64) -> u64 {
    let share = u128::from(memory.total_bytes) * u128::from(factor) / 10_000;
    let share = u64::try_from(share).unwrap_or(u64::MAX);
    memory.high_bytes.saturating_add(share)
}
