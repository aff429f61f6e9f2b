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

/// What a reference makes of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is fast already.
    Fast,
    /// Referenced the first time.
    First,
    /// Referenced again, too late to count as the second time.
    Late,
    /// Referenced the second time, with that class.
    Twice(u8),
    /// Idle for so short that the first time counts for two.
    Eager(u8),
    /// It waits for its migration, or for its end.
    Waits,
}

impl Step {
    fn note(self, meta: &mut Meta, class: u8) {
        // The doubt in a single idle time is for its promotion: as a fast page it is as hot as was seen.
        meta.idle_class = match self {
            Self::Twice(colder) => colder,
            _ => class,
        };
        if let Self::Twice(_) | Self::Eager(_) = self {
            meta.state = State::Pending;
            meta.set_retries(0);
        } else {
            meta.state = State::Candidate;
        }
    }
}

impl Nomad {
    /// On a full tier: what was idle for longer is not worth a swap.
    pub(super) fn contended_idle(&self) -> Nanos {
        let usual = self.scan.usual_idle().0;
        let times = usual.saturating_mul(self.params.contended_times);
        let (least, most) = (self.params.contended_idle, self.params.contended_idle_max);
        let mark = self.scan.shortest().clamp(least, most.max(least));
        mark.min(Nanos(times))
    }

    /// On a full tier: what a single idle time is taken to be times as long. 0, not for a reference at
    /// all, where a second one comes soon.
    fn doubt(&self) -> u64 {
        if self.scan.shortest() > self.params.contended_idle {
            self.params.single_doubt
        } else {
            0
        }
    }

    /// The class of a page for which a first reference with that idle time counts as two; `contended` is a
    /// full tier's mark.
    fn eager(&self, idle: Option<Nanos>, contended: Option<Nanos>) -> Option<u8> {
        let (doubt, mark) = match contended {
            Some(mark) => (self.doubt(), mark),
            None => (1, self.params.eager_idle),
        };
        // As idle as that for all that one idle time says.
        let doubted = idle
            .filter(|_| doubt > 0)
            .map(|idle| Nanos(idle.0.saturating_mul(doubt)));
        doubted
            .filter(|idle| *idle < mark)
            .map(|idle| idle_class(Some(idle)))
    }

    /// A page was referenced (3.1): first time to the candidates, second time to the pending.
    pub(super) fn hint_fault(
        &mut self,
        now: Nanos,
        page: &PageRef,
        node: NodeId,
        write: bool,
        idle: Option<Nanos>,
    ) {
        // Field by field: a copy of the whole, just after its parts were written, would make the
        // processor wait for the fault before, and with it for that one's cache miss.
        let page = PageRef {
            pid: page.pid,
            addr: page.addr,
            size: page.size,
        };
        let class = idle_class(idle);
        let fast = self.tiers.is_top(node);
        let window = Nanos(self.params.reference_passes * self.scan.period().0);
        let contended = self.contended.then(|| self.contended_idle());
        let eager = self.eager(idle, contended);
        let hot_enough = contended.map_or(u8::MAX, |mark| idle_class(Some(mark)));
        let step = self.pages.update(page, |meta| {
            let first_ref = meta.last_ref();
            meta.set_node(node);
            meta.set_written(write);
            meta.touch(now);
            if fast {
                meta.idle_class = class;
                if meta.state != State::InFlight {
                    meta.state = State::Idle;
                }
                return Step::Fast;
            }
            let step = match meta.state {
                // The colder of the two rounds: one short idle time can be chance.
                State::Candidate
                    if now.since(first_ref) <= window
                        && class.max(meta.idle_class) <= hot_enough =>
                {
                    Step::Twice(class.max(meta.idle_class))
                }
                State::Idle => eager.map_or(Step::First, Step::Eager),
                State::Candidate => Step::Late,
                State::Pending | State::InFlight => return Step::Waits,
            };
            step.note(meta, class);
            step
        });
        if step == Step::Fast {
            self.counters.faults_fast += 1;
            self.scan.faulted_fast(idle);
        } else {
            self.counters.faults_slow += 1;
            self.scan.faulted();
        }
        match step {
            Step::Twice(class) => {
                self.counters.referenced_twice += 1;
                self.hot(now, page, class);
            }
            Step::Eager(class) => {
                self.counters.eager += 1;
                self.hot(now, page, class);
            }
            Step::First => {
                if let Some(oldest) = self.candidates.push(now, page) {
                    demote_candidate(&mut self.pages, oldest);
                }
            }
            Step::Fast | Step::Late | Step::Waits => {}
        }
    }

