// SPDX-License-Identifier: MIT OR Apache-2.0
//! From ranges that are to move to orders for pages, and back from their ends.
//!
//! A range goes in order of address: page by page where it is known that base pages alone map it or the range has no
//! whole 2 MiB there, else 2 MiB at a time, which moves whatever is in them. So many orders are under way at most.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;

use super::plan::Move;
use crate::event::Migration;
use crate::event::Verdict;
use crate::kit::FreeMemory;

/// A range under way.
#[derive(Debug, Clone, Copy)]
struct Job {
    what: Move,
    /// Where the next order begins.
    next: u64,
    /// Orders that have not ended.
    open: u32,
    /// Bytes that arrived.
    arrived: u64,
}

/// A range whose orders have all ended: how many of its bytes arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) what: Move,
    pub(super) arrived: u64,
}

/// All ranges under way.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// By their first address.
    jobs: BTreeMap<(Pid, u64), Job>,
    /// Those that have orders to give, in order.
    waiting: VecDeque<(Pid, u64)>,
    open: usize,
    /// Bytes promoted and demoted.
    pub(super) promoted: u64,
    pub(super) demoted: u64,
    /// Orders that found no memory, that were refused for now, and pages that were gone.
    pub(super) failed: u64,
}

impl Orders {
    /// Gives up what was planned and not ordered, and takes on what is planned now.
    pub(super) fn replace(&mut self, moves: Vec<Move>) {
        self.waiting.clear();
        self.jobs.retain(|_, job| {
            job.what.end = job.next;
            job.open > 0
        });
        for what in moves {
            let key = (what.pid, what.start);
            let job = Job {
                what,
                next: what.start,
                open: 0,
                arrived: 0,
            };
            self.jobs.insert(key, job);
            self.waiting.push_back(key);
        }
    }

    /// Whether orders for a range are under way.
    pub(super) fn touches(&self, pid: Pid, start: u64, end: u64) -> bool {
        let before = self.jobs.range(..(pid, end)).next_back();
        before.is_some_and(|((of, _), job)| *of == pid && job.what.end > start)
    }

    /// The next order, while fewer than `most` are under way.
    pub(super) fn next(
        &mut self,
        most: usize,
        memory: &mut FreeMemory,
    ) -> Option<(PageRef, Migration)> {
        if self.open >= most {
            return None;
        }
        loop {
            let key = *self.waiting.front()?;
            let Some(job) = self
                .jobs
                .get_mut(&key)
                .filter(|job| job.next < job.what.end)
            else {
                self.waiting.pop_front();
                if self.jobs.get(&key).is_some_and(|job| job.open == 0) {
                    self.jobs.remove(&key);
                }
                continue;
            };
            let (at, end) = (job.next, job.what.end);
            let whole = !job.what.base && at.is_multiple_of(CHUNK_BYTES) && end - at >= CHUNK_BYTES;
            let size = if whole {
                PageSize::Huge2M
            } else {
                PageSize::Base4K
            };
            job.next = at + size.bytes();
            job.open += 1;
            self.open += 1;
            let migration = job.what.migration;
            memory.ordered(job.what.from, migration.target(), size.bytes());
            let page = PageRef {
                pid: key.0,
                addr: Addr(at),
                size,
            };
            return Some((page, migration));
        }
    }

    /// An order ended; gives the range where it was the last of one.
    pub(super) fn ended(
        &mut self,
        page: PageRef,
        migration: Migration,
        verdict: Verdict,
        memory: &mut FreeMemory,
    ) -> Option<Done> {
        let at = (page.pid, page.addr.0);
        let (key, job) = self.jobs.range_mut(..=at).next_back()?;
        let key = *key;
        if key.0 != page.pid || page.addr.0 >= job.next || job.open == 0 {
            return None;
        }
        job.open -= 1;
        self.open -= 1;
        let bytes = page.size.bytes();
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        memory.ended((job.what.from, migration.target()), bytes, moved, moved);
        if verdict == Verdict::NoMemory {
            memory.mark_full(migration.target());
        }
        match (moved, migration) {
            (false, _) => self.failed += 1,
            (true, Migration::Promote { .. }) => self.promoted += bytes,
            (true, Migration::Demote { .. } | Migration::Exchange { .. }) => self.demoted += bytes,
        }
        if moved {
            job.arrived += bytes;
        }
        if job.open > 0 || job.next < job.what.end {
            return None;
        }
        let done = Done {
            what: job.what,
            arrived: job.arrived,
        };
        self.jobs.remove(&key);
        Some(done)
    }

    /// Ranges that are not done.
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// What they take, bytes.
    pub(super) fn bytes(&self) -> u64 {
        let jobs = self.jobs.len() * size_of::<((Pid, u64), Job)>();
        (jobs + self.waiting.capacity() * size_of::<(Pid, u64)>()) as u64
    }
}

/// Where a range is once it has moved, if most of it has.
pub(super) fn arrived(done: &Done) -> Option<NodeId> {
    let most = done.arrived * 2 >= done.what.end - done.what.start;
    most.then(|| done.what.migration.target())
}
