// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory mode: the fast node is a direct-mapped cache of 64-byte lines over the slow ones.
//!
//! A page has a frame somewhere in the slow memory (a permutation by the seed: physical addresses are
//! not in order, and programs do not have them to themselves), and its lines can be only at the places
//! that follow from the frame. So also pages that would all fit share places here and there, as birthdays
//! do. A line that is displaced and was written is written back to the slow memory, and each miss fills a
//! place. Exact: tags are played. By rates: a place holds the line that was accessed last, so of the
//! lines that share a place each is hit with about the share it has of their accesses ([`hit_share`]);
//! what leaves is dirty as in [`crate::cache::dirty_share`].

/// Where pages lie.
#[derive(Debug, Clone, Copy)]
struct Frames {
    mask: u64,
    count: u64,
    shift: u32,
    multipliers: [u64; 2],
}

impl Frames {
    fn new(count: u64, seed: u64) -> Self {
        let bits = (64 - count.saturating_sub(1).leading_zeros()).max(2);
        let odd = |x: u64| (seed ^ x).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            mask: u64::MAX >> (64 - bits),
            count: count.max(1),
            shift: bits.div_ceil(2),
            multipliers: [odd(0x1234), odd(0x8765_4321)],
        }
    }

    /// The frame of a page: multiplications by odd numbers and shifts are bijections of the numbers
    /// of so many bits; what falls outside goes round again.
    fn of(&self, page: u64) -> u64 {
        let mut x = page;
        loop {
            for multiplier in self.multipliers {
                x = x.wrapping_mul(multiplier) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.count {
                return x;
            }
        }
    }
}

/// The cache as played.
#[derive(Debug)]
pub(crate) struct Direct {
    /// The node that is the cache.
    pub(crate) fast: usize,
    frames: Frames,
    places: u64,
    /// Frame number over the number of places, plus 1, and [`DIRTY`]; by line.
    tags: Vec<u16>,
}

const DIRTY: u16 = 1 << 15;

/// By rates: how often a line that asks at `own` finds itself where lines that share its place ask at
/// `others`, both a ns. It asks again when the cache above has let it go, `stay` ns after its last
/// access, and then some exponential time later; meanwhile no other must have asked.
pub(crate) fn hit_share(own: f64, others: f64, stay: f64) -> f64 {
    if own <= 0.0 {
        return 0.0;
    }
    let interval = 1.0 / own;
    let stay = stay.clamp(0.0, interval);
    (-others * stay).exp() / (1.0 + others * (interval - stay))
}

/// What an access came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The fast node had the line.
    pub(crate) hit: bool,
    /// Another line left that had been written.
    pub(crate) wrote_back: bool,
}

/// What both engines know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) fast: usize,
    frames: Frames,
    /// Pages that the cache holds.
    places: u64,
}

impl Layout {
    /// A cache of `fast_bytes` on node `fast` over so many base pages of slow memory.
    pub(crate) fn new(fast: usize, fast_bytes: u64, pages: u64, seed: u64) -> Self {
        Self {
            fast,
            frames: Frames::new(pages, seed),
            places: (fast_bytes >> 12).max(1),
        }
    }

    /// The place of a base page, counted over all programs.
    pub(crate) fn place(&self, page: u64) -> usize {
        usize::try_from(self.frames.of(page) % self.places).expect("pages of one machine")
    }

    /// How many there are.
    pub(crate) fn places(&self) -> usize {
        usize::try_from(self.places).expect("pages of one machine")
    }

    /// The played cache.
    pub(crate) fn played(self) -> Direct {
        Direct {
            fast: self.fast,
            frames: self.frames,
            places: self.places,
            tags: vec![0; self.places() * 64],
        }
    }
}

impl Direct {
    /// One access.
    pub(crate) fn access(&mut self, line: u32, write: bool) -> Asked {
        let frame = self.frames.of(u64::from(line >> 6));
        let at =
            usize::try_from(frame % self.places).expect("in memory") * 64 + (line & 63) as usize;
        let tag = u16::try_from(frame / self.places + 1).map_or(!DIRTY, |tag| tag & !DIRTY);
        let was = self.tags[at];
        let hit = was & !DIRTY == tag;
        let dirty = write || hit && was & DIRTY != 0;
        self.tags[at] = if dirty { tag | DIRTY } else { tag };
        Asked {
            hit,
            wrote_back: !hit && was & DIRTY != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn every_page_has_a_frame_of_its_own() {
        let frames = Frames::new(1000, 7);
        let mut seen: Vec<u64> = (0..1000).map(|page| frames.of(page)).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
    }

    #[test]
    fn pages_that_would_fit_share_places_in_a_larger_memory() {
        let layout = Layout::new(0, 1024 << 12, 8192, 3);
        let mut in_place = vec![0_u32; layout.places()];
        (0..1024).for_each(|page| in_place[layout.place(page)] += 1);
        let taken = in_place.iter().filter(|count| **count > 0).count();
        // By chance 1 - 1/e of the places are taken.
        assert!((580..720).contains(&taken), "{taken}");
    }

    #[test]
    fn without_a_cache_above_a_line_is_hit_with_its_share_and_with_one_less_often() {
        assert!((hit_share(3.0, 1.0, 0.0) - 0.75).abs() < 1e-12);
        assert!((hit_share(3.0, 0.0, 0.2) - 1.0).abs() < 1e-12);
        assert!(hit_share(3.0, 1.0, 0.2) < 0.75);
    }

    #[test]
    fn what_leaves_is_written_back_if_it_was_written() {
        // One place: two pages displace each other.
        let mut direct = Layout::new(0, 1 << 12, 2, 3).played();
        let asked = |hit, wrote_back| Asked { hit, wrote_back };
        assert_eq!(direct.access(0, true), asked(false, false));
        assert_eq!(direct.access(0, false), asked(true, false));
        assert_eq!(direct.access(64, false), asked(false, true));
        assert_eq!(direct.access(0, false), asked(false, false));
    }

    #[test]
    fn uniform_accesses_hit_as_computed() {
        let (pages, places) = (4096_u32, 1024);
        let layout = Layout::new(0, places << 12, u64::from(pages), 3);
        let mut direct = layout.played();
        let mut in_place = vec![0_u32; layout.places()];
        for page in 0..pages {
            in_place[layout.place(u64::from(page))] += 1;
        }
        // Each of k lines in a place is hit with 1 / k; pages choose places in proportion to k.
        let computed: f64 =
            f64::from(u32::try_from(in_place.iter().filter(|k| **k > 0).count()).expect("few"))
                / f64::from(pages);
        let mut rng = Pcg64Mcg::new(1);
        let (mut hits, mut all) = (0_u32, 0_u32);
        for n in 0..6_000_000_u32 {
            let line = u32::try_from(rng.next_u64() >> 40).expect("24 bits") % (pages * 64);
            let hit = direct.access(line, false).hit;
            if n > 2_000_000 {
                all += 1;
                hits += u32::from(hit);
            }
        }
        let played = f64::from(hits) / f64::from(all);
        assert!((played - computed).abs() < 0.01, "{played} {computed}");
    }
}
