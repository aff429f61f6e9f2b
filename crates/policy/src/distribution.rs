// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long something took each time, as it is told: quantiles and a histogram, ns.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;
use terrace_core::Nanos;

/// Many spans of time. Quantiles are exact to two digits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// How many there were.
    pub count: u64,
    /// Half of them took at most this, ns.
    pub p50: u64,
    /// 99 % took at most this, ns.
    pub p99: u64,
    /// 99.9 % took at most this, ns.
    pub p999: u64,
    /// The longest, ns.
    pub max: u64,
    /// How many were how long, the shortest first; only where there are any.
    pub buckets: Vec<Bucket>,
}

/// Those from the bound of the bucket before to this one's. Bounds are 1, 2, 5, 10, 20, 50, ...
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// They took less than this, ns.
    pub below_ns: u64,
    /// How many there were.
    pub count: u64,
}

/// What spans are recorded in while they come.
#[derive(Debug, Clone)]
pub(crate) struct Recorder(Histogram<u64>);

impl Default for Recorder {
    fn default() -> Self {
        // 1 ns to 100 s, two digits: 3 KiB.
        let histogram = Histogram::new_with_bounds(1, 100_000_000_000, 2);
        Self(histogram.expect("bounds and digits are in the crate's range"))
    }
}

impl Recorder {
    pub(crate) fn record(&mut self, span: Nanos) {
        self.0.saturating_record(span.0.max(1));
    }

    pub(crate) fn distribution(&self) -> Distribution {
        let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
        for value in self.0.iter_recorded() {
            *buckets.entry(bound(value.value_iterated_to())).or_default() +=
                value.count_since_last_iteration();
        }
        let bucket = |(below_ns, count)| Bucket { below_ns, count };
        Distribution {
            count: self.0.len(),
            p50: self.0.value_at_quantile(0.5),
            p99: self.0.value_at_quantile(0.99),
            p999: self.0.value_at_quantile(0.999),
            max: self.0.max(),
            buckets: buckets.into_iter().map(bucket).collect(),
        }
    }
}

/// The first of 1, 2, 5, 10, 20, 50, ... that is above.
fn bound(ns: u64) -> u64 {
    let decade = 10_u64.pow(ns.max(1).ilog10());
    [2, 5, 10]
        .map(|step| decade.saturating_mul(step))
        .into_iter()
        .find(|bound| *bound > ns)
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_fall_into_their_buckets() {
        assert_eq!(
            [0, 1, 2, 4, 5, 9, 10, 999].map(bound),
            [2, 2, 5, 5, 10, 10, 20, 1000]
        );
        assert_eq!(bound(u64::MAX), u64::MAX);
        let mut recorder = Recorder::default();
        for us in [7, 30, 40, 2_000] {
            recorder.record(Nanos(us * 1000));
        }
        let told = recorder.distribution();
        let buckets = told.buckets.iter().map(|b| (b.below_ns, b.count));
        let buckets: Vec<(u64, u64)> = buckets.collect();
        assert_eq!(buckets, [(10_000, 1), (50_000, 2), (5_000_000, 1)]);
        assert_eq!(told.count, 4);
        assert!((30_000..31_000).contains(&told.p50), "{told:?}");
    }
}
