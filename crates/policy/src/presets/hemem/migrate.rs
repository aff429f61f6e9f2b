// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is migrated at a tick (HeMem 3.3): the reserve is restored, hot slow pages take the places of
//! cold fast ones.
//!
//! A swap is ordered as a demotion and a promotion at once where the fast tier has a page free now,
//! which is what the reserve is for; else the demotion first, and the hot page keeps its place in its
//! list until there is room.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;

use super::Hemem;
use super::Queue;
use super::classify;
use super::classify::Seat;
use super::table::Meta;
use super::table::Tier;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;
use crate::kit::free_memory::HIGH;
use crate::kit::free_memory::LOW;

/// So long an answer to an inventory is waited for.
const ANSWER: Nanos = Nanos::from_millis(500);
/// A page whose migration fails so often in a row must prove itself anew.
const RETRIES: u8 = 3;
/// So many cold fast pages are looked at for one that a hot page may displace.
const LOOKED_AT: usize = 16;
/// Longest pause between inventories, as a multiple of the shortest.
const LONGEST: u64 = 16;

/// When pages were asked for: those of the fast tier, or those of programs with priority that are not in it. The policy
/// learns of a page by its samples, and of cold ones only so.
#[derive(Debug)]
pub(super) struct Inventory {
    shortest: Nanos,
    interval: Nanos,
    asked: Option<Nanos>,
    found: bool,
}

impl Inventory {
    pub(super) const fn new(shortest: Nanos) -> Self {
        Self {
            shortest,
            interval: shortest,
            asked: None,
            found: false,
        }
    }

    /// It told of a page that was not known to be there.
    pub(super) const fn found(&mut self) {
        self.found = true;
    }

    /// There is more memory to know of: the next may come soon.
    pub(super) const fn renew(&mut self) {
        self.interval = self.shortest;
    }

    /// Whether to ask now.
    fn due(&mut self, now: Nanos) -> bool {
        if self
            .asked
            .is_some_and(|asked| now.since(asked) < self.interval)
        {
            return false;
        }
        let longest = self.shortest.0.saturating_mul(LONGEST);
        self.interval = match (self.asked, self.found) {
            (Some(_), false) => Nanos((self.interval.0 * 2).min(longest)),
            _ => self.shortest,
        };
        self.asked = Some(now);
        self.found = false;
        true
    }

    /// Whether the last one has been answered.
    fn answered(&self, now: Nanos) -> bool {
        self.asked.is_some_and(|asked| now.since(asked) >= ANSWER)
    }
}

impl Hemem {
    pub(super) const fn page_bytes(&self) -> u64 {
        self.params.page_size.bytes()
    }

    fn may_order(&self, pages: u64) -> bool {
        let bytes = self.page_bytes() * pages;
        self.inflight < self.params.inflight_pages
            && self.inflight_bytes + bytes <= self.params.inflight_bytes.max(bytes)
            && self.limit.has(bytes)
    }

    /// Free bytes of the fast tier once all orders under way have ended, less the kernel's high watermarks and the
    /// reserve; negative where that much is missing.
    fn surplus(&self) -> i128 {
        let reserve = self.params.reserve(self.fast_bytes());
        let leaving = i128::from(self.memory.leaving());
        self.memory.surplus(HIGH) + leaving - i128::from(reserve)
    }

    /// The node of the fast or of the slow tier with most room, if a page fits there now. HeMem knows two memories:
    /// all that is not in the fastest tier is the other.
    fn roomiest(&self, fast: bool) -> Option<NodeId> {
        let nodes = self.tiers.nodes().iter().map(|node| node.id);
        let there = nodes.filter(|id| self.tiers.is_top(*id) == fast);
        let (node, room) = self.memory.roomiest(there, LOW)?;
        (room >= self.page_bytes()).then_some(node)
    }

    fn order(&mut self, unit: u32, migration: Migration, reason: Reason) {
        let mut meta = self.table.get(unit);
        meta.set_moving(true);
        self.put(unit, meta, Seat::Keep);
        let bytes = self.page_bytes();
        self.memory.ordered(None, migration.target(), bytes);
        self.limit.take(bytes);
        self.inflight += 1;
        self.inflight_bytes += bytes;
        self.actions.push_back(Action::Migrate {
            page: self.table.page(unit),
            migration,
            mechanism: None,
            reason,
        });
    }

    /// Whether it could be ordered: the slow tier may be full.
    fn demote(&mut self, unit: u32, reason: Reason) -> bool {
        let Some(to) = self.roomiest(false) else {
            return false;
        };
        self.order(unit, Migration::Demote { to }, reason);
        true
    }

    /// The first cold page of the fast tier. Where none is known, asks what is there.
    fn cold(&mut self, now: Nanos) -> Option<u32> {
        let cold = self.lists[Queue::FastCold as usize].front();
        if cold.is_none() && self.inventory.due(now) {
            self.actions.push_back(Action::Inventory);
        }
        cold
    }

    /// The cold fast page whose place a hot one may take. Those that are not cold enough are looked at
    /// again after the rest of their list.
    fn displaced_by(&mut self, hot: u32, now: Nanos) -> Option<u32> {
        let hot = self.table.get(hot);
        for _ in 0..LOOKED_AT {
            let unit = self.cold(now)?;
            let mut cold = self.table.get(unit);
            let seat = classify::cool(&mut cold, self.clock, &self.params);
            if classify::displaces(hot, cold, &self.params) {
                self.put(unit, cold, seat);
                return Some(unit);
            }
            self.put(unit, cold, Seat::Back);
        }
        None
    }

