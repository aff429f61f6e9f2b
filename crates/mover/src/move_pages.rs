// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migration by `move_pages(2)`, in a thread of its own because the call blocks.
//!
//! A call takes the program's memory lock; how long is bounded by the batch. The batch adapts: a
//! call that took longer than [`CALL_MAX`] halves it, one that took less than a quarter of that
//! doubles it. Each page's status is looked at, a page counts as moved only if it is on the target
//! node afterwards. An order for 2 MiB means all memory of that range, huge or base pages.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_proto::Outcome;
use terrace_sys::clock;
use terrace_sys::eventfd::EventFd;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;

/// A call shall not hold the program's memory lock longer than this.
pub const CALL_MAX: Duration = Duration::from_millis(20);
const BATCH_MIN: usize = 8;
const BATCH_MAX: usize = 512;
/// Pages in use that one call takes at most. A call has a price of its own, some five times a
/// page's, which more would not lower by much.
const IN_USE_MAX: usize = 64;

/// One page to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Echoed by its end.
    pub seq: u64,
    /// The page.
    pub page: PageRef,
    /// Where to.
    pub to: NodeId,
    /// The program is using the page: it waits for the rest of the call, so few go at a time.
    pub in_use: bool,
}

impl Order {
    /// What it can cost, in base pages.
    fn base_pages(&self) -> usize {
        usize::try_from(self.page.size.bytes() / PageSize::Base4K.bytes()).unwrap_or(usize::MAX)
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
    let mut batch_max = 64;
    let mut waiting = VecDeque::new();
    while let Ok(first) = orders.recv() {
        waiting.extend(first);
        while !waiting.is_empty() {
            orders.try_iter().for_each(|more| waiting.extend(more));
            for ((pid, to), group) in groups(&mut waiting, batch_max) {
                let most = if group.iter().any(|order| order.in_use) {
                    IN_USE_MAX
                } else {
                    BATCH_MAX
                };
                for orders in group.chunks(most) {
                    let start = Instant::now();
                    let pages: usize = orders.iter().map(Order::base_pages).sum();
                    let _ = done.send(move_batch(pid, to, orders));
                    bell.ring();
                    batch_max = adapt(batch_max, pages, start.elapsed());
                }
            }
        }
    }
}

/// The oldest orders, up to so many base pages, by what one call can do.
fn groups(waiting: &mut VecDeque<Order>, batch_max: usize) -> BTreeMap<(Pid, NodeId), Vec<Order>> {
    let mut groups: BTreeMap<(Pid, NodeId), Vec<Order>> = BTreeMap::new();
    let mut pages = 0;
    while pages < batch_max
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

fn adapt(batch_max: usize, moved: usize, took: Duration) -> usize {
    if took > CALL_MAX {
        (batch_max / 2).max(BATCH_MIN)
    } else if moved >= batch_max && took < CALL_MAX / 4 {
        (batch_max * 2).min(BATCH_MAX)
    } else {
        batch_max
    }
}

fn move_batch(pid: Pid, to: NodeId, group: &[Order]) -> Vec<Done> {
    let pages: Vec<u64> = group.iter().map(|o| o.page.addr.0).collect();
    let before = clock::thread_cpu_time();
    let outcomes = match move_pages_of(pid, to, &pages) {
        Ok(statuses) => statuses
            .iter()
            .zip(group)
            .map(|(status, order)| match order.page.size {
                PageSize::Huge2M => the_rest(pid, to, order.page.addr, *status),
                _ => outcome_of(to, *status),
            })
            .collect(),
        Err(outcome) => vec![outcome; group.len()],
    };
    let all: usize = group.iter().map(Order::base_pages).sum();
    let busy = clock::thread_cpu_time().since(before).0 / all.max(1) as u64;
    group
        .iter()
        .zip(outcomes)
        .map(|(order, outcome)| Done {
            seq: order.seq,
            page: order.page,
            outcome,
            busy: Nanos(busy * order.page.size.base_pages()),
        })
        .collect()
}

/// Pages that several processes map are moved too where that is permitted (Nomad 3.3).
fn move_pages_of(pid: Pid, to: NodeId, pages: &[u64]) -> Result<Vec<PageStatus>, Outcome> {
    let target = Target::Process(pid);
    let result = match move_pages::migrate(target, pages, to, Sharing::Everyone) {
        Err(Errno::PERM) => move_pages::migrate(target, pages, to, Sharing::OwnOnly),
        other => other,
    };
    result.map_err(|errno| match errno {
        Errno::SRCH => Outcome::Gone,
        _ => Outcome::Failed,
    })
}

fn outcome_of(to: NodeId, status: PageStatus) -> Outcome {
    match status {
        PageStatus::On(node) if node == to => Outcome::Done,
        PageStatus::On(_)
        | PageStatus::Busy
        | PageStatus::SharedByProcesses
        | PageStatus::Untried => Outcome::Busy,
        PageStatus::NotPresent | PageStatus::NotMapped => Outcome::Gone,
        PageStatus::NoMemory => Outcome::NoMemory,
        PageStatus::Other(_) => Outcome::Failed,
    }
}

/// The first page of a 2 MiB range was tried. Where a huge page is there, all of it went along; else
/// its other base pages go now, in one call.
fn the_rest(pid: Pid, to: NodeId, start: Addr, first: PageStatus) -> Outcome {
    let all: Vec<u64> = (0..PageSize::Huge2M.bytes())
        .step_by(4096)
        .map(|at| start.0 + at)
        .collect();
    let Ok(found) = move_pages::query(Target::Process(pid), &all) else {
        return outcome_of(to, first);
    };
    let left: Vec<u64> = all
        .iter()
        .zip(&found)
        .filter(|(_, status)| matches!(status, PageStatus::On(node) if *node != to))
        .map(|(page, _)| *page)
        .collect();
    let ends = match left.as_slice() {
        [] => Vec::new(),
        left => match move_pages_of(pid, to, left) {
            Ok(statuses) => statuses,
            Err(outcome) => return outcome,
        },
    };
    let there = found.contains(&PageStatus::On(to));
    together(to, there, &ends)
}

/// How a range ended of which some pages were `there` already: what asks for another try comes
/// first.
fn together(to: NodeId, there: bool, ends: &[PageStatus]) -> Outcome {
    let outcomes: Vec<Outcome> = ends.iter().map(|end| outcome_of(to, *end)).collect();
    [Outcome::NoMemory, Outcome::Failed, Outcome::Busy]
        .into_iter()
        .find(|outcome| outcomes.contains(outcome))
        .unwrap_or(if there || outcomes.contains(&Outcome::Done) {
            Outcome::Done
        } else {
            Outcome::Gone
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_shrink_when_calls_are_long_and_grow_when_they_are_short() {
        assert_eq!(adapt(64, 64, Duration::from_millis(30)), 32);
        assert_eq!(adapt(8, 8, Duration::from_millis(30)), 8);
        assert_eq!(adapt(64, 64, Duration::from_millis(1)), 128);
        assert_eq!(adapt(64, 10, Duration::from_millis(1)), 64);
        assert_eq!(adapt(64, 64, Duration::from_millis(10)), 64);
    }

    #[test]
    fn a_range_of_base_pages_ends_as_its_worst_page() {
        let (here, there) = (NodeId(0), NodeId(1));
        let ends = [
            PageStatus::On(here),
            PageStatus::NotPresent,
            PageStatus::Busy,
        ];
        assert_eq!(together(here, false, &ends), Outcome::Busy);
        assert_eq!(together(here, false, &ends[..2]), Outcome::Done);
        assert_eq!(together(here, false, &ends[1..2]), Outcome::Gone);
        assert_eq!(together(here, true, &[]), Outcome::Done);
        assert_eq!(together(there, true, &ends[..1]), Outcome::Busy);
        let full = [PageStatus::On(here), PageStatus::NoMemory];
        assert_eq!(together(here, true, &full), Outcome::NoMemory);
    }

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
            in_use: false,
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
                in_use: seq > 1,
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
