// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's background demotion by recency (`mm/vmscan.c`), for one fast node: when it begins and
//! ends, and, with the two lists that kernels before MGLRU have, what it takes ([`super::mglru`] is the
//! other way).
//!
//! Woken below a watermark, it goes over the node's pages like a clock; it sleeps again above its
//! target. An inactive page that was accessed since the hand was there last is kept, and becomes active
//! the second time (`folio_check_references`); one that was not is demoted. Active pages are left alone
//! until there are more of them than inactive ones, and become inactive then (`inactive_is_low`, whose
//! ratio is 1 below a GiB of pages; more of them keep more active). Each round looks at `pages >> priority`, with a
//! priority that starts at 12 and falls while rounds look at less than is to be freed, or free nothing, as
//! `balance_pgdat` does; but it is one thread, and each look at a page takes it time.

use std::collections::VecDeque;

use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;

use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;

/// `DEF_PRIORITY`.
pub(super) const PRIORITY: u32 = 12;
/// `SWAP_CLUSTER_MAX`.
const CLUSTER: u64 = 32;

/// Which of the two lists a page is on, and whether it was seen accessed there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum List {
    #[default]
    Inactive,
    Referenced,
    Active,
}

/// Demotions under way at most.
const IN_FLIGHT_MAX: usize = 1024;

/// One node's.
#[derive(Debug)]
pub(super) struct Kswapd {
    pub(super) node: NodeId,
    to: NodeId,
    pub(super) memory: NodeMemory,
    /// Above this it sleeps, bytes free.
    target: u64,
    awake: bool,
    pub(super) priority: u32,
    in_flight: usize,
    in_flight_bytes: u64,
    /// Bytes ordered away in this round.
    pub(super) freed: u64,
    /// Pages that the last round looked at; none since it woke.
    looked: Option<u64>,
    /// Pages it can look at in a round.
    round_max: u64,
    /// Bytes of active pages.
    active: u64,
}

impl Kswapd {
    /// With room for `round_max` looks at pages in a round's time.
    pub(super) fn new(node: NodeId, to: NodeId, round_max: u64) -> Self {
        Self {
            node,
            to,
            memory: NodeMemory::default(),
            target: 0,
            awake: false,
            priority: PRIORITY,
            in_flight: 0,
            in_flight_bytes: 0,
            freed: 0,
            looked: None,
            round_max: round_max.max(1),
            active: 0,
        }
    }

    /// A sample of the node's memory, and what to free up to.
    pub(super) fn sample(&mut self, memory: NodeMemory, target: u64) {
        self.memory = memory;
        self.target = target;
    }

    /// Wakes it.
    pub(super) fn wake(&mut self) {
        if !self.awake {
            self.awake = true;
            self.priority = PRIORITY;
            self.looked = None;
        }
    }

    pub(super) const fn awake(&self) -> bool {
        self.awake
    }

    /// Sleeps until it is woken.
    pub(super) const fn sleep(&mut self) {
        self.awake = false;
    }

    /// Whether the target is reached.
    pub(super) const fn reached(&self) -> bool {
        self.memory.free_bytes >= self.target
    }

    /// Whether what is on its way is all that it may order now.
    pub(super) fn waits(&self) -> bool {
        self.enough() || self.in_flight >= IN_FLIGHT_MAX
    }

    fn enough(&self) -> bool {
        self.memory.free_bytes + self.in_flight_bytes >= self.target
    }

    /// A round: what to look at.
    pub(super) fn round(&mut self) -> Option<Action> {
        if !self.awake {
            return None;
        }
        if self.memory.free_bytes >= self.target {
            self.awake = false;
            return None;
        }
        if self.waits() {
            return None;
        }
        // The last round did too little: look at more.
        if self
            .looked
            .is_some_and(|looked| self.did_too_little(looked))
        {
            self.priority = self.priority.saturating_sub(1).max(1);
        }
        self.freed = 0;
        let pages = (self.memory.total_bytes >> 12 >> self.priority).max(CLUSTER);
        let pages = pages.min(self.round_max);
        self.looked = Some(pages);
        Some(Action::ProbeNext {
            node: self.node,
            pages: u32::try_from(pages).unwrap_or(u32::MAX),
        })
    }

    /// Pages that a round is to free (`kswapd_shrink_node`).
    pub(super) fn to_reclaim(&self) -> u64 {
        (self.memory.high_bytes >> 12).max(CLUSTER)
    }

    /// Whether a round that looked at so many pages is to be followed by one of more (`balance_pgdat`).
    pub(super) fn did_too_little(&self, looked: u64) -> bool {
        looked < self.to_reclaim() || self.freed == 0
    }

    /// As the kernel: the square root of ten times the GiB of pages on both lists, at least 1, active bytes for
    /// each inactive one.
    fn inactive_is_low(&self) -> bool {
        let used = self.memory.total_bytes - self.memory.free_bytes.min(self.memory.total_bytes);
        let ratio = ((used >> 30) * 10).isqrt().max(1);
        used.saturating_sub(self.active).saturating_mul(ratio) < self.active
    }

    /// A page was looked at.
    pub(super) fn probed(
        &mut self,
        page: PageRef,
        accessed: bool,
        list: &mut List,
        actions: &mut VecDeque<Action>,
    ) {
        let bytes = page.size.bytes();
        match (*list, accessed) {
            (List::Active, _) => {
                if self.inactive_is_low() {
                    *list = List::Inactive;
                    self.active = self.active.saturating_sub(bytes);
                }
                return;
            }
            (List::Inactive, true) => {
                *list = List::Referenced;
                return;
            }
            (List::Referenced, true) => {
                *list = List::Active;
                self.active += bytes;
                return;
            }
            (List::Inactive | List::Referenced, false) => {}
        }
        if !self.awake || self.waits() {
            return;
        }
        self.demote(page, actions);
    }

    /// Orders a page away.
    pub(super) fn demote(&mut self, page: PageRef, actions: &mut VecDeque<Action>) {
        self.in_flight += 1;
        self.in_flight_bytes += page.size.bytes();
        self.freed += page.size.bytes();
        actions.push_back(Action::Migrate {
            page,
            migration: Migration::Demote { to: self.to },
            mechanism: None,
            reason: Reason::FastPressure,
        });
    }

    /// Whether it demotes to that node.
    pub(super) fn sends_to(&self, node: NodeId) -> bool {
        self.to == node
    }

    /// A demotion ended.
    pub(super) fn ended(&mut self, bytes: u64, moved: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        if moved {
            self.memory.free_bytes += bytes;
        }
    }

    /// A page came to the node.
    pub(super) fn took(&mut self, bytes: u64, list: List) {
        self.memory.free_bytes = self.memory.free_bytes.saturating_sub(bytes);
        if list == List::Active {
            self.active += bytes;
        }
    }
}
