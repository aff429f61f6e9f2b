// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace run` and `terrace attach`.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use bytesize::ByteSize;
use terrace_api::Status;
use terrace_core::Pid;
use terrace_core::parse_bytes;
use terrace_policy::Capabilities;
use terrace_policy::Mover;
use terrace_policy::PolicyError;
use terrace_policy::Preset;
use terrace_policy::Settings;
use terrace_policy::Share;
use terrace_supervisor::group;
use terrace_supervisor::group::Membership;
use terrace_supervisor::host::Host;
use terrace_supervisor::options::Commit;
use terrace_supervisor::options::Options;
use terrace_supervisor::options::Target;
use terrace_supervisor::session;
use terrace_track::PmuConfig;

use crate::Usage;
use crate::args::AttachArgs;
use crate::args::PolicyArgs;
use crate::args::RunArgs;
use crate::out::note;

/// Where the figures go at the end.
enum Stats {
    None,
    Text,
    Json,
    File(PathBuf),
}

impl Stats {
    fn of(args: &PolicyArgs) -> Self {
        match &args.stats {
            Some(Some(file)) => Self::File(file.clone()),
            _ if args.json => Self::Json,
            Some(None) => Self::Text,
            None => Self::None,
        }
    }
}

pub(crate) fn run(args: RunArgs) -> anyhow::Result<u8> {
    let preset = Preset::of(args.policy.preset());
    let own = match preset.map(Preset::takes) {
        Some(takes) if takes.contains(Capabilities::WRITERS_WAIT) => Commit::Wait,
        _ => Commit::Copy,
    };
    let commit = Commit::named(&args.commit).unwrap_or(own);
    let asked = [
        ("--commit", args.commit != "auto"),
        ("--copy-threads", args.copy_threads.is_some()),
        ("--stores", args.stores != "auto"),
    ];
    let stats = Stats::of(&args.policy);
    let share = Share {
        whose: None,
        priority: args.priority,
        floor_bytes: args.floor.unwrap_or_default(),
        ceiling_bytes: args.ceiling,
    };
    let options = Options {
        mover: args.mover,
        agent_option: asked
            .iter()
            .find(|(_, given)| *given)
            .map(|(name, _)| *name),
        copy_workers: args.copy_workers,
        batch_pages: args.batch_pages,
        commit,
        copy_threads: args.copy_threads,
        streaming: match args.stores.as_str() {
            "ordinary" => Some(false),
            "streaming" => Some(true),
            _ => None,
        },
        ..with_policy(&args.policy, Target::Program(args.command))?
    };
    match args.group {
        None => manage(options, &stats),
        Some(name) if args.host => manage(
            Options {
                target: Target::Group(name),
                ..options
            },
            &Stats::None,
        ),
        Some(name) => manage_in_group(&options, &name, share, &stats),
    }
}

/// Runs the program as member of a group.
fn manage_in_group(
    options: &Options,
    name: &str,
    share: Share,
    stats: &Stats,
) -> anyhow::Result<u8> {
    if !group::is_name(name) {
        let line = format!("--group '{name}': use letters, digits, - and _, at most 64");
        return Err(Usage(line).into());
    }
    check_share(&options.policy, &share)?;
    let host = check(options, stats)?;
    let Target::Program(argv) = &options.target else {
        return Err(Usage("--group needs a program".to_owned()).into());
    };
    let mut starter = std::process::Command::new(std::env::current_exe()?);
    let mut given = std::env::args_os().skip(1);
    starter.args(given.next()).arg("--host").args(given);
    let supervisor = group::join(name, share, &mut starter)?;
    if supervisor.policy != options.policy {
        let line = format!(
            "--policy {}: group '{name}' has policy {}",
            options.policy, supervisor.policy
        );
        return Err(Usage(line).into());
    }
    let membership = Membership {
        share,
        agent: host.fit.agent(),
        follow: options.follow,
    };
    let (end, figures) = group::run_member(name, &supervisor, membership, argv)?;
    if let Some(status) = figures {
        tell(stats, &status)?;
    }
    Ok(end.follow())
}

