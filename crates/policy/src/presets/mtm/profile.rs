// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampled pages of an interval, and what their scans found (5.1, 5.2).
//!
//! A page is a word: its address, and in the bits below a page's size how many scans it had, how many found it
//! accessed, on which node and whether a huge page maps it. Pages of a process are in order of address, so an
//! answer is found by halving, and mostly just behind the one before.
//!
//! The first scan of a page in an interval says nothing, as its bit may be old: it clears the bit.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;

use super::regions::Mapped;
use super::regions::Region;
use super::regions::Regions;
use crate::kit::Random;

const PAGE: u64 = 4096;

/// A sampled page; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample(u64);

impl Sample {
    const HITS: u64 = 0b111;
    const SCANS: u64 = 0b111 << 3;
    const SCAN: u64 = 1 << 3;
    const NODE_SHIFT: u32 = 6;
    const NODE: u64 = 0b1_1111 << Self::NODE_SHIFT;
    const HUGE: u64 = 1 << 11;
    /// No address of a process has it.
    const LAST: u64 = 1 << 63;

    const fn addr(self) -> u64 {
        self.0 & !((PAGE - 1) | Self::LAST)
    }

    const fn hits(self) -> u64 {
        self.0 & Self::HITS
    }

    const fn scans(self) -> u64 {
        (self.0 & Self::SCANS) >> 3
    }

    fn node(self) -> Option<NodeId> {
        // 0 is none.
        let node = (self.0 & Self::NODE) >> Self::NODE_SHIFT;
        u16::try_from(node.checked_sub(1)?).ok().map(NodeId)
    }

    /// Whether its last scan found it accessed.
    const fn last(self) -> bool {
        self.0 & Self::LAST != 0
    }

    const fn huge(self) -> bool {
        self.0 & Self::HUGE != 0
    }

    fn found(&mut self, node: NodeId, huge: bool) {
        let node = (u64::from(node.0) + 1).min(Self::NODE >> Self::NODE_SHIFT);
        self.0 = self.0 & !(Self::NODE | Self::HUGE) | node << Self::NODE_SHIFT;
        if huge {
            self.0 |= Self::HUGE;
        }
    }

    fn scanned(&mut self, accessed: bool) {
        self.0 = if accessed {
            self.0 | Self::LAST
        } else {
            self.0 & !Self::LAST
        };
        if self.scans() < Self::HITS {
            self.0 += Self::SCAN + u64::from(accessed);
        }
    }
}

/// All sampled pages.
#[derive(Debug, Default)]
pub(super) struct Profile {
    pages: BTreeMap<Pid, Vec<Sample>>,
    /// Where the answer before was.
    last: (Option<Pid>, usize),
}

/// Which pages are sampled where counters say it.
#[derive(Debug, Default)]
pub(super) struct Captured {
    /// Addresses of sampled accesses.
    pages: BTreeMap<Pid, Vec<u64>>,
}

impl Captured {
    pub(super) fn take(&mut self, page: PageRef) {
        self.pages.entry(page.pid).or_default().push(page.addr.0);
    }

    pub(super) fn clear(&mut self) {
        self.pages.clear();
    }

    /// What they take, bytes.
    pub(super) fn bytes(&self) -> u64 {
        let room: usize = self.pages.values().map(Vec::capacity).sum();
        (room * size_of::<u64>()) as u64
    }

    fn sort(&mut self) {
        self.pages
            .values_mut()
            .for_each(|list| list.sort_unstable());
    }

    /// The page of a region that was captured most often, the first of several.
    fn of(&self, pid: Pid, region: &Region) -> Option<u64> {
        let list = self.pages.get(&pid)?;
        let first = list.partition_point(|addr| *addr < region.start);
        let last = list.partition_point(|addr| *addr < region.end);
        let grain = region.grain();
        let runs = list[first..last].chunk_by(|a, b| a / grain == b / grain);
        let most = runs.rev().max_by_key(|run| run.len())?;
        most.first().map(|addr| addr & !(PAGE - 1))
    }
}

impl Profile {
    /// Chooses pages: at random, each of an even part of its region. On the nodes of counters a region has the captured
    /// page among them; where none was captured it has none (5.5).
    pub(super) fn choose(
        &mut self,
        regions: &mut Regions,
        random: &mut Random,
        (single, captured): (&[NodeId], &mut Captured),
    ) {
        self.pages.clear();
        self.last = (None, 0);
        captured.sort();
        for (pid, list) in regions.processes_mut() {
            let mut chosen = Vec::new();
            for region in list.iter() {
                let guided = region.node.is_some_and(|node| single.contains(&node));
                let page = captured.of(pid, region);
                match page.filter(|_| guided) {
                    None if guided => {}
                    page => random_pages(region, random, page, &mut chosen),
                }
            }
            if !chosen.is_empty() {
                self.pages.insert(pid, chosen);
            }
        }
    }

    /// Keeps so many, evenly among all.
    pub(super) fn thin(&mut self, most: u64) {
        let (all, mut before) = (self.len().max(1), 0);
        let keeps = |index: u64| (index + 1) * most / all > index * most / all;
        for list in self.pages.values_mut() {
            list.retain(|_| {
                before += 1;
                most >= all || keeps(before - 1)
            });
        }
        self.pages.retain(|_, list| !list.is_empty());
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.pages.values().map(|list| list.len() as u64).sum()
    }

