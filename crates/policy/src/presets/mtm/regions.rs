// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory regions (5.1): what is profiled and migrated together.
//!
//! Units: addresses and sizes are bytes, hotness is in scans of an interval, from 0 to `num_scans`.
//!
//! Regions tile the mappings of every process, no more and no less. A mapping begins as regions of 2 MiB, the
//! memory of one last-level page directory entry, at their natural boundaries. At the end of an interval
//! neighbours that are alike become one, and a region whose samples differ becomes two.
//!
//! A boundary inside 2 MiB needs base pages on both sides: a huge page is never cut (5.4). That base pages are there
//! is known where they were sampled. Where the kernel has put a huge page since, the regions in it are joined again.

use std::collections::BTreeMap;

use terrace_core::CHUNK_BYTES;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_core::Range;

/// Smallest page.
const PAGE: u64 = 4096;
/// Nodes with processors whose accesses are told apart (6.2).
pub const ACCESSORS: usize = 8;

/// What maps a region, as far as its samples showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mapped {
    /// Nothing was seen yet.
    #[default]
    Unknown,
    /// Base pages where it was sampled; elsewhere there may be huge pages.
    Partly,
    /// Base pages alone: each of its 2 MiB was sampled.
    Base,
    /// A huge page at least.
    Huge,
}

/// A region, its state as in 5.3.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Hotness in the last interval, `HI_i`.
    pub hotness: f32,
    /// The same in the interval before.
    pub before: f32,
    /// Its moving average, `WHI_i`.
    pub average: f32,
    /// Scans by which its samples differed in the last interval.
    pub spread: f32,
    /// Pages to be sampled.
    pub quota: u32,
    /// The node that most of its samples were on.
    pub node: Option<NodeId>,
    /// What maps it.
    pub mapped: Mapped,
    /// Hint faults by the node of the processor.
    pub accessors: [u8; ACCESSORS],
}

impl Region {
    /// Of a range, nothing known of it.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            quota: 1,
            ..Self::default()
        }
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Distance of the pages that can be sampled.
    #[must_use]
    pub const fn grain(&self) -> u64 {
        match self.mapped {
            Mapped::Huge => CHUNK_BYTES,
            Mapped::Base | Mapped::Partly | Mapped::Unknown => PAGE,
        }
    }

    /// How many 2 MiB it has, or a part of.
    #[must_use]
    pub const fn chunks(&self) -> u64 {
        self.end.div_ceil(CHUNK_BYTES) - self.start / CHUNK_BYTES
    }

    /// How many pages can be sampled.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let grain = self.grain();
        (self.end.div_ceil(grain) - self.start / grain).max(1)
    }

    /// How much its hotness varied over the last two intervals.
    #[must_use]
    pub fn variance(&self) -> f32 {
        let half = (self.hotness - self.before) / 2.0;
        half * half
    }

    /// Where it is split: in the middle, moved so that no huge page is cut (5.4); `None` where it cannot be.
    #[must_use]
    pub fn middle(&self) -> Option<u64> {
        let middle = self.start + self.bytes() / 2;
        let inside = |at: u64| at > self.start && at < self.end;
        let (below, above) = (
            middle & !(CHUNK_BYTES - 1),
            middle.next_multiple_of(CHUNK_BYTES),
        );
        let nearest = if middle - below <= above - middle {
            [below, above]
        } else {
            [above, below]
        };
        let whole = nearest.into_iter().find(|at| inside(*at));
        let base =
            Some(middle & !(PAGE - 1)).filter(|at| self.mapped == Mapped::Base && inside(*at));
        whole.or(base)
    }

    /// The two that it becomes there.
    fn cut(self, at: u64) -> (Self, Self) {
        let left = Self {
            end: at,
            quota: self.quota.div_ceil(2),
            spread: 0.0,
            ..self
        };
        let right = Self {
            start: at,
            quota: self.quota / 2,
            spread: 0.0,
            ..self
        };
        (left, right)
    }

    /// Itself and its neighbour behind it as one; hotness by size.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "sizes as weights"
    )]
    fn with(self, next: Self) -> Self {
        let (own, others) = (self.bytes() as f64, next.bytes() as f64);
        let mean =
            |a: f32, b: f32| ((f64::from(a) * own + f64::from(b) * others) / (own + others)) as f32;
        let mapped = match (self.mapped, next.mapped) {
            (Mapped::Huge, _) | (_, Mapped::Huge) => Mapped::Huge,
            (own, others) if own == others => own,
            _ => Mapped::Partly,
        };
        Self {
            start: self.start,
            end: next.end,
            hotness: mean(self.hotness, next.hotness),
            before: mean(self.before, next.before),
            average: mean(self.average, next.average),
            spread: self.spread.max(next.spread),
            quota: ((self.quota + next.quota) / 2).max(1),
            node: self.node.or(next.node),
            mapped,
            accessors: std::array::from_fn(|i| self.accessors[i].saturating_add(next.accessors[i])),
        }
    }
}

/// All regions of all processes.
#[derive(Debug, Default)]
pub struct Regions {
    processes: BTreeMap<Pid, Vec<Region>>,
}

/// Bytes of a mapping's first regions: 2 MiB, more where the mapping is larger than all memory is.
fn first_size(range: Range, memory: u64) -> u64 {
    let most = memory.max(CHUNK_BYTES) / CHUNK_BYTES;
    let bytes = range.end.0.saturating_sub(range.start.0);
    (bytes / most).next_power_of_two().max(CHUNK_BYTES)
}

