// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which systems there are, and what each is made of: a policy, trackers, a way to move pages, a placement.

use terrace_core::Tiers;
use terrace_policy::Capabilities;
use terrace_policy::FirstPlacement;
use terrace_policy::Host;
use terrace_policy::KernelScanner;
use terrace_policy::KernelView;
use terrace_policy::MachineOptions;
use terrace_policy::Mover;
use terrace_policy::Offer;
use terrace_policy::PRESETS;
use terrace_policy::Policy;
use terrace_policy::Preset;
use terrace_policy::ScanSizing;
use terrace_policy::SettingError;
use terrace_policy::Settings;
use terrace_policy::Share;
use terrace_policy::TrackerKind;
use terrace_policy::UNMANAGED;
use terrace_policy::fit::fit;
use terrace_policy::preset::Colour;

use crate::Setup;
use crate::SimError;
use crate::hardware::Hardware;
use crate::planned::PLANNED;
use crate::protected_copy::Copying;
use crate::random::Random;
use crate::scanner::Pace;
use crate::space::Space;
use crate::threaded_copy::ThreadedCopy;
use crate::world::Movement;
use crate::world::Tracked;

/// What is simulated for presets. The lab's emulated PMU is the lab's; a PMU is a PMU here.
const OFFER: Offer = Offer {
    always: Capabilities::MAPPINGS.union(Capabilities::CHOSEN_FAULTS),
    trackers: &[
        TrackerKind::AccessedBits,
        TrackerKind::Pmu,
        TrackerKind::HintFaults,
    ],
    movers: &[
        Mover::MovePages,
        Mover::Agent,
        Mover::InFault,
        Mover::AdaptiveCopy,
        Mover::ParallelCopy,
    ],
    sockets: false,
};

/// The movers that `terrace run` has.
const ON_LINUX: [Mover; 2] = [Mover::MovePages, Mover::Agent];

/// A system beside the presets: what they are compared with.
#[derive(Debug)]
pub struct Baseline {
    /// What it is asked for by.
    pub name: &'static str,
    /// Its line in charts.
    pub colour: Colour,
}

const fn baseline(name: &'static str, light: &'static str, dark: &'static str) -> Baseline {
    Baseline {
        name,
        colour: Colour { light, dark },
    }
}

/// The best placement for what comes, at once and for nothing.
pub const ORACLE: Baseline = baseline("oracle", "#0b7d63", "#3fc2a0");
const RANDOM: Baseline = baseline("random", "#9a6b00", "#d9ad4a");
const MEMORY_MODE: Baseline = baseline("memory-mode", "#4b6b00", "#a8cc4f");

/// The systems beside the presets.
pub static BASELINES: [Baseline; 3] = [RANDOM, ORACLE, MEMORY_MODE];

/// The systems that can be simulated: presets and baselines.
#[must_use]
pub fn systems() -> Vec<&'static str> {
    let presets = PRESETS.iter().map(|preset| preset.name);
    let baselines = BASELINES.iter().map(|baseline| baseline.name);
    presets.chain(baselines).collect()
}

/// Where pages are, apart from what the policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// As allocated.
    Normal,
    /// The best for what comes, at once and for nothing.
    Best,
    /// All on slow nodes; the fast one is a cache.
    Cache,
}

/// A system.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) tiers: Tiers,
    pub(crate) movement: Movement,
    pub(crate) placement: Placement,
    /// Where new memory goes.
    pub(crate) first_placement: FirstPlacement,
    pub(crate) tracked: Tracked,
    /// Accesses for one sample, where they are sampled.
    pub(crate) sample_period: Option<u64>,
}

/// Threads that copy a page together, where a policy does not say (Nimble's default, with which MTM 9.5 compares).
const COPY_THREADS: u32 = 4;

/// The kernel's migration, asked for from outside by nobody who takes time.
const ORDINARY: Movement = Movement {
    transactions: false,
    commit_copies: false,
    synchronous: false,
    demotes_in_fault: false,
    exchange: false,
    threaded: None,
    protected: None,
    supervised: false,
    arms_demoted: false,
    pace: Pace::Pauses,
};

