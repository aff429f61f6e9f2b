// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oracle of the workload `redis`: counts which of the server's pages miss the cache while its load runs,
//! then puts those that miss most on the fast node, all others on the slow one.
//!
//! The counts are samples of the lab's emulated PMU. Which keys are asked for, and how often, stays the same; but a SET
//! puts its value where the SET before it has left room, so that pages of values are not hot for ever (the pages chosen
//! lose some two of a hundred accesses in 20 s). This is the best placement that stays put by what was counted, and
//! not one that knows the time to come.
//!
//! [`plan`] is pure. Pages are addresses of 4 KiB; redis has no huge ones.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::ensure;
use terrace_bench::placement;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;
use terrace_sys::procmaps::MapsFile;
use terrace_track::EmulatedPmu;
use terrace_track::EmulatedPmuConfig;
use terrace_track::TrackEvent;
use terrace_track::Tracker;
use terrace_workload::PAGE_BYTES;

use super::note;
use crate::compare::scenario::Setting;

/// How long misses are counted. In half the time one access in a hundred more would be on the slow node afterwards, in
/// twice the time one in two hundred fewer.
const COUNT: Duration = Duration::from_secs(20);
/// One sample in so many misses: three to ten a page.
const PERIOD: u64 = 5;
/// Between two readings of the samples, a few hundred of them.
const PAUSE: Duration = Duration::from_millis(10);
/// What stays free on a node above the kernel's high watermark, as `terrace-bench`'s oracle leaves it.
const RESERVE_BYTES: u64 = 4 << 20;
/// Pages in one call that asks, and in one that moves: a page that stays ends the call, after its part.
const BATCH: usize = 4096;
const PART: usize = 512;
/// How often a page that could not be moved is tried.
const TRIES: u32 = 5;

/// Samples of each page that had any.
type Samples = BTreeMap<u64, u64>;

/// Counts, places, and makes sure that the pages are where they belong.
///
/// # Errors
///
/// Where most samples are lost, and where more than one in a hundred of a faster node's pages is elsewhere.
pub(super) fn place(pid: u32, setting: &Setting) -> anyhow::Result<()> {
    let samples = count(Pid(pid))?;
    let nodes = nodes(setting);
    let (_, faster) = nodes.split_last().context("There is no node")?;
    let pages = pages(pid)?;
    let rooms = faster.iter().map(|node| room(*node, &pages));
    let rooms = rooms.collect::<anyhow::Result<Vec<_>>>()?;
    let addresses: Vec<u64> = pages.into_keys().collect();
    let plan = plan(&addresses, &samples, &rooms);
    let target = Target::Process(Pid(pid));
    for _ in 0..TRIES {
        // The slow node's first: that makes room on the others.
        for (node, pages) in nodes.iter().zip(&plan).rev() {
            bring(target, pages, *node)?;
        }
    }
    for (index, (node, pages)) in nodes.iter().zip(&plan).enumerate() {
        let (all, away) = (pages.len(), elsewhere(target, pages, *node)?.len());
        let seen: u64 = pages.iter().filter_map(|page| samples.get(page)).sum();
        note(format!(
            "oracle: {all} pages with {seen} samples for node {node}, {away} of them elsewhere"
        ));
        // What stays above the last node takes nobody's place.
        ensure!(
            index == rooms.len() || away * 100 <= all,
            "{away} of the {all} pages that the oracle wants on node {node} are elsewhere"
        );
    }
    Ok(())
}

/// All nodes, the fastest first, as the first socket sees them.
fn nodes(setting: &Setting) -> Vec<NodeId> {
    let first = setting.orders.first();
    let all = first.into_iter().flat_map(|nodes| nodes.split(','));
    all.filter_map(|node| node.parse().ok().map(NodeId))
        .collect()
}

/// Which pages go to which node: so many to each of the first ones as it has room for, the most sampled first, and the rest
/// to one more. Pages without samples come last, equals by address.
fn plan(pages: &[u64], samples: &Samples, rooms: &[usize]) -> Vec<Vec<u64>> {
    let mut order = pages.to_vec();
    order.sort_unstable_by_key(|page| (Reverse(samples.get(page).copied().unwrap_or(0)), *page));
    let mut rest = order.into_iter();
    let mut plan: Vec<Vec<u64>> = rooms
        .iter()
        .map(|&room| rest.by_ref().take(room).collect())
        .collect();
    plan.push(rest.collect());
    plan
}

