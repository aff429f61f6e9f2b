// SPDX-License-Identifier: MIT OR Apache-2.0
//! A few rates of which waits are: fitted by expectation and maximization, and held against other waits.
//!
//! ```text
//! x'  = x - 2 a u + a^2 v        x: logarithms of rates and shares,  u: what a round changes,  v: what the next one changes more
//! a   = -|u| / |v|, at most -1
//! ```
//!
//! A round changes little where rates are near one another, so two of them are drawn out to where they lead (Varadhan and Roland 2008, scheme S3),
//! if that is no less likely than what one of them comes to.

use std::collections::BTreeMap;
use std::f64::consts::LN_2;

/// Rates at most: a pass has a dozen readings.
const RATES: usize = 5;
const ROUNDS: usize = 200;
/// Three rounds lead nowhere that make all more likely by less, in natural units: a rate more has to by the logarithm of the pages.
const GAIN: f64 = 0.01;
/// Shares of rates that are known change by no more any more.
const SETTLED: f64 = 1e-4;
/// By how much readings of one rung differ in time: the reader's own tolerance.
const JITTER: f64 = 1.25;
/// What was never expected costs what a page in so many would.
pub(super) const LEAST_SHARE: f64 = 1e-6;

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

    /// Of a page of that rate: the likelihood of what was seen, and how long it was there to be seen until it was, s.
    fn of(&self, rate: f64) -> (f64, f64) {
        let (since, until) = self.mean();
        if !self.seen {
            return ((-rate * until).exp(), until);
        }
        let between = until - since;
        let visits = rate * between;
        let seen = -(-visits).exp_m1();
        let exposure = if visits < 1e-6 {
            since + between / 2.0
        } else {
            since + 1.0 / rate - between * (1.0 - seen) / seen
        };
        ((-rate * since).exp() * seen, exposure)
    }

    /// The likelihood with each of the rates, whatever their shares.
    fn by_rate(&self, parts: &Parts) -> OfEach {
        let mut by_rate = [0.0; RATES];
        for (own, part) in by_rate.iter_mut().zip(&parts.0) {
            *own = self.of(part.rate).0;
        }
        by_rate
    }

    /// And with their shares.
    fn of_each(&self, parts: &Parts) -> OfEach {
        weighted(self.by_rate(parts), parts)
    }

    /// How likely one of them has each of the rates.
    pub(super) fn shares(&self, parts: &Parts) -> Vec<f64> {
        if self.pages <= 0.0 {
            return Vec::new();
        }
        let of_each = shares(self.of_each(parts));
        of_each[..parts.0.len()].to_vec()
    }
}

/// By rate, 0 where there are fewer.
type OfEach = [f64; RATES];

fn weighted(mut by_rate: OfEach, parts: &Parts) -> OfEach {
    for (own, part) in by_rate.iter_mut().zip(&parts.0) {
        *own *= part.weight;
    }
    by_rate
}

fn likely_of(of_each: &OfEach) -> f64 {
    of_each.iter().sum::<f64>().max(f64::MIN_POSITIVE)
}

fn shares(of_each: OfEach) -> OfEach {
    let all = likely_of(&of_each);
    of_each.map(|of| of / all)
}

fn pages_of(cells: &[&Cell]) -> f64 {
    cells.iter().map(|cell| cell.pages).sum()
}

/// As few rates as the waits need.
pub(super) fn fitted(cells: &[&Cell]) -> Parts {
    let pages = pages_of(cells);
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
    let of = |cell: &&Cell| cell.pages * likely_of(&cell.of_each(parts)).ln();
    let likely: f64 = cells.iter().map(of).sum();
    (2 * parts.0.len() - 1) as f64 * pages.ln() / 2.0 - likely
}

/// So many rates by expectation and maximization.
fn fit(cells: &[&Cell], rates: usize) -> Parts {
    settled(cells, start(cells, rates))
}

/// So many rates between the shortest wait and the longest.
#[expect(clippy::cast_precision_loss, reason = "a few rates")]
fn start(cells: &[&Cell], rates: usize) -> Parts {
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
    Parts((0..rates).map(part).collect())
}