    /// The page behind a place, to be looked at, and its place.
    pub(super) fn next(&self, behind: Option<(Pid, usize)>) -> Option<(Pid, usize, PageRef)> {
        let page = |pid: Pid, sample: Sample| PageRef {
            pid,
            addr: Addr(sample.addr()),
            size: PageSize::Base4K,
        };
        if let Some((pid, index)) = behind
            && let Some(sample) = self.pages.get(&pid).and_then(|list| list.get(index + 1))
        {
            return Some((pid, index + 1, page(pid, *sample)));
        }
        let from = behind.map_or(std::ops::Bound::Unbounded, |(pid, _)| {
            std::ops::Bound::Excluded(pid)
        });
        let mut rest = self.pages.range((from, std::ops::Bound::Unbounded));
        let (pid, list) = rest.next()?;
        Some((*pid, 0, page(*pid, *list.first()?)))
    }

    /// A page was looked at. Whether the scan before found it accessed; nothing where it was not asked for. The first look in an
    /// interval clears the bit, and what it finds is old.
    pub(super) fn probed(&mut self, page: PageRef, node: NodeId, accessed: bool) -> Option<bool> {
        let list = self.pages.get_mut(&page.pid)?;
        let end = page.addr.0 + page.size.bytes();
        let is_in = |sample: &Sample| (page.addr.0..end).contains(&sample.addr());
        let near = match self.last {
            (Some(pid), at) if pid == page.pid => at + 1,
            _ => 0,
        };
        let first = if list.get(near).is_some_and(is_in) && !(near > 0 && is_in(&list[near - 1])) {
            near
        } else {
            list.partition_point(|sample| sample.addr() < page.addr.0)
        };
        let mut at = first;
        let before = list.get(at).is_some_and(|sample| sample.last());
        while let Some(sample) = list.get_mut(at).filter(|sample| sample.addr() < end) {
            if sample.node().is_some() {
                sample.scanned(accessed);
            }
            sample.found(node, page.size != PageSize::Base4K);
            at += 1;
        }
        self.last = (Some(page.pid), at.saturating_sub(1));
        (at > first).then_some(before)
    }

    /// What the scans say of the regions: hotness is the mean over a region's samples, of `scans` each. Regions that
    /// were not scanned keep theirs; those that counters saw nothing of, and those that are not in memory, have none.
    pub(super) fn judge(
        &self,
        regions: &mut Regions,
        scans: u8,
        (single, captured): (&[NodeId], &Captured),
    ) {
        for (pid, list) in regions.processes_mut() {
            let all = self.pages.get(&pid).map_or(&[][..], Vec::as_slice);
            let mut at = 0;
            for region in list.iter_mut() {
                while all
                    .get(at)
                    .is_some_and(|sample| sample.addr() < region.start)
                {
                    at += 1;
                }
                let first = at;
                while all.get(at).is_some_and(|sample| sample.addr() < region.end) {
                    at += 1;
                }
                let guided = region.node.is_some_and(|node| single.contains(&node));
                let unseen = guided && captured.of(pid, region).is_none();
                judge_one(region, &all[first..at], scans, unseen);
            }
        }
    }

    /// What it takes, bytes.
    pub(super) fn bytes(&self) -> u64 {
        let room: usize = self.pages.values().map(Vec::capacity).sum();
        (room * size_of::<Sample>()) as u64
    }
}

/// Each of an even part of the region; in its part, the page that is given.
fn random_pages(
    region: &Region,
    random: &mut Random,
    given: Option<u64>,
    chosen: &mut Vec<Sample>,
) {
    let (pages, grain) = (region.pages(), region.grain());
    let quota = u64::from(region.quota).min(pages);
    let first = region.start / grain;
    for part in 0..quota {
        let (from, to) = (part * pages / quota, (part + 1) * pages / quota);
        let drawn = first + from + random.below(to - from);
        let given = given.filter(|addr| (first + from..first + to).contains(&(addr / grain)));
        let page = given.unwrap_or(drawn * grain);
        // The first page of a region may begin before it.
        chosen.push(Sample(page.max(region.start)));
    }
}

#[expect(clippy::cast_precision_loss, reason = "scans of an interval")]
fn judge_one(region: &mut Region, samples: &[Sample], scans: u8, unseen: bool) {
    let (mut count, mut sum) = (0_u32, 0.0_f32);
    let (mut least, mut most) = (f32::MAX, 0.0_f32);
    let (mut huge, mut seen) = (false, false);
    let (mut chunks, mut chunk) = (0, None);
    let mut nodes: [(Option<NodeId>, u32); 4] = [(None, 0); 4];
    for sample in samples {
        if let Some(node) = sample.node() {
            let slot = nodes
                .iter_mut()
                .find(|(of, _)| of.is_none() || *of == Some(node));
            if let Some((of, times)) = slot {
                *of = Some(node);
                *times += 1;
            }
            seen = true;
            huge |= sample.huge();
            let other = Some(sample.addr() / CHUNK_BYTES);
            chunks += u64::from(std::mem::replace(&mut chunk, other) != other);
        }
        if sample.scans() == 0 {
            continue;
        }
        let hits = sample.hits().min(sample.scans()) as f32;
        let hits = hits / sample.scans() as f32 * f32::from(scans);
        count += 1;
        sum += hits;
        least = least.min(hits);
        most = most.max(hits);
    }
    region.spread = if count > 0 { most - least } else { 0.0 };
    // Pages whose bits were cleared and not looked at again say as little as those that were not scanned.
    if count > 0 || !seen && (unseen || !samples.is_empty()) {
        region.before = region.hotness;
        region.hotness = sum / count.max(1) as f32;
    }
    if seen {
        region.mapped = if huge {
            Mapped::Huge
        } else if chunks == region.chunks() {
            Mapped::Base
        } else {
            Mapped::Partly
        };
        let main = nodes.iter().rev().max_by_key(|(_, times)| *times);
        region.node = main.and_then(|(node, _)| *node);
    }
}
