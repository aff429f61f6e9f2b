// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of `move_pages(2)`, and what they say of each page.
//!
//! Pages of a call are moved [`PART`] at a time: who touches a page that moves waits for its part. A page counts as moved only
//! if it is on the target node afterwards. Where one of a part stays, the kernel says nothing of the others of it and stops: it is asked where they
//! are, and those behind go in another call.

use std::ops::Range;

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_proto::Outcome;
use terrace_sys::clock;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;
use terrace_sys::move_pages::Tried;

use super::Done;
use super::Order;

/// Pages that are moved together.
const PART: usize = 32;

/// Carries orders of one process and target out.
pub(super) fn move_batch(pid: Pid, to: NodeId, group: &[Order]) -> Vec<Done> {
    let pages: Vec<u64> = group.iter().map(|o| o.page.addr.0).collect();
    let before = clock::thread_cpu_time();
    let mut outcomes = move_all(pid, to, &pages);
    for (outcome, order) in outcomes.iter_mut().zip(group) {
        if order.page.size == PageSize::Huge2M {
            *outcome = the_rest(pid, to, order.page.addr, *outcome);
        }
    }
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

/// Moves pages, and says of each what became of it.
fn move_all(pid: Pid, to: NodeId, pages: &[u64]) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(pages.len());
    while outcomes.len() < pages.len() {
        let left = &pages[outcomes.len()..];
        let rest = match call(pid, to, left) {
            Ok(tried) => {
                let (told, rest) = told(pid, to, left, &tried);
                outcomes.extend(told);
                rest
            }
            Err(Errno::SRCH) => Some(Outcome::Gone),
            Err(_) => Some(Outcome::Failed),
        };
        if let Some(rest) = rest {
            outcomes.resize(pages.len(), rest);
        }
    }
    outcomes
}

/// Pages that several processes map are moved too where that is permitted (Nomad 3.3).
fn call(pid: Pid, to: NodeId, pages: &[u64]) -> Result<Tried, Errno> {
    let by = |sharing| {
        let target = Target::Process(pid);
        move_pages::migrate_in_parts(target, pages, to, sharing, PART)
    };
    match by(Sharing::Everyone) {
        Err(Errno::PERM) => by(Sharing::OwnOnly),
        other => other,
    }
}

/// What became of the pages that a call has tried; and of all others, if there is no use in another.
fn told(pid: Pid, to: NodeId, pages: &[u64], tried: &Tried) -> (Vec<Outcome>, Option<Outcome>) {
    let stopped = stopped(&tried.status);
    let mut told: Vec<Outcome> = tried.status[..stopped.start]
        .iter()
        .map(|status| outcome_of(to, *status))
        .collect();
    if !stopped.is_empty() {
        let unknown = vec![PageStatus::Untried; stopped.len()];
        let found = move_pages::query(Target::Process(pid), &pages[stopped]);
        told.extend(found.unwrap_or(unknown).into_iter().map(|status| {
            match outcome_of(to, status) {
                Outcome::Busy if tried.no_memory => Outcome::NoMemory,
                other => other,
            }
        }));
    }
    (told, tried.no_memory.then_some(Outcome::NoMemory))
}

/// The pages that were tried and of which nothing is told: those of a part of which one stays.
fn stopped(status: &[PageStatus]) -> Range<usize> {
    let is_told = |status: &&PageStatus| **status != PageStatus::Untried;
    let first = status.iter().take_while(is_told).count();
    let part = (first / PART + 1) * PART;
    let part = status[first..part.min(status.len())].iter();
    first..first + part.take_while(|status| !is_told(status)).count()
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
fn the_rest(pid: Pid, to: NodeId, start: Addr, first: Outcome) -> Outcome {
    let all: Vec<u64> = (0..PageSize::Huge2M.bytes())
        .step_by(4096)
        .map(|at| start.0 + at)
        .collect();
    let Ok(found) = move_pages::query(Target::Process(pid), &all) else {
        return first;
    };
    let left: Vec<u64> = all
        .iter()
        .zip(&found)
        .filter(|(_, status)| matches!(status, PageStatus::On(node) if *node != to))
        .map(|(page, _)| *page)
        .collect();
    let ends = move_all(pid, to, &left);
    let there = found.contains(&PageStatus::On(to));
    together(there, &ends)
}

/// How a range ended of which some pages were `there` already: what asks for another try comes
/// first.
fn together(there: bool, outcomes: &[Outcome]) -> Outcome {
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
    fn a_call_stops_at_a_part_and_says_nothing_of_it() {
        let (there, untried) = (PageStatus::On(NodeId(0)), PageStatus::Untried);
        let status = |told: usize, all: usize| {
            let mut status = vec![there; told];
            status.resize(all, untried);
            status
        };
        assert_eq!(stopped(&status(9, 9)), 9..9);
        assert_eq!(stopped(&status(2 * PART, 2 * PART)), 2 * PART..2 * PART);
        assert_eq!(stopped(&status(0, 9)), 0..9);
        assert_eq!(stopped(&status(PART, 4 * PART)), PART..2 * PART);
        // What could not be moved was a part's end, too.
        let mut cut = status(PART + 4, 4 * PART);
        cut[PART + 9] = PageStatus::NotPresent;
        assert_eq!(stopped(&cut), PART + 4..PART + 9);
    }

    #[test]
    fn a_range_of_base_pages_ends_as_its_worst_page() {
        let ends = [Outcome::Done, Outcome::Gone, Outcome::Busy];
        assert_eq!(together(false, &ends), Outcome::Busy);
        assert_eq!(together(false, &ends[..2]), Outcome::Done);
        assert_eq!(together(false, &ends[1..2]), Outcome::Gone);
        assert_eq!(together(true, &[]), Outcome::Done);
        assert_eq!(together(true, &ends[2..]), Outcome::Busy);
        let full = [Outcome::Done, Outcome::NoMemory];
        assert_eq!(together(true, &full), Outcome::NoMemory);
    }
}