/// That the policy keeps to floor and ceiling, and that they can be kept.
fn check_share(policy: &str, share: &Share) -> Result<(), Usage> {
    let keeps = Preset::of(policy).is_some_and(|preset| preset.limits);
    if share.is_limited() && !keeps {
        return Err(Usage(format!(
            "--floor, --ceiling: policy {policy} keeps to neither; of the presets these do: {}",
            Preset::names_of(|preset| preset.limits)
        )));
    }
    if !share.can_be() {
        return Err(Usage(format!(
            "--ceiling {}: less than --floor {}",
            ByteSize(share.ceiling_bytes.unwrap_or_default()),
            ByteSize(share.floor_bytes)
        )));
    }
    Ok(())
}

pub(crate) fn attach(args: &AttachArgs) -> anyhow::Result<u8> {
    let stats = Stats::of(&args.policy);
    let options = Options {
        mover: Mover::MovePages,
        ..with_policy(&args.policy, Target::Running(Pid(args.pid)))?
    };
    manage(options, &stats)
}

fn with_policy(args: &PolicyArgs, target: Target) -> Result<Options, PolicyError> {
    let settings = Settings::parse(args.preset(), &args.param)?;
    let sample_period = match args.sample_period {
        None => sample_period(&settings)?,
        given => given,
    };
    let scan_bytes = scan_step(&settings)?.unwrap_or(args.scan_size);
    Ok(Options {
        policy: args.preset().to_owned(),
        settings,
        trackers: args.tracker.clone(),
        sample_period,
        pmu: PmuConfig {
            cost_share: args.sample_share,
            table: args.pmu_events.clone().unwrap_or_default(),
            ..PmuConfig::default()
        },
        tell: |line| note!("terrace: {line}"),
        scan_bytes,
        nodes: args.tiers.clone().unwrap_or_default(),
        fast_bytes: args.fast,
        follow: !args.no_follow,
        paused: args.paused,
        ..Options::new(target)
    })
}

/// The preset's parameter of that name, where it was given. It stays among the parameters: the
/// preset knows whether it has it.
fn sample_period(settings: &Settings) -> Result<Option<u64>, PolicyError> {
    let read = |text: &str| text.parse().ok().filter(|&n| n > 0).map(Some);
    let given = settings
        .clone()
        .value("sample_period", (None, ""), "a whole number", read);
    Ok(given?)
}

/// As [`sample_period`], of bytes that the scanner arms at a time.
fn scan_step(settings: &Settings) -> Result<Option<u64>, PolicyError> {
    let read = |text: &str| parse_bytes(text).ok().map(Some);
    let given = settings
        .clone()
        .value("scan_step", (None, ""), "a size", read);
    Ok(given?)
}

fn manage(options: Options, stats: &Stats) -> anyhow::Result<u8> {
    let host = check(&options, stats)?;
    let finished = session::run(options, host)?;
    tell(stats, &finished.status)?;
    Ok(finished.end.follow())
}

fn tell(stats: &Stats, status: &Status) -> anyhow::Result<()> {
    match stats {
        Stats::None => {}
        Stats::Text => note!("{}", status.to_text().trim_end()),
        Stats::Json => note!("{}", serde_json::to_string_pretty(status)?),
        Stats::File(file) => write_stats(file, status)?,
    }
    Ok(())
}

/// What must be right before anything is started.
fn check(options: &Options, stats: &Stats) -> anyhow::Result<Host> {
    terrace_policy::on_linux(&options.policy)?;
    let host = Host::check(options)?;
    if let Stats::File(file) = stats {
        // A run that cannot leave its figures is better not started; what an earlier one left stays until then.
        let mut opened = std::fs::OpenOptions::new();
        let opened = opened.append(true).create(true).open(file);
        opened.with_context(|| format!("Cannot write {}", file.display()))?;
    }
    Ok(host)
}

fn write_stats(file: &Path, status: &Status) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(status)?;
    std::fs::write(file, text + "\n").with_context(|| format!("Cannot write {}", file.display()))
}
