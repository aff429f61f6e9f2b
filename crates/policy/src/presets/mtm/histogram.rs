// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distribution of hotness over all regions of all tiers (6.1): buckets of equal width from 0 to `num_scans`.
//!
//! The range of moving averages that a bucket has is also how much hotter a region must be than one that makes
//! room for it.

/// Buckets; the paper does not say how many.
pub const BUCKETS: usize = 16;

/// Which regions are in which bucket; regions by whatever number the caller has for them.
#[derive(Debug)]
pub struct Histogram {
    buckets: Vec<Vec<u32>>,
    most: f32,
}

impl Histogram {
    /// For hotness up to that.
    #[must_use]
    pub fn new(most: f32) -> Self {
        Self {
            buckets: vec![Vec::new(); BUCKETS],
            most,
        }
    }

    /// The bucket of a moving average.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a few buckets"
    )]
    pub fn bucket(&self, average: f32) -> usize {
        let share = (average / self.most).clamp(0.0, 1.0);
        ((share * BUCKETS as f32) as usize).min(BUCKETS - 1)
    }

    /// Adds a region.
    pub fn add(&mut self, average: f32, region: u32) {
        let bucket = self.bucket(average);
        self.buckets[bucket].push(region);
    }

    /// The regions, the hottest bucket first; those of a bucket in the order in which they were added.
    pub fn hottest(&self) -> impl Iterator<Item = (usize, u32)> {
        let buckets = self.buckets.iter().enumerate().rev();
        buckets.flat_map(|(bucket, regions)| regions.iter().map(move |region| (bucket, *region)))
    }

    /// The regions, the coldest bucket first.
    pub fn coldest(&self) -> impl Iterator<Item = (usize, u32)> {
        let buckets = self.buckets.iter().enumerate();
        buckets.flat_map(|(bucket, regions)| regions.iter().map(move |region| (bucket, *region)))
    }

    /// What it takes, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let room: usize = self.buckets.iter().map(Vec::capacity).sum();
        (room * size_of::<u32>()) as u64
    }
}
