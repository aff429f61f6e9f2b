// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace run` and `terrace attach`.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::Pid;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_policy::Evidence;
use terrace_policy::PolicyError;
use terrace_policy::Preset;
use terrace_policy::Settings;
use terrace_supervisor::group;
use terrace_supervisor::options::Commit;
use terrace_supervisor::options::Options;
use terrace_supervisor::options::Target;
use terrace_supervisor::report::Status;
use terrace_supervisor::session;
use terrace_supervisor::session::Setting;
use terrace_supervisor::tracking;
use terrace_sys::topology::Topology;
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
    let commit = match args.commit.as_str() {
        "transaction" => Commit::Transaction,
        "wait" => Commit::Wait,
        "auto" if Preset::of(args.policy.preset()).is_some_and(|one| one.writers_wait) => {
            Commit::Wait
        }
        _ => Commit::Copy,
    };
    let waits = commit == Commit::Wait;
    let stats = Stats::of(&args.policy);
    let options = Options {
        agent: args.agent(),
        copy_workers: args.copy_workers,
        batch_pages: args.batch_pages,
        commit,
        copy_threads: args.copy_threads.unwrap_or(if waits { 4 } else { 1 }),
        streaming: args.stores == "streaming" || (waits && args.stores == "auto"),
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
        Some(name) => manage_in_group(options, &name, args.priority, &stats),
    }
}

/// Runs the program as member of a group.
fn manage_in_group(
    mut options: Options,
    name: &str,
    priority: u32,
    stats: &Stats,
) -> anyhow::Result<u8> {
    if !group::is_name(name) {
        let line = format!("--group '{name}': use letters, digits, - and _, at most 64");
        return Err(Usage(line).into());
    }
    check(&mut options, stats)?;
    let Target::Program(argv) = &options.target else {
        return Err(Usage("--group needs a program".to_owned()).into());
    };
    let mut host = std::process::Command::new(std::env::current_exe()?);
    let mut given = std::env::args_os().skip(1);
    host.args(given.next()).arg("--host").args(given);
    let supervisor = group::join(name, priority, &mut host)?;
    if supervisor.policy != options.policy {
        let line = format!(
            "--policy {}: group '{name}' has policy {}",
            options.policy, supervisor.policy
        );
        return Err(Usage(line).into());
    }
    let (end, figures) = group::run_member(name, &supervisor, (priority, options.agent), argv)?;
    if let Some(status) = figures {
        tell(stats, &status)?;
    }
    Ok(end.follow())
}

