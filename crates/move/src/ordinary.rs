// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migration by `move_pages(2)`, in a thread of its own because the call blocks.
//!
//! A call takes the program's memory lock; how long is bounded by the batch. The batch adapts: a
//! call that took longer than [`CALL_MAX`] halves it, one that took less than a quarter of that
//! doubles it. Each page's status is looked at, a page counts as moved only if it is on the target
//! node afterwards.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_proto::Outcome;
use terrace_sys::eventfd::EventFd;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;

/// A call shall not hold the program's memory lock longer than this.
pub const CALL_MAX: Duration = Duration::from_millis(20);
const BATCH_MIN: usize = 8;
const BATCH_MAX: usize = 512;

/// One page to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Echoed by its end.
    pub seq: u64,
    /// The page.
    pub page: PageRef,
    /// Where to.
    pub to: NodeId,
}

/// How an order ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The order.
    pub seq: u64,
    /// Its page.
    pub page: PageRef,
    /// How.
    pub outcome: Outcome,
}

/// The mover. Dropping it ends the thread after the batch at hand.
#[derive(Debug)]
pub struct OrdinaryMover {
    orders: Option<mpsc::Sender<Order>>,
    done: mpsc::Receiver<Done>,
    bell: Arc<EventFd>,
    thread: Option<thread::JoinHandle<()>>,
}

impl OrdinaryMover {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Where no thread or descriptor is to be had.
    pub fn start() -> std::io::Result<Self> {
        let (orders, incoming) = mpsc::channel();
        let (outgoing, done) = mpsc::channel();
        let bell = Arc::new(EventFd::new()?);
        let ring = Arc::clone(&bell);
        let thread = thread::Builder::new()
            .name("terrace-move".to_owned())
            .spawn(move || work(&incoming, &outgoing, &ring))?;
        Ok(Self {
            orders: Some(orders),
            done,
            bell,
            thread: Some(thread),
        })
    }

    /// Queues an order.
    pub fn submit(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The thread lives as long as this sender.
            let _ = orders.send(order);
        }
    }

    /// Takes an order's end, if one is there.
    #[must_use]
    pub fn poll(&self) -> Option<Done> {
        self.done.try_recv().ok()
    }

    /// Forgets that it rang; call before polling.
    pub fn silence(&self) {
        self.bell.silence();
    }

    /// Readable when orders have ended.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for OrdinaryMover {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

fn work(orders: &mpsc::Receiver<Order>, done: &mpsc::Sender<Done>, bell: &EventFd) {
    let mut batch_max = 64;
    while let Ok(first) = orders.recv() {
        let mut groups: BTreeMap<(Pid, NodeId), Vec<Order>> = BTreeMap::new();
        let more = std::iter::from_fn(|| orders.try_recv().ok()).take(batch_max - 1);
        for order in std::iter::once(first).chain(more) {
            groups
                .entry((order.page.pid, order.to))
                .or_default()
                .push(order);
        }
        for ((pid, to), group) in groups {
            let start = Instant::now();
            for end in move_batch(pid, to, &group) {
                let _ = done.send(end);
            }
            bell.ring();
            batch_max = adapt(batch_max, group.len(), start.elapsed());
        }
    }
}

fn adapt(batch_max: usize, moved: usize, took: Duration) -> usize {
    if took > CALL_MAX {
        (batch_max / 2).max(BATCH_MIN)
    } else if moved == batch_max && took < CALL_MAX / 4 {
        (batch_max * 2).min(BATCH_MAX)
    } else {
        batch_max
    }
}

fn move_batch(pid: Pid, to: NodeId, group: &[Order]) -> Vec<Done> {
    let pages: Vec<u64> = group.iter().map(|o| o.page.addr.0).collect();
    let target = Target::Process(pid);
    // Pages that several processes map are moved too where that is permitted (Nomad 3.3).
    let result = match move_pages::migrate(target, &pages, to, Sharing::Everyone) {
        Err(Errno::PERM) => move_pages::migrate(target, &pages, to, Sharing::OwnOnly),
        other => other,
    };
    let outcome_of = |status: &PageStatus| match *status {
        PageStatus::On(node) if node == to => Outcome::Done,
        PageStatus::On(_)
        | PageStatus::Busy
        | PageStatus::SharedByProcesses
        | PageStatus::Untried => Outcome::Busy,
        PageStatus::NotPresent | PageStatus::NotMapped => Outcome::Gone,
        PageStatus::NoMemory => Outcome::NoMemory,
        PageStatus::Other(_) => Outcome::Failed,
    };
    let outcomes: Vec<Outcome> = match result {
        Ok(statuses) => statuses.iter().map(outcome_of).collect(),
        Err(Errno::SRCH) => vec![Outcome::Gone; group.len()],
        Err(_) => vec![Outcome::Failed; group.len()],
    };
    group
        .iter()
        .zip(outcomes)
        .map(|(order, outcome)| Done {
            seq: order.seq,
            page: order.page,
            outcome,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::Addr;
    use terrace_core::PageSize;

    #[test]
    fn batches_shrink_when_calls_are_long_and_grow_when_they_are_short() {
        assert_eq!(adapt(64, 64, Duration::from_millis(30)), 32);
        assert_eq!(adapt(8, 8, Duration::from_millis(30)), 8);
        assert_eq!(adapt(64, 64, Duration::from_millis(1)), 128);
        assert_eq!(adapt(64, 10, Duration::from_millis(1)), 64);
        assert_eq!(adapt(64, 64, Duration::from_millis(10)), 64);
    }

    #[test]
    fn every_order_ends_once_with_its_own_outcome() {
        let mover = OrdinaryMover::start().expect("a thread");
        let here = vec![7_u8; 3 * 4096];
        let first = (here.as_ptr().addr() as u64).next_multiple_of(4096);
        let pid = Pid(std::process::id());
        let addresses = [first, first + 4096, 0x1000];
        for (seq, addr) in (1..).zip(addresses) {
            let page = PageRef {
                pid,
                addr: Addr(addr),
                size: PageSize::Base4K,
            };
            mover.submit(Order {
                seq,
                page,
                to: NodeId(0),
            });
        }
        let mut ends = BTreeMap::new();
        let until = Instant::now() + Duration::from_secs(10);
        while ends.len() < addresses.len() && Instant::now() < until {
            mover.silence();
            while let Some(done) = mover.poll() {
                assert!(ends.insert(done.seq, done.outcome).is_none());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let ends: Vec<Outcome> = ends.into_values().collect();
        assert_eq!(ends, [Outcome::Done, Outcome::Done, Outcome::Gone]);
        assert_eq!(here[5000], 7);
    }
}
