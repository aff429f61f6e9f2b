// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rates would have been at one pace of the host. Pure.
//!
//! On a shared host the same run has half the rate when others are busy, so rates of two runs say little
//! about their systems. But each second of a run has a rate and a pace ([`super::pace`]). How they go
//! together within the runs of a workload, whatever its system, is one number: the exponent of the pace
//! (least squares of their logarithms, each run around its own mean). With it all seconds of all runs
//! are brought to the highest pace that a run had. The pace is measured with some error, which makes
//! the exponent too small: what is left of a slow host in a rate lowers it.

use std::collections::BTreeSet;

use super::analysis::last_third;
use super::analysis::median;
use super::record::Point;
use super::record::RunRecord;

/// A rate cannot depend more on the pace than that: errors that look so are none of the host's.
const MOST: f64 = 3.0;

/// Logarithms of pace and rate.
type Second = (f64, f64);

/// Fills in the rates at one pace, for each workload on its own.
pub(super) fn relate(records: &mut [RunRecord]) {
    let workloads: BTreeSet<String> = records.iter().map(|r| r.workload.clone()).collect();
    for workload in workloads {
        let runs: Vec<Vec<Second>> = records
            .iter()
            .filter(|record| record.workload == workload && record.failed.is_none())
            .flat_map(runs_of)
            .collect();
        let highest = runs.iter().map(|run| middle(run, |second| second.0));
        let highest = highest.fold(f64::NEG_INFINITY, f64::max);
        let exponent = exponent(&runs);
        for record in records.iter_mut().filter(|r| r.workload == workload) {
            let same_pace = |seconds: &[Second]| {
                let same = seconds.iter();
                let same = same.map(|(pace, rate)| rate + exponent * (highest - pace));
                (!seconds.is_empty()).then(|| median(same).exp())
            };
            let all = same_pace(&runs_of(record).concat());
            record.ops_per_s_same_pace = all.filter(|_| record.failed.is_none());
            for run in &mut record.repeats {
                let own = same_pace(&seconds(&run.series));
                run.ops_per_s_same_pace = own.filter(|_| run.failed.is_none());
            }
        }
    }
}

/// The last thirds of all runs of a pair, as far as their pace is known.
fn runs_of(record: &RunRecord) -> Vec<Vec<Second>> {
    let again = record.repeats.iter();
    let again = again.filter(|run| run.failed.is_none());
    let mut all: Vec<&[Point]> = again.map(|run| run.series.as_slice()).collect();
    if all.is_empty() {
        all.push(&record.series);
    }
    let runs = all.into_iter().map(seconds);
    runs.filter(|run| !run.is_empty()).collect()
}

/// The last third of a run.
fn seconds(points: &[Point]) -> Vec<Second> {
    let tail = last_third(points).iter();
    tail.filter(|point| point.ops_per_s > 0.0)
        .filter_map(|point| Some((point.host_pace?.ln(), point.ops_per_s.ln())))
        .collect()
}

fn middle(run: &[Second], part: fn(&Second) -> f64) -> f64 {
    median(run.iter().map(part))
}

/// How much faster a second is, in parts of its rate, for a part of its pace; 0 where that does not show.
#[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
fn exponent(runs: &[Vec<Second>]) -> f64 {
    let (mut together, mut alone) = (0.0, 0.0);
    for run in runs {
        let mean = |part: fn(&Second) -> f64| run.iter().map(part).sum::<f64>() / run.len() as f64;
        let (pace, rate) = (mean(|second| second.0), mean(|second| second.1));
        for second in run {
            together += (second.0 - pace) * (second.1 - rate);
            alone += (second.0 - pace).powi(2);
        }
    }
    if alone > 0.0 {
        (together / alone).clamp(0.0, MOST)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Repeat;
    use super::super::record::System;
    use super::*;

    /// A run whose rate goes with the square of the pace.
    fn ran(system: System, rate: f64, paces: &[f64]) -> RunRecord {
        let point = |(t, &pace): (u32, &f64)| Point {
            t: f64::from(t),
            ops_per_s: rate * pace * pace,
            fast_access_ratio: None,
            host_pace: Some(pace),
        };
        // All that counts is in the last third.
        let quiet = std::iter::repeat_n(&1.0, 2 * paces.len());
        RunRecord {
            series: (1..).zip(quiet.chain(paces)).map(point).collect(),
            failed: None,
            ..RunRecord::failed("redis", system, String::new())
        }
    }

    fn rates(records: &mut [RunRecord]) -> Vec<Option<f64>> {
        relate(records);
        let rounded = |record: &RunRecord| Some(record.ops_per_s_same_pace?.round());
        records.iter().map(rounded).collect()
    }

    #[test]
    fn a_slow_host_is_made_up_for() {
        let mut records = [
            ran(System::None, 100.0, &[1.0, 0.9, 1.0]),
            ran(System::Preset("nomad"), 150.0, &[0.6, 0.5, 0.7]),
        ];
        assert_eq!(rates(&mut records), [Some(100.0), Some(150.0)]);
    }

    #[test]
    fn all_runs_of_a_pair_count_but_those_that_failed() {
        let mut first = ran(System::None, 100.0, &[1.0, 0.9, 1.0]);
        let again = |rate, failed: Option<&str>| Repeat {
            failed: failed.map(str::to_owned),
            ..Repeat::of(&ran(System::None, rate, &[0.5, 0.5, 0.6]))
        };
        first.repeats = vec![
            Repeat::of(&first),
            again(120.0, None),
            again(120.0, None),
            again(900.0, Some("hung")),
        ];
        let mut runs = [first];
        assert_eq!(rates(&mut runs), [Some(120.0)]);
        let own = runs[0].repeats.iter();
        let own: Vec<_> = own
            .map(|run| run.ops_per_s_same_pace.map(f64::round))
            .collect();
        assert_eq!(own, [Some(100.0), Some(120.0), Some(120.0), None]);
        let unknown = RunRecord::failed("redis", System::None, String::new());
        assert_eq!(rates(&mut [unknown]), [None]);
    }

    #[test]
    fn where_the_pace_does_not_matter_it_is_left_alone() {
        assert!(exponent(&[]).abs() < 1e-9);
        assert!(exponent(&[vec![(1.0, 2.0), (1.0, 3.0)]]).abs() < 1e-9);
        assert!(exponent(&[vec![(1.0, 3.0), (2.0, 2.0)]]).abs() < 1e-9);
        assert!((exponent(&[vec![(1.0, 0.0), (2.0, 9.0)]]) - MOST).abs() < 1e-9);
    }
}
