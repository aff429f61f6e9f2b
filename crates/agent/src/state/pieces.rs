// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of pages, by where they belong in the program. Pure.
//!
//! The program changes its mappings by base pages, whatever the size of the page that we have: of a huge
//! page it can drop a part, move a part elsewhere, and keep the rest.

use std::collections::BTreeMap;

/// A part of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it belongs.
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Where it begins in the page, or in what holds the page's bytes.
    pub(crate) at: u64,
}

impl Piece {
    /// What of it lies before a range of addresses, in it, and behind it.
    pub(crate) fn cut(self, start: u64, end: u64) -> [Option<Self>; 3] {
        let last = self.addr + self.len;
        let low = start.clamp(self.addr, last);
        let high = end.clamp(low, last);
        [(self.addr, low), (low, high), (high, last)].map(|(from, to)| {
            (from < to).then(|| Self {
                addr: from,
                len: to - from,
                at: self.at + (from - self.addr),
            })
        })
    }

    /// What of it is of `from..to` of the page.
    pub(crate) fn within(self, from: u64, to: u64) -> Option<Self> {
        let low = self.at.max(from);
        let high = (self.at + self.len).min(to);
        (low < high).then(|| Self {
            addr: self.addr + (low - self.at),
            len: high - low,
            at: low,
        })
    }
}

/// Takes what belongs in a range out of pieces.
pub(crate) fn take(pieces: &mut Vec<Piece>, start: u64, end: u64) -> Vec<Piece> {
    let mut taken = Vec::new();
    for piece in std::mem::take(pieces) {
        let [before, inside, behind] = piece.cut(start, end);
        pieces.extend(before.into_iter().chain(behind));
        taken.extend(inside);
    }
    taken
}

/// The key of the item of a map that covers part of `start..end`, if any: keys are first
/// addresses, and no two items overlap.
pub(crate) fn overlapping<T>(
    map: &BTreeMap<u64, T>,
    start: u64,
    end: u64,
    size: impl Fn(&T) -> u64,
) -> Option<u64> {
    let (key, item) = map.range(..end).next_back()?;
    (key + size(item) > start).then_some(*key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every byte of a piece is in one of its parts, at its old place in the page.
        #[test]
        fn a_cut_loses_nothing(addr in 0_u64..64, len in 1_u64..64, at in 0_u64..64, start in 0_u64..200, more in 0_u64..200) {
            let piece = Piece { addr, len, at };
            let mut next = addr;
            for (n, part) in piece.cut(start, start + more).into_iter().enumerate() {
                let Some(part) = part else { continue };
                prop_assert_eq!(part.addr, next);
                prop_assert_eq!(part.at, at + (part.addr - addr));
                for byte in part.addr..part.addr + part.len {
                    prop_assert_eq!((start..start + more).contains(&byte), n == 1);
                }
                next += part.len;
            }
            prop_assert_eq!(next, addr + len);
        }
    }

    #[test]
    fn what_is_taken_is_not_left() {
        let piece = |addr, len, at| Piece { addr, len, at };
        let mut pieces = vec![piece(0x1000, 0x4000, 0), piece(0x9000, 0x1000, 0x7000)];
        assert_eq!(
            take(&mut pieces, 0x2000, 0x3000),
            [piece(0x2000, 0x1000, 0x1000)]
        );
        assert_eq!(
            pieces,
            [
                piece(0x1000, 0x1000, 0),
                piece(0x3000, 0x2000, 0x2000),
                piece(0x9000, 0x1000, 0x7000)
            ]
        );
        assert_eq!(pieces[2].within(0, 0x7000), None);
        assert_eq!(
            pieces[1].within(0x3000, 0x9000),
            Some(piece(0x4000, 0x1000, 0x3000))
        );
    }
}
