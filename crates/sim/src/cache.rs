// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last-level cache: played (set-associative, LRU), and by Che's approximation.
//!
//! Che, Tung, Wang (2002): under independent accesses a line stays in an LRU cache of `c` lines for
//! about one *characteristic time* `t`, the same for all; a line with rate `r` is hit with
//! probability `1 - exp(-r t)`, and `t` follows from the sum of these over all lines being `c`.
//!
//! A dirty line is given back when it leaves. A line's stay holds a geometric number of accesses, so
//! with hit ratio `h` and share `f` of writes it leaves clean with probability
//! `(1 - f) (1 - h) / (1 - h (1 - f))`.

use crate::hardware::CacheSize;

const DIRTY: u32 = 1;

/// A cache whose accesses are played.
#[derive(Debug)]
pub(crate) struct Cache {
    /// Line numbers plus 1, shifted left by one, with a dirty bit; sets in order, most recent first.
    tags: Vec<u32>,
    sets: u64,
    ways: usize,
}

/// What an access found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Hit,
    /// Not there; the line named was dirty and is given back.
    Miss(Option<u32>),
}

impl Cache {
    pub(crate) fn new(size: CacheSize) -> Self {
        Self {
            tags: vec![0; size.sets * size.ways],
            sets: size.sets as u64,
            ways: size.ways,
        }
    }

    /// One access to a line (below 2^31 - 1). The lines of a page lie in sets one after the other,
    /// pages anywhere: physical addresses are not in order.
    #[inline]
    pub(crate) fn access(&mut self, line: u32, write: bool) -> Found {
        let page = u64::from(line >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        let set = (page + u64::from(line & 63)) % self.sets;
        let at = usize::try_from(set).expect("below the number of sets") * self.ways;
        let ways = &mut self.tags[at..at + self.ways];
        let tag = (line + 1) << 1;
        let dirty = u32::from(write);
        if let Some(way) = ways.iter().position(|&t| t & !DIRTY == tag) {
            let entry = ways[way] | dirty;
            ways.copy_within(0..way, 1);
            ways[0] = entry;
            return Found::Hit;
        }
        let last = ways[ways.len() - 1];
        ways.copy_within(0..self.ways - 1, 1);
        ways[0] = tag | dirty;
        Found::Miss((last & DIRTY != 0).then(|| (last >> 1) - 1))
    }
}

/// Finds the characteristic time: `occupied(t)` gives how many lines accesses of time `t` touch.
pub(crate) fn characteristic_time(lines: f64, occupied: impl Fn(f64) -> f64) -> f64 {
    let mut high = 1.0;
    while occupied(high) < lines {
        high *= 4.0;
        // All there is fits.
        if high > 1e30 {
            return f64::INFINITY;
        }
    }
    let mut low = 0.0;
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if occupied(middle) < lines {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Of the misses of a line, the share for which a dirty line is given back.
pub(crate) fn dirty_share(hit: f64, writes: f64) -> f64 {
    if writes <= 0.0 {
        return 0.0;
    }
    let reads = 1.0 - writes;
    1.0 - reads * (1.0 - hit) / (1.0 - hit * reads)
}

#[cfg(test)]
mod tests {
    use rand::Rng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Two classes of lines, hot and cold: hit and give-back ratios as played and as computed.
    #[test]
    fn che_agrees_with_the_played_cache() {
        let size = CacheSize {
            sets: 8192,
            ways: 16,
        };
        let (hot, cold, percent) = (64_000_u32, 640_000_u32, 70);
        let mut cache = Cache::new(size);
        let mut rng = Pcg64Mcg::new(7);
        let (mut misses, mut backs) = ([0_u32; 2], 0_u32);
        let mut seen = [0_u32; 2];
        for n in 0..9_000_000 {
            let random = rng.next_u64();
            let is_hot = random % 100 < percent;
            let pick = u32::try_from(random >> 32).expect("32 bits");
            let line = if is_hot {
                pick % hot
            } else {
                hot + pick % cold
            };
            let write = (random >> 8).is_multiple_of(4);
            let found = cache.access(line, write);
            if n < 4_000_000 {
                continue;
            }
            seen[usize::from(is_hot)] += 1;
            if let Found::Miss(back) = found {
                misses[usize::from(is_hot)] += 1;
                backs += u32::from(back.is_some());
            }
        }
        let rate = [0.3 / f64::from(cold), 0.7 / f64::from(hot)];
        let count = [f64::from(cold), f64::from(hot)];
        let lines = 8192.0 * 16.0;
        let time = characteristic_time(lines, |t| {
            (0..2)
                .map(|k| count[k] * (1.0 - (-rate[k] * t).exp()))
                .sum()
        });
        let mut computed_backs = 0.0;
        for k in 0..2 {
            let played = f64::from(misses[k]) / f64::from(seen[k]);
            let computed = (-rate[k] * time).exp();
            assert!((played - computed).abs() < 0.02, "{k}: {played} {computed}");
            computed_backs += f64::from(seen[k]) * computed * dirty_share(1.0 - computed, 0.25);
        }
        assert!((f64::from(backs) / computed_backs - 1.0).abs() < 0.05);
    }

    #[test]
    fn what_fits_is_always_hit() {
        let time = characteristic_time(1000.0, |t| 100.0 * (1.0 - (-t).exp()));
        assert!(time.is_infinite());
    }
}
