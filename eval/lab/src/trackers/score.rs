// SPDX-License-Identifier: MIT OR Apache-2.0
//! How well what a tracker says of pages fits the truth; pure.
//!
//! A set of pages is what has the most of something, so many of them. Where several have as much and only some
//! fit, all of these are as good: the truth takes whichever were named, and of what was named each is in with the same chance.

use serde::Deserialize;
use serde::Serialize;

/// The shares of all pages that are looked for.
pub const HOTTEST: [f64; 3] = [0.10, 0.25, 0.50];
/// The coldest share that is looked for.
pub const COLDEST: f64 = 0.25;

/// What a tracker says of a page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Said {
    /// Accesses a second.
    pub rate: f64,
    /// Whether it saw any.
    pub seen: bool,
    /// Whether it looked.
    pub looked: bool,
}

/// A tracker against the truth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Of the hottest pages, by [`HOTTEST`], the share that is among as many that it calls hottest, of those it saw.
    pub recall: [f64; 3],
    /// Of these, the share that is right; nothing where it saw none.
    pub precision: [Option<f64>; 3],
    /// Of the accesses that go to the hottest pages, how many go to those that it named instead.
    pub accesses: [f64; 3],
    /// Spearman's rank correlation over all pages; nothing where either side says the same of all.
    pub rank: Option<f64>,
    /// Of the coldest pages, the share that is among as many that it calls coldest, of those it looked at.
    pub cold: f64,
}

impl Score {
    /// Of what was said against the true accesses of each page, which are as many.
    #[must_use]
    pub fn of(truth: &[f64], said: &[Said]) -> Self {
        let hot: Vec<Option<f64>> = said
            .iter()
            .map(|one| one.seen.then_some(one.rate))
            .collect();
        let sets = HOTTEST.map(|share| overlap(truth, &hot, count(share, truth.len())));
        let colder: Vec<f64> = truth.iter().map(|visits| -visits).collect();
        let cold: Vec<Option<f64>> = said
            .iter()
            .map(|one| one.looked.then_some(-one.rate))
            .collect();
        let rates: Vec<f64> = said.iter().map(|one| one.rate).collect();
        Self {
            recall: sets.map(|set| set.hits / set.wanted),
            precision: sets.map(|set| (set.named > 0.0).then(|| set.hits / set.named)),
            accesses: sets.map(|set| set.visits / set.best.max(f64::MIN_POSITIVE)),
            rank: rank_correlation(truth, &rates),
            cold: {
                let set = overlap(&colder, &cold, count(COLDEST, truth.len()));
                set.hits / set.wanted
            },
        }
    }
}

/// So many pages are that share, at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a count"
)]
fn count(share: f64, pages: usize) -> usize {
    ((pages as f64 * share).round() as usize).clamp(1, pages.max(1))
}

/// Two sets of pages, both of the `wanted` greatest.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Overlap {
    wanted: f64,
    /// In the set that was named; fewer where fewer were seen.
    named: f64,
    hits: f64,
    /// What those in the true set have, and what those that were named have.
    best: f64,
    visits: f64,
}

#[expect(clippy::cast_precision_loss, reason = "counts of pages")]
fn overlap(truth: &[f64], named: &[Option<f64>], wanted: usize) -> Overlap {
    let mut order = truth.to_vec();
    order.sort_by(|a, b| b.total_cmp(a));
    let least = order.get(wanted - 1).copied().unwrap_or(f64::NEG_INFINITY);
    let chances = chances(named, wanted);
    let (mut sure, mut even, mut all, mut visits) = (0.0, 0.0, 0.0, 0.0);
    for (visit, chance) in truth.iter().zip(&chances) {
        all += chance;
        visits += visit * chance;
        if *visit > least {
            sure += chance;
        } else if *visit >= least {
            even += chance;
        }
    }
    let room = wanted - order.iter().take_while(|visit| **visit > least).count();
    Overlap {
        wanted: wanted as f64,
        named: all,
        hits: sure + f64::min(even, room as f64),
        best: order.iter().take(wanted).sum(),
        visits,
    }
}

/// Of each page, the chance to be one of the greatest.
#[expect(clippy::cast_precision_loss, reason = "counts of pages")]
fn chances(named: &[Option<f64>], wanted: usize) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = named
        .iter()
        .enumerate()
        .filter_map(|(page, value)| Some(((*value)?, page)))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut chances = vec![0.0; named.len()];
    let mut room = wanted;
    for even in order.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let chance = f64::min(1.0, room as f64 / even.len() as f64);
        even.iter().for_each(|(_, page)| chances[*page] = chance);
        room = room.saturating_sub(even.len());
    }
    chances
}

