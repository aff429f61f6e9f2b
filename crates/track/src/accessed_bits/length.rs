// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a pass is. Pure.

use terrace_core::Nanos;

/// How long passes are.
#[derive(Debug, Default)]
pub(super) struct Length {
    /// How often the pass that was asked for is doubled.
    doublings: u32,
    /// When the last pass that was not to wait is paid off.
    paid: Nanos,
}

impl Length {
    /// Shorter passes are asked for: somebody wants to know soon. Whether the next one is to be so whatever the last one cost,
    /// which the budget pays off in that time.
    pub(super) fn hurry(&mut self, pays_off: Nanos, now: Nanos) -> bool {
        let may = now >= self.paid;
        if may {
            self.paid = now + pays_off;
        }
        may
    }

    /// As asked for, or doubled as often as it takes to last so long.
    pub(super) fn of(&mut self, asked: Nanos, least: Nanos) -> Nanos {
        self.doublings = doublings(self.doublings, asked, least);
        Nanos(asked.0.saturating_mul(1 << self.doublings))
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
    fn who_hurries_waits_until_the_last_time_is_paid_off() {
        let (mut length, s) = (Length::default(), Nanos::from_secs);
        let hurries = [(10, 6), (13, 6), (16, 6), (17, 6), (22, 6)]
            .map(|(now, cost)| length.hurry(s(cost), s(now)));
        assert_eq!(hurries, [true, false, true, false, true]);
        assert_eq!(length.of(s(1), s(3)), s(4));
        assert_eq!(length.of(s(1), Nanos::ZERO), s(1));
    }
}
