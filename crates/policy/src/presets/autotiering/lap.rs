// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of the least accessed pages (4.2.1, figure 7): a list for each level, of each node.
//!
//! A list is of 2 MiB of addresses, not of pages: all pages of those shift their history at once, and links for each
//! page would take 16 bytes of it. A *block* is the pages of 2 MiB that are on one node; it is in the list of each
//! level that some page of it has, where it entered when the first page came to that level. The victim is a page of the
//! first block of the lowest list that is not empty. A move and a look are O(levels), whatever is listed; 80 bytes a
//! block, a sixth of a byte a page.

use super::history::LEVELS;

/// No block.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

#[derive(Debug, Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
}

const EMPTY: List = List {
    oldest: NONE,
    newest: NONE,
};

#[derive(Debug)]
struct Block<T> {
    owner: T,
    lists: u16,
    /// A bit for each level of whose list it is in.
    levels: u16,
    links: [Link; LEVELS],
}

/// All lists. `T` says whose a block is.
#[derive(Debug)]
pub(super) struct Laps<T> {
    blocks: Vec<Block<T>>,
    free: Vec<u32>,
    lists: Vec<[List; LEVELS]>,
}

impl<T: Copy> Laps<T> {
    /// So many sets of lists, empty.
    pub(super) fn new(sets: usize) -> Self {
        Self {
            blocks: Vec::new(),
            free: Vec::new(),
            lists: vec![[EMPTY; LEVELS]; sets],
        }
    }

    /// A new block for that set of lists, in none of them yet; its number.
    pub(super) fn add(&mut self, set: u16, owner: T) -> u32 {
        let block = Block {
            owner,
            lists: set,
            levels: 0,
            links: [Link {
                older: NONE,
                newer: NONE,
            }; LEVELS],
        };
        if let Some(number) = self.free.pop() {
            self.blocks[number as usize] = block;
            return number;
        }
        self.blocks.push(block);
        u32::try_from(self.blocks.len() - 1).expect("2^32 blocks are 8 PiB")
    }

    /// The block is no more.
    pub(super) fn remove(&mut self, number: u32) {
        self.set(number, 0);
        self.free.push(number);
    }

    /// The block has pages of these levels now, a bit each.
    pub(super) fn set(&mut self, number: u32, levels: u16) {
        let before = std::mem::replace(&mut self.blocks[number as usize].levels, levels);
        for level in 0..LEVELS {
            let (was, is) = (before >> level & 1 == 1, levels >> level & 1 == 1);
            match (was, is) {
                (false, true) => self.append(number, level),
                (true, false) => self.unlink(number, level),
                _ => {}
            }
        }
    }

    /// The lowest level that a page of that set has, and the block that came to it first.
    pub(super) fn lowest(&self, set: u16) -> Option<(u8, T)> {
        let lists = self.lists[usize::from(set)].iter();
        let found = (0_u8..).zip(lists).find(|(_, list)| list.oldest != NONE);
        found.map(|(level, list)| (level, self.blocks[list.oldest as usize].owner))
    }

    /// Bytes this takes.
    pub(super) const fn bytes(&self) -> u64 {
        (self.blocks.capacity() * size_of::<Block<T>>() + self.free.capacity() * size_of::<u32>())
            as u64
    }

    fn append(&mut self, number: u32, level: usize) {
        let set = usize::from(self.blocks[number as usize].lists);
        let list = &mut self.lists[set][level];
        let older = std::mem::replace(&mut list.newest, number);
        if older == NONE {
            list.oldest = number;
        } else {
            self.blocks[older as usize].links[level].newer = number;
        }
        self.blocks[number as usize].links[level] = Link { older, newer: NONE };
    }

    fn unlink(&mut self, number: u32, level: usize) {
        let block = &self.blocks[number as usize];
        let (set, Link { older, newer }) = (usize::from(block.lists), block.links[level]);
        let list = &mut self.lists[set][level];
        if older == NONE {
            list.oldest = newer;
        }
        if newer == NONE {
            list.newest = older;
        }
        if older != NONE {
            self.blocks[older as usize].links[level].newer = newer;
        }
        if newer != NONE {
            self.blocks[newer as usize].links[level].older = older;
        }
    }
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
