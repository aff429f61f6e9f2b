// SPDX-License-Identifier: MIT OR Apache-2.0
//! What pages of a class did in the eight passes after it was estimated: M and r over the time that a move has to pay.
//!
//! ```text
//! M_L[k][k'] = (N_L[k][k'] + A [k' = k]) / (N_L[k] + A)          k at a pass, k' L = 8 passes later
//! r_p[k]     = (seen_p[k] + B) / (exposure_p[k] + B / r_L[k])    in all L passes, visits a second; p: where it was at first
//! r_L[k]     = (sum over n < L of (M^n r)[k]) / L
//! ```
//!
//! A class is a noisy estimate, and M counts what the noise does from one pass to the next. Its powers make of that a walk
//! that leads anywhere in time; but most pages stay what they are, and only look different each time. Over L passes
//! the estimate is a new one: what is then left of a class is what was true of it. Until that was counted pages are taken to
//! stay what M makes of them in L passes.
//!
//! Rates are by place, too: it remembers of a page what its class has forgotten. One of the slow tier that looks hot has been taken
//! for cold before, or it would have gone up; so it is likelier to be cold than a page of its class in the fast tier. With one rate for
//! both, pages of nearly equal rate change places for ever, whichever looks better.
//!
//! Counted against a copy of the levels of L passes ago, kept of a sample of the chunks where there are many ([`sampled`]).

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
use super::matrix;
use super::matrix::Counts;
use super::matrix::Matrix;
use super::places::PLACES;
use super::places::Place;
use super::places::Spread;

/// L.
pub(super) const LAG: u32 = 8;
/// A and B: a class that few pages were in is taken to stay, and to have what M and r say. Greater than theirs, as the greatest of 256
/// rates is looked for over eight passes: with 4, what chance makes look best is what moves.
const ROW_PRIOR: f64 = 64.0;
const RATE_PRIOR: f64 = 64.0;
/// Chunks up to which all are counted; 512 MiB.
const CHUNKS: usize = 256;

/// Visits and how long pages were watched, s, by place and class.
#[derive(Debug, Clone)]
struct Sightings {
    seen: [[f64; CLASSES]; PLACES],
    exposure: [[f64; CLASSES]; PLACES],
}

/// The counters of one process.
#[derive(Debug, Clone)]
pub(super) struct Lag {
    counts: Counts<f64>,
    whole: Box<Sightings>,
    /// Of the L passes that are under way: those soon after a page was in its class say more for it than all of them do.
    now: Box<Sightings>,
    /// r_L at the end of the last pass.
    r: [f64; CLASSES],
}

/// A chunk's levels of L passes ago, and where its pages were.
#[derive(Debug, Clone)]
pub(super) struct Then {
    levels: [Level; CHUNK_PAGES],
    spread: Spread,
}

/// Whether a chunk is counted where there are so many: about one in as many as there are times more than [`CHUNKS`].
pub(super) fn sampled(number: u64, chunks: usize) -> bool {
    let parts = u32::try_from(chunks / CHUNKS).unwrap_or(1 << 24);
    is_sampled(Addr(number * CHUNK_BYTES), parts.max(1))
}

/// Bytes that copies of so many chunks take, about.
pub(super) fn copied(chunks: usize) -> usize {
    chunks.min(2 * CHUNKS) * size_of::<Then>()
}

impl Sightings {
    const NONE: Self = Self {
        seen: [[0.0; CLASSES]; PLACES],
        exposure: [[0.0; CLASSES]; PLACES],
    };
}

impl Lag {
    pub(super) fn new() -> Self {
        Self {
            counts: Counts::new(),
            whole: Box::new(Sightings::NONE),
            now: Box::new(Sightings::NONE),
            r: [0.0; CLASSES],
        }
    }

    /// A page of a chunk with a copy was observed.
    #[inline]
    pub(super) fn count(&mut self, then: &Then, page: usize, one: Seen) {
        if then.levels[page] > 0 {
            let (place, class) = (then.spread.get(page), class_of(then.levels[page]));
            self.now.seen[place][class] += f64::from(u8::from(one.seen));
            self.now.exposure[place][class] += one.exposure();
        }
    }

    /// L passes are over, and were counted: what was before keeps so much of its weight.
    pub(super) fn fade(&mut self, keep: f64) {
        self.counts.fade(keep);
        let (whole, now) = (&mut *self.whole, &mut *self.now);
        let ways = [
            (&mut whole.seen, &now.seen),
            (&mut whole.exposure, &now.exposure),
        ];
        for (whole, now) in ways {
            let both = whole.iter_mut().flatten().zip(now.iter().flatten());
            both.for_each(|(whole, now)| *whole = *whole * keep + now);
        }
        self.drop_now();
    }

    /// Nothing is counted of the passes under way.
    pub(super) fn drop_now(&mut self) {
        *self.now = Sightings::NONE;
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
                self.counts.of(class_of(then.levels[page]))[class_of(chunk.levels[page])] += 1.0;
            }
        }
        chunk.then = Some(Box::new(Then {
            levels: *chunk.levels,
            spread: chunk.spread.clone(),
        }));
    }

    /// A pass is over, after which M and r of one are these.
    pub(super) fn end_pass(&mut self, m: &Matrix, r: &[f64; CLASSES]) {
        self.r = mean_of(m, r);
    }

    /// M over L passes.
    pub(super) fn matrix(&self) -> Matrix {
        let rows = self.counts.rows().enumerate();
        rows.map(|(class, counts)| {
            let mut row = [0.0; CLASSES];
            let Some(counts) = counts else {
                row[class] = 1.0;
                return row;
            };
            let filled = matrix::filled(counts);
            let by = counts[filled.clone()].iter().sum::<f64>() + ROW_PRIOR;
            for to in filled {
                row[to] = counts[to] / by;
            }
            row[class] += ROW_PRIOR / by;
            row
        })
        .collect()
    }

    /// r in all of them, of pages that were in one of these places.
    pub(super) fn rates(&self, places: &[Place]) -> [f64; CLASSES] {
        let sum = |of: &[[f64; CLASSES]; PLACES], k: usize| -> f64 {
            places.iter().map(|place| of[*place][k]).sum()
        };
        std::array::from_fn(|k| {
            let exposure = sum(&self.whole.exposure, k) + RATE_PRIOR / self.r[k];
            (sum(&self.whole.seen, k) + RATE_PRIOR) / exposure
        })
    }

    /// Bytes this takes.
    pub(super) fn bytes(&self) -> usize {
        self.counts.bytes() + 2 * size_of::<Sightings>()
    }
}

