// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept of 2 MiB: a byte for each page's level, a bit or three for where it is.
//!
//! A huge page is one entry, page 0 of its chunk.

use terrace_core::CHUNK_PAGES;
use terrace_core::PageBits;
use terrace_core::PageSize;

use super::accessors::Accessors;
use super::classes::Level;
use super::classes::level_of;
use super::classes::rate_of;
use super::lag::Then;
use super::places::Place;
use super::places::Spread;

/// Base pages of a huge page.
pub(super) const PARTS: f64 = 512.0;

/// 2 MiB of a process.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) levels: Box<[Level; CHUNK_PAGES]>,
    pub(super) present: PageBits,
    /// Where those are.
    pub(super) spread: Spread,
    /// Levels of some passes ago, of chunks that are sampled (`lag`).
    pub(super) then: Option<Box<Then>>,
    /// Where its pages first were, if any of them was moved since it has this size.
    pub(super) home: Option<Box<Spread>>,
    pub(super) accessors: Accessors,
    pub(super) huge: bool,
    /// The pass that told of it last.
    pub(super) heard: u32,
    /// The pass that told of it first in this size.
    pub(super) since: u32,
}

impl Chunk {
    pub(super) fn new(huge: bool, pass: u32) -> Self {
        Self {
            levels: Box::new([0; CHUNK_PAGES]),
            present: PageBits::NONE,
            spread: Spread::default(),
            then: None,
            home: None,
            accessors: Accessors::default(),
            huge,
            heard: pass,
            since: pass,
        }
    }

    /// The mapping became one huge page, or base pages.
    pub(super) fn remap(&mut self, huge: bool, pass: u32) {
        if self.huge == huge {
            return;
        }
        self.huge = huge;
        self.since = pass;
        let level = if huge {
            // A visit to any is a visit to all.
            self.levels.iter().copied().max().unwrap_or(0)
        } else {
            // A visit to the whole is one to any of its parts.
            match self.levels[0] {
                0 => 0,
                whole => level_of(rate_of(whole) / PARTS),
            }
        };
        self.levels.fill(level);
        self.then = None;
        self.home = None;
    }

    /// Its pages that are there.
    pub(super) fn at(&self, place: Place) -> PageBits {
        self.spread.of(place, &self.present)
    }

    /// Where its pages first were, if that is not where they are.
    pub(super) fn home(&self) -> Option<&Spread> {
        self.home.as_deref()
    }

    /// Its pages that are not where they first were.
    pub(super) fn strays(&self) -> PageBits {
        self.home.as_ref().map_or(PageBits::NONE, |home| {
            home.differs(&self.spread).and(&self.present)
        })
    }

    pub(super) const fn size(&self) -> PageSize {
        if self.huge {
            PageSize::Huge2M
        } else {
            PageSize::Base4K
        }
    }
}