/// Spearman's: the correlation of ranks, equals with the mean of theirs.
fn rank_correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    let (one, other) = (ranks(one), ranks(other));
    let mean = |ranks: &[f64]| ranks.iter().sum::<f64>() / f64::max(1.0, ranks.len() as f64);
    let (a, b) = (mean(&one), mean(&other));
    let (mut both, mut first, mut second) = (0.0, 0.0, 0.0);
    for (x, y) in one.iter().zip(&other) {
        both += (x - a) * (y - b);
        first += (x - a) * (x - a);
        second += (y - b) * (y - b);
    }
    (first > 0.0 && second > 0.0).then(|| both / (first * second).sqrt())
}

#[expect(clippy::cast_precision_loss, reason = "counts of pages")]
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for even in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let rank = first as f64 + (even.len() - 1) as f64 / 2.0;
        even.iter().for_each(|page| ranks[*page] = rank);
        first += even.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(rates: &[f64]) -> Vec<Said> {
        let each = rates.iter();
        each.map(|rate| Said {
            rate: *rate,
            seen: *rate > 0.0,
            looked: true,
        })
        .collect()
    }

    /// Page 0 is the hottest of 100.
    fn falling() -> Vec<f64> {
        (0..100).map(|page| 100.0 - f64::from(page)).collect()
    }

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-9, "{found}, not {wanted}");
    }

    #[test]
    fn who_knows_all_is_right_and_who_has_it_backwards_is_wrong() {
        let truth = falling();
        let right = Score::of(&truth, &said(&truth));
        assert_eq!((right.recall, right.accesses), ([1.0; 3], [1.0; 3]));
        assert_eq!(right.precision, [Some(1.0); 3]);
        close(right.rank.expect("they differ"), 1.0);
        close(right.cold, 1.0);
        let backwards: Vec<f64> = truth.iter().rev().copied().collect();
        let wrong = Score::of(&truth, &said(&backwards));
        assert_eq!((wrong.recall, wrong.cold), ([0.0; 3], 0.0));
        close(wrong.rank.expect("they differ"), -1.0);
        // The ten coldest instead of the ten hottest.
        close(wrong.accesses[0], 55.0 / 955.0);
    }

    #[test]
    fn who_saw_little_is_precise_and_recalls_little() {
        let truth = falling();
        let mut rates = vec![0.0; 100];
        (rates[0], rates[30]) = (9.0, 8.0);
        let few = Score::of(&truth, &said(&rates));
        close(few.recall[0], 0.1);
        close(few.precision[0].expect("it saw two"), 0.5);
        close(few.recall[2], 0.04);
        close(few.precision[2].expect("it saw two"), 1.0);
        let none = Score::of(&truth, &said(&[0.0; 100]));
        assert_eq!((none.recall, none.precision), ([0.0; 3], [None; 3]));
        assert_eq!(none.rank, None);
    }

    #[test]
    fn of_equals_any_will_do_and_none_is_preferred() {
        // 13 hot pages, all alike: ten of them are the hottest ten.
        let truth: Vec<f64> = (0..100)
            .map(|page| if page < 13 { 9.0 } else { 1.0 })
            .collect();
        let known = Score::of(&truth, &said(&truth));
        close(known.recall[0], 1.0);
        // All the same to it: a quarter of the hot, and 21.75 others for the twelve places left.
        let blind = Score::of(&truth, &said(&[1.0; 100]));
        close(blind.recall[1], (13.0 / 4.0 + 12.0) / 25.0);
        assert_eq!(blind.rank, None);
        let alike = Score::of(&[1.0; 100], &said(&[1.0; 100]));
        for value in alike.recall.into_iter().chain(alike.accesses) {
            close(value, 1.0);
        }
    }

    #[test]
    fn cold_is_what_was_looked_at_and_found_idle() {
        let truth = falling();
        let mut guess = said(&truth);
        guess[90..].iter_mut().for_each(|one| one.looked = false);
        // 65 to 89 are named, of which 75 to 89 are right.
        close(Score::of(&truth, &guess).cold, 15.0 / 25.0);
    }

    #[test]
    fn ranks_of_equals_are_their_mean() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 0.0]), [2.5, 1.0, 2.5, 0.0]);
        let rank = rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[1.0, 3.0, 2.0, 4.0]);
        close(rank.expect("they differ"), 0.8);
    }
}