/// The mean rates of L passes, by M and r of one.
fn mean_of(m: &Matrix, r: &[f64; CLASSES]) -> [f64; CLASSES] {
    let (mut later, mut sum) = (*r, *r);
    for _ in 1..LAG {
        later = std::array::from_fn(|class| m.row(class).times(&later));
        sum = std::array::from_fn(|class| sum[class] + later[class]);
    }
    sum.map(|sum| sum / f64::from(LAG))
}

#[cfg(test)]
mod tests {
    use terrace_core::PageBits;

    use super::*;
    use crate::presets::adaptive::transitions::Transitions;

    #[test]
    fn it_counts_against_the_copy_and_what_a_class_has_not_shown_is_as_before() {
        let whole = Transitions::new();
        let (m, r) = (whole.matrix(), whole.rates());
        let (mut lag, mut chunk) = (Lag::new(), Chunk::new(false, 0));
        chunk.present = PageBits::ALL;
        chunk.levels.fill(100);
        lag.turn(7, &mut chunk, SETTLING - 1, 1);
        assert!(chunk.then.is_none(), "its estimates settle");
        lag.turn(7, &mut chunk, SETTLING, 1);
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
        lag.fade(0.5);
        lag.turn(7, &mut chunk, SETTLING + LAG, 1);
        lag.end_pass(&m, &r);
        let rows = lag.matrix();
        assert!((rows.row(50).of(20) - 512.0 / (512.0 + ROW_PRIOR)).abs() < 1e-9);
        assert!((rows.row(50).of(50) - ROW_PRIOR / (512.0 + ROW_PRIOR)).abs() < 1e-9);
        let rates = [0, 1].map(|place| lag.rates(&[place]));
        assert!((rates[0][50] - (1.0 + RATE_PRIOR) / (0.5 + RATE_PRIOR / r[50])).abs() < 1e-9);
        assert!((rates[1][50] - (1.0 + RATE_PRIOR) / (1.0 + RATE_PRIOR / r[50])).abs() < 1e-9);
        assert!((rates[0][7] / r[7] - 1.0).abs() < 1e-9);
        lag.fade(0.5);
        assert!((lag.matrix().row(50).of(20) - 256.0 / (256.0 + ROW_PRIOR)).abs() < 1e-9);
        assert_eq!(chunk.then.expect("copied").levels, [40; 512]);
    }

    /// Pass by pass.
    #[test]
    fn until_then_a_page_stays_what_as_many_passes_in_a_row_make_of_it() {
        let up = |k: usize| {
            let mut row = [0.0; CLASSES];
            row[k] += 0.75;
            row[(k + 1).min(CLASSES - 1)] += 0.25;
            row
        };
        let m: Matrix = (0..CLASSES).map(up).collect();
        let r: [f64; CLASSES] = std::array::from_fn(|k| k as f64 + 1.0);
        let mut lag = Lag::new();
        lag.end_pass(&m, &r);
        for class in [0, 50, 125, 127] {
            let mut at = [0.0; CLASSES];
            at[class] = 1.0;
            let mut seen = 0.0;
            for _ in 0..LAG {
                seen += at.iter().zip(&r).map(|(share, r)| share * r).sum::<f64>();
                at = std::array::from_fn(|to| {
                    (0..CLASSES).map(|from| at[from] * m.row(from).of(to)).sum()
                });
            }
            assert!((lag.rates(&[0])[class] - seen / f64::from(LAG)).abs() < 1e-9);
            assert!((lag.matrix().row(class).of(class) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_is_not_of_as_many_passes_counts_for_nothing() {
        let r = Transitions::new().rates();
        let (mut lag, mut chunk) = (Lag::new(), Chunk::new(false, 0));
        chunk.present = PageBits::ALL;
        chunk.levels.fill(100);
        lag.turn(7, &mut chunk, SETTLING, 1);
        let [seen, _] = Seen::both(0.0, 1e-3);
        let then = chunk.then.clone().expect("settled");
        let rates = |lag: &mut Lag| {
            lag.end_pass(&Transitions::new().matrix(), &r);
            lag.rates(&[0])[50] / r[50]
        };
        (0..CHUNK_PAGES).for_each(|page| lag.count(&then, page, seen));
        assert!((rates(&mut lag) - 1.0).abs() < 1e-9, "they are under way");
        let mut cut = lag.clone();
        cut.drop_now();
        for (lag, more) in [(&mut lag, true), (&mut cut, false)] {
            lag.fade(0.9);
            assert_eq!(rates(lag) > 2.0, more);
        }
    }

    #[test]
    fn of_many_chunks_a_share_is_counted() {
        let count = |chunks: usize| (0..chunks as u64).filter(|n| sampled(*n, chunks)).count();
        assert_eq!(count(256), 256);
        let part = count(1 << 19);
        assert!((200..320).contains(&part), "{part}");
    }
}