/// Makes the system of a set-up.
pub(crate) fn make(setup: &Setup, hardware: &Hardware, space: &Space) -> Result<System, SimError> {
    let name = setup.system.as_str();
    if !systems().contains(&name) {
        let planned = PLANNED.contains(&name);
        let error = if planned {
            SimError::NotBuilt
        } else {
            SimError::System
        };
        return Err(error(name.to_owned()));
    }
    let tiers = hardware.tiers(0);
    if name != UNMANAGED.name && tiers.count() < 2 {
        return Err(SimError::OneTier(name.to_owned()));
    }
    let mut params = Params::new(setup);
    check_shares(setup)?;
    let system = match Preset::of(name) {
        Some(preset) => of_preset(preset, setup, &mut params, hardware, space)?,
        None => of_baseline(setup, &mut params, tiers, space)?,
    };
    params.0.finish()?;
    Ok(system)
}

/// A preset with its trackers and its mover: as under `terrace run`, or as the kernel has it.
fn of_preset(
    preset: &Preset,
    setup: &Setup,
    params: &mut Params,
    hardware: &Hardware,
    space: &Space,
) -> Result<System, SimError> {
    let as_run = setup.costs.in_service && setup.mover == Mover::Auto && preset.in_user_space();
    let offer = Offer {
        movers: if as_run { &ON_LINUX } else { OFFER.movers },
        sockets: hardware.views().all().len() > 1,
        ..OFFER
    };
    let fit = fit(preset, &setup.trackers, setup.mover, &offer)?;
    let host = Host {
        given: fit.takes,
        ..host(preset, setup, hardware, space)
    };
    let policy = (preset.build)(&mut params.0, &host)?;
    let options = policy.machine_options();
    let memory = host.tiers.nodes().iter().map(|n| n.capacity_bytes).sum();
    let most = options.scan_step.unwrap_or(setup.costs.scan_bytes);
    let alone = Movement {
        pace: match options.scanner {
            KernelScanner::InService => Pace::InService(ScanSizing::new(most, memory)),
            KernelScanner::Pauses => Pace::Pauses,
            KernelScanner::PausesForAll => Pace::PausesForAll,
        },
        arms_demoted: options.arms_demoted,
        demotes_in_fault: options.demotes_in_fault,
        exchange: fit.mover.gives().contains(Capabilities::EXCHANGE),
        ..ORDINARY
    };
    let supervised = Movement {
        supervised: true,
        ..alone
    };
    // All of a set can be had here, so the first is it.
    let set = fit.trackers.first().map_or(&[][..], Vec::as_slice);
    let idle = fit.takes.is_empty() && set.is_empty();
    let movement = match fit.mover {
        _ if idle => ORDINARY,
        Mover::Agent => by_agent(preset, params, &options, as_run, supervised)?,
        Mover::InFault => Movement {
            synchronous: true,
            supervised: preset.in_user_space(),
            ..alone
        },
        // What a preset says of its copies is for who was not asked for another way.
        Mover::AdaptiveCopy if options.copies_wait && setup.mover == Mover::Auto => supervised,
        Mover::AdaptiveCopy | Mover::ParallelCopy => Movement {
            threaded: Some(ThreadedCopy {
                threads: options.copy_threads.unwrap_or(COPY_THREADS),
                adaptive: fit.mover == Mover::AdaptiveCopy,
            }),
            ..supervised
        },
        Mover::MovePages | Mover::Auto => supervised,
    };
    let pmu = set.contains(&TrackerKind::Pmu);
    let faults = set.contains(&TrackerKind::HintFaults);
    let tracked = Tracked {
        faults,
        stands_in: faults && fit.stands_in(set),
        bits: set.contains(&TrackerKind::AccessedBits),
    };
    Ok(System {
        policy,
        tiers: host.tiers,
        movement,
        placement: Placement::Normal,
        first_placement: options.first_placement,
        tracked,
        sample_period: options.sample_period.filter(|_| pmu),
    })
}

