// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filling the memory: every page is touched once, on the node where it belongs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_workload::PAGE_BYTES;
use terrace_workload::Program;
use terrace_workload::Shares;
use terrace_workload::Start;
use terrace_workload::WORDS_PER_PAGE;
use terrace_workload::content;

use crate::arena::Arena;
use crate::oracle;
use crate::oracle::Rooms;
use crate::placement;
use crate::placement::PlacementError;
use crate::placement::Preferred;
use crate::run::Options;
use crate::run::Place;
use crate::run::RunError;
use crate::sockets::Sockets;
use crate::work::usize_of;

/// What the oracle leaves free on the fast node above the kernel's high watermark.
const ORACLE_RESERVE_BYTES: u64 = 4 << 20;

/// Touches every page where `options` and the program say.
pub(crate) fn fill(
    arena: &Arena,
    program: &Program,
    options: &Options,
    sockets: &Sockets,
) -> Result<(), RunError> {
    let all = || program.fill_order().into_iter().flatten();
    let first = options.bound_from(program);
    let place = match (options.place, program.start) {
        (Place::Workload, Start::Slow) => Place::Slow,
        (Place::Workload, Start::FirstTouch | Start::Across) => Place::FirstTouch,
        (place, _) => place,
    };
    match place {
        Place::Workload | Place::FirstTouch => {
            let across = options.place == Place::Workload && program.start == Start::Across;
            for (thread, pages) in (0..).zip(parts(program)) {
                let socket = first.map(|first| (first + thread + u32::from(across)) as usize);
                sockets.stay(socket)?;
                touch(arena, pages.into_iter().flatten(), options.seed);
            }
        }
        Place::Slow => {
            let _slow = Preferred::node(options.slow)?;
            touch(arena, all(), options.seed);
            expect_on(arena, options.slow)?;
        }
        Place::Oracle => {
            let rooms = match &options.oracle_pages {
                None => oracle_rooms(options)?,
                Some(given) => given.clone(),
            };
            let run = (options.seed, options.time);
            let (places, order) = oracle::places(program, run, &options.orders, first, &rooms);
            let mut done = BTreeSet::new();
            let nodes = options.orders.iter().flatten();
            // The fastest first: what spills over takes nobody's place.
            for &node in nodes.filter(|node| done.insert(**node)) {
                let _here = Preferred::node(node)?;
                let here = |page: &&u32| places[**page as usize] == node;
                touch(arena, order.iter().filter(here).copied(), options.seed);
            }
        }
    }
    Ok(())
}

/// What each thread visits, by address; where threads share it, all of it in the program's order.
fn parts(program: &Program) -> Vec<Vec<Range<u32>>> {
    match &program.partitions[..] {
        [] => vec![program.fill_order()],
        own => own.iter().map(|range| vec![range.clone()]).collect(),
    }
}

/// How many pages fit on each node without waking the kernel's reclaim.
///
/// # Errors
///
/// Where the kernel does not say.
pub fn oracle_rooms(options: &Options) -> Result<Rooms, PlacementError> {
    let nodes: BTreeSet<NodeId> = options.orders.iter().flatten().copied().collect();
    let fit = |node: NodeId| {
        let keep = placement::high_watermark_bytes(node)? + ORACLE_RESERVE_BYTES;
        let bytes = placement::free_bytes(node)?.saturating_sub(keep);
        Ok((node, bytes / PAGE_BYTES))
    };
    nodes.into_iter().map(fit).collect()
}

/// Visits per page over a run of that length: what the best placement that stays put follows.
#[must_use]
pub fn mean_shares(program: &Program, seed: u64, time: Duration) -> Vec<f32> {
    mean_shares_between(program, seed, Nanos::ZERO, Nanos::from(time))
}

/// Visits per page between two times since the first visit, as shares of all.
#[must_use]
pub fn mean_shares_between(program: &Program, seed: u64, begin: Nanos, end: Nanos) -> Vec<f32> {
    let mut lasts = vec![0.0; program.phases.len()];
    let mut now = begin;
    while now < end {
        let (phase, ends) = program.phase_at(now);
        let next = ends.map_or(end, |ends| ends.min(end));
        lasts[phase] += Duration::from_nanos(next.0 - now.0).as_secs_f64();
        now = next;
    }
    let total: f64 = lasts.iter().sum();
    let mut mean = vec![0.0; program.pages as usize];
    for (phase, seconds) in program.phases.iter().zip(lasts) {
        if seconds > 0.0 {
            add(&mut mean, &phase.shares(program, seed), seconds / total);
        }
    }
    mean
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "shares are single precision"
)]
fn add(mean: &mut [f32], shares: &Shares, weight: f64) {
    for ((mean, read), write) in mean.iter_mut().zip(&shares.read).zip(&shares.write) {
        *mean += (read + write) * weight as f32;
    }
}

fn touch(arena: &Arena, pages: impl Iterator<Item = u32>, seed: u64) {
    let words = arena.words();
    for page in pages {
        let first = u64::from(page) * WORDS_PER_PAGE;
        for index in first..first + WORDS_PER_PAGE {
            words[usize_of(index)].store(content::word(seed, index, 0), Relaxed);
        }
    }
}

/// At least 99 % of the pages must be on the node.
fn expect_on(arena: &Arena, node: NodeId) -> Result<(), RunError> {
    let nodes = placement::nodes_of(arena)?;
    let wanted = u64::from(arena.pages());
    let found = nodes.iter().filter(|&&n| n == Some(node)).count() as u64;
    if found * 100 >= wanted * 99 {
        Ok(())
    } else {
        Err(RunError::Elsewhere {
            found,
            wanted,
            node,
        })
    }
}

#[cfg(test)]
mod tests {
    use terrace_workload::Sizes;
    use terrace_workload::Workload;

    use super::*;

    #[test]
    fn the_mean_follows_the_time_of_the_phases() {
        let sizes = Sizes::fast_free(4 << 20)
            .with("phase_time=2s")
            .expect("set");
        let program = Workload::named("phases", &sizes)
            .expect("known")
            .programs
            .remove(0);
        let hot = |phase: usize| program.phases[phase].parts[1].pages.start;
        // 2 s in the first, 1 s in the second, none in the others.
        let mean = mean_shares(&program, 1, Duration::from_secs(3));
        let share = |page: u32| f64::from(mean[page as usize]);
        let everywhere = share(0);
        let (first, second) = (share(hot(0)) - everywhere, share(hot(1)) - everywhere);
        assert!((first / second - 2.0).abs() < 1e-3, "{first} {second}");
        assert!((share(hot(2)) - everywhere).abs() < 1e-9);
        let late = mean_shares_between(&program, 1, Nanos::from_secs(4), Nanos::from_secs(6));
        let third = f64::from(late[hot(2) as usize]);
        assert!(third > 0.0 && (f64::from(late[hot(0) as usize]) - everywhere).abs() < 1e-9);
        let run = (1, Duration::from_secs(3));
        let (_, order) = oracle::places(&program, run, &[vec![NodeId(0)]], None, &Rooms::new());
        assert_eq!(order[0], hot(0));
    }
}
