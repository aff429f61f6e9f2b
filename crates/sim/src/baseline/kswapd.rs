// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's background demotion by recency (`mm/vmscan.c`), for one fast node.
//!
//! Woken below a watermark, it goes over the node's pages like a clock: a page accessed since the hand
//! was there last is passed over, another is demoted; it sleeps again above its target. Each round
//! looks at `pages >> priority`, with a priority that starts at 12 and falls while rounds do not free
//! enough, as `balance_pgdat` does.

use std::collections::VecDeque;

use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_policy::Action;
use terrace_policy::Migration;
use terrace_policy::Reason;

const PRIORITY: u32 = 12;
/// Demotions under way at most.
const IN_FLIGHT_MAX: usize = 1024;

/// One node's.
#[derive(Debug)]
pub(crate) struct Kswapd {
    pub(crate) node: NodeId,
    to: NodeId,
    pub(crate) memory: NodeMemory,
    /// Above this it sleeps, bytes free.
    target: u64,
    awake: bool,
    priority: u32,
    in_flight: usize,
    in_flight_bytes: u64,
    freed: u64,
}

impl Kswapd {
    pub(crate) fn new(node: NodeId, to: NodeId) -> Self {
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
        }
    }

    /// A sample of the node's memory, and what to free up to.
    pub(crate) fn sample(&mut self, memory: NodeMemory, target: u64) {
        self.memory = memory;
        self.target = target;
    }

    /// Wakes it.
    pub(crate) fn wake(&mut self) {
        if !self.awake {
            self.awake = true;
            self.priority = PRIORITY;
        }
    }

    fn enough(&self) -> bool {
        self.memory.free_bytes + self.in_flight_bytes >= self.target
    }

    /// A round: what to look at.
    pub(crate) fn round(&mut self) -> Option<Action> {
        if !self.awake {
            return None;
        }
        if self.memory.free_bytes >= self.target {
            self.awake = false;
            return None;
        }
        if self.enough() || self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        // The last round freed too little: look at more.
        if self.freed == 0 {
            self.priority = self.priority.saturating_sub(1).max(1);
        }
        self.freed = 0;
        let pages = (self.memory.total_bytes >> 12 >> self.priority).max(32);
        Some(Action::Probe {
            node: self.node,
            pages: u32::try_from(pages).unwrap_or(u32::MAX),
        })
    }

    /// A page was looked at.
    pub(crate) fn probed(&mut self, page: PageRef, accessed: bool, actions: &mut VecDeque<Action>) {
        if accessed || !self.awake || self.enough() || self.in_flight >= IN_FLIGHT_MAX {
            return;
        }
        self.in_flight += 1;
        self.in_flight_bytes += page.size.bytes();
        self.freed += page.size.bytes();
        actions.push_back(Action::Migrate {
            page,
            migration: Migration::Demote { to: self.to },
            reason: Reason::FastPressure,
        });
    }

    /// Whether it demotes to that node.
    pub(crate) fn sends_to(&self, node: NodeId) -> bool {
        self.to == node
    }

    /// A demotion ended.
    pub(crate) fn ended(&mut self, bytes: u64, moved: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        if moved {
            self.memory.free_bytes += bytes;
        }
    }

    /// A page came to the node.
    pub(crate) fn took(&mut self, bytes: u64) {
        self.memory.free_bytes = self.memory.free_bytes.saturating_sub(bytes);
    }
}