/// The agent's part: the preset's own mechanism, or as run `--commit copy`, where the kernel moves all pages and the
/// agent makes shadows.
fn by_agent(
    preset: &Preset,
    params: &mut Params,
    options: &MachineOptions,
    as_run: bool,
    supervised: Movement,
) -> Result<Movement, SimError> {
    if !preset.takes().contains(Capabilities::WRITERS_WAIT) {
        return Ok(Movement {
            transactions: true,
            commit_copies: as_run,
            ..supervised
        });
    }
    // An engine that copies is asked for with the protection that its copies need.
    let dma = params.0.switch("dma", false)?;
    let own = Copying {
        threads: options.copy_threads.unwrap_or(1),
        dma,
        by_kernel: false,
    };
    let by_kernel = as_run && !dma;
    Ok(Movement {
        protected: Some(if by_kernel { Copying::BY_KERNEL } else { own }),
        ..supervised
    })
}

/// What a preset is made for: the first socket's tiers, or the kernel's and what else the kernel knows.
fn host(preset: &Preset, setup: &Setup, hardware: &Hardware, space: &Space) -> Host {
    if preset.in_user_space() {
        return Host {
            views: hardware.views(),
            ..Host::new(hardware.tiers(0))
        };
    }
    let threads = setup.workload.programs.iter().map(|p| p.threads).max();
    Host {
        views: hardware.views(),
        given: Capabilities::empty(),
        tiers: hardware.kernel_tiers(0),
        kernel: KernelView {
            space: space.clone(),
            threads: threads.unwrap_or(1),
            scan_bytes: setup.costs.scan_bytes,
            look_ns: setup.costs.probe_ns,
            entry_ns: setup.costs.scan_work_ns,
        },
    }
}

/// What presets are compared with.
fn of_baseline(
    setup: &Setup,
    params: &mut Params,
    tiers: Tiers,
    space: &Space,
) -> Result<System, SimError> {
    let name = setup.system.as_str();
    if setup.trackers != [TrackerKind::Auto] || setup.mover != Mover::Auto {
        return Err(SimError::NoParts(name.to_owned()));
    }
    let mut policy: Box<dyn Policy> = Box::new(terrace_policy::presets::none::None);
    let mut placement = Placement::Normal;
    if name == ORACLE.name {
        placement = Placement::Best;
    } else if name == MEMORY_MODE.name {
        placement = Placement::Cache;
    } else {
        policy = Box::new(Random::new(&mut params.0, &tiers, space, setup.seed)?);
    }
    Ok(System {
        policy,
        tiers,
        movement: ORDINARY,
        placement,
        first_placement: FirstPlacement::AsIs,
        tracked: Tracked::default(),
        sample_period: None,
    })
}

/// That they can be, and are of programs there are, under a system that heeds them.
fn check_shares(setup: &Setup) -> Result<(), SimError> {
    let names = || setup.workload.programs.iter().map(|p| p.name.as_str());
    if let Some(name) = setup.shares.keys().find(|n| !names().any(|p| p == *n)) {
        return Err(SimError::Share {
            name: name.clone(),
            known: names().collect::<Vec<_>>().join(", "),
        });
    }
    if let Some((name, _)) = setup.shares.iter().find(|(_, share)| !share.can_be()) {
        return Err(SimError::Floor(name.clone()));
    }
    let heeds = |what: fn(&Preset) -> bool| Preset::of(&setup.system).is_some_and(what);
    let any = |what: fn(&Share) -> bool| setup.shares.values().any(what);
    if any(|share| share.priority > 0) && !heeds(|preset| preset.priorities) {
        return Err(SimError::NoPriorities(setup.system.clone()));
    }
    if any(Share::is_limited) && !heeds(|preset| preset.limits) {
        return Err(SimError::NoLimits(setup.system.clone()));
    }
    Ok(())
}

/// Reads a system's parameters; a name that nothing asked for is an error.
#[derive(Debug)]
pub(crate) struct Params(Settings);

impl Params {
    fn new(setup: &Setup) -> Self {
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let given = setup.params.iter().map(|(k, v)| (k.clone(), text(v)));
        Self(Settings::new(&setup.system, given.collect()))
    }
}

impl From<SettingError> for SimError {
    fn from(error: SettingError) -> Self {
        match error {
            SettingError::Unknown {
                policy,
                name,
                known,
            } => Self::Parameter {
                system: policy,
                name,
                known,
            },
            SettingError::Value {
                policy,
                name,
                value,
                wanted,
            } => Self::Value {
                system: policy,
                name,
                value,
                wanted,
            },
            SettingError::Form(text) => Self::Limit(text),
        }
    }
}
