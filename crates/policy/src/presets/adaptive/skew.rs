// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which huge pages are worth more in parts.
//!
//! ```text
//! s_i, v_i   what part i of a page saves in fast memory, ns a second, and its visits a second: by its class (`lag`)
//! p, c, H    what a base page of fast memory saves a second for who just does not fit (`later`); what a move takes; the horizon
//! w, x       what a visit takes more where translations are of base pages, and what splitting a page takes, as measured
//! g          sum max(0, s_i - p - 2 c / H)  -  max(0, sum s_i - 512 p)  -  w sum v_i  -  x / H
//! share      sum of g / sum of s over pages that were split, less two standard errors
//! whole      sum of v / visits a second that they were taken for before, at least 1
//! ```
//!
//! A huge page has one accessed bit, so what its parts do is seen in parts only. [`SAMPLE`] pages of a process that has many, drawn by lot, are split to see; where
//! the share is above 0 others are, those that save most first (`splitting`). All that are split tell of the others. Who was put together again (`khugepaged`)
//! is split like any other, who could not be split is left alone.
//!
//! A huge page that is visited more often than the first reading can tell looks like one that is visited as often as that. Its parts do not, so what its visits were taken
//! for is counted anew by them (`whole`): else those of a page that was split would look better than others as a whole.
//!
//! Where there is room for all p is 0, and g, too: nothing is split.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::Pid;
use terrace_core::is_sampled;

use super::accessors::Accessor;
use super::chunk::Chunk;
use super::chunk::PARTS;
use super::chunks::Chunks;
use super::classes::CLASSES;
use super::classes::Level;
use super::classes::class_of;
use super::places::Place;
use super::select::Group;
use super::worth::GROUPS;
use crate::kit::pages::Key;
use crate::kit::random::Random;

/// Pages that are split to see, and as few as are believed: 4,096 parts.
const SAMPLE: usize = 8;
/// One in so many huge pages of a process is split to see, at most.
const ONE_IN: usize = 8;
/// Pages that are gone through again after each pass, at most about twice as many.
const JUDGED: usize = 64;
/// Standard errors that are taken off: with one of them twice as many are split as are needed to see, of pages whose parts are alike.
const SURE: f64 = 2.0;
/// Passes within which a page that was to be split is told of in parts.
const TOLD: u32 = 2;
/// Passes after which parts are judged: one gives each a class, and in the next it is seen what such do (r).
const SEEN: u32 = 2;

/// What a page that was split saves in parts, and what it saves more than as a whole, ns a second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Judged {
    saves: f64,
    gains: f64,
    /// Visits a second, and what they were taken for.
    visits: f64,
    taken_for: f64,
}

/// A huge page that was to be split.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// In which pass last.
    pass: u32,
    /// It was told of in parts since.
    done: bool,
    /// Visits a second that it was taken for.
    visits: f64,
    /// What its parts last told.
    told: Option<Judged>,
}

/// What is known of how one process's huge pages are used.
#[derive(Debug)]
pub(super) struct Skew {
    /// By the number of their chunk.
    asked: BTreeMap<u64, Asked>,
    /// The pass in which the first of this phase were to be split.
    since: Option<u32>,
    /// What splitting adds to what a page saves; absent where too few tell.
    pub(super) share: Option<f64>,
    /// Visits of a huge page for each that it is taken for.
    pub(super) whole: f64,
}

impl Default for Skew {
    fn default() -> Self {
        Self {
            asked: BTreeMap::new(),
            since: None,
            share: None,
            whole: 1.0,
        }
    }
}

/// What is known of one process's pages, and what fast memory takes.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    /// What its pages save, by side, part, size and class.
    pub(super) sides: [&'a [Group]; 2],
    /// The parts that there are, in their order.
    pub(super) parts: &'a [Accessor],
    /// Visits a second by class.
    pub(super) rates: &'a [f64; CLASSES],
    /// Places of the fast side.
    pub(super) fast: &'a [Place],
    pub(super) price: f64,
    /// 2 c / H.
    pub(super) moves: f64,
    /// x / H.
    pub(super) split: f64,
    /// w over the accesses of a visit.
    pub(super) walk: f64,
}

