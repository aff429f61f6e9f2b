// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node's active and inactive lists, with second chance, as Linux has them (`mm/vmscan.c` before MGLRU).
//!
//! The kernel tests a page's accessed bit when the page has come to the end of a list. Here bits are read by somebody
//! else, so what a look finds is what readings told of the page since it was looked at before; one of which none has
//! told is not looked at ([`TwoLists::coldest`]).
//!
//! * A new page enters at the head of the inactive list.
//! * At the tail of the inactive list a page that was accessed goes back to the head, *referenced*; if it was
//!   referenced already, it becomes active. One that was not accessed is the coldest.
//! * Where the inactive list is too short (`inactive_is_low`: by the square root of ten times the GiB of both,
//!   at least 1, the shorter), pages go from the tail of the active list to its head, whether they were accessed
//!   or not.
//!
//! Pages are numbers ("units") that the caller gives, dense from 0; 9 bytes and two bits for each. What a reading tells
//! is told of 64 at a time.

use terrace_core::CHUNK_PAGES;
use terrace_core::PageBits;
use terrace_core::PageSize;

use super::links::Ends;
use super::links::Links;

const LISTED: u8 = 1;
const ACTIVE: u8 = 1 << 1;
const REFERENCED: u8 = 1 << 2;
const HUGE: u8 = 1 << 3;

/// What readings have told of 64 units since the last look at each.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    read: u64,
    /// And that it was accessed.
    accessed: u64,
}

/// A list; the oldest is its tail.
#[derive(Debug, Default)]
struct Listed {
    ends: Ends,
    /// Base pages.
    pages: u64,
}

/// Which list a page enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Of cold pages.
    Inactive,
    /// Of hot pages.
    Active,
}

/// See the module.
#[derive(Debug, Default)]
pub struct TwoLists {
    links: Links,
    marks: Vec<u8>,
    told: Vec<Told>,
    active: Listed,
    inactive: Listed,
}

impl TwoLists {
    /// A page has come to the node: to the head of a list. Nothing is known of it. One that is here is left.
    pub fn add(&mut self, unit: u32, size: PageSize, list: List) {
        let index = unit as usize;
        if self.marks.len() <= index {
            // By an eighth, not by twice: there are many.
            if self.marks.capacity() <= index {
                let more = index + 1 + index / 8 - self.marks.len();
                self.marks.reserve_exact(more);
            }
            self.marks.resize(index + 1, 0);
            self.links.resize(index + 1);
            let words = index / 64 + 1;
            if self.told.capacity() < words {
                self.told.reserve_exact(words + words / 8 - self.told.len());
            }
            self.told.resize(words, Told::default());
        }
        if !self.contains(unit) {
            let huge = if size == PageSize::Base4K { 0 } else { HUGE };
            self.marks[index] = LISTED | huge;
            self.look(unit);
            self.push(unit, list);
        }
    }

    /// A page leaves the node.
    pub fn remove(&mut self, unit: u32) {
        if self.contains(unit) {
            self.unlink(unit);
            self.marks[unit as usize] = 0;
        }
    }

    /// Whether the page is on one of the lists.
    #[must_use]
    pub fn contains(&self, unit: u32) -> bool {
        let marks = self.marks.get(unit as usize);
        marks.is_some_and(|marks| marks & LISTED != 0)
    }

    /// A reading tells of these of 512 pages, from a multiple of that, which were accessed. What is on no list is left.
    pub fn read_all(&mut self, first: u32, pages: &PageBits, accessed: &PageBits) {
        let first = first as usize / 64;
        let words = self.told.iter_mut().skip(first).take(CHUNK_PAGES / 64);
        for (told, (pages, accessed)) in words.zip(pages.0.into_iter().zip(accessed.0)) {
            told.read |= pages;
            told.accessed |= pages & accessed;
        }
    }

    /// The page is looked at: what was told of it before says nothing any more.
    fn look(&mut self, unit: u32) {
        let (told, bit) = (&mut self.told[unit as usize / 64], 1 << (unit % 64));
        told.read &= !bit;
        told.accessed &= !bit;
    }

    /// The coldest page, which stays where it is; none where a reading has to tell first. Pages on the way
    /// to it get their second chance: each is looked at once a reading at most.
    pub fn coldest(&mut self) -> Option<u32> {
        loop {
            while self.inactive_is_low() {
                self.deactivate();
            }
            let unit = self.inactive.ends.oldest()?;
            let (word, bit) = (&self.told[unit as usize / 64], 1 << (unit % 64));
            if word.read & bit == 0 {
                return None;
            }
            if word.accessed & bit == 0 {
                return Some(unit);
            }
            self.look(unit);
            self.unlink(unit);
            let kept = self.marks[unit as usize];
            self.marks[unit as usize] = kept ^ REFERENCED;
            let twice = kept & REFERENCED != 0;
            self.push(unit, if twice { List::Active } else { List::Inactive });
        }
    }

    /// Base pages of the list.
    #[must_use]
    pub const fn pages(&self, list: List) -> u64 {
        match list {
            List::Active => self.active.pages,
            List::Inactive => self.inactive.pages,
        }
    }

    /// Bytes this takes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let told = self.told.capacity() * size_of::<Told>();
        self.links.bytes() + (self.marks.capacity() + told) as u64
    }

    const fn inactive_is_low(&self) -> bool {
        let (active, inactive) = (self.active.pages, self.inactive.pages);
        let gib = (active + inactive) >> 18;
        let ratio = if gib == 0 { 1 } else { (gib * 10).isqrt() };
        inactive.saturating_mul(ratio) < active
    }

    /// `shrink_active_list`: its accessed bit is cleared, so that it is looked at anew.
    fn deactivate(&mut self) {
        if let Some(unit) = self.active.ends.oldest() {
            self.unlink(unit);
            self.marks[unit as usize] &= LISTED | HUGE;
            self.look(unit);
            self.push(unit, List::Inactive);
        }
    }

    /// The list that the unit is in, its base pages, and all links.
    fn list(&mut self, unit: u32) -> (&mut Listed, u64, &mut Links) {
        let marks = self.marks[unit as usize];
        let pages = if marks & HUGE == 0 { 1 } else { 512 };
        let list = if marks & ACTIVE == 0 {
            &mut self.inactive
        } else {
            &mut self.active
        };
        (list, pages, &mut self.links)
    }

    fn push(&mut self, unit: u32, list: List) {
        if list == List::Active {
            self.marks[unit as usize] |= ACTIVE;
        } else {
            self.marks[unit as usize] &= !ACTIVE;
        }
        let (list, pages, links) = self.list(unit);
        list.pages += pages;
        links.push(&mut list.ends, unit);
    }

    fn unlink(&mut self, unit: u32) {
        let (list, pages, links) = self.list(unit);
        list.pages -= pages;
        links.remove(&mut list.ends, unit);
    }
}

#[cfg(test)]
#[path = "two_lists_tests.rs"]
mod tests;
