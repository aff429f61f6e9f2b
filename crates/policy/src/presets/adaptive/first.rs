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

use super::classes::CLASSES;
use super::classes::Level;
use super::classes::class_of;
use super::classes::class_rate;
use super::classes::level_of;
use super::estimate::Seen;
use super::later::Terms;
use super::mixture;
use super::mixture::Cell;
use super::mixture::Part;
use super::mixture::Parts;
use super::value::Values;

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
        mixture::fit_to(&self.there().collect::<Vec<_>>(), &fit.parts)
    }

    /// Bits by which these are otherwise than said, all pages together: of readings until then, what comes later is not seen.
    pub(super) fn bits_against(&self, parts: &Parts, until: f64) -> f64 {
        mixture::bits_against(&self.there().collect::<Vec<_>>(), parts, until)
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
        let parts = mixture::fitted(&cells);
        let shares = self.0.iter().map(|cell| cell.shares(&parts)).collect();
        Some(Fit { parts, shares })
    }
}

/// What the waits are of.
#[derive(Debug)]
pub(super) struct Fit {
    /// Rates and their shares of all pages.
    pub(super) parts: Parts,
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
        let later: Vec<f64> = self.parts.0.iter().map(later).collect();
        std::array::from_fn(|class| {
            let Some(rate) = self.mean_rate(class) else {
                return 0.0;
            };
            let of_each = self.shares[class].iter().zip(&later);
            terms.now(rate) + gamma * of_each.map(|(share, later)| share * later).sum::<f64>()
        })
    }

    /// The mean of all pages, visits a second.
    pub(super) fn mean(&self) -> f64 {
        self.parts
            .0
            .iter()
            .map(|part| part.weight * part.rate)
            .sum()
    }

    fn mean_rate(&self, class: usize) -> Option<f64> {
        let shares = &self.shares[class];
        let rates = shares.iter().zip(&self.parts.0);
        (!shares.is_empty()).then(|| rates.map(|(share, part)| share * part.rate).sum())
    }
}

#[cfg(test)]
#[path = "first_tests.rs"]
mod tests;
