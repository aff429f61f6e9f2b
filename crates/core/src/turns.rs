// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which chunks of a process a pass reads, where few say as well as all whether anything is new:
//!
//! ```text
//! pass i of n parts reads  all chunks                        if i mod n = 0
//!                          those with hash(chunk) mod n = 0  else
//! ```
//!
//! The sample is the same in all passes, so that it can be told what its pages do from one to the next. With n a power of two, that
//! of a larger n is in that of a smaller one.

use crate::Addr;
use crate::CHUNK_BYTES;

/// Whether the chunk that begins there is one of the sample that is one in so many, a power of two. By its hash: chunks at
/// round addresses may be alike.
#[must_use]
pub const fn is_sampled(start: Addr, parts: u32) -> bool {
    let hash = (start.0 / CHUNK_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    hash & (parts.next_power_of_two() as u64 - 1) == 0
}

/// The passes over one process, by what they read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turns {
    sampled: u32,
    parts: u32,
}

impl Turns {
    /// Begins a pass, of which one in so many is to read all chunks.
    pub fn begin(&mut self, parts: u32) {
        if self.sampled + 1 < parts {
            self.sampled += 1;
            self.parts = parts;
        } else {
            self.sampled = 0;
            self.parts = 1;
        }
    }

    /// Of how many chunks this pass reads one.
    #[must_use]
    pub fn parts(&self) -> u32 {
        self.parts.max(1)
    }

    /// Whether this pass reads the chunk that begins there.
    #[must_use]
    pub fn has(&self, chunk: Addr) -> bool {
        is_sampled(chunk, self.parts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(range: std::ops::Range<u64>) -> impl Iterator<Item = Addr> + Clone {
        range.map(|number| Addr(number * CHUNK_BYTES))
    }

    #[test]
    fn a_sample_is_read_pass_after_pass_and_everything_in_its_turn() {
        let all = || chunks(1_000..5_096);
        for parts in [1, 2, 8, 64] {
            let mut turns = Turns::default();
            let mut whole = 0;
            for _ in 0..3 * parts {
                turns.begin(parts);
                let read: Vec<Addr> = all().filter(|chunk| turns.has(*chunk)).collect();
                if turns.parts() == 1 {
                    assert_eq!(read.len(), 4_096);
                    whole += 1;
                } else {
                    let expected = 4_096 / parts as usize;
                    assert!(
                        read.len().abs_diff(expected) <= expected / 2,
                        "{}",
                        read.len()
                    );
                    assert!(read.iter().all(|chunk| is_sampled(*chunk, parts)));
                }
            }
            assert_eq!(whole, 3);
        }
    }

    #[test]
    fn who_asks_for_all_has_all_at_once() {
        let mut turns = Turns::default();
        assert_eq!(turns.parts(), 1);
        (0..3).for_each(|_| turns.begin(8));
        assert_eq!(turns.parts(), 8);
        turns.begin(1);
        assert_eq!(turns.parts(), 1);
        turns.begin(8);
        assert_eq!(turns.parts(), 8);
    }

    #[test]
    fn the_sample_of_more_parts_is_in_that_of_fewer() {
        for chunk in chunks(0..4_096).filter(|chunk| is_sampled(*chunk, 64)) {
            assert!([1, 2, 8, 32].iter().all(|parts| is_sampled(chunk, *parts)));
        }
    }
}
