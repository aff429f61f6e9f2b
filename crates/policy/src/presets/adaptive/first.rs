// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the first wait of a page says of its rate, as much as the waits of all pages of its process say; and what its place
//! is worth then.
//!
//! ```text
//! P[seen in (a, b]]  = sum over j of w_j (e^(-l_j a) - e^(-l_j b))            l_j: a rate, w_j: the share of pages that has it
//! r[k]               = sum over j of l_j P[j | k]                             k: what was seen
//! D[k]               = (r[k] s - price) T + gamma * (sum over j of P[j | k] clamp(D_j, -c, c + a))
//! D_j                = (l_j s - price) T + gamma clamp(D_j, -c, c + a)
//! ```
//!
//! Where all pages are alike some are seen sooner, by chance, and by its own wait each of them would be hot. So the waits are
//! taken to be of a few rates, as many as they need: fitted by expectation and maximization (Dempster et al. 1977), one more
//! only where that makes the description shorter (half the logarithm of the pages for each figure, Schwarz 1978). One rate says that
//! nothing can be told apart yet.
//!
//! D is that of [`super::later`], where the next pass tells which of the rates a page has: who is likely to be hot moves, who may be
//! waits.

use std::f64::consts::LN_2;

use super::classes::CLASSES;
use super::classes::Level;
use super::classes::class_of;
use super::classes::class_rate;
use super::classes::level_of;
use super::estimate::Seen;
use super::later::Terms;
use super::value::Values;

/// Rates at most: a pass has a dozen readings.
const RATES: usize = 5;
const ROUNDS: usize = 200;
/// No rate changes by more than that of it, nor its share of the pages.
const SETTLED: f64 = 1e-4;

/// By how much readings of one rung differ in time: the reader's own tolerance.
const JITTER: f64 = 1.25;
/// What was never expected costs what a page in so many would.
const LEAST_SHARE: f64 = 1e-6;

/// Pages that were observed so for the first time.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    pages: f64,
    seen: bool,
    /// Sums over them, s.
    since: f64,
    until: f64,
}

/// Some of the pages have one rate.
#[derive(Debug, Clone, Copy)]
struct Part {
    weight: f64,
    rate: f64,
}

/// First observations by the class that they give.
#[derive(Debug, Clone)]
pub(super) struct Waits([Cell; CLASSES]);

impl Default for Waits {
    fn default() -> Self {
        Self([Cell::default(); CLASSES])
    }
}

impl Waits {
    /// So many pages were observed so, whatever they were taken for.
    pub(super) fn observed(&mut self, pages: u32, one: Seen) {
        if pages > 0 {
            self.count(pages, level_of(1.0 / one.exposure()), one);
        }
    }

    /// So many pages were observed so, which makes them of that level.
    pub(super) fn count(&mut self, pages: u32, level: Level, one: Seen) {
        // No time has gone by: that says nothing.
        if one.until <= 0.0 {
            return;
        }
        let (cell, pages) = (&mut self.0[class_of(level)], f64::from(pages));
        cell.pages += pages;
        cell.seen = one.seen;
        cell.since += pages * one.since;
        cell.until += pages * one.until;
    }

    /// With those of other pages.
    pub(super) fn and(mut self, other: &Self) -> Self {
        for (cell, other) in self.0.iter_mut().zip(&other.0) {
            cell.pages += other.pages;
            cell.seen |= other.seen;
            cell.since += other.since;
            cell.until += other.until;
        }
        self
    }

    fn there(&self) -> impl Iterator<Item = &Cell> {
        self.0.iter().filter(|cell| cell.pages > 0.0)
    }

    /// How many pages they are of.
    pub(super) fn pages(&self) -> f64 {
        self.there().map(|cell| cell.pages).sum()
    }

    /// Until when pages were observed, s.
    pub(super) fn end(&self) -> f64 {
        self.there().map(|cell| cell.mean().1).fold(0.0, f64::max)
    }

    /// What they are of, if of rates that are known.
    pub(super) fn fit_to(&self, fit: &Fit) -> Parts {
        let cells: Vec<&Cell> = self.there().collect();
        let mut parts = fit.parts.clone();
        for _ in 0..ROUNDS {
            if improve(&cells, &mut parts, false) < SETTLED {
                break;
            }
        }
        Parts(parts)
    }

    /// Bits by which these are otherwise than said, all pages together: of readings until then, what comes later is not seen.
    pub(super) fn bits_against(&self, parts: &Parts, until: f64) -> f64 {
        let pages = self.pages();
        let bits = |own: f64, said: f64| {
            if own > 0.0 {
                own * (own / pages / said.max(LEAST_SHARE)).log2()
            } else {
                0.0
            }
        };
        let (mut sum, mut told, mut readings) = (0.0, 0.0, 0.0);
        let seen = self.there().filter(|cell| cell.seen);
        for cell in seen.filter(|cell| cell.mean().1 <= JITTER * until) {
            sum += bits(cell.pages, cell.of_each(&parts.0).iter().sum());
            (told, readings) = (told + cell.pages, readings + 1.0);
        }
        let later = |part: &Part| part.weight * (-part.rate * until).exp();
        sum += bits(pages - told, parts.0.iter().map(later).sum());
        // Less what chance makes of any pages (Miller 1955).
        sum - readings / (2.0 * LN_2)
    }

