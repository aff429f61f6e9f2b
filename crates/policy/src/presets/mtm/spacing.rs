// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far apart the scans of a page are; the paper does not say. Pure.
//!
//! After so long a page is found accessed by some chance, which depends on how hot it is: after too short a time hardly any
//! is, after too long a time all are. Pages are told apart best where their chances differ most. Two scans of a page that
//! are as far apart are two trials of its chance p, so that over all pages
//!
//! ```text
//! covariance of two scans = variance of p
//! ```
//!
//! Each scan is twice as long after the one before as that was: of the first two and the last two, those that agree better
//! say whether scans are to be closer or farther apart. But not so far that more is found accessed than the fastest tier
//! holds: which part of that is to be in it could not be told.

use terrace_core::Nanos;

use super::params::Params;
use super::params::Spacing;

/// Scans are not closer.
const CLOSEST: Nanos = Nanos(100_000);
/// Of an interval, what scans may take until it ends.
const SCANNED_PART: f64 = 0.85;
/// The spacing changes by so much at most from interval to interval.
const STEP: f64 = 4.0;
/// Before the first interval each scan is so many times as long after the one before as that was.
const LONGER: u64 = 4;

/// What scans found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// The share of the memory that was accessed.
    pub(super) accessed: f64,
    /// The share of it that the fastest tier holds.
    pub(super) fastest: f64,
}

impl Found {
    /// The largest share that is to be found accessed.
    const fn fits(self) -> f64 {
        self.fastest.clamp(0.01, 1.0)
    }
}

/// How well an interval's scans agree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreement {
    /// The first two.
    pub(super) closer: f64,
    /// The last two.
    pub(super) farther: f64,
    /// What chance alone makes of it.
    pub(super) noise: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Apart {
    adaptive: bool,
    interval: Nanos,
    scans: u8,
    /// From scan to scan, of those in the middle.
    pub(super) spacing: Nanos,
    /// How well two scans before the first interval agreed at best, and at which spacing, ns.
    best: Option<(f64, f64)>,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times far below 2^53, not negative"
)]
impl Apart {
    pub(super) const fn new(params: &Params) -> Self {
        let (adaptive, spacing) = match params.scan_spacing {
            Spacing::Adaptive => (true, CLOSEST),
            Spacing::Fixed(time) => (false, time),
        };
        Self {
            adaptive,
            interval: params.interval,
            scans: params.num_scans,
            spacing,
            best: None,
        }
    }

    /// Whether there is something to be found out.
    pub(super) const fn is_adaptive(&self) -> bool {
        self.adaptive
    }

    /// The span before that scan, in spacings; the scan that clears is none.
    fn factor(&self, scan: u8) -> f64 {
        if self.adaptive {
            (f64::from(scan) - (f64::from(self.scans) + 1.0) / 2.0).exp2()
        } else {
            1.0
        }
    }

    /// How long after the scan before it that scan is to come.
    pub(super) fn span(&self, scan: u8) -> Nanos {
        Nanos((self.spacing.0 as f64 * self.factor(scan)) as u64)
    }

    /// The spacing of so many scans that took so long.
    pub(super) fn middle(&self, took: Nanos, scans: u8) -> Option<Nanos> {
        let spans: f64 = (1..=scans).map(|scan| self.factor(scan)).sum();
        (scans > 0).then(|| Nanos((took.0 as f64 / spans) as u64))
    }

    /// The longest spacing whose scans fit into an interval.
    pub(super) fn longest(&self) -> Nanos {
        let spans: f64 = (1..=self.scans).map(|scan| self.factor(scan)).sum();
        Nanos((self.interval.0 as f64 * SCANNED_PART / (1.0 + spans)) as u64).max(CLOSEST)
    }

    /// A scan before the first interval, that long after the one before. `agreement`: with that one, where it had a span, too.
    /// Whether the spacing is found; else the next scan is to be that long after this one.
    pub(super) fn tried(&mut self, found: Found, span: Nanos, agreement: Option<f64>) -> bool {
        if let Some(agreement) = agreement
            && self.best.is_none_or(|(best, _)| agreement > best)
        {
            // Between the two.
            self.best = Some((agreement, span.0 as f64 / (LONGER as f64).sqrt()));
        }
        let (most, longest) = (found.fits(), self.longest());
        if found.accessed < most && span < longest {
            self.spacing = Nanos(span.max(self.spacing).0.saturating_mul(LONGER)).min(longest);
            return false;
        }
        let all_fit = span.0 as f64 * (most / found.accessed.max(1e-6)).min(1.0);
        let best = self.best.map_or(all_fit, |(_, best)| best.min(all_fit));
        self.spacing = Nanos(best as u64).clamp(CLOSEST, longest);
        true
    }

