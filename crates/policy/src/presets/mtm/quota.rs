// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which regions have how many samples (5.2), and that all of them together are `num_ps` (5.3).
//!
//! A merge halves the samples of both regions. What that saves goes to the five regions whose hotness varied most
//! over the last two intervals; what those cannot use, as they have no more pages, to all regions alike. Where
//! there are more regions than samples, each has one or none, and it goes round.

use terrace_core::NodeId;

use super::regions::Mapped;
use super::regions::Region;
use super::regions::Regions;
use crate::kit::Random;

/// Regions that saved samples go to (5.2: five).
pub const TOP: usize = 5;

/// The regions that varied most, by their places in the order of all; the one that varied most first.
#[derive(Debug, Default, Clone)]
struct Top {
    varied: Vec<(f32, usize)>,
}

impl Top {
    fn take(&mut self, variance: f32, index: usize) {
        if variance <= 0.0 {
            return;
        }
        let at = self.varied.partition_point(|(other, _)| *other >= variance);
        self.varied.insert(at, (variance, index));
        self.varied.truncate(TOP);
    }
}

/// Hands samples out.
#[derive(Debug, Default)]
pub struct Quota {
    /// Where the round over regions without samples has come to.
    turn: usize,
    /// Nodes whose regions have one sample each (5.2: the slowest tier's).
    pub alone: Vec<NodeId>,
}

/// Samples that a region can have: its pages; where nothing was seen yet, one says what maps it.
fn most_of(region: &Region, alone: &[NodeId]) -> u32 {
    match region.mapped {
        _ if region.node.is_some_and(|node| alone.contains(&node)) => 1,
        Mapped::Unknown => 1,
        Mapped::Partly | Mapped::Base | Mapped::Huge => {
            u32::try_from(region.pages()).unwrap_or(u32::MAX)
        }
    }
}

fn sum(regions: &Regions) -> u64 {
    regions
        .iter()
        .map(|(_, region)| u64::from(region.quota))
        .sum()
}

impl Quota {
    /// Makes the sum of samples `num_ps`, or that of all pages where it is less. With `random`, samples go to any
    /// regions instead of those that varied most (9.3). Gives the sum.
    pub fn settle(
        &mut self,
        regions: &mut Regions,
        num_ps: u64,
        random: Option<&mut Random>,
    ) -> u64 {
        for (_, region) in regions.iter_mut() {
            region.quota = region.quota.clamp(1, most_of(region, &self.alone));
        }
        let all: u64 = regions
            .iter()
            .map(|(_, region)| u64::from(most_of(region, &self.alone)))
            .sum();
        let target = num_ps.min(all);
        let have = sum(regions);
        if have < target {
            self.give(regions, target - have, random);
        } else if have > target {
            self.level(regions, target);
        }
        target
    }

    fn give(&mut self, regions: &mut Regions, spare: u64, random: Option<&mut Random>) {
        let count = regions.len();
        let favoured: Vec<usize> = match random {
            Some(random) => (0..TOP)
                .filter_map(|_| usize::try_from(random.below(count as u64)).ok())
                .collect(),
            None => {
                let mut top = Top::default();
                for (index, (_, region)) in regions.iter().enumerate() {
                    top.take(region.variance(), index);
                }
                top.varied.iter().map(|(_, index)| *index).collect()
            }
        };
        let mut places: Vec<&mut Region> = regions.iter_mut().map(|(_, region)| region).collect();
        let left = fill(&mut places, &self.alone, &favoured, spare);
        let everyone: Vec<usize> = (0..count).collect();
        fill(&mut places, &self.alone, &everyone, left);
    }

    /// Takes samples from those that have most; where there are more regions than samples, those whose turn it is
    /// have one.
    fn level(&mut self, regions: &mut Regions, target: u64) {
        let total = |level: u32| {
            let quotas = regions.iter().map(|(_, region)| region.quota.min(level));
            quotas.map(u64::from).sum::<u64>()
        };
        let (mut low, mut high) = (0, u32::MAX);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if total(middle) <= target {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        let mut left = target - total(low);
        let count = regions.len();
        let turn = self.turn;
        let more: Vec<bool> = regions
            .iter()
            .map(|(_, region)| region.quota > low)
            .collect();
        for (_, region) in regions.iter_mut() {
            region.quota = region.quota.min(low);
        }
        let mut places: Vec<&mut Region> = regions.iter_mut().map(|(_, region)| region).collect();
        for step in 0..count {
            if left == 0 {
                break;
            }
            let index = (turn + step) % count;
            if more[index] {
                places[index].quota += 1;
                left -= 1;
                self.turn = (index + 1) % count;
            }
        }
    }
}

/// Hands `spare` samples out to these regions alike, as far as they have pages; gives what is left.
fn fill(places: &mut [&mut Region], alone: &[NodeId], to: &[usize], spare: u64) -> u64 {
    let mut left = spare;
    let mut open: Vec<usize> = to.to_vec();
    while left > 0 && !open.is_empty() {
        let each = (left / open.len() as u64).max(1);
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        open.retain(|index| {
            let region = &mut *places[*index];
            let most = most_of(region, alone);
            let more = each
                .min(most.saturating_sub(region.quota))
                .min(u32::try_from(left).unwrap_or(u32::MAX));
            region.quota += more;
            left -= u64::from(more);
            region.quota < most
        });
    }
    left
}
