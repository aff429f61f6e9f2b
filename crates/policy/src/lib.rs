// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's deciding half: events and the time go in, actions with their reasons come out.
//!
//! A policy is a state machine ([`Policy`]): no clock, no thread, no file, no randomness, no
//! iteration over hash order. Same events in the same order give the same actions, on every
//! machine. The supervisor feeds it from the kernel, the simulator from a simulated machine; the
//! policy cannot tell which.
//!
//! * [`engine`]: drives a policy over a machine, the same in supervisor and simulator; [`stats`].
//! * [`event`]: what a policy sees and what it gives.
//! * [`pages`]: dense metadata, 8 bytes a page.
//! * [`presets`]: the policies. [`preset`] says what each is; [`by_name`] makes one from its preset name,
//!   [`with_settings`] with parameters ([`settings`]).
#![forbid(unsafe_code)]

pub mod engine;
pub mod event;
pub mod goes;
pub mod pages;
pub mod preset;
pub mod presets;
pub mod settings;
pub mod stats;

use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::Tiers;
use thiserror::Error;

pub use engine::Engine;
pub use engine::Machine;
pub use engine::Way;
pub use event::Action;
pub use event::Event;
pub use event::Migration;
pub use event::Reason;
pub use event::ScanScope;
pub use event::Verdict;
pub use goes::Goes;
pub use preset::PRESETS;
pub use preset::Preset;
pub use settings::Parameter;
pub use settings::SettingError;
pub use settings::Settings;
pub use stats::Stats;

/// What a policy learns of accesses by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It looks at none.
    Nothing,
    /// Hint faults, which it asks for by [`Action::Scan`].
    HintFaults,
    /// Samples, and mappings as they come ([`Event::Mapped`]).
    Samples,
    /// Accessed bits of all pages, which it asks for by [`Action::ReadAccessed`] and takes in by
    /// [`Policy::accessed`].
    AccessedBits,
}

/// What decides.
pub trait Policy: std::fmt::Debug + Send {
    /// Its preset name.
    fn name(&self) -> &'static str;
    /// What whoever drives it has to provide.
    fn evidence(&self) -> Evidence {
        Evidence::HintFaults
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
    /// Its own figures, for `terrace status`: name and value, always in the same order.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Why no policy was made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// No preset has that name.
    #[error("Unknown policy '{0}'; there are: {list}", list = Preset::names())]
    Unknown(String),
    /// A preset that needs two tiers got one.
    #[error("Policy '{0}' needs a fast and a slow tier, and this machine has one")]
    OneTier(String),
    /// A parameter that the policy does not have, or a value it cannot have.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

/// Makes the policy of that name for a machine with these tiers.
///
/// # Errors
///
/// Where there is no such policy, or it cannot work on this machine.
pub fn by_name(name: &str, tiers: &Tiers) -> Result<Box<dyn Policy>, PolicyError> {
    let mut settings = Settings::new(name, std::collections::BTreeMap::new());
    with_settings(name, tiers, &mut settings)
}

/// Makes the policy of that name with these parameters. Whoever calls may have parameters of its own
/// among them, and asks them to be finished with ([`Settings::finish`]) when it has read those.
///
/// # Errors
///
/// Where there is no such policy, it cannot work on this machine, or a value cannot be.
pub fn with_settings(
    name: &str,
    tiers: &Tiers,
    settings: &mut Settings,
) -> Result<Box<dyn Policy>, PolicyError> {
    let preset = Preset::of(name).ok_or_else(|| PolicyError::Unknown(name.to_owned()))?;
    if preset.evidence != Evidence::Nothing && tiers.count() < 2 {
        return Err(PolicyError::OneTier(name.to_owned()));
    }
    Ok((preset.build)(settings, tiers)?)
}
