// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heat maps of the tiers and where they overlap (3.2.2, figure 5; 4).
//!
//! Bucket i has the base pages with captured idle times of 2^(i-1) to 2^i ms, the first what is below 1 ms, the last
//! all above too. A large page counts as its base pages with as many times its idle time (3.4): 512 base pages
//! nine buckets on for 2 MiB.
//!
//! ```text
//! S(x) = pages of slow tiers below x            hot and misplaced, if x is the cut
//! C(x) = pages of the fast tier above x         cold and misplaced
//! cut:   S(x) = C(x) + free memory of the fast tier
//! ```
//!
//! At the cut as many pages are below it as fit into the fast tier; S is how many have to come up. Within a bucket
//! pages are taken to be spread evenly over the octave.

use terrace_core::Nanos;
use terrace_core::PageSize;

const MILLI: u64 = 1_000_000;

/// The shortest threshold there is (4: "the finest CIT level is 1 ms").
pub const FINEST: Nanos = Nanos::from_millis(1);
/// The longest (4: what is above 2^27 ms is not considered).
pub const COARSEST: Nanos = Nanos::from_millis(1 << 27);

/// A page's idle time as its base pages': 3.4 has the threshold divided by 512, and 512 times 512, instead.
#[must_use]
pub fn as_base(idle: Nanos, size: PageSize) -> Nanos {
    let pages = size.bytes() / PageSize::Base4K.bytes();
    Nanos(idle.0.saturating_mul(pages))
}

/// The bucket of a base page's idle time, of so many.
#[must_use]
pub fn bucket(idle: Nanos, buckets: usize) -> usize {
    let above = (idle.0 / MILLI).checked_ilog2();
    above
        .map_or(0, |octave| octave as usize + 1)
        .min(buckets - 1)
}

/// Base pages by idle time, of one tier.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// By bucket.
    pub pages: Vec<f64>,
}

impl HeatMap {
    /// Of nothing.
    #[must_use]
    pub fn new(buckets: usize) -> Self {
        Self {
            pages: vec![0.0; buckets.max(1)],
        }
    }

    /// Counts so many base pages with a base page's idle time.
    pub fn add(&mut self, idle: Nanos, pages: f64) {
        let bucket = bucket(idle, self.pages.len());
        self.pages[bucket] += pages;
    }
}

/// What two heat maps say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overlap {
    /// The idle time at which they overlap.
    pub cut: Nanos,
    /// The end of its bucket: what is idle for longer has no part in it.
    pub end: Nanos,
    /// Base pages of slow tiers below it.
    pub misplaced: f64,
    /// Base pages there are.
    pub all: f64,
}

/// Where they overlap, with so many base pages free in the fast tier; nothing where there is no page.
#[must_use]
pub fn overlap(fast: &HeatMap, slow: &HeatMap, free: f64) -> Option<Overlap> {
    let all = fast.pages.iter().chain(&slow.pages).sum::<f64>();
    if all <= 0.0 {
        return None;
    }
    // S - C - free, at the lower end of the bucket.
    let mut over = -free - fast.pages.iter().sum::<f64>();
    let mut misplaced = 0.0;
    for (bucket, (fast, slow)) in fast.pages.iter().zip(&slow.pages).enumerate() {
        let here = fast + slow;
        if here > 0.0 && over + here >= 0.0 {
            let part = (-over / here).clamp(0.0, 1.0);
            return Some(Overlap {
                cut: at(bucket, part),
                end: at(bucket, 1.0),
                misplaced: misplaced + part * slow,
                all,
            });
        }
        over += here;
        misplaced += slow;
    }
    // All fits.
    Some(Overlap {
        cut: COARSEST,
        end: COARSEST,
        misplaced,
        all,
    })
}

/// The idle time at a part of a bucket.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "ns below 2^53"
)]
fn at(bucket: usize, part: f64) -> Nanos {
    let ms = if bucket == 0 {
        part
    } else {
        (bucket as f64 - 1.0 + part).exp2()
    };
    Nanos((ms * MILLI as f64) as u64).max(FINEST).min(COARSEST)
}

#[cfg(test)]
#[path = "heat_tests.rs"]
mod tests;
