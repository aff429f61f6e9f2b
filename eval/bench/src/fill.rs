// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filling the memory: every page is touched once, on the node where it belongs.

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
use crate::placement;
use crate::placement::PlacementError;
use crate::placement::Preferred;
use crate::run::Options;
use crate::run::Place;
use crate::run::RunError;
use crate::work::usize_of;

/// What the oracle leaves free on the fast node above the kernel's high watermark.
const ORACLE_RESERVE_BYTES: u64 = 4 << 20;

/// Touches every page where `options` and the program say.
pub(crate) fn fill(arena: &Arena, program: &Program, options: &Options) -> Result<(), RunError> {
    let all = || program.fill_order().into_iter().flatten();
    let place = match (options.place, program.start) {
        (Place::Workload, Start::Slow) => Place::Slow,
        (Place::Workload, Start::FirstTouch) => Place::FirstTouch,
        (place, _) => place,
    };
    match place {
        Place::Workload | Place::FirstTouch => touch(arena, all(), options.seed),
        Place::Slow => {
            let _slow = Preferred::node(options.slow)?;
            touch(arena, all(), options.seed);
            expect_on(arena, options.slow)?;
        }
        Place::Oracle => {
            let mut order = by_popularity(program, options.seed, options.time).into_iter();
            let counts = match &options.oracle_pages[..] {
                [] => oracle_pages(options)?,
                given => given.to_vec(),
            };
            for (&node, count) in faster_nodes(options).zip(&counts) {
                let _here = Preferred::node(node)?;
                touch(arena, order.by_ref().take(usize_of(*count)), options.seed);
            }
            let _slow = Preferred::node(options.slow)?;
            touch(arena, order, options.seed);
        }
    }
    Ok(())
}

/// All but the slow node, the fastest first.
fn faster_nodes(options: &Options) -> impl Iterator<Item = &NodeId> {
    std::iter::once(&options.fast).chain(&options.between)
}

/// How many pages fit on the fast node, and on those between it and the slow one, without waking the kernel's reclaim.
///
/// # Errors
///
/// Where the kernel does not say.
pub fn oracle_pages(options: &Options) -> Result<Vec<u64>, PlacementError> {
    let fit = |&node: &NodeId| {
        let keep = placement::high_watermark_bytes(node)? + ORACLE_RESERVE_BYTES;
        Ok(placement::free_bytes(node)?.saturating_sub(keep) / PAGE_BYTES)
    };
    faster_nodes(options).map(fit).collect()
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

/// All pages, the most visited first; equals by index.
fn by_popularity(program: &Program, seed: u64, time: Duration) -> Vec<u32> {
    let mean = mean_shares(program, seed, time.max(Duration::from_nanos(1)));
    let mut order: Vec<u32> = (0..program.pages).collect();
    order.sort_by(|&a, &b| {
        mean[b as usize]
            .total_cmp(&mean[a as usize])
            .then(a.cmp(&b))
    });
    order
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
        assert_eq!(
            by_popularity(&program, 1, Duration::from_secs(3))[0],
            hot(0)
        );
    }
}
