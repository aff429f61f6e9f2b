// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many accesses that memory serves a visit is: one, or as many as a PMU counts, or as the program's time says that answers to
//! moves ([`super::response`]); and no more than there was time for.
//!
//! ```text
//! counted = min(bound, max(1, (sampled + s) / (visits + s)))     by which a ledger counts what moves brought
//! w       = counted                                              where samples are taken
//!           min(bound, max(1, what the response is at least))    else
//! bound   = processor time / sum over tiers of visits * latency
//! ```
//!
//! `sampled` are loads that memory served, each sample s of them, `visits` the sum over pages of r; all is of the same passes, and fades
//! as what transitions count.
//!
//! An accessed bit is set once, however much of the page is read then. Loads only: which stores missed the caches, most
//! PMUs do not say, so without the loads of who writes a visit is an access. What is served by caches, or many accesses at a time, takes less
//! time than memory's latency: the bound is what an access costs then. Where a process's time is not known there is none.

use super::response::Response;

/// A pass of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Visits {
    pub(super) all: f64,
    /// Time that they take with one access each, ns.
    pub(super) read_ns: f64,
    /// Processor time, ns.
    pub(super) ran_ns: Option<f64>,
}

/// Of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct Accesses {
    pub(super) response: Response,
    /// In this pass.
    sampled: f64,
    /// What a sample stands for.
    each: f64,
    /// In all passes: sampled, visits, their time, and the processor's.
    sums: [f64; 4],
}

impl Accesses {
    /// A load that stands for so many.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub(super) fn sampled(&mut self, accesses: u64) {
        self.each = accesses as f64;
        self.sampled += self.each;
    }

    /// A pass is over, in which the process was visited so, if that is known; what was before keeps so much of its weight.
    pub(super) fn end_pass(&mut self, visits: Option<Visits>, keep: f64) {
        let sampled = std::mem::take(&mut self.sampled);
        let Some(visits) = visits else { return };
        let (read, ran) = match visits.ran_ns {
            Some(ran) => (visits.read_ns, ran),
            None => (0.0, 0.0),
        };
        let new = [sampled, visits.all, read, ran];
        for (sum, new) in self.sums.iter_mut().zip(new) {
            *sum = *sum * keep + new;
        }
    }

    /// w.
    pub(super) fn of_a_visit(&self) -> f64 {
        match self.response.at_least() {
            Some(least) if self.each <= 0.0 => self.bounded(least),
            _ => self.counted(),
        }
    }

    /// The same without what only the program's time says.
    pub(super) fn counted(&self) -> f64 {
        let [sampled, visits, ..] = self.sums;
        if self.each > 0.0 {
            self.bounded((sampled + self.each) / (visits + self.each))
        } else {
            self.bounded(1.0)
        }
    }

    fn bounded(&self, accesses: f64) -> f64 {
        let [.., read, ran] = self.sums;
        let bound = if read > 0.0 {
            ran / read
        } else {
            f64::INFINITY
        };
        accesses.max(1.0).min(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLION: Visits = Visits {
        all: 1e6,
        read_ns: 1e8,
        ran_ns: Some(4e8),
    };

    /// After many passes alike.
    fn after(one: &mut Accesses, visits: Visits, samples: u32) -> f64 {
        for _ in 0..100 {
            (0..samples).for_each(|_| one.sampled(50_000));
            one.end_pass(Some(visits), 0.9);
        }
        one.of_a_visit()
    }

    #[test]
    fn a_visit_is_one_access_until_more_are_sampled() {
        let mut one = Accesses::default();
        assert!((one.of_a_visit() - 1.0).abs() < 1e-12);
        assert!(
            (after(&mut one, MILLION, 0) - 1.0).abs() < 1e-12,
            "nobody samples"
        );
        let w = after(&mut one, MILLION, 60);
        assert!((2.9..3.0).contains(&w), "{w} for three");
        assert!(
            (after(&mut one, MILLION, 1) - 1.0).abs() < 1e-9,
            "never less"
        );
    }

    #[test]
    fn it_is_no_more_than_there_was_time_for() {
        let mut one = Accesses::default();
        assert!((after(&mut one, MILLION, 1_000) - 4.0).abs() < 1e-9);
        let quick = Visits {
            ran_ns: Some(2e7),
            ..MILLION
        };
        assert!(
            (after(&mut one, quick, 0) - 0.2).abs() < 1e-3,
            "not even one"
        );
        let unknown = Visits {
            ran_ns: None,
            ..MILLION
        };
        let w = after(&mut Accesses::default(), unknown, 1_000);
        assert!((49.0..51.0).contains(&w), "{w}");
    }
}
