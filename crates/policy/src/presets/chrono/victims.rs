// SPDX-License-Identifier: MIT OR Apache-2.0
//! The victims of DCSC (3.2.2): which pages are drawn, and what is known of one.
//!
//! A draw takes `p_victim` of each tier's pages, at least [`LEAST`]: a small memory has too few pages for
//! a share of 0.003 %.

use terrace_core::Nanos;
use terrace_core::PageBits;

use crate::kit::Random;
use crate::kit::pages::Key;

/// Victims of a tier at least: the paper's 0.003 % of 256 GB are 8 MB, 2,048 pages of both tiers.
const LEAST: u64 = 1_024;

/// A page or huge page that was drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Victim {
    /// Its rounds that are over.
    pub(super) rounds: u8,
    /// The longest idle time of those.
    pub(super) longest: Nanos,
    /// The round under way began.
    pub(super) since: Option<Nanos>,
    /// A round begins no sooner.
    pub(super) after: Nanos,
    /// So long no reading of accessed bits has shown it in this round.
    pub(super) unseen: Nanos,
    /// Pages or huge pages that it stands for.
    pub(super) weight: f64,
}

impl Victim {
    /// Drawn now.
    pub(super) const fn new(now: Nanos, weight: f64) -> Self {
        Self {
            rounds: 0,
            longest: Nanos::ZERO,
            since: None,
            after: now,
            unseen: Nanos::ZERO,
            weight,
        }
    }

    /// A round is over; the next begins when the page is armed, or its bit is cleared, again.
    pub(super) fn ended(&mut self, now: Nanos, idle: Nanos, rounds: u8) {
        self.longest = self.longest.max(idle);
        self.rounds += 1;
        self.since = None;
        self.unseen = Nanos::ZERO;
        self.after = if self.rounds < rounds {
            now
        } else {
            Nanos::MAX
        };
    }
}

/// Draws, each another one.
#[derive(Debug)]
pub(super) struct Draws {
    random: Random,
}

impl Draws {
    pub(super) const fn new() -> Self {
        Self {
            random: Random::new(1),
        }
    }

    /// Victims of a tier: `take` is told the place of each and how many it stands for.
    pub(super) fn draw<I: Iterator<Item = (Key, PageBits)>>(
        &mut self,
        sets: impl Fn() -> I,
        p_victim: f64,
        mut take: impl FnMut(Key, usize, f64),
    ) {
        let all: u64 = sets().map(|(_, on)| u64::from(on.count())).sum();
        let share = p_victim.max(real(LEAST) / real(all.max(1))).min(1.0);
        let mut skip = self.skip(share);
        for (key, on) in sets() {
            let count = u64::from(on.count());
            while skip < count {
                take(key, nth(&on, skip), 1.0 / share);
                skip = skip.saturating_add(1).saturating_add(self.skip(share));
            }
            skip -= count;
        }
    }

    /// Pages that are left out before the next victim, of those that are taken with that share.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and saturates"
    )]
    fn skip(&mut self, share: f64) -> u64 {
        if share >= 1.0 {
            return 0;
        }
        let uniform = (real(self.random.bits() >> 11) + 1.0) / real(1 << 53);
        (uniform.ln() / (-share).ln_1p()) as u64
    }
}

/// The page of the nth bit that is set.
fn nth(bits: &PageBits, n: u64) -> usize {
    let mut left = n;
    for (word, set) in bits.0.into_iter().enumerate() {
        let here = u64::from(set.count_ones());
        if left < here {
            let mut set = set;
            for _ in 0..left {
                set &= set - 1;
            }
            return word * 64 + set.trailing_zeros() as usize;
        }
        left -= here;
    }
    0
}

#[expect(clippy::cast_precision_loss, reason = "pages, or 53 bits")]
const fn real(value: u64) -> f64 {
    value as f64
}
