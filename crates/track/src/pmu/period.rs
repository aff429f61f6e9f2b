// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampling period: as short as it may be while sampling keeps to its share of the processors
//! and loses nothing. Pure: time comes in with the measurements.
//!
//! The period counts memory accesses for one sample. It never goes below the configured one (5,000
//! in HeMem, section 3.1) and grows
//! * at once to twice, where a sample was lost or the kernel throttled (section 5.1: at short
//!   periods the sampling thread cannot keep up and up to 30 % of the samples are dropped);
//! * in proportion, where sampling cost more than its share.
//!
//! It shrinks by a quarter where sampling cost less than half of its share and nothing was lost for
//! [`CALM_WINDOWS`] windows; after a loss the wait doubles, up to [`CALM_WINDOWS_MAX`], so that it
//! does not try again and again what did not work.
//!
//! What sampling costs is the sampling thread's processor time and, for each sample, the time the
//! program lost; it is set against the time of the processors that gave samples.

use terrace_core::Nanos;

/// Windows without loss before the period shrinks.
pub const CALM_WINDOWS: u32 = 4;
/// The most that this wait grows to.
pub const CALM_WINDOWS_MAX: u32 = 256;
/// No window makes the period grow by more.
const GROWTH_MAX: u64 = 4;
/// Longer makes no sense: one sample in a thousand million accesses.
pub const PERIOD_MAX: u64 = 1 << 30;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeriodConfig {
    /// The shortest period.
    pub period: u64,
    /// The share of processor time that sampling may cost, 0 to 1.
    pub cost_share: f64,
    /// What one sample costs the program.
    pub sample_cost: Nanos,
}

/// What was measured since the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// How long it was.
    pub elapsed: Nanos,
    /// Processors that gave samples.
    pub cpus: u64,
    /// Samples that came, wanted or not.
    pub samples: u64,
    /// Samples lost, wherever.
    pub lost: u64,
    /// Times the kernel throttled.
    pub throttled: u64,
    /// Processor time of the sampling thread.
    pub reader: Nanos,
}

/// The period and what it has been through.
#[derive(Debug, Clone, PartialEq)]
pub struct PeriodControl {
    config: PeriodConfig,
    period: u64,
    share: f64,
    calm: u32,
    wait: u32,
}

impl PeriodControl {
    /// Starts at the shortest period.
    #[must_use]
    pub fn new(config: PeriodConfig) -> Self {
        let period = config.period.clamp(1, PERIOD_MAX);
        Self {
            config: PeriodConfig { period, ..config },
            period,
            share: 0.0,
            calm: 0,
            wait: CALM_WINDOWS,
        }
    }

    /// The period, in memory accesses.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// What sampling cost in the last window, as a share of processor time.
    #[must_use]
    pub const fn share(&self) -> f64 {
        self.share
    }

    /// Takes a window into account; the new period, where it changes.
    pub fn observe(&mut self, window: Window) -> Option<u64> {
        if window.elapsed == Nanos::ZERO {
            return None;
        }
        self.share = self.cost(window);
        let budget = self.config.cost_share;
        let before = self.period;
        if window.lost > 0 || window.throttled > 0 {
            self.period = before.saturating_mul(2);
            self.wait = (self.wait * 2).min(CALM_WINDOWS_MAX);
            self.calm = 0;
        } else if self.share > budget {
            self.period = grown(before, self.share / budget);
            self.calm = 0;
        } else {
            self.calm = self.calm.saturating_add(1);
            if self.share < budget / 2.0 && self.calm >= self.wait {
                self.period = before - before.div_ceil(4);
                self.calm = 0;
            }
        }
        self.period = self.period.clamp(self.config.period, PERIOD_MAX);
        if self.period == self.config.period && self.calm > CALM_WINDOWS_MAX {
            self.wait = CALM_WINDOWS;
        }
        (self.period != before).then_some(self.period)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of time, good to many digits"
    )]
    fn cost(&self, window: Window) -> f64 {
        let program = window.samples.saturating_mul(self.config.sample_cost.0);
        let spent = window.reader.0.saturating_add(program);
        let there_was = window.elapsed.0 as f64 * window.cpus.max(1) as f64;
        spent as f64 / there_was
    }
}

