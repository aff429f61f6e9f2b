// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's deciding half: events and the time go in, actions with their reasons come out.
//!
//! A policy is a state machine ([`Policy`]): no clock, no thread, no file, no randomness, no
//! iteration over hash order. Same events in the same order give the same actions, on every
//! machine. The supervisor feeds it from the kernel, the simulator from a simulated machine; the
//! policy cannot tell which.
//!
//! * [`engine`]: drives a policy over a machine, the same in supervisor and simulator; [`stats`] and
//!   [`distribution`]: what it counts.
//! * [`event`]: what a policy sees and what it gives; [`capability`]: what it needs; [`fit`]: which trackers and mover
//!   have that; [`belief`]: what it says of itself.
//! * [`kit`]: parts that policies share.
//! * [`kernel`]: what policies that stand for the kernel's own tiering share.
//! * [`presets`]: the policies. [`preset`] says what each is; [`by_name`] makes one from its preset name,
//!   [`with_settings`] with parameters ([`settings`]).
#![forbid(unsafe_code)]

pub mod belief;
pub mod capability;
pub mod distribution;
pub mod engine;
pub mod event;
pub mod first_placement;
pub mod fit;
pub mod kernel;
pub mod kit;
pub mod preset;
pub mod presets;
pub mod scan_sizing;
pub mod settings;
pub mod stats;

use terrace_core::ChunkReading;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::Tiers;
use thiserror::Error;

pub use belief::About;
pub use belief::Belief;
pub use capability::Capabilities;
pub use distribution::Distribution;
pub use engine::Engine;
pub use engine::Machine;
pub use engine::Served;
pub use event::Action;
pub use event::Event;
pub use event::Mechanism;
pub use event::Migration;
pub use event::Reason;
pub use event::Refusal;
pub use event::ScanScope;
pub use event::Share;
pub use event::Verdict;
pub use first_placement::FirstPlacement;
pub use fit::Fit;
pub use fit::Misfit;
pub use fit::Mover;
pub use fit::Offer;
pub use fit::TrackerKind;
pub use kernel::KernelView;
pub use preset::DEFAULT;
pub use preset::Host;
pub use preset::PRESETS;
pub use preset::Preset;
pub use preset::UNMANAGED;
pub use scan_sizing::ScanSizing;
pub use settings::Parameter;
pub use settings::SettingError;
pub use settings::Settings;
pub use stats::Stats;

/// Whose hint-fault scanner arms pages, and how it goes about its passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KernelScanner {
    /// The kernel's, in the service of whoever runs the policy.
    #[default]
    InService,
    /// The kernel's own before Linux 6.7: its work delays what comes next.
    Pauses,
    /// The kernel's own since: it also takes its time for mappings that it leaves out.
    PausesForAll,
}

/// What a policy's parameters say to the machine below it and the policy itself does not look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineOptions {
    /// Accesses for one sample, where samples are taken.
    pub sample_period: Option<u64>,
    /// Threads that copy one page together, where the mover lets that be chosen.
    pub copy_threads: Option<u32>,
    /// Bytes that the scanner arms at a time at most, where the policy says.
    pub scan_step: Option<u64>,
    /// Whoever touches a page waits for its copy, where the mover could do otherwise: the kernel copies it in the
    /// simulator, the agent while it is out of reach.
    pub copies_wait: bool,
    /// The scanner, where there is one.
    pub scanner: KernelScanner,
    /// Where new memory goes.
    pub first_placement: FirstPlacement,
    /// Pages are to change places, where the mover can do that ([`Capabilities::EXCHANGE`]).
    pub exchanges: bool,
    /// A demoted page is armed where it arrives.
    pub arms_demoted: bool,
    /// Pages are to be armed one by one ([`Capabilities::CHOSEN_FAULTS`]).
    pub arms_chosen: bool,
    /// A demotion that is ordered in a hint fault is carried out in it, where promotions are.
    pub demotes_in_fault: bool,
    /// Accessed bits are read as often as was asked for, whatever that takes of a processor.
    pub reads_regardless: bool,
}

/// What decides.
pub trait Policy: std::fmt::Debug + Send {
    /// Its preset name.
    fn name(&self) -> &'static str;
    /// What its parameters say to the tracker and the mover.
    fn machine_options(&self) -> MachineOptions {
        MachineOptions::default()
    }
    /// Takes in one event. `now` never goes back.
    fn observe(&mut self, now: Nanos, event: &Event);
    /// Takes in one reading of accessed bits, where it asked for them. `now` never goes back.
    fn accessed(&mut self, _now: Nanos, _reading: &ChunkReading<'_>) {}
    /// The time has come that [`Policy::next_deadline`] gave, or passed it.
    fn tick(&mut self, now: Nanos);
    /// The next thing to do, until there is none.
    fn poll_action(&mut self) -> Option<Action>;
    /// When to call [`Policy::tick`] at the latest.
    fn next_deadline(&self) -> Nanos;
    /// What it believes of a process; nothing where it does not say, or does not know the process.
    fn explain(&self, _now: Nanos, _about: About) -> Option<Belief> {
        None
    }
    /// Its own figures, always the same ones in the same order.
    fn counters(&self) -> Vec<Measurement>;
}

/// Why no policy was made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// No preset for a real machine has that name.
    #[error("Unknown policy '{0}'; there are: {list}", list = Preset::names_of(Preset::in_user_space))]
    Unknown(String),
    /// A preset whose mechanism only the kernel has.
    #[error(
        "Policy '{0}' promotes in the hint fault, which user space cannot hold up: only the simulator has it \
         (terrace sim --policy {0}); here there are: {list}",
        list = Preset::names_of(Preset::in_user_space)
    )]
    Simulated(String),
    /// A preset that needs two tiers got one.
    #[error("Policy '{0}' needs a fast and a slow tier, and this machine has one")]
    OneTier(String),
    /// A parameter that the policy does not have, or a value it cannot have.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

/// Makes the policy of that name for a real machine with these tiers.
///
/// # Errors
///
/// Where there is no such policy, or it cannot work on this machine.
pub fn by_name(name: &str, tiers: &Tiers) -> Result<Box<dyn Policy>, PolicyError> {
    let mut settings = Settings::new(name, std::collections::BTreeMap::new());
    with_settings(name, &Host::new(tiers.clone()), &mut settings)
}

/// Makes the policy of that name for that machine with these parameters. Whoever calls may have parameters of its own
/// among them, and asks them to be finished with ([`Settings::finish`]) when it has read those.
///
/// # Errors
///
/// Where there is no such policy, it cannot work on this machine, or a value cannot be.
pub fn with_settings(
    name: &str,
    host: &Host,
    settings: &mut Settings,
) -> Result<Box<dyn Policy>, PolicyError> {
    let preset = on_linux(name)?;
    if !preset.needs.is_empty() && host.tiers.count() < 2 {
        return Err(PolicyError::OneTier(name.to_owned()));
    }
    Ok((preset.build)(settings, host)?)
}

/// The preset of that name, for a real machine.
///
/// # Errors
///
/// Where there is none, or it can be simulated only.
pub fn on_linux(name: &str) -> Result<&'static Preset, PolicyError> {
    let preset = Preset::named(name)?;
    if preset.in_user_space() {
        Ok(preset)
    } else {
        Err(PolicyError::Simulated(name.to_owned()))
    }
}
