// SPDX-License-Identifier: MIT OR Apache-2.0
//! An order that has not ended, what a mover says of its end, and what that means to the policy.

use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Verdict;
use terrace_proto::Outcome;

/// An order that has not ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) page: PageRef,
    pub(super) migration: Migration,
    /// How who has it carries it out.
    pub(super) mechanism: Mechanism,
    /// Who has it is an agent.
    pub(super) by_agent: bool,
    /// The policy wants it so and not otherwise.
    pub(super) stated: bool,
    /// It is to have a shadow.
    pub(super) shadow: bool,
    /// When the policy gave it.
    pub(super) since: Nanos,
}

/// Who said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reporter {
    /// The mover by `move_pages`.
    MovePages,
    /// The agent in that process, which is not trusted.
    Agent(Pid),
}

/// What a mover said of an order.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// The order's number.
    pub seq: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// For transactions: how long the page was inaccessible; 0 where it was there already.
    pub inaccessible: Nanos,
}

impl Outstanding {
    /// Whether who reports an end was given it.
    pub(super) fn is_with(&self, reporter: Reporter) -> bool {
        match reporter {
            Reporter::Agent(pid) => self.by_agent && self.page.pid == pid,
            Reporter::MovePages => !self.by_agent,
        }
    }

    /// Whether what an agent could not do so is for `move_pages` to try. `cache`: the target's page cache
    /// counts as room.
    pub(super) fn is_for_move_pages(&self, outcome: Outcome, cache: bool) -> bool {
        if self.stated || matches!(self.migration, Migration::Exchange { .. }) {
            return false;
        }
        match outcome {
            Outcome::NotManaged | Outcome::Unavailable | Outcome::Busy | Outcome::NoShadow => true,
            // No huge page is free there: the kernel makes one or moves its parts. Or there is room in
            // the page cache: for `move_pages` the kernel reclaims it, for the agent, which may not
            // insist on the node, it takes memory of another.
            Outcome::NoMemory => self.page.size == PageSize::Huge2M || cache,
            _ => false,
        }
    }

    /// What the policy is told at the end. Neither the agent nor `move_pages` says where the page was, and
    /// `move_pages` not how long it was inaccessible.
    pub(super) fn ended(&self, now: Nanos, verdict: Verdict, inaccessible: Nanos) -> Event {
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        let told = self.by_agent && moved;
        Event::Ended {
            page: self.page,
            migration: self.migration,
            from: None,
            verdict,
            mechanism: self.mechanism,
            took: now.since(self.since),
            inaccessible: if told { inaccessible } else { Nanos::ZERO },
        }
    }

    /// What an outcome means to the policy.
    pub(super) const fn verdict(&self, outcome: Outcome) -> Verdict {
        match outcome {
            Outcome::Done => Verdict::Moved {
                shadow: self.shadow,
            },
            Outcome::DoneShadowStale => Verdict::Moved { shadow: false },
            Outcome::ShadowHit => Verdict::MovedOntoShadow,
            Outcome::Dirtied => Verdict::Dirtied,
            Outcome::Busy | Outcome::Failed => Verdict::Busy,
            Outcome::NoMemory => Verdict::NoMemory,
            Outcome::Gone | Outcome::NotManaged | Outcome::Unavailable | Outcome::NoShadow => {
                Verdict::Lost
            }
        }
    }
}
