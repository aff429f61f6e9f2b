// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's own time: what it has run, in the unit of what it runs when it runs.
//!
//! ```text
//! pace   = processor time in a pass / length of the pass
//! usual' = max(pace, usual + (pace - usual) / 32)
//! time   = min(ours, processor time / usual)
//! part   = pace / usual'
//! ```
//!
//! A program that waits, is stopped or has no processor touches nothing, and its pages look idle. By its own time they do not: no
//! time has gone by for them. A pass counts by its part, and what a second of ours is worth of its own is the mean of
//! `part`, by which values are scaled. Where nobody knows what a process runs, and in its first pass, its time is ours.

/// What a pass keeps of the mean part of those before.
const FADE: f64 = 0.9;
/// How much of a slower pass the usual pace takes on.
const SLOWER: f64 = 1.0 / 32.0;

/// The clock of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Clock {
    usual: Option<f64>,
    /// Processors that it ran on in the last pass; one where nobody knows.
    pub(super) runs: f64,
    /// Mean of what passes had of the time they have when it runs.
    pub(super) share: f64,
    /// Of this pass: our time and processor time, by chunk that was read to its end, s.
    ours: f64,
    ran: f64,
}

/// Times of a reading since the clearing, s: of the one before, and of this.
pub(super) type Times = (f64, f64);

impl Clock {
    pub(super) const fn new() -> Self {
        Self {
            usual: None,
            runs: 1.0,
            share: 1.0,
            ours: 0.0,
            ran: 0.0,
        }
    }

    /// Times of a reading of a chunk, by our clock and in processor time; what they are by the process's own.
    pub(super) fn own(&self, ours: Times, ran: Option<Times>) -> Times {
        let (Some(usual), Some(ran)) = (self.usual, ran) else {
            return ours;
        };
        (ours.0.min(ran.0 / usual), ours.1.min(ran.1 / usual))
    }

    /// That was the last reading of a chunk in the pass: our time and processor time, s.
    pub(super) fn last(&mut self, ours: f64, ran: Option<f64>) {
        if let Some(ran) = ran {
            self.ours += ours;
            self.ran += ran;
        }
    }

    /// Processor time in a pass that long, at the pace of the last, s; none where nobody knows.
    pub(super) fn ran_s(&self, pass: f64) -> Option<f64> {
        self.usual.map(|_| self.runs * pass)
    }

    /// Processors that it runs on when it runs, if that is known: processor time in a second of its own.
    pub(super) const fn usual(&self) -> Option<f64> {
        self.usual
    }

    /// The pass is over: of its own time in one in which it runs, what it had.
    pub(super) fn end(&mut self) -> f64 {
        if self.ours <= 0.0 {
            return 1.0;
        }
        let pace = self.ran / self.ours;
        self.runs = pace;
        let before = self.usual.unwrap_or(pace);
        let usual = pace.max(before + (pace - before) * SLOWER).max(1e-6);
        let part = pace / usual;
        self.usual = Some(usual);
        self.share = self.share * FADE + (1.0 - FADE) * part;
        (self.ours, self.ran) = (0.0, 0.0);
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pass(clock: &mut Clock, ours: f64, ran: f64) -> f64 {
        clock.last(ours, Some(ran));
        clock.end()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn who_is_stopped_has_no_time() {
        let mut clock = Clock::new();
        let ran = Some((1.0, 2.0));
        assert_eq!(clock.own((0.5, 1.0), ran), (0.5, 1.0), "nothing is known");
        assert!(near(pass(&mut clock, 1.0, 4.0), 1.0), "four threads");
        assert_eq!(clock.own((0.5, 1.0), ran), (0.25, 0.5));
        assert_eq!(clock.own((0.5, 1.0), Some((0.0, 0.0))), (0.0, 0.0));
        assert_eq!(clock.own((0.5, 1.0), None), (0.5, 1.0), "nobody knows");
        let part = pass(&mut clock, 1.0, 1.0);
        assert!(part > 0.25 && part < 0.26, "{part}");
        assert!(clock.share < 0.93);
        assert!(near(pass(&mut clock, 2.0, 10.0), 1.0), "it has more now");
    }

    #[test]
    fn who_runs_less_for_good_is_slow_no_more() {
        let mut clock = Clock::new();
        pass(&mut clock, 1.0, 4.0);
        let part = (0..300).map(|_| pass(&mut clock, 1.0, 1.0)).last();
        assert!(part.is_some_and(|part| part > 0.99), "{part:?}");
        assert!(clock.share > 0.98);
    }

    #[test]
    fn without_processor_time_every_pass_is_whole() {
        let mut clock = Clock::new();
        clock.last(1.0, None);
        assert!(near(clock.end(), 1.0) && near(clock.share, 1.0));
        assert!(near(pass(&mut clock, 1.0, 0.0), 0.0), "never ran");
        assert!(near(pass(&mut clock, 1.0, 1.0), 1.0));
    }

    proptest! {
        #[test]
        fn its_time_is_never_more_than_ours_and_never_runs_backwards(
            passes in prop::collection::vec((0.001_f64..60.0, 0.0_f64..500.0), 1..50), share in 0.0_f64..1.0,
        ) {
            let mut clock = Clock::new();
            for (ours, ran) in passes {
                let (since, until) = clock.own((ours * share, ours), Some((ran * share * share, ran)));
                prop_assert!(0.0 <= since && since <= until && until <= ours);
                let part = pass(&mut clock, ours, ran);
                prop_assert!((0.0..=1.0).contains(&part) && (0.0..=1.0 + 1e-9).contains(&clock.share));
            }
        }
    }
}