    /// The page waits for its promotion: its entry says so already.
    fn hot(&mut self, now: Nanos, page: PageRef, class: u8) {
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
        let Some(meta) = self.pages.get(page) else {
            return;
        };
        let from = meta.node();
        let retries = meta.retries();
        let again =
            matches!(migration, Migration::Promote { .. }) && retries < self.params.max_retries;
        self.pages.change(page, |meta| match verdict {
            Verdict::Moved { shadow } => arrived(meta, now, target, shadow),
            Verdict::MovedOntoShadow => arrived(meta, now, target, false),
            Verdict::Dirtied | Verdict::Busy => {
                meta.set_retries(retries + 1);
                if again {
                    meta.state = State::Pending;
                } else {
                    meta.state = State::Idle;
                    // Not now, and not first next time either.
                    meta.touch(now);
                }
            }
            Verdict::NoMemory => meta.state = State::Idle,
            Verdict::Lost => {
                *meta = Meta::default();
                meta.set_retries(1);
                meta.touch(now);
            }
        });
        match verdict {
            Verdict::Dirtied | Verdict::Busy if again => {
                let delay = self.params.retry_delay.0 << retries.min(8);
                self.retries.push(now + Nanos(delay), page);
            }
            Verdict::Dirtied | Verdict::Busy => self.counters.given_up += 1,
            Verdict::NoMemory => {
                self.rooms.mark_full(target);
                self.no_memory(page, migration);
            }
            Verdict::Moved { .. } | Verdict::MovedOntoShadow | Verdict::Lost => {}
        }
        if moved {
            self.moved(page, migration, verdict, from);
        }
    }

    /// A page has another place now.
    fn moved(
        &mut self,
        page: PageRef,
        migration: Migration,
        verdict: Verdict,
        from: Option<NodeId>,
    ) {
        let has_shadow = verdict == Verdict::Moved { shadow: true };
        match migration {
            Migration::Promote { keep_shadow, .. } => {
                self.on_fast += 1;
                if keep_shadow {
                    self.shadows.kept(page.pid);
                    if !has_shadow {
                        self.shadows.written(page.pid);
                    }
                }
            }
            Migration::Demote { .. } => self.on_fast = self.on_fast.saturating_sub(1),
        }
        if let Some(from) = from.filter(|_| !has_shadow) {
            self.rooms.released(from, page.size.bytes());
        }
    }

    fn no_memory(&mut self, page: PageRef, migration: Migration) {
        match migration {
            Migration::Promote { .. } => {
                if let Some(meta) = self.pages.get_mut(page) {
                    let class = meta.idle_class;
                    meta.state = State::Pending;
                    if let Some(coldest) = self.pending.push(class, page) {
                        set_state(&mut self.pages, coldest, State::Idle);
                    }
                }
            }
            Migration::Demote { .. } => self.actions.push_back(Action::ReclaimShadows {
                bytes: page.size.bytes() * self.params.shadow_reclaim_factor,
                reason: Reason::AllocationFailed,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doubt_in_a_single_idle_time_is_for_the_promotion_alone() {
        let class = |seconds| idle_class(Some(Nanos::from_secs(seconds)));
        let noted = |step: Step| {
            let mut meta = Meta::default();
            step.note(&mut meta, class(1));
            (meta.idle_class, meta.state)
        };
        assert_eq!(noted(Step::Eager(class(16))), (class(1), State::Pending));
        assert_eq!(noted(Step::Twice(class(3))), (class(3), State::Pending));
        assert_eq!(noted(Step::First), (class(1), State::Candidate));
    }
}