    /// Visits a second by class. Before anything was seen a class is believed by half.
    pub(super) fn rates(&self) -> [f64; CLASSES] {
        let Some(fit) = self.fit() else {
            return std::array::from_fn(|class| class_rate(class) / 2.0);
        };
        let mut last = (0..CLASSES)
            .find_map(|class| fit.mean_rate(class))
            .unwrap_or_default();
        std::array::from_fn(|class| {
            last = fit.mean_rate(class).unwrap_or(last);
            last
        })
    }

    /// What they are of, if there are any.
    pub(super) fn fit(&self) -> Option<Fit> {
        let cells: Vec<&Cell> = self.there().collect();
        if cells.is_empty() {
            return None;
        }
        let parts = fitted(&cells);
        let shares = self.0.iter().map(|cell| cell.shares(&parts)).collect();
        Some(Fit { parts, shares })
    }
}

/// Rates and their shares of some pages.
#[derive(Debug)]
pub(super) struct Parts(Vec<Part>);

/// What the waits are of.
#[derive(Debug)]
pub(super) struct Fit {
    parts: Vec<Part>,
    /// By class, how likely a page has each of the rates; empty where there is no page.
    shares: Vec<Vec<f64>>,
}

impl Fit {
    /// D by class; 0 of a class that no page has.
    pub(super) fn differences(&self, terms: Terms) -> Values {
        let gamma = terms.gamma;
        let later = |part: &Part| {
            let now = terms.now(part.rate);
            // Within the clamp it is a sum over all passes; beyond it what follows has the same sign and is at its end.
            let stays = now / (1.0 - gamma);
            let d = if terms.is_inside(stays) {
                stays
            } else {
                now + gamma * terms.clamp(stays)
            };
            terms.clamp(d)
        };
        let later: Vec<f64> = self.parts.iter().map(later).collect();
        std::array::from_fn(|class| {
            let Some(rate) = self.mean_rate(class) else {
                return 0.0;
            };
            let of_each = self.shares[class].iter().zip(&later);
            terms.now(rate) + gamma * of_each.map(|(share, later)| share * later).sum::<f64>()
        })
    }

    /// Rates and their shares of all pages.
    pub(super) fn parts(&self) -> Parts {
        Parts(self.parts.clone())
    }

    /// The mean of all pages, visits a second.
    pub(super) fn mean(&self) -> f64 {
        self.parts.iter().map(|part| part.weight * part.rate).sum()
    }

    fn mean_rate(&self, class: usize) -> Option<f64> {
        let shares = &self.shares[class];
        let rates = shares.iter().zip(&self.parts);
        (!shares.is_empty()).then(|| rates.map(|(share, part)| share * part.rate).sum())
    }
}

impl Cell {
    /// Since and until of one of them.
    fn mean(&self) -> (f64, f64) {
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
    fn of_each(&self, parts: &[Part]) -> Vec<f64> {
        let of = |part: &Part| part.weight * self.likelihood(part.rate);
        parts.iter().map(of).collect()
    }

    fn shares(&self, parts: &[Part]) -> Vec<f64> {
        if self.pages <= 0.0 {
            return Vec::new();
        }
        let of_each = self.of_each(parts);
        let all = of_each.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        of_each.iter().map(|of| of / all).collect()
    }
}

/// As few rates as the waits need.
fn fitted(cells: &[&Cell]) -> Vec<Part> {
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
fn length(cells: &[&Cell], parts: &[Part], pages: f64) -> f64 {
    let of = |cell: &&Cell| {
        let all: f64 = cell.of_each(parts).iter().sum();
        cell.pages * all.max(f64::MIN_POSITIVE).ln()
    };
    let likely: f64 = cells.iter().map(of).sum();
    (2 * parts.len() - 1) as f64 * pages.ln() / 2.0 - likely
}

/// So many rates by expectation and maximization, from those between the shortest wait and the longest.
#[expect(clippy::cast_precision_loss, reason = "a few rates")]
fn fit(cells: &[&Cell], rates: usize) -> Vec<Part> {
    let until = || cells.iter().map(|cell| cell.mean().1);
    let (shortest, longest) = (
        until().fold(f64::INFINITY, f64::min),
        until().fold(0.0, f64::max),
    );
    let (low, high) = (0.1 / longest, 1.0 / shortest);
    let mut parts: Vec<Part> = (0..rates)
        .map(|at| Part {
            weight: 1.0 / rates as f64,
            rate: low * (high / low).powf((at as f64 + 0.5) / rates as f64),
        })
        .collect();
    for _ in 0..ROUNDS {
        if improve(cells, &mut parts, true) < SETTLED {
            break;
        }
    }
    parts
}

/// One round of expectation and maximization, of the shares and, where they may change, of the rates. Gives by how much anything changed.
fn improve(cells: &[&Cell], parts: &mut [Part], rates: bool) -> f64 {
    // Pages, sightings and exposure of each.
    let mut sums = vec![[0.0; 3]; parts.len()];
    for cell in cells {
        for ((share, part), sums) in cell.shares(parts).iter().zip(&*parts).zip(&mut sums) {
            let pages = cell.pages * share;
            sums[0] += pages;
            sums[1] += pages * f64::from(u8::from(cell.seen));
            sums[2] += pages * cell.exposure(part.rate);
        }
    }
    let pages: f64 = sums.iter().map(|sums| sums[0]).sum();
    let mut most: f64 = 0.0;
    for (part, [own, seen, exposure]) in parts.iter_mut().zip(sums) {
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

#[cfg(test)]
#[path = "first_tests.rs"]
mod tests;
