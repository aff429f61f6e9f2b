// SPDX-License-Identifier: MIT OR Apache-2.0
//! A few rates of which waits are: fitted by expectation and maximization, and held against other waits.

use std::collections::BTreeMap;
use std::f64::consts::LN_2;

/// Rates at most: a pass has a dozen readings.
const RATES: usize = 5;
const ROUNDS: usize = 200;
/// No rate changes by more than that of it, nor its share of the pages.
const SETTLED: f64 = 1e-4;
/// By how much readings of one rung differ in time: the reader's own tolerance.
const JITTER: f64 = 1.25;
/// What was never expected costs what a page in so many would.
const LEAST_SHARE: f64 = 1e-6;

/// Pages that were observed so.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    pub(super) pages: f64,
    pub(super) seen: bool,
    /// Sums over them, s.
    pub(super) since: f64,
    pub(super) until: f64,
}

/// Some of the pages have one rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) weight: f64,
    pub(super) rate: f64,
}

/// Rates and their shares of some pages.
#[derive(Debug, Clone)]
pub(super) struct Parts(pub(super) Vec<Part>);

impl Cell {
    /// Since and until of one of them.
    pub(super) fn mean(&self) -> (f64, f64) {
        (self.since / self.pages, self.until / self.pages)
    }

    /// The likelihood of what was seen of a page of that rate.
    fn likelihood(&self, rate: f64) -> f64 {
        let (since, until) = self.mean();
        if self.seen {
            (-rate * since).exp() * -(-rate * (until - since)).exp_m1()
        } else {
            (-rate * until).exp()
        }
    }

    /// How long it was there to be seen until it was, s, if it has that rate.
    fn exposure(&self, rate: f64) -> f64 {
        let (since, until) = self.mean();
        if !self.seen {
            return until;
        }
        let between = until - since;
        let visits = rate * between;
        if visits < 1e-6 {
            since + between / 2.0
        } else {
            since + 1.0 / rate - between / visits.exp_m1()
        }
    }

    /// The likelihood with each of the rates.
    fn of_each(&self, parts: &Parts) -> Vec<f64> {
        let of = |part: &Part| part.weight * self.likelihood(part.rate);
        parts.0.iter().map(of).collect()
    }

    /// How likely one of them has each of the rates.
    pub(super) fn shares(&self, parts: &Parts) -> Vec<f64> {
        if self.pages <= 0.0 {
            return Vec::new();
        }
        let of_each = self.of_each(parts);
        let all = of_each.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        of_each.iter().map(|of| of / all).collect()
    }
}

/// As few rates as the waits need.
pub(super) fn fitted(cells: &[&Cell]) -> Parts {
    let pages: f64 = cells.iter().map(|cell| cell.pages).sum();
    let mut best = fit(cells, 1);
    let mut least = length(cells, &best, pages);
    for rates in 2..=RATES {
        let parts = fit(cells, rates);
        let length = length(cells, &parts, pages);
        if length >= least {
            break;
        }
        (best, least) = (parts, length);
    }
    best
}

/// What it takes to describe the waits by those rates, in natural units.
#[expect(clippy::cast_precision_loss, reason = "a few rates")]
fn length(cells: &[&Cell], parts: &Parts, pages: f64) -> f64 {
    let of = |cell: &&Cell| {
        let all: f64 = cell.of_each(parts).iter().sum();
        cell.pages * all.max(f64::MIN_POSITIVE).ln()
    };
    let likely: f64 = cells.iter().map(of).sum();
    (2 * parts.0.len() - 1) as f64 * pages.ln() / 2.0 - likely
}

