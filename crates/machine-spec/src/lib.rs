// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration and machine descriptions: raw TOML to checked values.
#![forbid(unsafe_code)]

pub mod machine;
mod machine_raw;

pub use machine::Machine;
pub use machine::MachineError;
