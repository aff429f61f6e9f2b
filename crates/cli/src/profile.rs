// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace sim profile`: how much of the hot set each tracker knows, and at what price.

use comfy_table::CellAlignment;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use terrace_sim::Setup;
use terrace_sim::profiling;
use terrace_sim::profiling::Options;
use terrace_sim::profiling::Profile;
use terrace_sim::profiling::Second;

use crate::Usage;
use crate::args::PlayArgs;
use crate::args::ProfileArgs;
use crate::args::SimArgs;
use crate::out::say;

#[derive(Serialize)]
struct Report<'a> {
    machine: &'a str,
    workload: &'a str,
    page_size: &'a str,
    seed: u64,
    seconds: f64,
    overhead: f64,
    hot_share: f64,
    trackers: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    profile: &'a Profile,
    settled: Second,
    mean: Second,
    seconds_to_90pct: Option<f64>,
}

pub(crate) fn profile(args: &ProfileArgs) -> anyhow::Result<u8> {
    let setup = crate::sim::setup(&simulation(args))?;
    let options = Options {
        overhead: args.overhead,
        hot_share: args.hot,
    };
    let usage = |error: terrace_sim::SimError| Usage(error.to_string());
    for tracker in &args.trackers {
        profiling::check(&setup, tracker, &options).map_err(usage)?;
    }
    let mut profiles = Vec::new();
    for tracker in &args.trackers {
        let profile = profiling::profile(&setup, tracker, &options, &mut |_| {});
        profiles.push(profile.map_err(usage)?);
    }
    if args.json.json {
        let report = Report {
            machine: &setup.machine.name,
            workload: &args.workload,
            page_size: &args.page_size,
            seed: args.common.seed,
            seconds: args.common.seconds,
            overhead: args.overhead,
            hot_share: profiles.first().map_or(0.0, |profile| profile.hot_share),
            trackers: profiles.iter().map(entry).collect(),
        };
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        say!("{}", human(args, &setup, &profiles));
    }
    Ok(0)
}

fn entry(profile: &Profile) -> Entry<'_> {
    Entry {
        settled: profile.settled(),
        mean: profile.mean(),
        seconds_to_90pct: profile.seconds_to_90pct(),
        profile,
    }
}

/// The same as a simulation, for its set-up.
fn simulation(args: &ProfileArgs) -> SimArgs {
    SimArgs {
        machine: args.machine.clone(),
        workload: args.workload.clone(),
        common: args.common.clone(),
        play: PlayArgs {
            paper_sizes: false,
            engine: "rate".to_owned(),
            lab: false,
            no_cache: false,
        },
        policy: "none".to_owned(),
        param: Vec::new(),
        priority: Vec::new(),
        fast_free: args.fast_free,
        page_size: args.page_size.clone(),
        no_oracle: true,
        json: args.json.clone(),
    }
}

fn human(args: &ProfileArgs, setup: &Setup, profiles: &[Profile]) -> String {
    let hot = profiles.first().map_or(0.0, |profile| profile.hot_share);
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header([
        "tracker",
        "recall",
        "precision",
        "F1",
        "overhead",
        "recall, whole run",
        "90 % after",
        "recall over time",
    ]);
    for profile in profiles {
        let (settled, mean) = (profile.settled(), profile.mean());
        let recall: Vec<f64> = profile.series.iter().map(|second| second.recall).collect();
        let reached = profile.seconds_to_90pct();
        table.add_row([
            profile.tracker.clone(),
            percent(settled.recall),
            percent(settled.precision),
            format!("{:.2}", settled.f1),
            format!("{:.2} %", mean.overhead * 100.0),
            percent(mean.recall),
            reached.map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.0} s")),
            crate::sim::spark_of(&recall, 1.0, 30),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{} on {}, {} pages, {} s, seed {}; {} of the memory are hot, budget {:.2} % of a processor.\n\
         Recall, precision and F1 are of the last third.\n\n{table}",
        args.workload,
        setup.machine.name,
        args.page_size,
        args.common.seconds,
        args.common.seed,
        percent(hot),
        args.overhead * 100.0,
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
