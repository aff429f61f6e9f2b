// SPDX-License-Identifier: MIT OR Apache-2.0
//! Think time: keeps the processor busy for some nanoseconds without touching memory.
//!
//! A loop counted in rounds, whose speed is measured once: reading the clock before every visit
//! would cost as much as the time to wait, and far more where the clock is a system call.

use std::hint::black_box;
use std::time::Duration;
use std::time::Instant;

use terrace_workload::DRAW_NS;

/// Rounds of one measurement: a tenth of a millisecond on real hardware.
const MEASURED_ROUNDS: u32 = 200_000;
/// Measurements.
const MEASUREMENTS: u32 = 20;

/// How fast the loop is here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    rounds_per_ns: f64,
}

impl Pace {
    /// Measures it: the fastest of many, as whatever interferes only makes it slower.
    pub(crate) fn measure() -> Self {
        let fastest = (0..MEASUREMENTS)
            .map(|_| {
                let begin = Instant::now();
                spin(u64::from(MEASURED_ROUNDS));
                begin.elapsed()
            })
            .min();
        let nanoseconds = fastest.unwrap_or(Duration::ZERO).as_secs_f64() * 1e9;
        Self {
            rounds_per_ns: f64::from(MEASURED_ROUNDS) / nanoseconds.max(1.0),
        }
    }

    /// Rounds that fill a visit's think time, less what drawing the visit takes by itself.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and seconds of rounds at most"
    )]
    pub(crate) fn rounds(self, think_ns: f64) -> u64 {
        ((think_ns - DRAW_NS).max(0.0) * self.rounds_per_ns).round() as u64
    }
}

/// Spins for that many rounds. Not inlined: the loop that is measured is the loop that waits.
#[inline(never)]
pub(crate) fn spin(rounds: u64) {
    for round in 0..rounds {
        black_box(round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_grow_with_the_time_and_begin_after_drawing() {
        let pace = Pace { rounds_per_ns: 2.0 };
        assert_eq!(pace.rounds(DRAW_NS), 0);
        assert_eq!(pace.rounds(1.0), 0);
        assert_eq!(pace.rounds(DRAW_NS + 100.0), 200);
    }

    #[test]
    fn the_pace_is_that_of_the_loop() {
        let pace = Pace::measure();
        let rounds = pace.rounds(DRAW_NS + 20e6);
        let begin = Instant::now();
        spin(rounds);
        // Never much faster; slower only if the machine is busy, which no test can exclude.
        assert!(
            begin.elapsed() > Duration::from_millis(10),
            "{rounds} rounds"
        );
    }
}
