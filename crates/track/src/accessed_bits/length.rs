// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a pass is. Pure.

use terrace_core::Nanos;

/// What is asked for in a hurry is read as asked for while it takes no more than the budget has in so long.
const AHEAD: Nanos = Nanos::from_secs(30);

/// How long passes are.
#[derive(Debug)]
pub(super) struct Length {
    budget_permille: u32,
    /// How often the pass that was asked for is doubled.
    doublings: u32,
    /// Processor time that may be spent ahead of the budget, and when it will have paid for what was.
    ahead: Nanos,
    paid: Nanos,
}

impl Length {
    pub(super) fn new(budget_permille: u32) -> Self {
        Self {
            budget_permille: budget_permille.max(1),
            doublings: 0,
            ahead: Nanos::ZERO,
            paid: Nanos::ZERO,
        }
    }

    /// Somebody wants to know soon: passes are as asked for until they took what may be spent ahead, or the budget decides as
    /// before if the last ones are not paid for.
    pub(super) fn hurry(&mut self, now: Nanos) {
        if now >= self.paid {
            self.ahead = Nanos(AHEAD.0 / 1_000 * u64::from(self.budget_permille));
            self.paid = now;
        }
    }

    /// A pass took so much.
    pub(super) fn took(&mut self, busy: Nanos) {
        if self.ahead > Nanos::ZERO {
            self.ahead = Nanos(self.ahead.0.saturating_sub(busy.0));
            self.paid = self.paid + self.pays(busy);
        }
    }

    /// As asked for, or doubled as often as it takes for the budget to pay for passes that take so much.
    pub(super) fn of(&mut self, asked: Nanos, busy: Nanos) -> Nanos {
        if self.ahead > Nanos::ZERO {
            return asked;
        }
        self.doublings = doublings(self.doublings, asked, self.pays(busy));
        Nanos(asked.0.saturating_mul(1 << self.doublings))
    }

    /// How long it takes the budget to pay for that.
    fn pays(&self, busy: Nanos) -> Nanos {
        Nanos(busy.0.saturating_mul(1_000) / u64::from(self.budget_permille))
    }
}

/// How often a pass is to be doubled to last so long at least; once more, if it was so before, while it need not be much
/// less than half as long. What passes of one length show cannot be compared with what others do, and what they cost is never
/// twice the same.
fn doublings(before: u32, asked: Nanos, least: Nanos) -> u32 {
    let lasts = |n: u32| asked.0.saturating_mul(1 << n);
    let enough = (0..20).find(|n| lasts(*n) >= least.0).unwrap_or(20);
    let little_less = before == enough + 1 && least.0 > lasts(before) / 5 * 2;
    if little_less { before } else { enough }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_keeps_its_length_while_its_cost_changes_little() {
        let (asked, ms) = (Nanos::from_secs(1), Nanos::from_millis);
        let mut now = 0;
        let mut next = |least| {
            now = doublings(now, asked, ms(least));
            now
        };
        assert_eq!([300, 1_900, 3_850, 5_030].map(&mut next), [0, 1, 2, 3]);
        assert_eq!([6_650, 3_850, 3_300, 7_440].map(&mut next), [3, 3, 3, 3]);
        assert_eq!([3_100, 1_900, 1_500, 700].map(&mut next), [2, 2, 1, 0]);
        assert_eq!(doublings(3, asked, ms(100)), 0);
        assert_eq!(doublings(0, ms(1), Nanos::MAX), 20);
    }

    #[test]
    fn who_hurries_reads_as_asked_for_what_the_budget_has_in_30_s() {
        let (mut length, s, ms) = (Length::new(50), Nanos::from_secs, Nanos::from_millis);
        let of = |length: &mut Length, took| {
            length.took(ms(took));
            length.of(s(1), ms(took))
        };
        assert_eq!(of(&mut length, 150), s(4), "nobody hurries");
        length.hurry(s(10));
        let lengths = [600, 600, 600, 150].map(|took| of(&mut length, took));
        assert_eq!(
            lengths,
            [s(1), s(1), s(16), s(4)],
            "1,500 ms, and what the last of them took"
        );
        // 1,800 ms are paid for in 36 s.
        length.hurry(s(45));
        assert_eq!(of(&mut length, 150), s(4));
        length.hurry(s(46));
        assert_eq!(of(&mut length, 150), s(1));
    }

    #[test]
    fn a_large_pass_is_paid_for_before_the_next_hurry() {
        let (mut length, s) = (Length::new(50), Nanos::from_secs);
        length.hurry(Nanos::ZERO);
        length.took(s(20));
        assert_eq!(length.of(s(1), s(20)), s(512));
        length.hurry(s(399));
        assert_eq!(length.of(s(1), s(20)), s(512));
        length.hurry(s(400));
        assert_eq!(length.of(s(1), s(20)), s(1));
    }
}
