// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each word of a workload's memory holds, so that a wrong one shows.
//!
//! The high half is a tag made of the word's index and the seed: a page that turns up in the wrong
//! place, or full of zeros, has wrong tags. The low half counts the updates of that word: a lost
//! or doubled update shows in the sum over all words, and replaying the [`crate::Visits`] says at
//! which word.

/// The tag of word `index`: never 0, so that a zero page is always wrong.
#[inline]
#[must_use]
pub fn tag(seed: u64, index: u64) -> u32 {
    // The finaliser of splitmix64: every bit of the input reaches every bit of the output.
    let mut x = index.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let (high, low) = crate::alias::split(x);
    (high ^ low) | 1
}

/// What word `index` holds after `updates` updates.
#[inline]
#[must_use]
pub fn word(seed: u64, index: u64, updates: u32) -> u64 {
    u64::from(tag(seed, index)) << 32 | u64::from(updates)
}

/// The number of updates in what was found at word `index`, or `None` if that is not its content.
#[inline]
#[must_use]
pub fn updates(seed: u64, index: u64, found: u64) -> Option<u32> {
    let (high, low) = crate::alias::split(found);
    (high == tag(seed, index)).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_recognised_only_in_its_place() {
        for index in [0, 1, 511, 512, 1 << 33] {
            assert_eq!(updates(3, index, word(3, index, 77)), Some(77));
            assert_eq!(updates(3, index, 0), None, "a zero page");
            assert_eq!(
                updates(3, index + 512, word(3, index, 1)),
                None,
                "a page off"
            );
            assert_eq!(updates(4, index, word(3, index, 1)), None, "another run");
        }
    }
}
