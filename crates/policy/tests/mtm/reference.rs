// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the paper's sentences form regions and hand samples out, slow and plain.

use terrace_core::CHUNK_BYTES;
use terrace_core::NodeId;

/// A region.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) hotness: f32,
    pub(crate) before: f32,
    pub(crate) average: f32,
    pub(crate) spread: f32,
    pub(crate) quota: u32,
    pub(crate) node: Option<NodeId>,
}

impl Region {
    fn size(&self) -> f64 {
        (self.end - self.start) as f64
    }

    /// Samples that it can have: its huge pages; where nothing was seen of it, one says what is there.
    fn most(&self) -> u64 {
        if self.node.is_some() {
            (self.end - self.start) / CHUNK_BYTES
        } else {
            1
        }
    }
}

/// What an interval goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) num_scans: u64,
    /// As they are: those of the paper, or raised.
    pub(crate) tau_m: f64,
    pub(crate) tau_s: f64,
    pub(crate) alpha: f32,
}

/// "When the total number of regions is too large, MTM temporarily increases tau_m (and keeps tau_s > tau_m) [...]
/// gradually increased across profiling intervals, until the number of regions is no larger than num_ps, and then tau_m is
/// reset to the original value". A step is a sixth of `num_scans`, up to more than regions can differ by.
pub(crate) fn control(rules: Rules, original: Rules, regions: usize, num_ps: u64) -> Rules {
    if regions as u64 <= num_ps {
        return original;
    }
    let scans = rules.num_scans as f64;
    let step = scans * (1.0 / 6.0);
    let tau_m = (rules.tau_m + step).min(scans * 1.01);
    Rules {
        tau_m,
        tau_s: original.tau_s.max(tau_m + step),
        ..rules
    }
}

fn mean(a: f32, b: f32, weights: (f64, f64)) -> f32 {
    let sum = f64::from(a) * weights.0 + f64::from(b) * weights.1;
    (sum / (weights.0 + weights.1)) as f32
}

/// "the average number of accesses to all sampled pages in a memory region is used to indicate the hotness"; "If the
/// maximum difference in the number of accesses between all sampled pages [...]". Scans are in order; the first of a
/// page clears it. A region is on the node of most of its sampled pages, the first of several.
pub(crate) fn judge(
    regions: &mut [Region],
    scans: &[(u64, bool)],
    rules: Rules,
    node: impl Fn(u64) -> NodeId,
) {
    for region in regions.iter_mut() {
        let mut pages: Vec<(u64, u64, u64)> = Vec::new();
        for (addr, accessed) in scans {
            if !(region.start..region.end).contains(addr) {
                continue;
            }
            match pages.iter_mut().find(|(page, ..)| page == addr) {
                Some((_, scans, hits)) => {
                    *scans += 1;
                    *hits += u64::from(*accessed);
                }
                None => pages.push((*addr, 0, 0)),
            }
        }
        if pages.is_empty() {
            region.spread = 0.0;
        } else {
            let hits: Vec<f32> = pages.iter().map(|(_, _, hits)| *hits as f32).collect();
            region.before = region.hotness;
            region.hotness = hits.iter().sum::<f32>() / hits.len() as f32;
            pages.sort_unstable();
            let on: Vec<NodeId> = pages.iter().map(|(page, ..)| node(*page)).collect();
            let times = |one: &NodeId| on.iter().filter(|other| *other == one).count();
            region.node = on.iter().rev().max_by_key(|one| times(one)).copied();
            let most = hits.iter().copied().fold(0.0, f32::max);
            region.spread = most - hits.iter().copied().fold(f32::MAX, f32::min);
        }
        // Equation 2.
        region.average = rules.alpha * region.hotness + (1.0 - rules.alpha) * region.average;
    }
}

/// "If the disparity in hotness between two contiguous regions [...] is below a threshold, these regions are merged
/// together"; "the combined total of page samples from both regions is halved, under the constraint that the new region
/// has at least one sample".
pub(crate) fn merge(regions: &[Region], rules: Rules) -> Vec<Region> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < regions.len() {
        let this = regions[at];
        let next = regions.get(at + 1).filter(|next| {
            let apart = (this.hotness - next.hotness).abs();
            let splits = this.spread.max(next.spread) > rules.tau_s as f32;
            next.start == this.end
                && apart < rules.tau_m as f32
                && !splits
                && next.node == this.node
        });
        let Some(next) = next else {
            out.push(this);
            at += 1;
            continue;
        };
        let by = (this.size(), next.size());
        out.push(Region {
            end: next.end,
            hotness: mean(this.hotness, next.hotness, by),
            before: mean(this.before, next.before, by),
            average: mean(this.average, next.average, by),
            spread: this.spread.max(next.spread),
            quota: ((this.quota + next.quota) / 2).max(1),
            ..this
        });
        at += 2;
    }
    out
}

/// "the region is then split into two equally-sized regions", "slightly adjusted to align with the huge-page boundary";
/// "the page sample quota in the original region is evenly distributed to the two regions".
pub(crate) fn split(regions: &[Region], rules: Rules) -> Vec<Region> {
    let mut out = Vec::new();
    for region in regions {
        let chunks = (region.end - region.start) / CHUNK_BYTES;
        if region.spread <= rules.tau_s as f32 || chunks < 2 {
            out.push(*region);
            continue;
        }
        let at = region.start + chunks / 2 * CHUNK_BYTES;
        let (left, right) = (region.quota - region.quota / 2, region.quota / 2);
        out.push(Region {
            end: at,
            quota: left,
            spread: 0.0,
            ..*region
        });
        out.push(Region {
            start: at,
            quota: right,
            spread: 0.0,
            ..*region
        });
    }
    out
}

/// "the total number of page samples in all regions remains equal to num_ps"; what merging saved goes "to the memory
/// regions exhibiting the largest variance in hotness indication across the last two profiling intervals", of which there
/// are five; what those have no pages for, to all alike. Where there are as many samples as regions at least. Gives what
/// the five have of it.
pub(crate) fn settle(regions: &mut [Region], num_ps: u64) -> u64 {
    for region in regions.iter_mut() {
        region.quota = region.quota.clamp(1, region.most() as u32);
    }
    let all: u64 = regions.iter().map(Region::most).sum();
    let have: u64 = regions.iter().map(|region| u64::from(region.quota)).sum();
    let saved = num_ps
        .min(all)
        .checked_sub(have)
        .expect("merging saves, splitting takes none");
    let variance = |region: &Region| ((region.hotness - region.before) / 2.0).powi(2);
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.retain(|index| variance(&regions[*index]) > 0.0);
    order.sort_by(|a, b| variance(&regions[*b]).total_cmp(&variance(&regions[*a])));
    order.truncate(5);
    let rest = hand_out(regions, order, saved);
    hand_out(regions, (0..regions.len()).collect(), rest);
    saved - rest
}

/// To these alike, as long as they have pages; gives what is left.
fn hand_out(regions: &mut [Region], mut to: Vec<usize>, samples: u64) -> u64 {
    let mut left = samples;
    while left > 0 && !to.is_empty() {
        let each = (left / to.len() as u64).max(1);
        to.retain(|index| {
            let region = &mut regions[*index];
            let more = each.min(region.most() - u64::from(region.quota)).min(left);
            region.quota += more as u32;
            left -= more;
            u64::from(region.quota) < region.most()
        });
    }
    left
}