/// Samples the process for [`COUNT`].
fn count(pid: Pid) -> anyhow::Result<Samples> {
    let mut pmu = EmulatedPmu::open(EmulatedPmuConfig {
        period: Some(PERIOD),
        max_rate: Some(0),
    })?;
    pmu.add(pid, false)?;
    let mut samples = Samples::new();
    let end = Instant::now() + COUNT;
    while Instant::now() < end {
        pmu.poll(PAUSE, &mut |event| {
            if let TrackEvent::Sample(sample) = event {
                *samples
                    .entry(sample.addr.0 & !(PAGE_BYTES - 1))
                    .or_default() += 1;
            }
        })?;
        std::thread::sleep(PAUSE);
    }
    let counts = pmu.counts();
    note(format!(
        "oracle: {} samples in {} s, {} more lost, on {} pages",
        counts.reported,
        COUNT.as_secs(),
        counts.lost,
        samples.len()
    ));
    ensure!(
        counts.reported > counts.lost,
        "The oracle lost {} samples and has {}: the pages with most misses are not known",
        counts.lost,
        counts.reported
    );
    Ok(samples)
}

/// The process's pages of memory of its own, and the node of each.
fn pages(pid: u32) -> anyhow::Result<BTreeMap<u64, NodeId>> {
    let maps = MapsFile::of(pid).and_then(|mut maps| maps.all());
    let maps = maps.with_context(|| format!("Cannot read the mappings of process {pid}"))?;
    let own = maps
        .iter()
        .filter(|mapping| mapping.writable && !mapping.shared);
    let addresses: Vec<u64> = own
        .flat_map(|mapping| mapping.range.start.0 / PAGE_BYTES..mapping.range.end.0 / PAGE_BYTES)
        .map(|number| number * PAGE_BYTES)
        .collect();
    let mut pages = BTreeMap::new();
    for batch in addresses.chunks(BATCH) {
        let status = query(Target::Process(Pid(pid)), batch)?;
        for (page, status) in batch.iter().zip(status) {
            if let PageStatus::On(node) = status {
                pages.insert(*page, node);
            }
        }
    }
    Ok(pages)
}

/// How many of these pages a node has room for, without waking the kernel's reclaim.
fn room(node: NodeId, pages: &BTreeMap<u64, NodeId>) -> anyhow::Result<usize> {
    let here = pages.values().filter(|on| **on == node).count();
    let free = placement::free_bytes(node)? / PAGE_BYTES;
    let keep = (placement::high_watermark_bytes(node)? + RESERVE_BYTES) / PAGE_BYTES;
    let all = here as u64 + free;
    Ok(usize::try_from(all.saturating_sub(keep))?)
}

/// Moves those that are on another node.
fn bring(target: Target, pages: &[u64], node: NodeId) -> anyhow::Result<()> {
    for part in elsewhere(target, pages, node)?.chunks(PART) {
        move_pages::migrate_in_parts(target, part, node, Sharing::OwnOnly, PART)
            .with_context(|| format!("Cannot move the server's pages to node {node}"))?;
    }
    Ok(())
}

/// Those of the pages that are on another node. What the server has given back is on none.
fn elsewhere(target: Target, pages: &[u64], node: NodeId) -> anyhow::Result<Vec<u64>> {
    let mut found = Vec::new();
    for batch in pages.chunks(BATCH) {
        let status = query(target, batch)?;
        let away = batch
            .iter()
            .zip(status)
            .filter(|(_, status)| matches!(status, PageStatus::On(other) if *other != node));
        found.extend(away.map(|(page, _)| *page));
    }
    Ok(found)
}

fn query(target: Target, pages: &[u64]) -> anyhow::Result<Vec<PageStatus>> {
    move_pages::query(target, pages).context("Cannot ask on which nodes the server's pages are")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: [u64; 6] = [0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000];

    #[test]
    fn most_sampled_pages_come_first_and_unsampled_ones_last() {
        let samples = Samples::from([(0x2000, 1), (0x4000, 9), (0x5000, 9), (0x6000, 3)]);
        let plan = |rooms: &[usize]| plan(&PAGES, &samples, rooms);
        // Equals by address, a page that is not the server's any more nowhere.
        assert_eq!(
            plan(&[3]),
            [vec![0x4000, 0x5000, 0x6000], vec![0x2000, 0x1000, 0x3000]]
        );
        assert_eq!(
            plan(&[0]),
            [vec![], vec![0x4000, 0x5000, 0x6000, 0x2000, 0x1000, 0x3000]]
        );
        assert_eq!(plan(&[5])[1], [0x3000], "room for pages without samples");
        assert_eq!(plan(&[9])[1], [0_u64; 0], "room for all");
        assert_eq!(
            plan(&[1, 2]),
            [
                vec![0x4000],
                vec![0x5000, 0x6000],
                vec![0x2000, 0x1000, 0x3000]
            ],
            "a node between"
        );
    }

    #[test]
    fn samples_of_pages_that_are_gone_take_no_room() {
        let samples = Samples::from([(0x9000, 99), (0x3000, 1)]);
        assert_eq!(
            plan(&PAGES[..3], &samples, &[1]),
            [vec![0x3000], vec![0x1000, 0x2000]]
        );
    }
}
