// SPDX-License-Identifier: MIT OR Apache-2.0
//! An order that has not ended, what a mover says of its end, and what that means to the policy.

use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_policy::Migration;
use terrace_policy::Verdict;
use terrace_policy::Way;
use terrace_proto::Outcome;

/// An order that has not ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) page: PageRef,
    pub(super) migration: Migration,
    pub(super) way: Way,
    /// It is to have a shadow.
    shadow: bool,
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
    pub(super) const fn new(page: PageRef, migration: Migration, way: Way, shadow: bool) -> Self {
        Self {
            page,
            migration,
            way,
            shadow,
        }
    }

    /// Whether what an agent could not do so is for `move_pages` to try. `cache`: the target's page cache
    /// counts as room.
    pub(super) fn is_for_move_pages(&self, outcome: Outcome, cache: bool) -> bool {
        if matches!(self.migration, Migration::Exchange { .. }) {
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

    /// What the policy is told.
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
