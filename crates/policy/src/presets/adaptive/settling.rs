// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a pass is what the one before was, while estimates settle.
//!
//! ```text
//! bits = sum over readings of  q log2(q / p)        q: the share of the pages that was first seen then, or not at all
//!                                                  p: the same of the rates that the pass before was fitted to ([`super::first`])
//! ```
//!
//! of pages that are taken for much the same, and in the mean of all. M says nothing of what such a pass should be
//! ([`super::transitions`]), and a program does most that is new just then: it starts, reads its data and goes to work. What it did first
//! would stay in all that is counted: a class that many pages leave keeps their long waits, each of which outweighs a hundred short ones.
//! So until M knows, a pass is held against the one before, as far as the shorter one goes: of the pages that came in one pass, the one
//! in which most did, as estimates are the sharper the older they are, and not where more than a tenth of them are others. Where there are many
//! chunks it is of a sample of them ([`super::lag`]).

use super::classes::LEVELS;
use super::classes::Level;
use super::estimate::Seen;
use super::first::Fit;
use super::first::Waits;
use super::mixture::Parts;

/// Pages that have come or gone up to which a pass is one of the same pages.
const OTHERS: f64 = 0.1;
/// Levels that are much the same: an octave.
const ALIKE: usize = 8;
/// Groups of pages: of those that nothing is known of, and by octave.
const GROUPS: usize = 1 + LEVELS / ALIKE;

/// First waits of the pages of one process that came in one pass.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// How many passes ago that was.
    age: u32,
    /// By group; none before a page was observed.
    waits: Vec<Waits>,
    before: Option<Before>,
    /// Pages that came in this pass.
    come: Waits,
}

/// The pass before.
#[derive(Debug)]
struct Before {
    /// What all pages were of, and those of each group that there was.
    all: Fit,
    groups: Vec<Option<Parts>>,
    pages: f64,
    until: f64,
}

fn group(level: Level) -> usize {
    match level {
        0 => 0,
        level => 1 + usize::from(level) / ALIKE,
    }
}

impl Settling {
    /// So many pages of that level were observed so, of a chunk that is there for so many passes.
    pub(super) fn count(&mut self, pages: u32, (from, age): (Level, u32), one: Seen) {
        if age == self.age {
            self.waits.resize_with(GROUPS, Waits::default);
            self.waits[group(from)].observed(pages, one);
        } else if age == 0 {
            self.come.observed(pages, one);
        }
    }

    /// A pass is over: bits a page by which it is otherwise than the one before, 0 where that cannot be said.
    pub(super) fn end_pass(&mut self) -> f64 {
        let waits = std::mem::take(&mut self.waits);
        let come = std::mem::take(&mut self.come);
        let all = waits.iter().fold(Waits::default(), Waits::and);
        self.age += 1;
        if come.pages() > all.pages() {
            self.age = 1;
            self.before = Before::of(&come, &[]);
            return 0.0;
        }
        let Some(now) = Before::of(&all, &waits) else {
            return 0.0;
        };
        let (until, known) = (now.until, now.pages - waits[0].pages());
        let least = (1.0 - OTHERS) * now.pages;
        let before = self.before.replace(now);
        let same = before.filter(|before| known >= least.max((1.0 - OTHERS) * before.pages));
        same.map_or(0.0, |before| {
            before.bits(&waits[1..], until.min(before.until))
        })
    }
}

impl Before {
    /// Of a pass with those waits, in all and by group; nothing where there were no pages.
    fn of(all: &Waits, groups: &[Waits]) -> Option<Self> {
        let fit = all.fit()?;
        let of = |waits: &Waits| (waits.pages() > 0.0).then(|| waits.fit_to(&fit));
        Some(Self {
            groups: groups.iter().map(of).collect(),
            all: fit,
            pages: all.pages(),
            until: all.end(),
        })
    }

    /// By how many bits a page of a group the next pass is otherwise. Pages of groups that there were not are held against all.
    fn bits(&self, waits: &[Waits], until: f64) -> f64 {
        let (mut others, mut bits, mut pages) = (Waits::default(), 0.0, 0.0);
        for (at, waits) in waits.iter().enumerate() {
            match self.groups.get(at + 1).and_then(Option::as_ref) {
                Some(parts) => bits += waits.bits_against(parts, until),
                None => others = others.and(waits),
            }
            pages += waits.pages();
        }
        (bits + others.bits_against(&self.all.parts, until)) / pages.max(1.0)
    }
}

#[cfg(test)]
#[path = "settling_tests.rs"]
mod tests;
