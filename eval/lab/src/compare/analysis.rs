// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a run's time series to its figures. Pure.
//!
//! A second of the workload is a mark in the emulator's series ([`crate::lab_marker`]), so operations and
//! access counts are of the same moments, whatever the guest's clock does. A rate is the mean over its window:
//! operations over time, seconds included in which there were none or few. When a rate counts as reached, one second
//! that others on the host made slow, or fast, must not decide: the median of five reaches it.

use terrace_workload::report::Line as WorkloadLine;
use terrace_workload::report::Second;

use super::record::Point;
use super::record::RunRecord;
use super::record::System;
use super::record::Written;
use crate::series::Line;
use crate::series::Series;

/// Seconds of the sliding median.
const WINDOW: usize = 5;
/// The part of the oracle's rate that counts as having arrived.
const ARRIVED: f64 = 0.9;
/// Seconds before a change of the accesses whose rate is to come back.
const BEFORE: f64 = 8.0;

/// The workload's seconds with the counters of their moments; the last run in the series.
fn seconds(series: &Series) -> Vec<(Second, &Line)> {
    let all =
        series.marks().filter_map(|(name, line)| {
            match serde_json::from_str::<WorkloadLine>(name).ok()? {
                WorkloadLine::Second(second) => Some((second, line)),
                _ => None,
            }
        });
    let all: Vec<_> = all.collect();
    let begin = all.iter().rposition(|(second, _)| second.ops == 0);
    all[begin.unwrap_or(0)..].to_vec()
}

/// One point for each second.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more")]
pub fn points(series: &Series, fast_node: usize) -> Vec<Point> {
    let seconds = seconds(series);
    let pairs = seconds.windows(2);
    pairs
        .map(|pair| {
            let ((before, earlier), (now, line)) = (pair[0], pair[1]);
            Point {
                t: now.t,
                ops_per_s: now.ops.saturating_sub(before.ops) as f64 / (now.t - before.t).max(1e-6),
                fast_access_ratio: line.since(earlier).share(fast_node),
                host_pace: None,
            }
        })
        .collect()
}

/// Median; 0 of nothing.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// What a run came to in its last third.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Final {
    /// Operations a second, the mean.
    pub ops_per_s: f64,
    /// Share of all accesses that the fast node served; absent where there were none.
    pub fast_access_ratio: Option<f64>,
}

/// From the first second that ends after two thirds of the time, or the last but one, to the last; absent without two.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more")]
pub fn last(series: &Series, fast_node: usize) -> Option<Final> {
    let seconds = seconds(series);
    let (end, line) = seconds.last()?;
    let first = seconds.partition_point(|(second, _)| second.t < end.t * 2.0 / 3.0);
    let (start, earlier) = seconds.get(first.min(seconds.len().checked_sub(2)?))?;
    Some(Final {
        ops_per_s: end.ops.saturating_sub(start.ops) as f64 / (end.t - start.t).max(1e-6),
        fast_access_ratio: line.since(earlier).share(fast_node),
    })
}

/// When the rate first reached 90 % of `goal`: the middle of the first five seconds whose median
/// does, or the first second if those are the first five.
#[must_use]
pub fn seconds_to(points: &[Point], goal: f64) -> Option<f64> {
    let window = points
        .windows(WINDOW)
        .position(|w| median(w.iter().map(|point| point.ops_per_s)) >= ARRIVED * goal)?;
    // The median of five is reached with three of them.
    let reached = points[window..window + WINDOW]
        .iter()
        .find(|point| point.ops_per_s >= ARRIVED * goal)?;
    Some(reached.t)
}

/// Rate just before a moment: mean of the [`BEFORE`] seconds that end there. Absent without points.
#[must_use]
pub fn rate_before(points: &[Point], moment: f64) -> Option<f64> {
    let (mut ops, mut time, mut begin) = (0.0, 0.0, 0.0);
    for point in points {
        if point.t <= moment && point.t > moment - BEFORE {
            ops += point.ops_per_s * (point.t - begin);
            time += point.t - begin;
        }
        begin = point.t;
    }
    (time > 0.0).then(|| ops / time)
}

