// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker that takes order after order: what waits, what it is at, and when it goes on.

use std::collections::VecDeque;

use crate::world::round;

/// `O` is an order, `J` what becomes of it.
#[derive(Debug)]
pub(crate) struct InTurn<O, J> {
    queue: VecDeque<O>,
    pub(crate) job: Option<J>,
    /// When it goes on; never, where nothing is to be done.
    pub(crate) next: u64,
}

impl<O, J> InTurn<O, J> {
    pub(crate) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            job: None,
            next: u64::MAX,
        }
    }

    /// Takes an order; begins with it now if it has nothing to do.
    pub(crate) fn push(&mut self, now: u64, order: O) {
        self.queue.push_back(order);
        if self.job.is_none() && self.next == u64::MAX {
            self.next = now;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<O> {
        self.queue.pop_front()
    }

    /// What it did at that time takes so long, ns.
    pub(crate) fn took(&mut self, at: u64, took: f64) {
        self.next = if self.job.is_none() && self.queue.is_empty() {
            u64::MAX
        } else {
            at + round(took).max(1)
        };
    }
}