impl Terms<'_> {
    /// The group of a page of a chunk.
    fn group(&self, chunk: &Chunk, page: usize) -> &Group {
        let side = usize::from(self.fast.contains(&chunk.spread.get(page)));
        let class = class_of(chunk.levels[page]);
        let mostly = chunk.accessors.mostly();
        let part = self.parts.iter().position(|part| *part == mostly);
        let first = part.unwrap_or(0) * GROUPS;
        &self.sides[side][first + usize::from(chunk.huge) * CLASSES + class]
    }

    /// Visits a second of a page of a chunk.
    const fn visits(&self, chunk: &Chunk, page: usize) -> f64 {
        self.rates[class_of(chunk.levels[page])]
    }

    /// A chunk of base pages, which was taken for so many visits a second.
    fn judge(&self, chunk: &Chunk, taken_for: f64) -> Judged {
        let (mut saves, mut apart, mut load, mut visits) = (0.0, 0.0, 0.0, 0.0);
        for page in chunk.present.pages() {
            visits += self.visits(chunk, page);
            let group = self.group(chunk, page);
            saves += group.saves;
            load += group.load;
            apart += f64::max(0.0, group.saves - self.price - self.moves);
        }
        let whole = f64::max(0.0, saves - self.price * PARTS);
        Judged {
            saves,
            gains: apart - whole - self.walk * load - self.split,
            visits,
            taken_for,
        }
    }

    /// Whether a huge page could gain: with all its visits in one part it would have to pay for that one's place.
    fn may_gain(&self, chunk: &Chunk) -> bool {
        self.group(chunk, 0).saves * PARTS > self.price + self.moves
    }
}

/// What splitting adds for sure, as a share of what pages save; absent where too few tell.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn share(judged: &[Judged]) -> Option<f64> {
    let number = judged.len() as f64;
    let saves: f64 = judged.iter().map(|one| one.saves).sum();
    if judged.len() < SAMPLE || saves <= 0.0 {
        return None;
    }
    let share = judged.iter().map(|one| one.gains).sum::<f64>() / saves;
    let off = |one: &Judged| (one.gains - share * one.saves).powi(2);
    let off: f64 = judged.iter().map(off).sum();
    let error = (off / (number * (number - 1.0))).sqrt() / (saves / number);
    Some(share - SURE * error)
}

/// Visits for each that those were taken for.
fn whole(judged: &[Judged]) -> f64 {
    let sum = |of: fn(&Judged) -> f64| judged.iter().map(of).sum::<f64>();
    let taken_for = sum(|one| one.taken_for);
    if taken_for > 0.0 {
        f64::max(1.0, sum(|one| one.visits) / taken_for)
    } else {
        1.0
    }
}

/// A chunk, if it is there and no huge page.
fn in_parts(chunks: &Chunks, key: Key) -> Option<&Chunk> {
    chunks.get(key).filter(|chunk| !chunk.huge)
}

impl Skew {
    /// Chunks of the process in its present pass that are to be split, at most so many, and what they are taken for.
    pub(super) fn choose<'a>(
        &mut self,
        (chunks, pid, pass): (&'a Chunks, Pid, u32),
        terms: &Terms<'_>,
        most: usize,
    ) -> Vec<(u64, f64)> {
        let judged = self.judge(chunks, pid, terms);
        self.share = share(&judged);
        if self.share.is_some() {
            self.whole = whole(&judged);
        }
        let tell = self.tell(chunks, pid, pass);
        let to_see = SAMPLE.saturating_sub(tell);
        let most = if to_see > 0 { most.min(to_see) } else { most };
        if most == 0 || to_see == 0 && self.share.is_none_or(|share| share <= 0.0) {
            return Vec::new();
        }
        let may = |number: &u64| {
            let asked = self.asked.get(number);
            asked.is_none_or(|asked| asked.done && (to_see == 0 || asked.told.is_none()))
        };
        let all = chunks.of_one(pid).filter(|(number, chunk)| {
            let known = chunk.huge && chunk.present.get(0) && chunk.levels[0] > 0;
            known && terms.may_gain(chunk) && may(number)
        });
        let order = |(number, chunk): (u64, &'a Chunk)| {
            let level = if to_see > 0 { 0 } else { chunk.levels[0] };
            let lot = Random::new(number).bits();
            ((Level::MAX - level, lot), number, chunk)
        };
        let mut all: Vec<_> = all.map(order).collect();
        if to_see > 0 && tell + all.len() < SAMPLE * ONE_IN {
            return Vec::new();
        }
        if all.len() > most {
            all.select_nth_unstable_by_key(most, |(order, ..)| *order);
            all.truncate(most);
        }
        let chosen = all.into_iter();
        chosen
            .map(|(_, number, chunk)| (number, terms.visits(chunk, 0)))
            .collect()
    }