/// So many rates by expectation and maximization, from those between the shortest wait and the longest.
#[expect(clippy::cast_precision_loss, reason = "a few rates")]
fn fit(cells: &[&Cell], rates: usize) -> Parts {
    let until = || cells.iter().map(|cell| cell.mean().1);
    let (shortest, longest) = (
        until().fold(f64::INFINITY, f64::min),
        until().fold(0.0, f64::max),
    );
    let (low, high) = (0.1 / longest, 1.0 / shortest);
    let part = |at: usize| Part {
        weight: 1.0 / rates as f64,
        rate: low * (high / low).powf((at as f64 + 0.5) / rates as f64),
    };
    settled(cells, Parts((0..rates).map(part).collect()), true)
}

/// The shares that waits have of rates that are known.
pub(super) fn fit_to(cells: &[&Cell], known: &Parts) -> Parts {
    settled(cells, known.clone(), false)
}

/// The same by rounds until nothing changes any more.
fn settled(cells: &[&Cell], mut parts: Parts, rates: bool) -> Parts {
    for _ in 0..ROUNDS {
        if improve(cells, &mut parts, rates) < SETTLED {
            break;
        }
    }
    parts
}

/// One round of expectation and maximization, of the shares and, where they may change, of the rates. Gives by how much anything changed.
fn improve(cells: &[&Cell], parts: &mut Parts, rates: bool) -> f64 {
    // Pages, sightings and exposure of each.
    let mut sums = vec![[0.0; 3]; parts.0.len()];
    for cell in cells {
        for ((share, part), sums) in cell.shares(parts).iter().zip(&parts.0).zip(&mut sums) {
            let pages = cell.pages * share;
            sums[0] += pages;
            sums[1] += pages * f64::from(u8::from(cell.seen));
            sums[2] += pages * cell.exposure(part.rate);
        }
    }
    let pages: f64 = sums.iter().map(|sums| sums[0]).sum();
    let mut most: f64 = 0.0;
    for (part, [own, seen, exposure]) in parts.0.iter_mut().zip(sums) {
        let before = *part;
        part.weight = own / pages;
        if rates && exposure > 0.0 {
            part.rate = (seen / exposure).max(1e-9);
        }
        let changed = (part.rate / before.rate - 1.0).abs();
        most = most.max(changed).max((part.weight - before.weight).abs());
    }
    most
}

/// The nearest power of two.
#[expect(clippy::cast_possible_truncation, reason = "a logarithm")]
fn octave(seconds: f64) -> i32 {
    seconds.log2().round() as i32
}

/// Bits by which these are otherwise than said, all pages together: of readings until then, what comes later is not seen.
pub(super) fn bits_against(cells: &[&Cell], parts: &Parts, until: f64) -> f64 {
    // By reading: pages, and for each of them what is said of one. Chunks have readings of their own, about an octave apart.
    let mut readings = BTreeMap::new();
    let seen = cells.iter().filter(|cell| cell.seen);
    for cell in seen.filter(|cell| cell.mean().1 <= JITTER * until) {
        let said: f64 = cell.of_each(parts).iter().sum();
        let sums: &mut [f64; 2] = readings.entry(octave(cell.mean().1)).or_default();
        *sums = [sums[0] + cell.pages, sums[1] + cell.pages * said];
    }
    let pages: f64 = cells.iter().map(|cell| cell.pages).sum();
    let told: f64 = readings.values().map(|[pages, _]| pages).sum();
    let later = |part: &Part| part.weight * (-part.rate * until).exp();
    let later: f64 = parts.0.iter().map(later).sum();
    let said = readings
        .values()
        .map(|[pages, said]| (*pages, said / pages));
    let said: Vec<(f64, f64)> = said.chain([(pages - told, later)]).collect();
    // More than all where readings of one rung are told as two.
    let all = said.iter().map(|(_, said)| said).sum::<f64>().max(1.0);
    let there = said.iter().filter(|(own, _)| *own > 0.0);
    let bits = there.map(|(own, said)| own * (own / pages / (said / all).max(LEAST_SHARE)).log2());
    // Less what chance makes of any pages (Miller 1955).
    bits.sum::<f64>() - readings.len() as f64 / (2.0 * LN_2)
}
