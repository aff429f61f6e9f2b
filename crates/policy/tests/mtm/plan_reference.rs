// SPDX-License-Identifier: MIT OR Apache-2.0
//! What moves at the end of an interval as section 6 has it, slow and plain: memory is one process's, in huge pages, and all
//! processors see the tiers in the order of their numbers.

use terrace_core::CHUNK_BYTES;
use terrace_core::NodeId;

use super::reference::Region;

/// Buckets of the histogram, of equal width from 0 to `num_scans`; the paper does not say how many.
const BUCKETS: f32 = 16.0;

/// A huge page that moves, and where to.
pub(crate) type Move = (u64, NodeId);

/// Which rules a plan needed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Used {
    /// Huge pages that go to the fastest tier, to another, and down.
    pub(crate) fastest: u64,
    pub(crate) next: u64,
    pub(crate) down: u64,
    /// Regions of which a part goes, and plans that N ended.
    pub(crate) parts: u64,
    pub(crate) ended: u64,
}

fn bucket(region: &Region, num_scans: u8) -> usize {
    let share = (region.average / f32::from(num_scans)).clamp(0.0, 1.0);
    ((share * BUCKETS) as usize).min(BUCKETS as usize - 1)
}

struct Planning<'a> {
    regions: &'a [Region],
    num_scans: u8,
    /// Free huge pages of each tier.
    room: Vec<u64>,
    /// Of each region, huge pages that have left from its beginning; those that were promoted do not make room.
    gone: Vec<u64>,
    promoted: Vec<bool>,
    moves: Vec<Move>,
}

impl Planning<'_> {
    fn tier(&self, index: usize) -> Option<usize> {
        self.regions[index].node.map(|node| usize::from(node.0))
    }

    fn left(&self, index: usize) -> u64 {
        let region = &self.regions[index];
        (region.end - region.start) / CHUNK_BYTES - self.gone[index]
    }

    fn goes(&mut self, index: usize, count: u64, to: usize) {
        let first = self.regions[index].start + self.gone[index] * CHUNK_BYTES;
        let to_node = NodeId(u16::try_from(to).expect("few tiers"));
        let pages = (0..count).map(|page| (first + page * CHUNK_BYTES, to_node));
        self.moves.extend(pages);
        self.gone[index] += count;
        self.room[to] -= count;
    }

    /// "some regions in that memory tier may need to be demoted to the next lower memory tier with enough memory capacity": those "in the
    /// lowest buckets", and always of a lower one than who comes.
    fn make_room(&mut self, tier: usize, wanted: u64, hotter: usize) {
        while self.room[tier] < wanted {
            let on_it = (0..self.regions.len()).filter(|index| {
                self.tier(*index) == Some(tier) && !self.promoted[*index] && self.left(*index) > 0
            });
            let Some(victim) =
                on_it.min_by_key(|index| bucket(&self.regions[*index], self.num_scans))
            else {
                return;
            };
            let count = self.left(victim).min(wanted - self.room[tier]);
            let below = (tier + 1..self.room.len()).find(|below| self.room[*below] >= count);
            let (Some(below), true) = (
                below,
                bucket(&self.regions[victim], self.num_scans) < hotter,
            ) else {
                return;
            };
            self.goes(victim, count, below);
            self.room[tier] += count;
        }
    }
}

/// "MTM promotes some regions to the fastest tier, and the total size of migrated regions is a constant N", here in huge pages; where "those
/// regions falling into the highest buckets [...] are already in the fastest tier [...], the regions in the 2nd highest bucket (or even lower
/// when no promotion) are selected to promote to the 2nd-fastest mem tier".
pub(crate) fn plan(
    regions: &[Region],
    room: &[u64],
    n: u64,
    num_scans: u8,
    used: &mut Used,
) -> Vec<Move> {
    let mut planning = Planning {
        regions,
        num_scans,
        room: room.to_vec(),
        gone: vec![0; regions.len()],
        promoted: vec![false; regions.len()],
        moves: Vec::new(),
    };
    let mut hottest: Vec<usize> = (0..regions.len())
        .filter(|index| regions[*index].node.is_some())
        .collect();
    hottest.sort_by_key(|index| std::cmp::Reverse(bucket(&regions[*index], num_scans)));
    let mut left = n;
    for index in hottest {
        let hotter = bucket(&regions[index], num_scans);
        if hotter == 0 {
            break;
        }
        if left == 0 {
            used.ended += 1;
            break;
        }
        // Part of it makes room for others.
        if planning.gone[index] > 0 {
            continue;
        }
        let wanted = planning.left(index).min(left);
        for tier in 0..planning.tier(index).unwrap_or(0) {
            let before = planning.moves.len() as u64;
            planning.make_room(tier, wanted, hotter);
            used.down += planning.moves.len() as u64 - before;
            let count = wanted.min(planning.room[tier]);
            if count > 0 {
                planning.promoted[index] = true;
                planning.goes(index, count, tier);
                left -= count;
                used.parts += u64::from(planning.left(index) > 0);
                *(if tier == 0 {
                    &mut used.fastest
                } else {
                    &mut used.next
                }) += count;
                break;
            }
        }
    }
    planning.moves
}
