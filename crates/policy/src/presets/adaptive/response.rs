// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a visit takes more where memory is slower, by how a program's time answers to moves.
//!
//! ```text
//! t        = a - w x + noise      a pass each:  t processor time a visit,  x what pages that are not where they first were save a visit, if it is
//!                                 one access ([`super::away`])
//! w        = -cov(x, t) / var(x)
//! error    = sqrt(sum of (t - a + w x)^2 / (n - 2) / sum of (x - mean)^2)
//! at least = w - 3 error
//! ```
//!
//! Who moves pages makes an experiment: an access takes so much less, and a visit w times as much. That is what is to be known, whatever the
//! visits are: many lines or few, served one by one or many at a time, by a memory that is slower under load than it was measured. What
//! a program does otherwise, and where its visits go by themselves, is noise. Who is not moved shows nothing, so what was seen does not fade; in
//! a new phase it is forgotten ([`super::accesses`]). Pages move during a pass: its x is between what it was before and after.
//!
//! Visits are what pages did in the pass itself, fitted as first waits are ([`super::first`]): by the rates of their classes, as long as
//! estimates settle, they would be too few, and that is just when most pages move: `gups`, whose visit is half an access, would have four.

use super::estimate::Seen;
use super::first::Waits;

/// Standard errors below what is most likely: of three passes one in ten is that far off by chance, of ten one in a hundred (Student's t).
const SURE: f64 = 3.0;

/// What is known of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct Response {
    /// What was observed in this pass, of so many pages.
    waits: Waits,
    pages: f64,
    /// x at the end of the last pass.
    before: f64,
    line: Line,
}

impl Response {
    /// So many pages were observed so.
    pub(super) fn count(&mut self, pages: u32, one: Seen) {
        self.pages += f64::from(pages);
        self.waits.observed(pages, one);
    }

    /// A pass is over, in which moves saved so much a second, ns, if a visit is one access, and the process has so many processors a second of its own
    /// time, if that is known.
    pub(super) fn end_pass(&mut self, saved: f64, runs: Option<f64>) {
        let waits = std::mem::take(&mut self.waits);
        let pages = std::mem::take(&mut self.pages);
        let Some(runs) = runs else { return };
        let visits = waits.fit().map_or(0.0, |fit| pages * fit.mean());
        if visits > 0.0 {
            let saved = saved / visits;
            let before = std::mem::replace(&mut self.before, saved);
            let x = f64::midpoint(before, saved);
            self.line.saw(x, runs * 1e9 / visits);
        }
    }

    /// What w is at least; nothing where three passes or more do not say it.
    pub(super) fn at_least(&self) -> Option<f64> {
        self.line.at_least()
    }
}

/// The line through what passes showed.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    passes: f64,
    /// Means of x and t, and sums of products of what they are off.
    x: f64,
    t: f64,
    xx: f64,
    xt: f64,
    tt: f64,
}

impl Line {
    fn saw(&mut self, x: f64, t: f64) {
        self.passes += 1.0;
        let (x, t) = (x - self.x, t - self.t);
        self.x += x / self.passes;
        self.t += t / self.passes;
        let weight = (self.passes - 1.0) / self.passes;
        self.xx += x * x * weight;
        self.xt += x * t * weight;
        self.tt += t * t * weight;
    }

    fn at_least(&self) -> Option<f64> {
        if self.passes < 3.0 || self.xx <= 0.0 {
            return None;
        }
        let slope = self.xt / self.xx;
        let off = (self.tt - slope * self.xt).max(0.0) / (self.passes - 2.0);
        Some(-slope - SURE * (off / self.xx).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes in a row, of a program whose visit is `accesses` and takes `off` more in each.
    fn after(saved: &[f64], accesses: f64, off: impl Fn(usize) -> f64) -> Option<f64> {
        let mut line = Line::default();
        for (at, saved) in saved.iter().copied().enumerate() {
            line.saw(saved, 9_000.0 - accesses * saved + off(at));
        }
        line.at_least()
    }

    const MOVED: [f64; 8] = [0.0, 50.0, 60.0, 70.0, 71.0, 71.0, 71.0, 71.0];

    #[test]
    fn a_visit_that_answers_twenty_times_is_twenty_accesses() {
        let w = after(&MOVED, 20.0, |_| 0.0).expect("moves were made");
        assert!((w - 20.0).abs() < 1e-6, "{w}");
        assert_eq!(after(&MOVED[..2], 20.0, |_| 0.0), None, "two passes");
        assert!(after(&MOVED[..3], 20.0, |_| 0.0).is_some());
        assert_eq!(after(&[0.0; 9], 20.0, |_| 0.0), None, "nothing moves");
    }

    #[test]
    fn what_is_not_certain_is_not_claimed() {
        let noise = |of: f64| move |at: usize| of * [1.0, -0.7, 0.4, -1.0, 0.8][at % 5];
        let little = after(&MOVED, 20.0, noise(40.0)).expect("moves were made");
        assert!((12.0..20.0).contains(&little), "{little}");
        let much = after(&MOVED, 1.0, noise(400.0)).expect("moves were made");
        assert!(much < 1.0, "{much}");
        let hardly: Vec<f64> = (0..50).map(|at| f64::from(at % 3)).collect();
        let w = after(&hardly, 1.0, noise(10.0)).expect("they differ");
        assert!(w < 2.0, "{w}");
    }

    /// 1,500 pages visited twice a second, read after 1/8, 1/4, 1/2 and 1 s, on two processors.
    #[test]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of pages"
    )]
    fn visits_are_what_was_seen_in_the_pass() {
        let pages = |part: f64| (1_500.0 * part).round() as u32;
        let mut response = Response::default();
        let mut since = 0.0_f64;
        for until in [0.125_f64, 0.25, 0.5, 1.0] {
            let [one, _] = Seen::both(since, until);
            response.count(pages((-2.0 * since).exp() - (-2.0 * until).exp()), one);
            since = until;
        }
        let [_, one] = Seen::both(since, since);
        response.count(pages((-2.0_f64).exp()), one);
        let mut without = response.clone();
        response.end_pass(300_000.0, Some(2.0));
        let Line { x, t, .. } = response.line;
        assert!((x - 50.0).abs() < 1.0, "half of it in the first pass: {x}");
        assert!((t / (2e9 / 3_000.0) - 1.0).abs() < 0.02, "{t}");
        without.end_pass(300_000.0, None);
        assert!(without.line.passes + without.pages <= 0.0, "no clock");
    }
}
