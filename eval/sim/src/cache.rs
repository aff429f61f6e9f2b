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

/// Ways that lie together.
const BLOCK: usize = 16;

/// Part of a set: line numbers plus 1, shifted left by one, with a dirty bit; most recent first.
/// One line of the host's cache, gone through without branches.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Block([u32; BLOCK]);

impl Block {
    #[inline]
    fn find(&self, tag: u32) -> Option<usize> {
        // By fours, as a processor compares them.
        let mut found = [0; 4];
        for (four, bits) in self.0.chunks_exact(4).zip(BIT.chunks_exact(4)) {
            for at in 0..4 {
                found[at] |= if four[at] & !DIRTY == tag {
                    bits[at]
                } else {
                    0
                };
            }
        }
        let [a, b, c, d] = found;
        let all = a | b | c | d;
        (all != 0).then(|| all.trailing_zeros() as usize)
    }

    /// Puts an entry in front and moves those before `way` on by one; gives the one that was there.
    #[inline]
    fn put(&mut self, way: usize, entry: u32) -> u32 {
        let left = self.0[way];
        let moved = &MOVED[way];
        // By fours from behind, so that each takes what was before it.
        for at in [12, 8, 4, 0] {
            let here = &self.0[at..at + 4];
            let first = if at > 0 { self.0[at - 1] } else { entry };
            let before = [first, here[0], here[1], here[2]];
            let mut new = [0; 4];
            for i in 0..4 {
                new[i] = before[i] & moved[at + i] | here[i] & !moved[at + i];
            }
            self.0[at..at + 4].copy_from_slice(&new);
        }
        left
    }
}

/// By way: its bit.
const BIT: [u32; BLOCK] = {
    let mut bits = [0; BLOCK];
    let mut way = 0;
    while way < BLOCK {
        bits[way] = 1 << way;
        way += 1;
    }
    bits
};

/// By way: all ones for the entries that move if that one leaves.
static MOVED: [[u32; BLOCK]; BLOCK] = {
    let mut masks = [[0; BLOCK]; BLOCK];
    let mut way = 0;
    while way < BLOCK {
        let mut at = 0;
        while at <= way {
            masks[way][at] = u32::MAX;
            at += 1;
        }
        way += 1;
    }
    masks
};

/// A cache whose accesses are played.
#[derive(Debug)]
pub(crate) struct Cache {
    /// Set by set; what is beyond the ways stays 0.
    blocks: Vec<Block>,
    sets: u64,
    /// Whether the number of sets is a power of two.
    even: bool,
    /// Blocks of a set.
    per_set: usize,
    /// The last way, in its block.
    last: usize,
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
        let per_set = size.ways.div_ceil(BLOCK);
        Self {
            blocks: vec![Block([0; BLOCK]); size.sets * per_set],
            sets: size.sets as u64,
            even: size.sets.is_power_of_two(),
            per_set,
            last: (size.ways - 1) % BLOCK,
        }
    }

    /// The first block of a line's set. The lines of a page lie in sets one after the other, pages
    /// anywhere: physical addresses are not in order.
    #[inline]
    pub(crate) fn place(&self, line: u32) -> usize {
        let page = u64::from(line >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        let number = page + u64::from(line & 63);
        let set = if self.even {
            number & (self.sets - 1)
        } else {
            number % self.sets
        };
        usize::try_from(set).expect("below the number of sets") * self.per_set
    }

    /// Something of what is there.
    #[inline]
    pub(crate) fn peek(&self, place: usize) -> u32 {
        self.blocks[place].0[0]
    }

    /// One access to a line (below 2^31 - 1).
    #[inline]
    pub(crate) fn access(&mut self, line: u32, write: bool) -> Found {
        let at = self.place(line);
        let tag = (line + 1) << 1;
        let entry = tag | u32::from(write);
        let block = &mut self.blocks[at];
        if let Some(way) = block.find(tag) {
            let was = block.put(way, entry);
            block.0[0] |= was & DIRTY;
            return Found::Hit;
        }
        if self.per_set > 1 {
            return self.access_behind(at, tag, entry);
        }
        gone(block.put(self.last, entry))
    }

    /// Where the first block of a set has not got the line.
    #[cold]
    fn access_behind(&mut self, at: usize, tag: u32, entry: u32) -> Found {
        let mut carried = self.blocks[at].put(BLOCK - 1, entry);
        for nth in 1..self.per_set {
            let block = &mut self.blocks[at + nth];
            if let Some(way) = block.find(tag) {
                let was = block.put(way, carried);
                self.blocks[at].0[0] |= was & DIRTY;
                return Found::Hit;
            }
            let way = if nth + 1 == self.per_set {
                self.last
            } else {
                BLOCK - 1
            };
            carried = block.put(way, carried);
        }
        gone(carried)
    }
}

/// A miss that displaced this entry.
#[inline]
fn gone(entry: u32) -> Found {
    Found::Miss((entry & DIRTY != 0).then(|| (entry >> 1) - 1))
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

    /// Sets of any number of ways do what a list in order of use does.
    #[test]
    fn the_least_recently_used_line_leaves() {
        for ways in [1, 8, 15, 16, 17, 40_u32] {
            let size = CacheSize {
                sets: 1,
                ways: ways as usize,
            };
            let mut cache = Cache::new(size);
            let mut list: Vec<(u32, bool)> = Vec::new();
            let mut rng = Pcg64Mcg::new(3);
            for _ in 0..20_000 {
                let random = rng.next_u64();
                let line = u32::try_from(random >> 40).expect("24 bits") % (3 * ways / 2 + 2);
                let write = random.is_multiple_of(3);
                let known = list.iter().position(|(l, _)| *l == line);
                let dirty = known.is_some_and(|at| list.remove(at).1);
                list.insert(0, (line, write || dirty));
                let left = if list.len() > ways as usize {
                    list.pop()
                } else {
                    None
                };
                let want = match known {
                    Some(_) => Found::Hit,
                    None => Found::Miss(left.filter(|(_, dirty)| *dirty).map(|(l, _)| l)),
                };
                assert_eq!(cache.access(line, write), want, "{ways} ways");
            }
        }
    }

    #[test]
    fn what_fits_is_always_hit() {
        let time = characteristic_time(1000.0, |t| 100.0 * (1.0 - (-t).exp()));
        assert!(time.is_infinite());
    }
}