/// How long after the accesses changed 90 % of the rate before that is back; absent where it is not.
/// The second in which they change counts to neither side.
#[must_use]
pub fn recovery(points: &[Point], moved_at: f64) -> Option<f64> {
    let goal = rate_before(points, moved_at)?;
    let after = points.partition_point(|point| point.t < moved_at + 1.0);
    Some((seconds_to(&points[after..], goal)? - moved_at).max(0.0))
}

/// What was written to each node during the workload's seconds.
#[must_use]
pub fn written(series: &Series) -> Vec<Written> {
    let seconds = seconds(series);
    let (Some((_, first)), Some((_, last))) = (seconds.first(), seconds.last()) else {
        return Vec::new();
    };
    let during = last.since(first);
    let nodes = during.nodes.iter();
    nodes
        .map(|node| Written {
            program_bytes: during.bytes(node.writebacks_program()),
            copy_bytes: during.bytes(node.writebacks_copy),
            clear_bytes: during.bytes(node.writebacks_clear),
        })
        .collect()
}

/// Median pace of the host in the last third; absent where it is not known.
#[must_use]
pub fn final_pace(points: &[Point]) -> Option<f64> {
    let end = points.last().map_or(0.0, |point| point.t);
    let tail = points.iter().filter(|point| point.t > end * 2.0 / 3.0);
    let paces: Vec<f64> = tail.filter_map(|point| point.host_pace).collect();
    (!paces.is_empty()).then(|| median(paces))
}

