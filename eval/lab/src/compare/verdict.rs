// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is ahead, in words. Pure.
//!
//! Systems run in turns, so what the host does to a round it does to all of them: two systems are compared round by
//! round, by the ratio r of their rates. Student's interval of these decides: ahead where all of it is above 1, behind
//! where all of it is below, else a tie.
//!
//! ```text
//! exp(mean(ln r) -+ t sd(ln r) / sqrt(N))    t: the 97.5 % quantile of Student's distribution with N - 1 degrees of freedom
//! ```
//!
//! So two systems that are alike get another word than tie in one of twenty cases, whatever N is; with few rounds the interval is wide. How far the
//! rounds of other systems are apart plays no part. Where each of the two ran once nothing says what a difference is
//! worth, and there is no verdict.

use statrs::distribution::ContinuousCDF as _;
use statrs::distribution::StudentsT;

use super::analysis::median;
use super::record::RunRecord;
use super::record::System;

/// How sure an interval is.
const CONFIDENCE: f64 = 0.95;

/// What the rounds say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Faster.
    Ahead,
    /// Slower.
    Behind,
    /// Not told apart.
    Tie,
}

/// The ratios of two systems' rates, of each round in which both have one; there is one at least.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratios(Vec<f64>);

impl Ratios {
    /// Of one against another; absent without a round of both.
    #[must_use]
    pub fn of(one: &RunRecord, other: &RunRecord) -> Option<Self> {
        let rounds = one.by_round().into_iter().zip(other.by_round());
        let ratios = rounds.filter_map(|(a, b)| Some(a? / b.filter(|rate| *rate > 0.0)?));
        let ratios: Vec<f64> = ratios.collect();
        (!ratios.is_empty()).then_some(Self(ratios))
    }

    /// Each, in the order of the rounds.
    #[must_use]
    pub fn rounds(&self) -> &[f64] {
        &self.0
    }

    /// The one in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(self.0.iter().copied())
    }

    /// Where the ratio of two rates is with 95 % confidence; nothing where there is but one round.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of rounds")]
    pub fn interval(&self) -> Option<(f64, f64)> {
        let rounds = self.0.len() as f64;
        let student = StudentsT::new(0.0, 1.0, rounds - 1.0).ok()?;
        let logs = || self.0.iter().map(|ratio| ratio.ln());
        let mean = logs().sum::<f64>() / rounds;
        let squares: f64 = logs().map(|log| (log - mean).powi(2)).sum();
        let deviation = (squares / (rounds - 1.0)).sqrt();
        let half = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * deviation / rounds.sqrt();
        Some(((mean - half).exp(), (mean + half).exp()))
    }

    /// What they say; nothing where there is but one.
    #[must_use]
    pub fn word(&self) -> Option<Word> {
        Some(match self.interval()? {
            (least, _) if least > 1.0 => Word::Ahead,
            (_, most) if most < 1.0 => Word::Behind,
            _ => Word::Tie,
        })
    }

    /// The median and, of several, the interval; behind each median stands `times`.
    #[must_use]
    pub fn text(&self, times: &str) -> String {
        let median = self.median();
        match self.interval() {
            Some((least, most)) => format!("{median:.2}{times}, {least:.2} to {most:.2}"),
            None => format!("{median:.2}{times}"),
        }
    }
}

/// Notes in each record what cannot be, and so is an error of the model.
pub fn note_model_errors(records: &mut [RunRecord]) {
    let oracles = records.iter().filter(|run| run.system == System::Oracle);
    let oracles: Vec<RunRecord> = oracles.cloned().collect();
    for record in records {
        let oracle = oracles.iter().find(|one| one.workload == record.workload);
        let error = oracle.and_then(|oracle| above_oracle(record, oracle));
        record.model_errors = error.into_iter().collect();
    }
}

/// The oracle places pages once and for all, so that a system may well be above it where the accesses change.
fn above_oracle(record: &RunRecord, oracle: &RunRecord) -> Option<String> {
    let bad = record.failed.is_some() || oracle.failed.is_some() || record.moved_at.is_some();
    let ratios = Ratios::of(record, oracle).filter(|_| !bad)?;
    let (least, most) = ratios.interval().filter(|(least, _)| *least > 1.0)?;
    Some(format!(
        "{} comes to {:.1} % of the oracle's speed ({:.1} to {:.1} %), and no placement is better than the oracle's",
        record.system.name(),
        ratios.median() * 100.0,
        least * 100.0,
        most * 100.0
    ))
}