impl Regions {
    /// A mapping appeared or grew, on a machine with so much memory.
    pub fn map(&mut self, pid: Pid, range: Range, memory: u64) {
        let size = first_size(range, memory);
        let list = self.processes.entry(pid).or_default();
        let first = list.partition_point(|region| region.end <= range.start.0);
        let mut at = range.start.0;
        let mut new = Vec::new();
        let there = list[first..]
            .iter()
            .map(|region| (region.start, region.end));
        let behind = (range.end.0, range.end.0);
        for (start, end) in there.chain([behind]) {
            let until = start.min(range.end.0);
            while at < until {
                let next = (at + 1).next_multiple_of(size).min(until);
                new.push(Region::new(at, next));
                at = next;
            }
            at = at.max(end);
            if at >= range.end.0 {
                break;
            }
        }
        list.extend(new);
        list.sort_unstable_by_key(|region| region.start);
    }

    /// A range is gone.
    pub fn unmap(&mut self, pid: Pid, range: Range) {
        let Some(list) = self.processes.get_mut(&pid) else {
            return;
        };
        let (start, end) = (range.start.0, range.end.0);
        if start >= end {
            return;
        }
        let first = list.partition_point(|region| region.end <= start);
        let last = list.partition_point(|region| region.start < end);
        if first >= last {
            return;
        }
        let (head, tail) = (list[first], list[last - 1]);
        let mut kept = Vec::with_capacity(2);
        if head.start < start {
            kept.push(Region { end: start, ..head });
        }
        if tail.end > end {
            kept.push(Region { start: end, ..tail });
        }
        list.splice(first..last, kept);
        if list.is_empty() {
            self.processes.remove(&pid);
        }
    }

    /// A process is gone.
    pub fn gone(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// All of them, by process and address.
    pub fn iter(&self) -> impl Iterator<Item = (Pid, &Region)> {
        let all = self.processes.iter();
        all.flat_map(|(pid, list)| list.iter().map(move |region| (*pid, region)))
    }

    /// All of them, by process and address.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Pid, &mut Region)> {
        let all = self.processes.iter_mut();
        all.flat_map(|(pid, list)| list.iter_mut().map(move |region| (*pid, region)))
    }

    /// The processes, and the regions of each.
    pub fn processes_mut(&mut self) -> impl Iterator<Item = (Pid, &mut Vec<Region>)> {
        self.processes.iter_mut().map(|(pid, list)| (*pid, list))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.processes.values().map(Vec::len).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Those of a process that a range touches.
    pub fn within_mut(&mut self, pid: Pid, start: u64, end: u64) -> &mut [Region] {
        let Some(list) = self.processes.get_mut(&pid) else {
            return &mut [];
        };
        let first = list.partition_point(|region| region.end <= start);
        let last = list.partition_point(|region| region.start < end);
        &mut list[first..last.max(first)]
    }

    /// The one that has the address.
    pub fn find_mut(&mut self, pid: Pid, addr: u64) -> Option<&mut Region> {
        self.within_mut(pid, addr, addr + 1).first_mut()
    }

    /// Merges neighbours whose hotness differs by less than `tau_m` (5.1), each once in an interval. Not those
    /// that are to be split, by `tau_s`, nor those on different nodes: a region has one tier. Samples of both are
    /// halved; gives how many pairs became one.
    pub fn merge(&mut self, tau_m: f32, tau_s: f32) -> u64 {
        let mut merged = 0;
        for list in self.processes.values_mut() {
            let mut out: Vec<Region> = Vec::with_capacity(list.len());
            let mut fresh = false;
            for next in list.drain(..) {
                let pair = out.last().copied().filter(|last| last.end == next.start);
                let joined = pair.filter(|last| {
                    let one_huge = !next.start.is_multiple_of(CHUNK_BYTES)
                        && (last.mapped == Mapped::Huge || next.mapped == Mapped::Huge);
                    let alike = (last.hotness - next.hotness).abs() < tau_m
                        && last.spread <= tau_s
                        && next.spread <= tau_s
                        && last.node == next.node;
                    one_huge || alike && !fresh
                });
                match (joined, out.last_mut()) {
                    (Some(last), Some(place)) => {
                        *place = last.with(next);
                        merged += 1;
                        fresh = true;
                    }
                    _ => {
                        out.push(next);
                        fresh = false;
                    }
                }
            }
            *list = out;
        }
        merged
    }

    /// Splits regions whose samples differ by more than `tau_s` in two (5.1), with half of its samples each;
    /// gives how many became two.
    pub fn split(&mut self, tau_s: f32) -> u64 {
        let mut split = 0;
        for list in self.processes.values_mut() {
            let wanted =
                |region: &Region| (region.spread > tau_s).then(|| region.middle()).flatten();
            if !list.iter().any(|region| wanted(region).is_some()) {
                continue;
            }
            let mut out = Vec::with_capacity(list.len() + 16);
            for region in list.drain(..) {
                match wanted(&region) {
                    Some(at) => {
                        let (left, right) = region.cut(at);
                        out.extend([left, right]);
                        split += 1;
                    }
                    None => out.push(region),
                }
            }
            *list = out;
        }
        split
    }

    /// Makes a boundary at an address, where no huge page may be cut: only part of a region is migrated.
    pub fn cut_at(&mut self, pid: Pid, at: u64) {
        let Some(list) = self.processes.get_mut(&pid) else {
            return;
        };
        let index = list.partition_point(|region| region.end <= at);
        let Some(region) = list.get(index).filter(|region| region.start < at).copied() else {
            return;
        };
        let (left, right) = region.cut(at);
        list.splice(index..=index, [left, right]);
    }

    /// Pages that are known to be in memory.
    #[must_use]
    pub fn known_pages(&self) -> u64 {
        let known = self.iter().filter(|(_, region)| region.node.is_some());
        known.map(|(_, region)| region.pages()).sum()
    }

    /// What they take, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let room: usize = self.processes.values().map(Vec::capacity).sum();
        (room * size_of::<Region>()) as u64
    }
}
