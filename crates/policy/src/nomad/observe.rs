// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reference and a migration's end do to a page's standing.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;

use super::Nomad;
use super::arrived;
use super::demote_candidate;
use super::set_state;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;
use crate::pages::Meta;
use crate::pages::State;
use crate::pages::idle_class;

impl Nomad {
    /// A page was referenced (3.1): first time to the candidates, second time to the pending.
    pub(super) fn hint_fault(
        &mut self,
        now: Nanos,
        page: PageRef,
        node: NodeId,
        write: bool,
        idle: Option<Nanos>,
    ) {
        let class = idle_class(idle);
        let fast = self.tiers.is_top(node);
        let window = Nanos(self.params.reference_passes * self.scan.period().0);
        let eager = !self.contended && idle.is_some_and(|idle| idle < self.params.eager_idle);
        let meta = self.pages.entry(page);
        let first_ref = meta.last_ref();
        meta.set_node(node);
        meta.set_written(write);
        meta.touch(now);
        if fast {
            self.counters.faults_fast += 1;
            meta.idle_class = class;
            if meta.state != State::InFlight {
                meta.state = State::Idle;
            }
            return;
        }
        self.counters.faults_slow += 1;
        match meta.state {
            State::Candidate if now.since(first_ref) <= window => {
                self.counters.referenced_twice += 1;
                // The colder of the two rounds: one short idle time can be chance.
                let class = class.max(meta.idle_class);
                self.hot(now, page, class);
            }
            State::Idle if eager => {
                self.counters.eager += 1;
                self.hot(now, page, class);
            }
            State::Idle | State::Candidate => {
                let new = meta.state == State::Idle;
                meta.state = State::Candidate;
                meta.idle_class = class;
                if new && let Some(oldest) = self.candidates.push(now, page) {
                    demote_candidate(&mut self.pages, oldest);
                }
            }
            State::Pending | State::InFlight => {}
        }
    }

    fn hot(&mut self, now: Nanos, page: PageRef, class: u8) {
        let meta = self.pages.entry(page);
        meta.idle_class = class;
        meta.state = State::Pending;
        meta.set_retries(0);
        self.deadline = self.deadline.min(now + self.params.tick);
        if let Some(coldest) = self.pending.push(class, page) {
            set_state(&mut self.pages, coldest, State::Idle);
        }
    }

    /// A migration ended.
    pub(super) fn ended(
        &mut self,
        now: Nanos,
        page: PageRef,
        migration: Migration,
        verdict: Verdict,
    ) {
        self.inflight = self.inflight.saturating_sub(1);
        if self.inflight * 2 < self.params.inflight_pages && !self.pending.is_empty() {
            self.deadline = now;
        }
        let target = migration.target();
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        self.rooms.settle(
            target,
            page.size.bytes(),
            moved && verdict != Verdict::MovedOntoShadow,
        );
        let Some(meta) = self.pages.get_mut(page) else {
            return;
        };
        let from = meta.node();
        let retries = meta.retries();
        match verdict {
            Verdict::Moved { shadow } => arrived(meta, now, target, shadow),
            Verdict::MovedOntoShadow => arrived(meta, now, target, false),
            Verdict::Dirtied | Verdict::Busy => {
                meta.set_retries(retries + 1);
                if matches!(migration, Migration::Promote { .. })
                    && retries < self.params.max_retries
                {
                    meta.state = State::Pending;
                    let delay = self.params.retry_delay.0 << retries.min(8);
                    self.retries.push(now + Nanos(delay), page);
                } else {
                    meta.state = State::Idle;
                    // Not now, and not first next time either.
                    meta.touch(now);
                    self.counters.given_up += 1;
                }
            }
            Verdict::NoMemory => {
                meta.state = State::Idle;
                self.rooms.mark_full(target);
                self.no_memory(page, migration);
            }
            Verdict::Lost => *meta = Meta::default(),
        }
        if let (
            Migration::Promote {
                keep_shadow: true, ..
            },
            Verdict::Moved { shadow },
        ) = (migration, verdict)
        {
            self.shadows.kept(page.pid);
            if !shadow {
                self.shadows.written(page.pid);
            }
        }
        if moved {
            match migration {
                Migration::Promote { .. } => self.on_fast += 1,
                Migration::Demote { .. } => self.on_fast = self.on_fast.saturating_sub(1),
            }
        }
        if moved && let Some(from) = from {
            let kept = matches!(verdict, Verdict::Moved { shadow: true });
            if !kept {
                self.rooms.released(from, page.size.bytes());
            }
        }
    }

    fn no_memory(&mut self, page: PageRef, migration: Migration) {
        match migration {
            Migration::Promote { .. } => {
                if let Some(meta) = self.pages.get_mut(page) {
                    let class = meta.idle_class;
                    meta.state = State::Pending;
                    self.pending.push(class, page);
                }
            }
            Migration::Demote { .. } => self.actions.push_back(Action::ReclaimShadows {
                bytes: page.size.bytes() * self.params.shadow_reclaim_factor,
                reason: Reason::AllocationFailed,
            }),
        }
    }
}
