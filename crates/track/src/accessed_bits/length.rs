// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a pass is. Pure.

use terrace_core::Nanos;

/// How often a pass is to be doubled to last so long at least; once more, if it was so before, while it need not be much
/// less than half as long. What passes of one length show cannot be compared with what others do, and what they cost is never
/// twice the same.
pub(super) fn doublings(before: u32, asked: Nanos, least: Nanos) -> u32 {
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
}