/// `factor` times as long, rounded up, at most [`GROWTH_MAX`] times.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "periods are at most 2^30 and factors positive"
)]
fn grown(period: u64, factor: f64) -> u64 {
    let most = period.saturating_mul(GROWTH_MAX);
    ((period as f64 * factor).ceil() as u64).clamp(period + 1, most.max(period + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: PeriodConfig = PeriodConfig {
        period: 5_000,
        cost_share: 0.01,
        sample_cost: Nanos(1_000),
    };
    const WINDOW: Window = Window {
        elapsed: Nanos(100_000_000),
        cpus: 1,
        samples: 0,
        lost: 0,
        throttled: 0,
        reader: Nanos(0),
    };

    /// A program that makes `accesses` a window: samples follow the period.
    fn run(control: &mut PeriodControl, accesses: u64, windows: u32) {
        for _ in 0..windows {
            let samples = accesses / control.period();
            control.observe(Window {
                samples,
                reader: Nanos(samples * 200),
                ..WINDOW
            });
        }
    }

    #[test]
    fn keeps_to_its_share() {
        let mut control = PeriodControl::new(CONFIG);
        // 100 million accesses a second on one processor: 5,000 would cost 2.4 %.
        run(&mut control, 10_000_000, 50);
        assert!(control.share() <= 0.01, "{}", control.share());
        assert!(control.share() > 0.004, "{}", control.share());
        assert!(control.period() > 5_000);
        // A quiet program: back to what was asked for.
        run(&mut control, 100_000, 200);
        assert_eq!(control.period(), 5_000);
    }

    #[test]
    fn a_cheap_program_is_sampled_as_asked() {
        let mut control = PeriodControl::new(CONFIG);
        run(&mut control, 1_000_000, 100);
        assert_eq!(control.period(), 5_000);
    }

    #[test]
    fn more_processors_allow_more() {
        let window = Window {
            samples: 4_000,
            ..WINDOW
        };
        let mut one = PeriodControl::new(CONFIG);
        assert_eq!(one.observe(window), Some(20_000));
        let mut eight = PeriodControl::new(CONFIG);
        assert_eq!(eight.observe(Window { cpus: 8, ..window }), None);
    }

    #[test]
    fn loss_doubles_and_makes_cautious() {
        let mut control = PeriodControl::new(CONFIG);
        let lossy = Window { lost: 1, ..WINDOW };
        assert_eq!(control.observe(lossy), Some(10_000));
        let throttled = Window {
            throttled: 1,
            ..WINDOW
        };
        assert_eq!(control.observe(throttled), Some(20_000));
        // Two losses: the wait is four times as long.
        for _ in 1..CALM_WINDOWS * 4 {
            assert_eq!(control.observe(WINDOW), None);
        }
        assert_eq!(control.observe(WINDOW), Some(15_000));
    }

    proptest! {
        /// Whatever is measured, the period stays in its bounds, and it grows whenever something
        /// was lost and it can.
        #[test]
        fn bounds_hold(
            windows in prop::collection::vec(
                (0u64..2_000_000_000, 0u64..300, 0u64..10_000_000, 0u64..3, 0u64..3, any::<u64>()),
                0..200,
            ),
            period in any::<u64>(),
        ) {
            let mut control = PeriodControl::new(PeriodConfig { period, ..CONFIG });
            let least = control.period();
            for (elapsed, cpus, samples, lost, throttled, reader) in windows {
                let before = control.period();
                control.observe(Window {
                    elapsed: Nanos(elapsed), cpus, samples, lost, throttled, reader: Nanos(reader),
                });
                prop_assert!(control.period() >= least && control.period() <= PERIOD_MAX);
                if elapsed > 0 && lost + throttled > 0 && before < PERIOD_MAX {
                    prop_assert!(control.period() > before);
                }
            }
        }
    }
}