    /// Keeps memory free in the fast tier (3.3), if need be by migrating pages that are not cold. What
    /// is missing of one page is left missing: else one would go back and forth as little memory does.
    pub(super) fn restore_reserve(&mut self, now: Nanos) {
        while self.surplus() <= -i128::from(self.page_bytes()) && self.may_order(1) {
            let cold = self.cold(now);
            // Any page will do: not a write-heavy one, which are first.
            let arbitrary = || {
                let known = self.inventory.answered(now);
                self.lists[Queue::FastHot as usize].back().filter(|_| known)
            };
            let Some(unit) = cold.or_else(arbitrary) else {
                return;
            };
            if !self.demote(unit, Reason::FastPressure) {
                return;
            }
            match cold {
                Some(_) => self.counters.reserve_cold += 1,
                None => self.counters.reserve_arbitrary += 1,
            }
        }
    }

    /// The slow page that is next, with the reason why. What has cooled meanwhile is not.
    fn next_hot(&mut self) -> Option<(u32, Reason)> {
        if let Some(unit) = self.lists[Queue::SlowPriority as usize].front() {
            return Some((unit, Reason::Priority));
        }
        loop {
            let unit = self.lists[Queue::SlowHot as usize].front()?;
            let mut meta = self.table.get(unit);
            if meta.clock() != self.clock && self.params.cooling_pages > 0 {
                let seat = classify::cool(&mut meta, self.clock, &self.params);
                self.put(unit, meta, seat);
                continue;
            }
            let reason = if meta.heavy() {
                Reason::WriteHeavy
            } else {
                Reason::Hot
            };
            return Some((unit, reason));
        }
    }

    /// Whose place a slow page takes.
    fn victim(&mut self, unit: u32, reason: Reason, now: Nanos) -> Option<u32> {
        if reason != Reason::Priority {
            return match self.params.swap_ratio {
                0 => self.cold(now),
                _ => self.displaced_by(unit, now),
            };
        }
        // A program with priority displaces what others have, cold or not.
        let cold = self.cold(now);
        let hot = || self.lists[Queue::FastHot as usize].back();
        cold.or_else(|| hot().filter(|_| self.inventory.answered(now)))
    }

    /// Swaps hot slow pages with cold fast ones, as long as there are both.
    pub(super) fn promote(&mut self, now: Nanos) {
        let bytes = self.page_bytes();
        while self.may_order(2) {
            let Some((unit, reason)) = self.next_hot() else {
                return;
            };
            let swap = self.surplus() < i128::from(bytes);
            if swap {
                let Some(victim) = self.victim(unit, reason, now) else {
                    match self.lists[Queue::FastCold as usize].len() {
                        0 => self.counters.no_cold += 1,
                        _ => self.counters.no_colder += 1,
                    }
                    return;
                };
                if !self.demote(victim, Reason::MakeRoom) {
                    return;
                }
                self.counters.swaps += 1;
            }
            let Some(to) = self.roomiest(true) else {
                // Room is being made.
                return;
            };
            self.counters.promoted_heavy += u64::from(reason == Reason::WriteHeavy);
            let migration = Migration::Promote {
                to,
                keep_shadow: false,
            };
            self.order(unit, migration, reason);
        }
    }

    /// All memory of a program with priority is to be fast: asks what is not. New pages come to slow memory when the
    /// fast one is full, and nothing tells of them but samples.
    pub(super) fn look_for_pages(&mut self, now: Nanos) {
        let mut prioritized = self.regions.with_priority().peekable();
        if prioritized.peek().is_some() && self.search.due(now) {
            let find = prioritized.map(|pid| Action::FindSlow { pid });
            self.actions.extend(find);
        }
    }

    /// A migration ended.
    pub(super) fn ended(&mut self, page: PageRef, migration: Migration, verdict: Verdict) {
        let (to, bytes) = (migration.target(), page.size.bytes());
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        self.inflight = self.inflight.saturating_sub(1);
        self.inflight_bytes = self.inflight_bytes.saturating_sub(bytes);
        self.memory.ended((None, to), bytes, moved, moved);
        if verdict == Verdict::NoMemory {
            self.memory.mark_full(to);
        }
        if self.orphans.remove(&(page.pid, page.addr)) {
            return;
        }
        let Some(unit) = self.table.find(page.pid, page.addr) else {
            return;
        };
        let mut meta = self.table.get(unit);
        if !meta.moving() {
            // No order of ours.
            return;
        }
        meta.set_moving(false);
        let seat = match verdict {
            Verdict::Moved { .. } | Verdict::MovedOntoShadow => {
                meta.set_tier(if self.tiers.is_top(to) {
                    Tier::Fast
                } else {
                    Tier::Slow
                });
                meta.set_retries(0);
                Seat::Keep
            }
            // It was first before, and is again when there is room.
            Verdict::NoMemory => Seat::Front,
            Verdict::Dirtied | Verdict::Busy if meta.retries() + 1 < RETRIES => {
                meta.set_retries(meta.retries() + 1);
                Seat::Back
            }
            Verdict::Dirtied | Verdict::Busy => {
                self.counters.given_up += 1;
                meta = forgotten(meta);
                Seat::Keep
            }
            Verdict::Lost => {
                meta = forgotten(meta);
                Seat::Keep
            }
        };
        self.put(unit, meta, seat);
    }
}

/// Nothing is known of it any more, but how far it is cooled.
fn forgotten(meta: Meta) -> Meta {
    let mut new = Meta::default();
    new.set_clock(meta.clock());
    new
}
