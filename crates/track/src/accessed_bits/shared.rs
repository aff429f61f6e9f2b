// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the reading thread and the tracker share: orders one way, readings and counts the other.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_sys::eventfd::EventFd;

use super::reading::Told;

/// Readings that wait to be taken, at most: 400 bytes each. The thread waits when there are more.
const WAITING_MAX: usize = 1 << 16;

/// How to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// First rung and length of a pass.
    pub(super) shortest: Nanos,
    pub(super) pass: Nanos,
    /// One in so many passes reads all chunks ([`terrace_core::Turns`]).
    pub(super) parts: u32,
}

/// An order to the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    Add(Pid),
    Remove(Pid),
    Ask(Asked),
    Look(Vec<PageRef>),
    Pause(bool),
    Stop,
}

/// Sums since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) cleared: u64,
    pub(super) clear_time: Nanos,
    pub(super) longest_clear: Nanos,
    /// What a bit set again costs a program, as measured here.
    pub(super) set: Nanos,
    /// Ranges that could not be cleared.
    pub(super) refused: u64,
    pub(super) read: u64,
    pub(super) read_time: Nanos,
    /// Passes that were put off because the kernel swaps the process out.
    pub(super) swapping: u64,
    /// Passes over processes that are left alone.
    pub(super) left_alone: u64,
}

#[derive(Debug, Default)]
struct State {
    orders: Vec<Order>,
    told: Vec<Told>,
    counts: Counts,
    stopped: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    taken: Condvar,
    /// Rings for the thread.
    pub(super) orders: EventFd,
    /// Rings for the tracker.
    pub(super) bell: EventFd,
}

impl Shared {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            taken: Condvar::new(),
            orders: EventFd::new()?,
            bell: EventFd::new()?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here is left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an order.
    pub(super) fn order(&self, order: Order) {
        let mut state = self.lock();
        state.stopped |= order == Order::Stop;
        state.orders.push(order);
        drop(state);
        self.taken.notify_one();
        self.orders.ring();
    }

    /// The thread's: the orders that were given.
    pub(super) fn take_orders(&self) -> Vec<Order> {
        self.orders.silence();
        std::mem::take(&mut self.lock().orders)
    }

    /// The thread's: hands over what it has to tell, and rings. Waits while nobody takes it.
    pub(super) fn tell(&self, told: &mut Vec<Told>) {
        if told.is_empty() {
            return;
        }
        let mut state = self.lock();
        while state.told.len() > WAITING_MAX && !state.stopped {
            state = self
                .taken
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        // Who has not taken what was there before has been rung for.
        let first = state.told.is_empty();
        state.told.append(told);
        if first {
            self.bell.ring();
        }
    }

    /// The tracker's: what was told.
    pub(super) fn take(&self) -> Vec<Told> {
        self.bell.silence();
        let told = std::mem::take(&mut self.lock().told);
        self.taken.notify_one();
        told
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.lock().counts);
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }
}