/// A system as a sentence names it.
fn words(system: System) -> &'static str {
    match system {
        System::None => "no tiering",
        System::Autonuma => "the kernel's NUMA balancing",
        System::Kernel => "the kernel's tiering",
        System::Oracle => "the best static placement",
        System::Damon(mode) => mode.name(),
        System::Preset(name) => name,
    }
}

/// A sentence for each of Terrace's presets on a workload, and one of what they are worth; nothing where no preset ran
/// well.
#[must_use]
pub fn sentences(workload: &str, all: &[RunRecord]) -> Vec<String> {
    let good = |run: &&RunRecord| run.workload == workload && run.failed.is_none();
    let runs: Vec<&RunRecord> = all.iter().filter(good).collect();
    let presets = runs.iter().filter(|run| run.system.is_terrace());
    let mut told: Vec<String> = presets
        .filter_map(|run| compared(workload, run, &runs))
        .collect();
    if !told.is_empty() {
        let rounds = runs.iter().map(|run| run.rates().len()).max();
        told.push(worth(rounds.unwrap_or(0)));
    }
    told
}

/// What so many rounds show.
fn worth(rounds: usize) -> String {
    if rounds < 2 {
        return "One run each: nothing says what a difference is worth.".to_owned();
    }
    format!(
        "In brackets: the median of {rounds} rounds, and where the true ratio is with {:.0} % confidence (Student's interval); a tie \
         is where that may be 1.",
        CONFIDENCE * 100.0
    )
}

