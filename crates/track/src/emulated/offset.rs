// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the emulator's clock to the guest's. Pure.
//!
//! Both clocks are monotonic and of the same rate but for a drift; they differ by an unknown amount. A
//! record is read some time after it was made and never before, so the smallest difference seen is
//! nearest to the truth. It is taken over the last one to two [`WINDOW`]s, so that drift does not add up.

use terrace_core::Nanos;

const WINDOW: Nanos = Nanos::from_secs(10);

/// The smallest differences seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offset {
    /// Since when the present window counts.
    since: Nanos,
    /// Guest less emulator, ns: of this window and of the one before.
    smallest: [Option<i64>; 2],
}

impl Offset {
    /// A record made at `theirs` was read at `ours`.
    pub fn saw(&mut self, theirs: u64, ours: Nanos) {
        if ours.since(self.since) >= WINDOW {
            self.since = ours;
            self.smallest = [None, self.smallest[0]];
        }
        let seen = ours.0.wrapping_sub(theirs).cast_signed();
        self.smallest[0] = Some(self.smallest[0].map_or(seen, |least| least.min(seen)));
    }

    /// When, by the guest's clock, a record was made.
    #[must_use]
    pub fn ours(&self, theirs: u64) -> Nanos {
        let least = self.smallest.iter().flatten().min().copied().unwrap_or(0);
        Nanos(theirs.wrapping_add_signed(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_counts_and_old_ones_are_forgotten() {
        let mut offset = Offset::default();
        let base = Nanos::from_secs(100);
        offset.saw(5_000, base + Nanos(900));
        offset.saw(5_100, base + Nanos(300));
        offset.saw(5_200, base + Nanos(800));
        assert_eq!(offset.ours(5_200), base + Nanos(400));
        // The guest's clock is found to run ahead: after two windows only that counts.
        for window in 1..=3 {
            let later = Nanos(WINDOW.0 * window);
            offset.saw(5_000 + later.0, base + later + Nanos(10_000));
        }
        assert_eq!(offset.ours(5_000), base + Nanos(10_000));
    }

    #[test]
    fn a_guest_that_started_before_its_emulator_s_clock_works_too() {
        let mut offset = Offset::default();
        offset.saw(1 << 50, Nanos::from_secs(1));
        assert_eq!(offset.ours((1 << 50) + 5), Nanos::from_secs(1) + Nanos(5));
    }
}
