// SPDX-License-Identifier: MIT OR Apache-2.0
//! What pages of a class did in the eight passes after it was estimated: M and r over the time that a move has to pay.
//!
//! ```text
//! M_L[k][k'] = (N_L[k][k'] + A M[k][k']) / (N_L[k] + A)       k at a pass, k' L = 8 passes later
//! r_p[k]     = (seen_p[k] + B) / (exposure_p[k] + B / r[k])   in all L passes, visits a second; p: where it was at first
//! ```
//!
//! A class is a noisy estimate, and M counts what the noise does from one pass to the next. Its powers make of that a walk
//! that leads anywhere in time; but most pages stay what they are, and only look different each time. Over L passes
//! the estimate is a new one: what is then left of a class is what was true of it.
//!
//! Rates are by place, too: it remembers of a page what its class has forgotten. One of the slow tier that looks hot has been taken
//! for cold before, or it would have gone up; so it is likelier to be cold than a page of its class in the fast tier. With one rate for
//! both, pages of nearly equal rate change places for ever, whichever looks better.
//!
//! Counted against a copy of the levels of L passes ago, kept of a sample of the chunks where there are many ([`sampled`]). Until
//! there is one, M and r stand for them.

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
use terrace_core::is_sampled;

use super::chunk::Chunk;
use super::classes::CLASSES;
use super::classes::Level;
use super::classes::class_of;
use super::estimate::SETTLING;
use super::estimate::Seen;
use super::places::PLACES;
use super::places::Place;
use super::places::Spread;
use super::transitions::Matrix;

/// L.
pub(super) const LAG: u32 = 8;
/// A and B: a class that few pages were in is taken to do what M and r say. Greater than theirs, as the greatest of 256
/// rates is looked for over eight passes: with 4, what chance makes look best is what moves.
const ROW_PRIOR: f64 = 64.0;
const RATE_PRIOR: f64 = 64.0;
/// Chunks up to which all are counted; 512 MiB.
const CHUNKS: usize = 256;

/// The counters of one process.
#[derive(Debug, Clone)]
pub(super) struct Lag {
    counts: Matrix,
    seen: Box<[[f64; CLASSES]; PLACES]>,
    exposure: Box<[[f64; CLASSES]; PLACES]>,
    /// Pages were counted over L passes.
    pub(super) trained: bool,
}

/// A chunk's levels of L passes ago, and where its pages were.
#[derive(Debug, Clone)]
pub(super) struct Then {
    levels: [Level; CHUNK_PAGES],
    spread: Spread,
}

/// Whether a chunk is counted where there are so many: about one in as many as there are times more than [`CHUNKS`].
fn sampled(number: u64, chunks: usize) -> bool {
    let parts = u32::try_from(chunks / CHUNKS).unwrap_or(1 << 24);
    is_sampled(Addr(number * CHUNK_BYTES), parts.max(1))
}

/// Bytes that copies of so many chunks take, about.
pub(super) fn copied(chunks: usize) -> usize {
    chunks.min(2 * CHUNKS) * size_of::<Then>()
}

impl Lag {
    pub(super) fn new() -> Self {
        Self {
            counts: vec![[0.0; CLASSES]; CLASSES],
            seen: Box::new([[0.0; CLASSES]; PLACES]),
            exposure: Box::new([[0.0; CLASSES]; PLACES]),
            trained: false,
        }
    }

    /// A page of a chunk with a copy was observed.
    #[inline]
    pub(super) fn count(&mut self, then: &Then, page: usize, one: Seen) {
        if then.levels[page] > 0 {
            let (place, class) = (then.spread.get(page), class_of(then.levels[page]));
            self.seen[place][class] += f64::from(u8::from(one.seen));
            self.exposure[place][class] += one.exposure();
        }
    }

    /// L passes are over: what was counted before keeps so much of its weight.
    pub(super) fn fade(&mut self, keep: f64) {
        let rows = self.counts.iter_mut().flatten();
        let places = self.seen.iter_mut().chain(self.exposure.iter_mut());
        let all = rows.chain(places.flatten());
        all.for_each(|n| *n *= keep);
    }