/// One preset against the others that ran.
fn compared(workload: &str, run: &RunRecord, runs: &[&RunRecord]) -> Option<String> {
    let others = runs.iter().filter(|other| other.system != run.system);
    let mut verb = "has";
    let mut against = Vec::new();
    for other in others {
        let Some(ratios) = Ratios::of(run, other) else {
            continue;
        };
        let (times, name) = (ratios.text(" x"), words(other.system));
        let word = match ratios.word() {
            None => {
                against.push(format!("{times} {name}"));
                continue;
            }
            Some(Word::Ahead) => "ahead of",
            Some(Word::Behind) => "behind",
            Some(Word::Tie) => "a tie with",
        };
        verb = "is";
        against.push(format!("{word} {name} ({times})"));
    }
    let (name, against) = (words(run.system), against.join(", "));
    (!against.is_empty()).then(|| format!("{workload}: {name} {verb} {against}."))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_distr::Distribution as _;
    use rand_distr::Normal;
    use rand_pcg::Pcg64;

    use super::*;

    fn ran(system: System, rates: &[f64]) -> RunRecord {
        let run = |rate: &f64| RunRecord {
            ops_per_s: Some(*rate),
            failed: None,
            ..RunRecord::failed("redis", system, String::new())
        };
        RunRecord::of_all(&rates.iter().map(run).collect::<Vec<_>>()).expect("runs")
    }

    fn word(one: &[f64], other: &[f64]) -> Option<Word> {
        let [one, other] = [one, other].map(|rates| ran(System::None, rates));
        Ratios::of(&one, &other).and_then(|ratios| ratios.word())
    }

    #[test]
    fn the_interval_of_a_pair_s_rounds_is_the_verdict() {
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
                "redis: adaptive is ahead of no tiering (1.60 x, 1.58 to 1.63), a tie with the kernel's tiering \
                 (1.02 x, 0.60 to 1.73), behind the best static placement (0.88 x, 0.88 to 0.89).",
                "In brackets: the median of 2 rounds, and where the true ratio is with 95 % confidence (Student's interval); \
                 a tie is where that may be 1.",
            ]
        );
    }

    #[test]
    fn an_erratic_system_makes_no_ties_of_others() {
        let records = [
            ran(System::None, &[100.0, 101.0]),
            ran(System::Preset("adaptive"), &[160.0, 162.0]),
            ran(System::Preset("nomad"), &[80.0, 320.0]),
        ];
        let told = sentences("redis", &records);
        assert!(
            told[0].contains("is ahead of no tiering (1.60 x"),
            "{told:?}"
        );
        assert!(told[1].contains("a tie with no tiering"), "{told:?}");
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
        assert_eq!(word(&[300.0], &[100.0]), None);
    }

    #[test]
    fn the_rounds_of_a_pair_are_set_against_each_other() {
        // A slow host is slow for both: the rates overlap, and one is ahead.
        assert_eq!(word(&[110.0, 55.0], &[100.0, 50.0]), Some(Word::Ahead));
        assert_eq!(word(&[100.0, 50.0], &[110.0, 55.0]), Some(Word::Behind));
        assert_eq!(word(&[110.0, 49.0], &[100.0, 50.0]), Some(Word::Tie));
        assert_eq!(word(&[100.0, 50.0], &[100.0, 50.0]), Some(Word::Tie));
        let three = [
            ran(System::None, &[110.0, 60.0, 90.0]),
            ran(System::Kernel, &[100.0, 50.0, 60.0]),
        ];
        let ratios = Ratios::of(&three[0], &three[1]).expect("rounds");
        assert_eq!(ratios.rounds(), [1.1, 1.2, 1.5]);
        assert_eq!(ratios.text(""), "1.20, 0.84 to 1.87");
        assert_eq!(
            ratios.word(),
            Some(Word::Tie),
            "three rounds that differ so much"
        );
    }

    /// What is faster in both of two rounds is so by chance in one of two cases.
    #[test]
    fn of_systems_that_are_alike_one_in_twenty_gets_another_word_than_tie() {
        let mut random = Pcg64::seed_from_u64(3);
        let noise = Normal::new(0.0, 0.05).expect("a deviation");
        for rounds in [2, 3, 6] {
            let mut rate = || -> Vec<f64> {
                let all = (0..rounds).map(|_| 100.0 * f64::exp(noise.sample(&mut random)));
                all.collect()
            };
            let words = (0..4_000).map(|_| word(&rate(), &rate()));
            let told = words.filter(|word| *word != Some(Word::Tie)).count();
            assert!(
                (150..250).contains(&told),
                "{told} of 4,000 with {rounds} rounds"
            );
        }
    }

    /// What is noted of a system with these rates where the oracle has 100 and 200.
    fn noted(rates: &[f64], change: fn(&mut RunRecord)) -> Vec<String> {
        let mut records = [
            ran(System::Kernel, rates),
            ran(System::Oracle, &[100.0, 200.0][..rates.len()]),
        ];
        change(&mut records[0]);
        note_model_errors(&mut records);
        assert!(records[1].model_errors.is_empty(), "the oracle itself");
        records[0].model_errors.clone()
    }

    #[test]
    fn what_is_above_the_oracle_by_more_than_noise_is_an_error_of_the_model() {
        assert_eq!(
            noted(&[104.0, 208.2], |_| ()),
            [
                "kernel comes to 104.0 % of the oracle's speed (103.4 to 104.7 %), and no placement is better than the \
                 oracle's"
            ]
        );
        let none: [&str; 0] = [];
        assert_eq!(noted(&[150.0, 199.0], |_| ()), none, "its rounds differ");
        assert_eq!(noted(&[150.0], |_| ()), none, "one round says nothing");
        assert_eq!(noted(&[103.0, 210.0], |_| ()), none, "nor is that sure");
        assert_eq!(noted(&[104.0, 208.2], |of| of.moved_at = Some(30.0)), none);
        let failed = |of: &mut RunRecord| of.failed = Some("Memory is wrong".to_owned());
        assert_eq!(noted(&[104.0, 208.2], failed), none);
    }

    #[test]
    fn a_round_that_one_of_them_lacks_shifts_no_other() {
        let mut one = ran(System::None, &[110.0, 220.0, 330.0]);
        one.repeats[0].ops_per_s = None;
        let other = ran(System::Kernel, &[100.0, 200.0, 300.0]);
        let ratios = Ratios::of(&one, &other).expect("two rounds");
        assert_eq!(ratios.rounds(), [1.1, 1.1]);
    }
}