    /// The spacing for the next interval; that of this one was `span`.
    pub(super) fn space(&mut self, found: Found, span: Nanos, agreement: Option<Agreement>) {
        if !self.adaptive {
            return;
        }
        let by = match agreement {
            None => 1.0,
            // Chance: hardly any page was found accessed, or all are alike.
            Some(all) if all.closer.max(all.farther) < all.noise => STEP,
            Some(all) => all.farther.max(all.noise) / all.closer.max(all.noise),
        };
        let all_fit = found.fits() / found.accessed.max(1e-6);
        let by = by.min(all_fit).clamp(1.0 / STEP, STEP);
        let spacing = Nanos((span.0 as f64 * by) as u64);
        self.spacing = spacing.clamp(CLOSEST, self.longest());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of the pages is accessed so often a second, the others so often.
    #[derive(Debug, Clone, Copy)]
    struct Heat {
        part: f64,
        hot: f64,
        cold: f64,
    }

    impl Heat {
        /// How likelier a hot page is found accessed after so long than a cold one.
        fn differ(self, span: Nanos) -> f64 {
            let not = |rate: f64| (-rate * span.as_secs_f64()).exp();
            not(self.cold) - not(self.hot)
        }

        fn share(self, span: Nanos) -> f64 {
            let found = |rate: f64| 1.0 - (-rate * span.as_secs_f64()).exp();
            self.part * found(self.hot) + (1.0 - self.part) * found(self.cold)
        }

        fn agreement(self, spans: [Nanos; 2]) -> f64 {
            let [a, b] = spans.map(|span| self.differ(span));
            self.part * (1.0 - self.part) * a * b
        }

        fn found(self, span: Nanos, fastest: f64) -> Found {
            let accessed = self.share(span);
            Found { accessed, fastest }
        }

        /// By the scans before the first interval.
        fn pilot(self, fastest: f64) -> Apart {
            let mut apart = Apart::new(&Params::default());
            let mut before = None;
            loop {
                let span = apart.spacing;
                let agreement = before.map(|before| self.agreement([before, span]));
                let agreement = agreement.filter(|one| *one > 0.03);
                let found = self.found(span, fastest);
                if apart.tried(found, span, agreement) {
                    return apart;
                }
                before = Some(span);
            }
        }

        /// Another interval's scans.
        fn interval(self, apart: &mut Apart, fastest: f64) {
            let [first, middle, last] = [1, 2, 3].map(|scan| apart.span(scan));
            let closer = self.agreement([first, middle]);
            let agreement = Agreement {
                closer,
                farther: self.agreement([middle, last]),
                noise: 0.001,
            };
            let found = self.found(middle, fastest);
            apart.space(found, middle, Some(agreement));
        }

        /// The most by which pages differ, at any spacing.
        fn most(self) -> f64 {
            let spans = (10..200_000).map(|step| Nanos(step * 10_000));
            spans.map(|span| self.differ(span)).fold(0.0, f64::max)
        }
    }

    const HEATS: [Heat; 4] = [
        Heat {
            part: 0.25,
            hot: 24.0,
            cold: 2.6,
        },
        Heat {
            part: 0.2,
            hot: 3_000.0,
            cold: 90.0,
        },
        Heat {
            part: 0.5,
            hot: 40.0,
            cold: 0.0,
        },
        Heat {
            part: 0.1,
            hot: 5.0,
            cold: 0.1,
        },
    ];

    #[test]
    fn scans_are_so_far_apart_that_pages_differ_most() {
        for heat in HEATS {
            let mut apart = heat.pilot(0.7);
            let found = heat.differ(apart.spacing) / heat.most();
            assert!(found > 0.8, "{heat:?}: {:?}, {found}", apart.spacing);
            // And from everywhere in the end.
            for wrong in [Nanos::from_millis(1), Nanos::from_secs(1)] {
                apart.spacing = wrong;
                for _ in 0..12 {
                    heat.interval(&mut apart, 0.7);
                }
                let found = heat.differ(apart.spacing) / heat.most();
                assert!(found > 0.8, "{heat:?}: {:?}, {found}", apart.spacing);
            }
        }
    }

    #[test]
    fn no_more_is_found_accessed_than_the_fastest_tier_holds() {
        let heat = HEATS[0];
        for fastest in [0.02, 0.1, 0.2] {
            let mut apart = heat.pilot(fastest);
            let first = heat.share(apart.spacing);
            heat.interval(&mut apart, fastest);
            let second = heat.share(apart.spacing);
            for share in [first, second] {
                assert!((0.4..1.5).contains(&(share / fastest)), "{share} {fastest}");
            }
        }
    }

    #[test]
    fn where_nothing_is_accessed_scans_are_as_far_apart_as_fits_into_an_interval() {
        let cold = Heat {
            part: 0.0,
            hot: 0.0,
            cold: 0.0,
        };
        let longest = Apart::new(&Params::default()).longest();
        assert_eq!(cold.pilot(0.5).spacing, longest);
    }
}
