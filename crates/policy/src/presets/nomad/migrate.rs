// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which migrations are ordered: promotion while there is room, demotion to make or keep it.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;

use super::Nomad;
use super::set_state;
use super::victims::Pass;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::pages::Meta;
use crate::pages::State;
use crate::pages::class_idle;

impl Nomad {
    /// The roomiest node of the tier above.
    fn promotion_target(&self, from: NodeId) -> Option<NodeId> {
        self.tiers
            .above(from)
            .map(|n| n.id)
            .max_by_key(|id| (self.rooms.room(*id), std::cmp::Reverse(*id)))
    }

    fn demotion_target(&self, from: NodeId) -> Option<NodeId> {
        self.tiers
            .below(from)
            .map(|n| n.id)
            .max_by_key(|id| (self.rooms.room(*id), std::cmp::Reverse(*id)))
    }

    fn migrate(&mut self, page: PageRef, migration: Migration, reason: Reason) {
        set_state(&mut self.pages, page, State::InFlight);
        self.rooms.promise(migration.target(), page.size.bytes());
        self.inflight += 1;
        self.actions.push_back(Action::Migrate {
            page,
            migration,
            reason,
        });
    }

    /// Promotes what waits while there is room; makes room where it is worth it.
    pub(super) fn promote(&mut self, now: Nanos) {
        while let Some(page) = self.retries.due(now) {
            let Some(meta) = self.pages.get(page) else {
                continue;
            };
            if meta.state == State::Pending {
                self.counters.retries += 1;
                if let Some(coldest) = self.pending.push(meta.idle_class, page) {
                    set_state(&mut self.pages, coldest, State::Idle);
                }
            }
        }
        while self.inflight < self.params.inflight_pages {
            let Some((class, page)) = self.pending.peek() else {
                return;
            };
            let Some(meta) = self.pages.get(page).copied() else {
                self.pending.pop();
                continue;
            };
            let Some(to) = meta.node().and_then(|node| self.promotion_target(node)) else {
                self.pending.pop();
                set_state(&mut self.pages, page, State::Idle);
                continue;
            };
            if meta.state != State::Pending {
                self.pending.pop();
                continue;
            }
            if self.rooms.room(to) < page.size.bytes() {
                self.make_room(now, class, page, to);
                return;
            }
            self.pending.pop();
            let unwritten = self.params.shadow_written || !meta.written();
            let keep_shadow =
                self.params.shadowing && unwritten && self.shadows.keep_next(now, page.pid);
            let reason = if meta.retries() > 0 {
                Reason::Retry
            } else {
                Reason::ReferencedTwice
            };
            self.note_contended(now, &meta);
            self.scan.promoted(class_idle(class));
            self.migrate(page, Migration::Promote { to, keep_shadow }, reason);
        }
    }

    /// While the fast tier is full, a page that comes back the other way was moved in vain.
    fn note_contended(&mut self, now: Nanos, meta: &Meta) {
        if meta.turned() {
            self.counters.turned += 1;
        }
        if meta.turned() || self.contended {
            self.governor.note(now, meta.turned());
        }
    }

    /// Demotes cold pages for hotter ones that wait, a batch at a time, as far as the governor
    /// lets it.
    fn make_room(&mut self, now: Nanos, class: u8, page: PageRef, on: NodeId) {
        if !self.scan.ages_known() {
            return;
        }
        let worth = Nanos(class_idle(class).0.saturating_mul(self.params.hysteresis));
        let free = self.params.inflight_pages.saturating_sub(self.inflight);
        let batch = self.pending.len().min(64).min(free);
        for _ in 0..batch {
            let found = self.coldest(now, on).filter(|(_, age)| *age >= worth);
            let Some((victim, _)) = found else {
                self.scarce = true;
                return;
            };
            let bytes = page.size.bytes() + victim.size.bytes();
            if !self.governor.take(now, bytes) {
                return;
            }
            self.victims.take();
            self.demote(victim, on, Reason::MakeRoom);
        }
    }

    fn coldest(&mut self, now: Nanos, on: NodeId) -> Option<(PageRef, Nanos)> {
        let pass = Pass {
            hold: self.scan.shortest(),
            period: self.scan.period(),
        };
        self.victims.coldest(now, pass, &mut self.pages, on)
    }

    fn demote(&mut self, page: PageRef, from: NodeId, reason: Reason) {
        if let Some(to) = self.demotion_target(from) {
            self.migrate(page, Migration::Demote { to }, reason);
        }
    }

    /// Keeps every fast node over its watermark, whatever is known of its pages' ages.
    pub(super) fn relieve(&mut self, now: Nanos) {
        let fast: Vec<NodeId> = self.tiers.top().map(|n| n.id).collect();
        for node in fast {
            let mut shortage = self.rooms.shortage(node);
            // Half the headroom is slack: demote in batches, not page by page.
            if shortage * 2 < self.rooms.target(node).saturating_sub(self.low(node)) {
                continue;
            }
            while shortage > 0 && self.inflight < self.params.inflight_pages {
                let Some((victim, _)) = self.coldest(now, node) else {
                    self.request_inventory(now);
                    break;
                };
                self.victims.take();
                shortage = shortage.saturating_sub(victim.size.bytes());
                self.demote(victim, node, Reason::FastPressure);
            }
        }
    }

    fn low(&self, node: NodeId) -> u64 {
        self.rooms.memory(node).map_or(0, |m| m.low_bytes)
    }
}
