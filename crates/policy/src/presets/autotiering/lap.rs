// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of the least accessed pages (4.2.1, figure 7): a list for each level, of each node.
//!
//! A list is of 2 MiB of addresses, not of pages: all pages of those shift their history at once, and links for each
//! page would take 16 bytes of it. A *block* is the pages of 2 MiB that are on one node; it is in the list of each
//! level that some page of it has, where it entered when the first page came to that level. The victim is a page of the
//! first block of the lowest list that is not empty. A move and a look are O(levels), whatever is listed; 96 bytes a
//! block, a fifth of a byte a page.

use super::history::LEVELS;
use crate::kit::links::Ends;
use crate::kit::links::Links;

#[derive(Debug)]
struct Block<T> {
    owner: T,
    lists: u16,
    /// A bit for each level of whose list it is in.
    levels: u16,
}

/// All lists. `T` says whose a block is.
#[derive(Debug)]
pub(super) struct Laps<T> {
    blocks: Vec<Block<T>>,
    /// A unit for each level of a block.
    links: Links,
    free: Vec<u32>,
    lists: Vec<[Ends; LEVELS]>,
}

impl<T: Copy> Laps<T> {
    /// So many sets of lists, empty.
    pub(super) fn new(sets: usize) -> Self {
        Self {
            blocks: Vec::new(),
            links: Links::default(),
            free: Vec::new(),
            lists: vec![[Ends::default(); LEVELS]; sets],
        }
    }

    /// A new block for that set of lists, in none of them yet; its number.
    pub(super) fn add(&mut self, set: u16, owner: T) -> u32 {
        let block = Block {
            owner,
            lists: set,
            levels: 0,
        };
        if let Some(number) = self.free.pop() {
            self.blocks[number as usize] = block;
            return number;
        }
        // By an eighth, as the links.
        if self.blocks.len() == self.blocks.capacity() {
            self.blocks.reserve_exact(1 + self.blocks.len() / 8);
        }
        self.blocks.push(block);
        self.links.resize(self.blocks.len() * LEVELS);
        u32::try_from(self.blocks.len() - 1).expect("2^28 blocks are 512 TiB")
    }

    /// The block is no more.
    pub(super) fn remove(&mut self, number: u32) {
        self.set(number, 0);
        self.free.push(number);
    }

    /// The block has pages of these levels now, a bit each.
    pub(super) fn set(&mut self, number: u32, levels: u16) {
        let block = &mut self.blocks[number as usize];
        let before = std::mem::replace(&mut block.levels, levels);
        let lists = self.lists[usize::from(block.lists)].iter_mut();
        for (level, list) in (0_u32..).zip(lists) {
            let unit = unit(number, level);
            match (before >> level & 1 == 1, levels >> level & 1 == 1) {
                (false, true) => self.links.push(list, unit),
                (true, false) => self.links.remove(list, unit),
                _ => {}
            }
        }
    }

    /// The lowest level that a page of that set has, and the block that came to it first.
    pub(super) fn lowest(&self, set: u16) -> Option<(u8, T)> {
        let lists = self.lists[usize::from(set)].iter();
        let (level, unit) = (0_u8..)
            .zip(lists)
            .find_map(|(level, list)| Some((level, list.oldest()?)))?;
        Some((level, self.blocks[unit as usize / LEVELS].owner))
    }

    /// Bytes this takes.
    pub(super) const fn bytes(&self) -> u64 {
        let blocks = self.blocks.capacity() * size_of::<Block<T>>();
        (blocks + self.free.capacity() * size_of::<u32>()) as u64 + self.links.bytes()
    }
}

/// Units of a block.
const UNITS: u32 = 9;
const _: () = assert!(UNITS as usize == LEVELS);

/// What a block is in the list of a level.
const fn unit(block: u32, level: u32) -> u32 {
    block * UNITS + level
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Add(u16),
        Remove(usize),
        Set(usize, u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0_u16..2).prop_map(Step::Add),
            1 => any::<usize>().prop_map(Step::Remove),
            6 => (any::<usize>(), 0_u16..1 << LEVELS).prop_map(|(at, levels)| Step::Set(at, levels)),
        ]
    }

    proptest! {
        /// Against plain lists that are searched from the start.
        #[test]
        fn the_lowest_is_what_plain_lists_find(steps in prop::collection::vec(step(), 0..120)) {
            let mut laps = Laps::new(2);
            let mut plain = vec![vec![Vec::<u32>::new(); LEVELS]; 2];
            let mut blocks: Vec<(u32, u16, u32)> = Vec::new();
            for (owner, step) in (0_u32..).zip(steps) {
                match step {
                    Step::Add(set) => blocks.push((laps.add(set, owner), set, owner)),
                    Step::Remove(at) if !blocks.is_empty() => {
                        let (number, _, owner) = blocks.swap_remove(at % blocks.len());
                        laps.remove(number);
                        plain.iter_mut().flatten().for_each(|list| list.retain(|one| *one != owner));
                    }
                    Step::Set(at, levels) if !blocks.is_empty() => {
                        let (number, set, owner) = blocks[at % blocks.len()];
                        laps.set(number, levels);
                        for (level, list) in plain[usize::from(set)].iter_mut().enumerate() {
                            let is = levels >> level & 1 == 1;
                            let at = list.iter().position(|one| *one == owner);
                            match at {
                                Some(at) if !is => { list.remove(at); }
                                None if is => list.push(owner),
                                _ => {}
                            }
                        }
                    }
                    _ => {}
                }
                for (set, lists) in (0_u16..).zip(&plain) {
                    let filled = (0_u8..).zip(lists).find(|(_, list)| !list.is_empty());
                    prop_assert_eq!(laps.lowest(set), filled.map(|(level, list)| (level, list[0])));
                }
            }
        }
    }
}
