// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine on a simulated machine: same policies, same statistics, another machine below.
//!
//! [`run`] takes a [`Setup`] (machine, costs, workload, system, seed) and gives an [`Outcome`].
//! Same set-up, same outcome, bit for bit. `docs/simulator.md` has the model, its formulas and its
//! limits.
//!
//! Two engines of time ([`EngineKind`]) drive one [`world::World`] (page table, memory, movers,
//! scanner): *exact* plays every visit, *rate* draws faults and aborts from the pages' shares of the
//! visits. Units: time is ns, memory bytes; a *unit* is one mapped page of whatever size, by a number
//! dense over all programs.
//!
//! * What goes in and comes out: [`setup`], [`costs`], [`outcome`].
//! * The machine: [`hardware`], [`contention`], [`memory`], [`space`], [`cache`].
//! * What happens: [`world`], [`mover`], [`scanner`], [`exact`], [`rate`], [`access_rates`],
//!   [`placement`], [`drive`]; HeMem's samples and copies: [`sampling`], [`protected_copy`].
//! * [`system`]: presets and baselines. [`quality`]: how well a system's placement fits.
//!
//! No clock, no thread, no file.
#![forbid(unsafe_code)]

mod access_rates;
mod accessed;
mod cache;
mod calendar;
mod contention;
pub mod costs;
mod cpu_share;
mod drive;
mod exact;
mod hardware;
mod in_turn;
mod memory;
mod memory_mode;
mod metrics;
mod mover;
pub mod outcome;
mod placement;
mod planned;
mod protected_copy;
pub mod quality;
mod random;
mod rate;
mod sampling;
mod scanner;
pub mod setup;
mod space;
mod system;
mod threaded_copy;
mod world;

pub use costs::Costs;
pub use costs::CostsError;
pub use drive::check;
pub use drive::run;
pub use drive::run_with;
pub use outcome::Outcome;
pub use planned::PLANNED;
pub use setup::EngineKind;
pub use setup::Setup;
pub use setup::SimError;
pub use system::BASELINES;
pub use system::Baseline;
pub use system::ORACLE;
pub use system::systems;
pub use terrace_policy::Mover;
pub use terrace_policy::TrackerKind;