/// The same by rounds until they lead nowhere any more.
fn settled(cells: &[&Cell], mut parts: Parts) -> Parts {
    let mut before = f64::NEG_INFINITY;
    for _ in 0..ROUNDS / 3 {
        let start = parts.clone();
        let likely = improve(cells, &mut parts);
        if likely - before < GAIN {
            break;
        }
        before = likely;
        let one = parts.clone();
        let likely = improve(cells, &mut parts);
        if let Some(mut far) = drawn_out([&start, &one, &parts])
            && improve(cells, &mut far) >= likely
        {
            parts = far;
        }
    }
    parts
}

/// Where two rounds lead, from those before them, between them and after them; nothing where a share is none any more, or they lead nowhere.
fn drawn_out(rounds: [&Parts; 3]) -> Option<Parts> {
    let logs = |parts: &Parts| -> Vec<f64> {
        let all = parts.0.iter();
        all.flat_map(|part| [part.rate.ln(), part.weight.ln()])
            .collect()
    };
    let [x, one, two] = rounds.map(logs);
    let changes = |before: &[f64], after: &[f64]| -> Vec<f64> {
        let both = before.iter().zip(after);
        both.map(|(before, after)| after - before).collect()
    };
    let length = |of: &[f64]| of.iter().map(|x| x * x).sum::<f64>().sqrt();
    let u = changes(&x, &one);
    let v = changes(&u, &changes(&one, &two));
    let a = (-length(&u) / length(&v)).min(-1.0);
    let changes = u.iter().zip(&v);
    let by = changes.map(|(u, v)| a * a * v - 2.0 * a * u);
    let far: Vec<f64> = x.iter().zip(by).map(|(x, by)| (x + by).exp()).collect();
    let all: f64 = far.iter().skip(1).step_by(2).sum();
    let part = |pair: &[f64]| Part {
        rate: pair[0],
        weight: pair[1] / all,
    };
    let parts = Parts(far.chunks(2).map(part).collect());
    let good = |part: &Part| part.rate.is_normal() && part.weight.is_normal();
    parts.0.iter().all(good).then_some(parts)
}

/// The shares that waits have of rates that are known.
pub(super) fn fit_to(cells: &[&Cell], known: &Parts) -> Parts {
    let mut parts = known.clone();
    let of = |cell: &&Cell| (cell.pages, cell.by_rate(known));
    let cells: Vec<(f64, OfEach)> = cells.iter().map(of).collect();
    for _ in 0..ROUNDS {
        if share_anew(&cells, &mut parts) < SETTLED {
            break;
        }
    }
    parts
}

/// One round of expectation and maximization. Gives the logarithm of how likely all was before it.
fn improve(cells: &[&Cell], parts: &mut Parts) -> f64 {
    // Pages, sightings and exposure of each.
    let (mut sums, mut all) = ([[0.0; 3]; RATES], 0.0);
    for cell in cells {
        let (mut likely, mut exposed) = ([0.0; RATES], [0.0; RATES]);
        for (at, part) in parts.0.iter().enumerate() {
            let (likelihood, exposure) = cell.of(part.rate);
            (likely[at], exposed[at]) = (part.weight * likelihood, exposure);
        }
        all += cell.pages * likely_of(&likely).ln();
        for ((share, exposure), sums) in shares(likely).iter().zip(exposed).zip(&mut sums) {
            let pages = cell.pages * share;
            sums[0] += pages;
            sums[1] += pages * f64::from(u8::from(cell.seen));
            sums[2] += pages * exposure;
        }
    }
    let pages: f64 = sums.iter().map(|sums| sums[0]).sum();
    for (part, [own, seen, exposure]) in parts.0.iter_mut().zip(sums) {
        part.weight = own / pages;
        if exposure > 0.0 {
            part.rate = (seen / exposure).max(1e-9);
        }
    }
    all
}

/// The same where rates stay, of cells with so many pages and those likelihoods. Gives by how much anything changed.
fn share_anew(cells: &[(f64, OfEach)], parts: &mut Parts) -> f64 {
    let mut sums = [0.0; RATES];
    for (pages, likely) in cells {
        let own = shares(weighted(*likely, parts));
        for (sum, share) in sums.iter_mut().zip(own) {
            *sum += pages * share;
        }
    }
    let pages: f64 = sums.iter().sum();
    let mut most: f64 = 0.0;
    for (part, own) in parts.0.iter_mut().zip(sums) {
        let weight = own / pages;
        most = most.max((weight - part.weight).abs());
        part.weight = weight;
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
    let pages = pages_of(cells);
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

#[cfg(test)]
#[path = "mixture_tests.rs"]
mod tests;
