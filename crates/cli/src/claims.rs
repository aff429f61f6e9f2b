// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace claims`: run every claim under a folder and say which hold.
//!
//! Reads all files first, so that a mistake in one is one line and exit 2 before anything is run.
//! Equal runs of several claims are run once, all of them on as many threads as there are
//! processors, and kept: a call that was ended goes on where it was. Exit 1 when a claim that
//! is marked held does not hold or holds of `none`, too, or one holds no better without what is named as the
//! cause.
//!
//! [`files`] reads, [`work`] runs, [`print`] prints; judging is `terrace-claims`, but for [`of_none`].

mod files;
mod of_none;
mod print;
mod work;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;

use terrace_claims::Finding;
use terrace_claims::Judgement;
use terrace_claims::Run;
use terrace_claims::judge;
use terrace_claims::relation::Check;
use terrace_experiment::Kept;
use terrace_experiment::Key;
use terrace_experiment::RunInfo;

use crate::Usage;
use crate::args::ClaimsArgs;
use crate::out::note;
use files::Folder;
use files::Loaded;
use print::MadeWith;
use work::Figures;

/// A claim and what came of it.
pub(crate) struct Judged {
    pub(crate) loaded: Loaded,
    pub(crate) judgement: Judgement,
    /// All figures of its runs, by name; none if it was not run.
    pub(crate) runs: BTreeMap<String, Figures>,
    /// The same of those that show its cause.
    pub(crate) changed: BTreeMap<String, Figures>,
    /// What the relations come to with `none` in place of the paper's system, of a claim that is marked held.
    pub(crate) of_none: Vec<Check>,
}

impl Judged {
    /// Whether it is held, and by `none` as well.
    pub(crate) fn holds_of_none(&self) -> bool {
        !self.of_none.is_empty() && self.of_none.iter().all(|check| check.holds)
    }
}

pub(crate) fn claims(args: &ClaimsArgs) -> anyhow::Result<u8> {
    let mut folder = files::load(args).map_err(|error| anyhow::Error::new(Usage(error)))?;
    let jobs = args
        .jobs
        .or_else(|| std::thread::available_parallelism().ok())
        .map_or(1, NonZero::get);
    let beside = || args.directory.join("../results/claims");
    let kept = Kept::new(args.keep.clone().unwrap_or_else(beside));
    if args.finished {
        leave_out_unfinished(&mut folder, &kept);
    }
    // Only JSON tells it; the runs are given away below.
    let made_with = if args.json {
        made_with(&folder)
    } else {
        MadeWith::new()
    };
    let figures = work::run_all(folder.runs, jobs, &kept)?;
    let judged: Vec<_> = folder
        .claims
        .into_iter()
        .map(|loaded| {
            let claim = &loaded.claim;
            let of = |run: &Run| Some((run.name.clone(), figures.get(&run.spec.key())?.clone()));
            let runs: BTreeMap<_, _> = claim.runs.iter().filter_map(of).collect();
            let other = claim.counterfactual.iter().flat_map(|other| &other.runs);
            let changed: BTreeMap<_, _> = other.filter_map(of).collect();
            let none: BTreeMap<_, _> = loaded.of_none.iter().filter_map(of).collect();
            let judgement = judge(
                claim,
                &loaded.missing,
                &|run, metric| runs.get(run)?.get(metric).copied(),
                &|run, metric| changed.get(run)?.get(metric).copied(),
            );
            Judged {
                of_none: of_none::checks(claim, &runs, &none),
                loaded,
                judgement,
                runs,
                changed,
            }
        })
        .collect();
    if args.json {
        print::json(&judged, &made_with)?;
    } else if args.markdown {
        print::markdown(&judged);
    } else {
        print::table(&judged);
    }
    let broken = judged.iter().any(|judged| {
        let finding = judged.judgement.finding;
        matches!(finding, Finding::Broken | Finding::NotTheCause) || judged.holds_of_none()
    });
    Ok(u8::from(broken))
}

/// What each run is made with.
fn made_with(folder: &Folder) -> MadeWith {
    let claims = folder.claims.iter();
    let runs = claims.flat_map(Loaded::runs);
    let of = |run: &Run| {
        let (key, machine_file) = (run.spec.key(), Path::new(&run.spec.machine));
        let setup = &folder.runs.get(&key)?.setup;
        Some((key, RunInfo::of_simulation(setup, machine_file)))
    };
    runs.filter_map(of).collect()
}

/// Leaves only what needs no run.
fn leave_out_unfinished(folder: &mut Folder, kept: &Kept) {
    folder.runs.retain(|_, planned| {
        kept.find::<Figures>(&Key::of_simulation(&planned.setup))
            .is_some()
    });
    let all = folder.claims.len();
    folder.claims.retain(|loaded| {
        let mut runs = loaded.runs();
        !loaded.missing.is_empty() || runs.all(|run| folder.runs.contains_key(&run.spec.key()))
    });
    match all - folder.claims.len() {
        0 => {}
        left => note!("{left} of {all} claims need runs that have not been made"),
    }
}
