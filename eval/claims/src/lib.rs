// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' claims as checks that run.
//!
//! A claim file says where a paper states something, which simulated runs it speaks of, which
//! relations between their results must hold, and what we found (held, open or refuted). This
//! crate reads such a file ([`Claim::parse`]), gives the runs it needs ([`plan`]), and judges the
//! relations over the figures that came out ([`judge()`]). `docs/claims.md` describes the format.
//!
//! Pure: texts and outcomes in, set-ups and judgements out. Reading files, running the simulator on
//! all cores and printing are `terrace claims` (`crates/cli/src/claims.rs`).
//!
//! Invariants: a checked claim has at least one run and one relation; every relation names runs of
//! its own claim; a refuted or open claim says why, and who names a cause has the runs that show it. A relation over a figure that is missing or not
//! finite never holds.
#![forbid(unsafe_code)]

pub mod claim;
mod family;
pub mod figure;
pub mod judge;
pub mod plan;
mod raw;
mod raw_holds;
mod raw_run;
pub mod reason;
pub mod relation;
mod setup;

pub use claim::Claim;
pub use claim::ClaimError;
pub use claim::CostSource;
pub use claim::Engine;
pub use claim::Paper;
pub use claim::Run;
pub use claim::RunSpec;
pub use claim::Status;
pub use judge::Finding;
pub use judge::Judgement;
pub use judge::Verdict;
pub use judge::judge;
pub use reason::Cause;
pub use reason::Counterfactual;
pub use reason::Reason;
pub use relation::Operator;
pub use relation::Relation;
pub use relation::Slack;
pub use relation::Term;
pub use setup::SetupError;