    /// L passes are over: the pages of one of so many chunks have come from the levels of its copy to what they have
    /// now; copies them anew. Not while estimates settle.
    pub(super) fn turn(&mut self, number: u64, chunk: &mut Chunk, pass: u32, chunks: usize) {
        if !sampled(number, chunks) || pass.wrapping_sub(chunk.since) < SETTLING {
            chunk.then = None;
            return;
        }
        if let Some(then) = &chunk.then {
            for page in chunk.present.pages().filter(|page| then.levels[*page] > 0) {
                self.counts[class_of(then.levels[page])][class_of(chunk.levels[page])] += 1.0;
                self.trained = true;
            }
        }
        chunk.then = Some(Box::new(Then {
            levels: *chunk.levels,
            spread: chunk.spread.clone(),
        }));
    }

    /// M over L passes; `m` is that over one.
    pub(super) fn matrix(&self, m: &Matrix) -> Matrix {
        let rows = self.counts.iter().zip(m);
        rows.map(|(counts, one)| {
            let by = counts.iter().sum::<f64>() + ROW_PRIOR;
            std::array::from_fn(|to| (counts[to] + ROW_PRIOR * one[to]) / by)
        })
        .collect()
    }

    /// r in all of them, of pages that were in one of these places; `r` is that in the next.
    pub(super) fn rates(&self, places: &[Place], r: &[f64; CLASSES]) -> [f64; CLASSES] {
        let sum = |of: &[[f64; CLASSES]; PLACES], k: usize| -> f64 {
            places.iter().map(|place| of[*place][k]).sum()
        };
        std::array::from_fn(|k| {
            let exposure = sum(&self.exposure, k) + RATE_PRIOR / r[k];
            (sum(&self.seen, k) + RATE_PRIOR) / exposure
        })
    }

    /// Bytes this takes.
    pub(super) const BYTES: usize = CLASSES * (CLASSES + 2 * PLACES) * size_of::<f64>();
}

#[cfg(test)]
mod tests {
    use terrace_core::PageBits;

    use super::*;
    use crate::presets::adaptive::transitions::Transitions;

    #[test]
    fn it_counts_against_the_copy_and_knows_one_pass_where_there_is_none() {
        let whole = Transitions::new();
        let (m, r) = (whole.matrix(), whole.rates());
        let (mut lag, mut chunk) = (Lag::new(), Chunk::new(false, 0));
        chunk.present = PageBits::ALL;
        chunk.levels.fill(100);
        lag.turn(7, &mut chunk, SETTLING - 1, 1);
        assert!(chunk.then.is_none(), "its estimates settle");
        lag.turn(7, &mut chunk, SETTLING, 1);
        assert!(lag.matrix(&m) == m, "nothing was counted");
        chunk.levels.fill(40);
        let mut then = chunk.then.clone().expect("settled");
        then.levels[9] = 0;
        then.spread.put(&PageBits::one(8), 1);
        for page in 7..10 {
            let at = 0.5 * (page - 6) as f64;
            let one = Seen {
                seen: true,
                since: at,
                until: at,
            };
            lag.count(&then, page, one);
        }
        lag.turn(7, &mut chunk, SETTLING + LAG, 1);
        let rows = lag.matrix(&m);
        assert!((rows[50][20] - 512.0 / (512.0 + ROW_PRIOR)).abs() < 1e-9);
        assert!((rows[50][50] - ROW_PRIOR / (512.0 + ROW_PRIOR)).abs() < 1e-9);
        let rates = [0, 1].map(|place| lag.rates(&[place], &r));
        assert!((rates[0][50] - (1.0 + RATE_PRIOR) / (0.5 + RATE_PRIOR / r[50])).abs() < 1e-9);
        assert!((rates[1][50] - (1.0 + RATE_PRIOR) / (1.0 + RATE_PRIOR / r[50])).abs() < 1e-9);
        assert!((rates[0][7] / r[7] - 1.0).abs() < 1e-9);
        lag.fade(0.5);
        assert!((lag.matrix(&m)[50][20] - 256.0 / (256.0 + ROW_PRIOR)).abs() < 1e-9);
        assert_eq!(chunk.then.expect("copied").levels, [40; 512]);
    }

    #[test]
    fn of_many_chunks_a_share_is_counted() {
        let count = |chunks: usize| (0..chunks as u64).filter(|n| sampled(*n, chunks)).count();
        assert_eq!(count(256), 256);
        let part = count(1 << 19);
        assert!((200..320).contains(&part), "{part}");
    }
}
