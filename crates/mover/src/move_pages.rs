// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migration by `move_pages(2)`, in a thread of its own because the call blocks.
//!
//! A call has a price of its own, some twenty pages', so up to [`CALL_MAX`] pages go in one ([`call`]). An order for 2 MiB
//! means all memory of that range, huge or base pages.

mod call;

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_proto::Outcome;
use terrace_sys::eventfd::EventFd;

/// Base pages that a call takes, unless one order is for more. More would not lower its price for each by much, and the next
/// orders are given while it lasts.
const CALL_MAX: usize = 256;

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

impl Order {
    /// What it can cost, in base pages.
    fn base_pages(&self) -> usize {
        usize::try_from(self.page.size.base_pages()).unwrap_or(usize::MAX)
    }
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
    /// Its share of the mover's processor time.
    pub busy: Nanos,
}

/// The mover. Dropping it ends the thread after the batch at hand.
#[derive(Debug)]
pub struct MovePagesMover {
    orders: Option<mpsc::Sender<Vec<Order>>>,
    queued: Vec<Order>,
    done: mpsc::Receiver<Vec<Done>>,
    bell: Arc<EventFd>,
    thread: Option<thread::JoinHandle<()>>,
}

impl MovePagesMover {
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
            .name("terrace-mover".to_owned())
            .spawn(move || work(&incoming, &outgoing, &ring))?;
        Ok(Self {
            orders: Some(orders),
            queued: Vec::new(),
            done,
            bell,
            thread: Some(thread),
        })
    }

    /// Queues an order. [`Self::flush`] sends what is queued.
    pub fn submit(&mut self, order: Order) {
        self.queued.push(order);
    }

    /// Sends what was queued, together: orders sent one by one would be calls of one page.
    pub fn flush(&mut self) {
        if let Some(orders) = &self.orders
            && !self.queued.is_empty()
        {
            // The thread lives as long as this sender.
            let _ = orders.send(std::mem::take(&mut self.queued));
        }
    }

    /// Takes the ends of the orders that have ended; nothing where there are none.
    #[must_use]
    pub fn ends(&self) -> Vec<Done> {
        self.done.try_iter().flatten().collect()
    }

    /// Forgets that it rang; call before [`Self::ends`].
    pub fn silence(&self) {
        self.bell.silence();
    }

    /// Readable when orders have ended.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for MovePagesMover {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

fn work(orders: &mpsc::Receiver<Vec<Order>>, done: &mpsc::Sender<Vec<Done>>, bell: &EventFd) {
    let mut waiting = VecDeque::new();
    while let Ok(first) = orders.recv() {
        waiting.extend(first);
        while !waiting.is_empty() {
            orders.try_iter().for_each(|more| waiting.extend(more));
            for ((pid, to), group) in groups(&mut waiting) {
                let _ = done.send(call::move_batch(pid, to, &group));
                bell.ring();
            }
        }
    }
}

/// The oldest orders, up to [`CALL_MAX`], by what one call can do.
fn groups(waiting: &mut VecDeque<Order>) -> BTreeMap<(Pid, NodeId), Vec<Order>> {
    let mut groups: BTreeMap<(Pid, NodeId), Vec<Order>> = BTreeMap::new();
    let mut pages = 0;
    while pages < CALL_MAX
        && let Some(order) = waiting.pop_front()
    {
        pages += order.base_pages();
        groups
            .entry((order.page.pid, order.to))
            .or_default()
            .push(order);
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use std::time::Instant;

    use terrace_core::Addr;
    use terrace_core::PageSize;

    use super::*;

    #[test]
    fn a_range_of_base_pages_is_one_order() {
        let mut mover = MovePagesMover::start().expect("a thread");
        let memory = vec![3_u8; 4 << 20];
        let start = (memory.as_ptr().addr() as u64).next_multiple_of(2 << 20);
        let page = PageRef {
            pid: Pid(std::process::id()),
            addr: Addr(start),
            size: PageSize::Huge2M,
        };
        mover.submit(Order {
            seq: 1,
            page,
            to: NodeId(0),
        });
        mover.flush();
        let until = Instant::now() + Duration::from_secs(60);
        let done = loop {
            match mover.ends().as_slice() {
                [done] => break *done,
                ends => assert!(ends.is_empty() && Instant::now() < until, "{ends:?}"),
            }
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((done.seq, done.page), (1, page));
        assert_eq!(done.outcome, Outcome::Done);
        assert!(memory.iter().all(|byte| *byte == 3));
    }

    #[test]
    fn every_order_ends_once_with_its_own_outcome() {
        let mut mover = MovePagesMover::start().expect("a thread");
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
        mover.flush();
        let mut ends = BTreeMap::new();
        let until = Instant::now() + Duration::from_secs(10);
        while ends.len() < addresses.len() && Instant::now() < until {
            mover.silence();
            for done in mover.ends() {
                assert!(ends.insert(done.seq, done.outcome).is_none());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let ends: Vec<Outcome> = ends.into_values().collect();
        assert_eq!(ends, [Outcome::Done, Outcome::Done, Outcome::Gone]);
        assert_eq!(here[5000], 7);
    }
}