    /// One is to be split that is taken for so many visits a second.
    pub(super) fn ask(&mut self, number: u64, pass: u32, visits: f64) {
        let new = Asked {
            pass,
            done: false,
            visits,
            told: None,
        };
        let asked = self.asked.entry(number).or_insert(new);
        (asked.pass, asked.visits) = (pass, visits);
        self.since.get_or_insert(pass);
    }

    /// Which have been split, and which of them are gone. Gives how many are split that were not before.
    pub(super) fn look(&mut self, chunks: &Chunks, pid: Pid) -> u64 {
        let mut split = 0;
        self.asked.retain(|number, asked| {
            let chunk = chunks.get((pid, *number));
            let done = chunk.is_some_and(|chunk| !chunk.huge);
            split += u64::from(done && !asked.done);
            asked.done |= done;
            chunk.is_some()
        });
        split
    }

    /// What they tell, or told last: of many a part of them.
    fn judge(&mut self, chunks: &Chunks, pid: Pid, terms: &Terms<'_>) -> Vec<Judged> {
        let parts = u32::try_from(self.asked.len() / JUDGED).unwrap_or(1 << 24);
        let drawn = |number: u64| is_sampled(Addr(number * CHUNK_BYTES), parts.max(1));
        let asked = self.asked.iter_mut();
        let asked = asked.filter(|(number, _)| drawn(**number));
        let told = asked.filter_map(|(number, asked)| {
            let seen = |chunk: &&Chunk| chunk.heard.wrapping_sub(chunk.since) >= SEEN;
            if let Some(chunk) = in_parts(chunks, (pid, *number)).filter(seen) {
                asked.told = Some(terms.judge(chunk, asked.visits));
            }
            asked.told
        });
        told.collect()
    }

    /// How many of them have told, or will soon.
    fn tell(&self, chunks: &Chunks, pid: Pid, pass: u32) -> usize {
        let tell = self.asked.iter().filter(|(number, asked)| {
            let in_parts = in_parts(chunks, (pid, **number)).is_some();
            in_parts || asked.told.is_some() || pass.wrapping_sub(asked.pass) <= TOLD
        });
        tell.count()
    }

    /// What they have told is of another phase.
    pub(super) fn forget(&mut self) {
        self.asked.values_mut().for_each(|asked| asked.told = None);
        (self.share, self.since) = (None, None);
    }

    /// Whether pages were split to see, and passes have not told yet.
    pub(super) fn tries(&self, pass: u32) -> bool {
        let soon = |since| pass.wrapping_sub(since) <= TOLD + SEEN;
        self.share.is_none() && self.since.is_some_and(soon)
    }

    /// How many were split and still are.
    pub(super) fn in_parts(&self, chunks: &Chunks, pid: Pid) -> u64 {
        let asked = self.asked.keys();
        asked
            .filter_map(|number| in_parts(chunks, (pid, *number)))
            .count() as u64
    }

    /// Bytes that this takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.asked.len() * 2 * size_of::<(u64, Asked)>()
    }
}

#[cfg(test)]
#[path = "skew_tests.rs"]
mod tests;