pub(crate) fn attach(args: &AttachArgs) -> anyhow::Result<u8> {
    let stats = Stats::of(&args.policy);
    let options = Options {
        agent: false,
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
        scan_bytes: args.scan_size,
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

/// Makes the policy once, to learn what is wrong with it before anything is changed.
fn check_policy(options: &Options, tiers: &Tiers) -> anyhow::Result<Evidence> {
    let mut settings = options.settings.clone();
    let policy = terrace_policy::with_settings(&options.policy, tiers, &mut settings)?;
    settings.finish().map_err(PolicyError::from)?;
    if tracking::candidates(policy.evidence(), &options.trackers).is_none() {
        let name = policy.name();
        let (what, tracker) = match policy.evidence() {
            Evidence::AccessedBits => ("accessed bits", "accessed-bits"),
            _ => ("hint faults", "hint-faults"),
        };
        let line = format!("--tracker: policy '{name}' decides by {what}; give {tracker} or auto");
        return Err(Usage(line).into());
    }
    Ok(policy.evidence())
}

fn manage(mut options: Options, stats: &Stats) -> anyhow::Result<u8> {
    let setting = check(&mut options, stats)?;
    let finished = session::run(options, setting)?;
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
fn check(options: &mut Options, stats: &Stats) -> anyhow::Result<Setting> {
    if Preset::of(&options.policy).is_none() {
        return Err(PolicyError::Unknown(options.policy.clone()).into());
    }
    if let Stats::File(file) = stats {
        // A run that cannot leave its figures is better not started.
        std::fs::write(file, "").with_context(|| format!("Cannot write {}", file.display()))?;
    }
    let topology = Topology::discover(Path::new("/"), None)?;
    let mut setting = setting(options, &topology)?;
    let evidence = check_policy(options, &setting.tiers)?;
    if let Some(line) = unseen_tiers(&topology, evidence) {
        note!("terrace: {line}");
        setting.limits.push(line);
    }
    Ok(setting)
}

fn write_stats(file: &Path, status: &Status) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(status)?;
    std::fs::write(file, text + "\n").with_context(|| format!("Cannot write {}", file.display()))
}

/// The machine as the policy shall see it. On a machine with one node, `--fast` splits it into two
/// tiers in name; without it there is nothing to tier.
fn setting(options: &mut Options, topology: &Topology) -> anyhow::Result<Setting> {
    let tiers = topology.tiers.clone();
    let top: u64 = tiers.top().map(|n| n.capacity_bytes).sum();
    let all: u64 = tiers.nodes().iter().map(|n| n.capacity_bytes).sum();
    if let Some(fast) = options.fast_bytes {
        let most = if tiers.count() > 1 { top } else { all };
        if fast == 0 || fast > most {
            return Err(Usage(format!(
                "--fast {}: the fast tier can have from 1 byte to {}",
                bytesize::ByteSize(fast).display().iec(),
                bytesize::ByteSize(most).display().iec()
            ))
            .into());
        }
    }
    let mut limits = Vec::new();
    if options.policy != "none" && tiers.count() < 2 {
        let Some(fast) = options.fast_bytes else {
            return Err(Usage(one_tier(&tiers)).into());
        };
        if tiers.nodes().len() > 1 {
            return Err(Usage(one_tier(&tiers)).into());
        }
        let line = format!(
            "this machine has one memory node: splitting it in name into {} fast and {} slow; \
             nothing can be moved between them, so the program runs as it would without",
            bytesize::ByteSize(fast).display().iec(),
            bytesize::ByteSize(all - fast).display().iec()
        );
        note!("terrace: {line}");
        limits.push(line);
        return Ok(Setting {
            tiers: split(&tiers, fast),
            limits,
            in_name: true,
        });
    }
    Ok(Setting {
        tiers,
        limits,
        in_name: false,
    })
}

/// What a policy that decides by hint faults gets where the kernel sees one tier and we see more.
fn unseen_tiers(topology: &Topology, evidence: Evidence) -> Option<String> {
    let unseen = topology.tiers.count() > 1 && topology.kernel_tiers == Some(1);
    (unseen && evidence == Evidence::HintFaults).then(|| {
        "the kernel has all memory nodes in one tier (no HMAT or CDAT), so it marks no slow page: expect no hint \
         faults and no promotion; --policy hemem with a PMU needs none"
            .to_owned()
    })
}

fn one_tier(tiers: &Tiers) -> String {
    if tiers.nodes().len() < 2 {
        "this machine has one memory node: nothing to tier; --fast SIZE splits it in name, for trying out, \
         and --policy none runs the program as it is"
            .to_owned()
    } else {
        "the kernel sees all memory nodes in one tier (no HMAT or CDAT): hint faults find nothing there; \
         see terrace tiers and terrace doctor"
            .to_owned()
    }
}

/// One real node as two in name.
fn split(tiers: &Tiers, fast: u64) -> Tiers {
    let Some(node) = tiers.nodes().first() else {
        return tiers.clone();
    };
    let slow = NodeInfo {
        id: NodeId(node.id.0 + 1),
        tier: TierId(node.tier.0 + 1),
        capacity_bytes: node.capacity_bytes - fast,
        cpus: Vec::new(),
        ..node.clone()
    };
    Tiers::new(vec![
        NodeInfo {
            capacity_bytes: fast,
            ..node.clone()
        },
        slow,
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use terrace_sys::topology::TierSource;

    use super::*;

    #[test]
    fn tiers_that_the_kernel_does_not_see_are_told_of() {
        let node = |id: u16| NodeInfo {
            id: NodeId(id),
            tier: TierId(id),
            capacity_bytes: 1 << 30,
            cpus: Vec::new(),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        };
        let mut topology = Topology {
            tiers: Tiers::new(vec![node(0), node(1)]),
            source: TierSource::Distance,
            kernel_tiers: Some(1),
            distances: BTreeMap::new(),
            cpu_nodes: vec![NodeId(0)],
        };
        let line = unseen_tiers(&topology, Evidence::HintFaults).expect("something to tell");
        assert!(
            line.contains("expect no hint faults") && !line.contains('\n'),
            "{line}"
        );
        assert_eq!(unseen_tiers(&topology, Evidence::Samples), None);
        topology.kernel_tiers = Some(2);
        assert_eq!(unseen_tiers(&topology, Evidence::HintFaults), None);
    }
}