/// Fills in what needs all runs: the time to 90 % of the same workload's oracle.
pub fn relate(records: &mut [RunRecord]) {
    let oracles: Vec<(String, f64)> = records
        .iter()
        .filter(|record| record.system == System::Oracle)
        .filter_map(|record| Some((record.workload.clone(), record.ops_per_s?)))
        .collect();
    for record in records {
        let goal = oracles
            .iter()
            .find(|(workload, _)| *workload == record.workload)
            .map(|&(_, goal)| goal);
        record.seconds_to_90pct_of_oracle = match (goal, &record.failed) {
            (Some(goal), None) => seconds_to(&record.series, goal),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Event;
    use crate::series::NodeCount;

    fn points_of(rates: &[f64]) -> Vec<Point> {
        (1..)
            .zip(rates)
            .map(|(t, &ops_per_s)| Point {
                t: f64::from(t),
                ops_per_s,
                fast_access_ratio: None,
                host_pace: None,
            })
            .collect()
    }

    fn mark(t: f64, ops: u64, fast: u64, slow: u64) -> Line {
        let node = |loads| NodeCount {
            loads,
            ..NodeCount::default()
        };
        Line {
            event: Event::Mark,
            t: t + 30.0,
            name: Some(serde_json::to_string(&WorkloadLine::Second(Second { t, ops })).unwrap()),
            watching: true,
            accesses: 0,
            llc_hits: 0,
            line_bytes: 64,
            pmu: None,
            nodes: vec![node(fast), node(slow)],
        }
    }

    #[test]
    fn medians() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median([4.0, 1.0]) - 2.5).abs() < 1e-12);
        assert!(median([]).abs() < 1e-12);
    }

    #[test]
    fn a_rate_is_the_mean_of_the_last_third_with_its_idle_seconds() {
        let ops = [0, 1, 2, 3, 4, 5, 6, 26, 26, 27];
        let lines = (0..)
            .zip(ops)
            .map(|(t, ops)| mark(f64::from(t), ops, ops, ops));
        let series = Series {
            lines: lines.collect(),
        };
        let came_to = |series: &Series| last(series, 0).map(|last| last.ops_per_s);
        // Of its three seconds 20, 0 and 1: the median is 1.
        assert_eq!(came_to(&series), Some(7.0));
        // A second that takes two counts as two.
        let lines = vec![
            mark(0.0, 0, 0, 0),
            mark(4.0, 90, 1, 1),
            mark(6.0, 100, 2, 2),
        ];
        assert_eq!(came_to(&Series { lines }), Some(5.0));
        let lines = vec![mark(0.0, 0, 0, 0), mark(1.0, 8, 1, 1)];
        assert_eq!(came_to(&Series { lines }), Some(8.0));
        let lines = vec![mark(0.0, 0, 0, 0)];
        assert_eq!(last(&Series { lines }, 0), None);
    }

    #[test]
    fn the_rate_before_a_change_is_the_mean_of_eight_seconds() {
        let mut rates = vec![1.0, 1.0];
        rates.extend([80.0; 6]);
        rates.extend([0.0, 0.0, 99.0]);
        let points = points_of(&rates);
        assert_eq!(rate_before(&points, 10.0), Some(60.0));
        assert_eq!(rate_before(&points, 2.0), Some(1.0));
        assert_eq!(rate_before(&[], 2.0), None);
    }

    #[test]
    fn arrival_needs_more_than_a_lucky_second() {
        let mut rates = vec![10.0; 10];
        rates[3] = 95.0;
        assert_eq!(seconds_to(&points_of(&rates), 100.0), None);
        rates.extend([91.0, 92.0, 20.0, 93.0, 94.0, 95.0]);
        assert_eq!(seconds_to(&points_of(&rates), 100.0), Some(11.0));
        assert_eq!(seconds_to(&points_of(&[100.0; 6]), 100.0), Some(1.0));
    }

    #[test]
    fn recovery_counts_from_the_change() {
        let mut rates = vec![100.0; 10];
        rates.extend([95.0, 40.0, 40.0, 40.0, 91.0, 92.0, 93.0, 30.0, 95.0, 96.0]);
        let points = points_of(&rates);
        // Seconds 11 and later are behind the change at 10; 15 is the first of five good ones.
        assert_eq!(recovery(&points, 10.0), Some(5.0));
        assert_eq!(recovery(&points[..14], 10.0), None);
        assert_eq!(recovery(&[], 10.0), None);
    }

    #[test]
    fn written_bytes_are_those_of_the_run_by_writer() {
        let line = |t, ops, all, copy, clear| {
            let mut line = mark(t, ops, 1, 1);
            line.nodes[1].writebacks = all;
            line.nodes[1].writebacks_copy = copy;
            line.nodes[1].writebacks_clear = clear;
            line
        };
        let lines = vec![line(0.0, 0, 50, 5, 5), line(1.0, 9, 80, 15, 6)];
        let written = written(&Series { lines });
        assert_eq!(written[0], Written::default());
        let expected = Written {
            program_bytes: 19 * 64,
            copy_bytes: 10 * 64,
            clear_bytes: 64,
        };
        assert_eq!(written[1], expected);
        assert!(super::written(&Series::default()).is_empty());
    }

    #[test]
    fn rates_and_shares_come_from_the_same_moments() {
        let mut lines = vec![mark(0.0, 0, 5, 5), mark(1.0, 7, 9, 9)];
        // The run that counts: the workload had been started before, and began again.
        lines.extend([
            mark(0.0, 0, 100, 100),
            mark(1.0, 50, 100, 200),
            mark(2.0, 150, 150, 250),
            mark(3.0, 450, 240, 260),
        ]);
        lines.push(Line {
            name: Some("command:end".to_owned()),
            ..mark(4.0, 0, 999, 999)
        });
        let series = Series { lines };
        let points = points(&series, 0);
        let rates: Vec<f64> = points.iter().map(|p| p.ops_per_s).collect();
        assert_eq!(rates, [50.0, 100.0, 300.0]);
        assert_eq!(points[0].fast_access_ratio, Some(0.0));
        assert_eq!(points[1].fast_access_ratio, Some(0.5));
        let expected = Final {
            ops_per_s: 300.0,
            fast_access_ratio: Some(0.9),
        };
        assert_eq!(last(&series, 0), Some(expected));
        assert_eq!(last(&Series::default(), 0), None);
    }

    #[test]
    fn only_the_own_oracle_matters_and_failed_runs_arrive_nowhere() {
        let record = |workload: &str, system, rate: f64| RunRecord {
            ops_per_s: Some(rate),
            series: points_of(&[rate; 6]),
            failed: None,
            ..RunRecord::failed(workload, system, String::new())
        };
        let mut records = vec![
            record("a", System::None, 40.0),
            record("a", System::Preset("nomad"), 95.0),
            record("a", System::Oracle, 100.0),
            record("b", System::Preset("nomad"), 95.0),
        ];
        records.push(RunRecord {
            failed: Some("memory was wrong".to_owned()),
            ..record("a", System::Kernel, 99.0)
        });
        relate(&mut records);
        let reached: Vec<_> = records
            .iter()
            .map(|r| r.seconds_to_90pct_of_oracle)
            .collect();
        assert_eq!(reached, [None, Some(1.0), Some(1.0), None, None]);
    }
}
