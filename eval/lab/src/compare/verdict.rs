// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is ahead, in words. Pure.
//!
//! The noise of a workload is how much two runs of the same system differ at most, over all its systems: a ratio of
//! rates. Systems whose rates are no further apart than that tie. Where every system ran once nothing says what a
//! difference is worth, and there is no verdict.

use super::record::RunRecord;
use super::record::System;

/// What a difference of rates says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Faster by more than the noise.
    Ahead,
    /// Slower by more than the noise.
    Behind,
    /// Neither.
    Tie,
}

/// How much runs of one system differ, at least 1; absent where none ran twice.
#[must_use]
pub fn noise(runs: &[&RunRecord]) -> Option<f64> {
    let apart = runs.iter().filter_map(|record| {
        let rates = record.rates();
        let (least, most) = (
            rates.iter().copied().reduce(f64::min)?,
            rates.iter().copied().reduce(f64::max)?,
        );
        (rates.len() > 1 && least > 0.0).then_some(most / least)
    });
    apart.reduce(f64::max)
}

impl Word {
    /// Of a ratio of rates.
    #[must_use]
    pub fn of(times: f64, noise: f64) -> Self {
        if times > noise {
            Self::Ahead
        } else if times * noise < 1.0 {
            Self::Behind
        } else {
            Self::Tie
        }
    }
}

/// A system as a sentence names it.
fn words(system: System) -> &'static str {
    match system {
        System::None => "no tiering",
        System::Kernel => "the kernel's tiering",
        System::Oracle => "the best static placement",
        System::Damon(mode) => mode.name(),
        System::Preset(name) => name,
    }
}

/// A sentence for each of Terrace's presets on a workload, and one of the noise; nothing where no preset ran well.
#[must_use]
pub fn sentences(workload: &str, all: &[RunRecord]) -> Vec<String> {
    let good = |run: &&RunRecord| run.workload == workload && run.failed.is_none();
    let runs: Vec<&RunRecord> = all.iter().filter(good).collect();
    let noise = noise(&runs);
    let presets = runs.iter().filter(|run| run.system.is_terrace());
    let mut told: Vec<String> = presets
        .filter_map(|run| compared(workload, run, &runs, noise))
        .collect();
    if !told.is_empty() {
        told.push(noise.map_or_else(
            || "One run each: nothing says what a difference is worth.".to_owned(),
            |noise| {
                format!(
                    "Two runs of one system differ by up to {:.0} % there; less is a tie.",
                    (noise - 1.0) * 100.0
                )
            },
        ));
    }
    told
}

/// One preset against the others that ran.
fn compared(
    workload: &str,
    run: &RunRecord,
    runs: &[&RunRecord],
    noise: Option<f64>,
) -> Option<String> {
    let mine = run.ops_per_s?;
    let others = runs.iter().filter(|other| other.system != run.system);
    let against: Vec<String> = others
        .filter_map(|other| {
            let times = mine / other.ops_per_s.filter(|rate| *rate > 0.0)?;
            let name = words(other.system);
            let word = match noise.map(|noise| Word::of(times, noise)) {
                None => return Some(format!("{times:.2} x {name}")),
                Some(Word::Ahead) => "ahead of",
                Some(Word::Behind) => "behind",
                Some(Word::Tie) => "a tie with",
            };
            Some(format!("{word} {name} ({times:.2} x)"))
        })
        .collect();
    let (name, against) = (words(run.system), against.join(", "));
    let is = noise.map_or("has", |_| "is");
    (!against.is_empty()).then(|| format!("{workload}: {name} {is} {against}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(system: System, rates: &[f64]) -> RunRecord {
        let run = |rate: &f64| RunRecord {
            ops_per_s: Some(*rate),
            failed: None,
            ..RunRecord::failed("redis", system, String::new())
        };
        RunRecord::of_all(&rates.iter().map(run).collect::<Vec<_>>()).expect("runs")
    }

    #[test]
    fn what_is_within_the_noise_of_any_system_is_a_tie() {
        let records = [
            ran(System::None, &[100.0, 101.0]),
            ran(System::Kernel, &[150.0, 165.0]),
            ran(System::Preset("adaptive"), &[160.0, 162.0]),
            ran(System::Oracle, &[181.0, 183.0]),
        ];
        let told = sentences("redis", &records);
        assert_eq!(
            told,
            [
                "redis: adaptive is ahead of no tiering (1.60 x), a tie with the kernel's tiering (1.02 x), \
                 behind the best static placement (0.88 x).",
                "Two runs of one system differ by up to 10 % there; less is a tie.",
            ]
        );
    }

    #[test]
    fn one_run_each_has_no_verdict() {
        let records = [
            ran(System::None, &[100.0]),
            ran(System::Preset("adaptive"), &[300.0]),
            RunRecord::failed("redis", System::Kernel, "hung".to_owned()),
        ];
        let told = sentences("redis", &records);
        assert_eq!(told[0], "redis: adaptive has 3.00 x no tiering.");
        assert!(told[1].starts_with("One run each"), "{told:?}");
        assert!(sentences("gups", &records).is_empty());
    }

    #[test]
    fn words_are_symmetric() {
        for (times, word) in [(1.2, Word::Ahead), (0.8, Word::Behind), (1.05, Word::Tie)] {
            assert_eq!(Word::of(times, 1.1), word);
        }
        assert_eq!(Word::of(1.0 / 1.2, 1.1), Word::Behind);
        assert_eq!(Word::of(1.0, 1.0), Word::Tie);
    }
}
