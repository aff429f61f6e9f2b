// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hint faults from the kernel's own scanner, through eBPF.
//!
//! Files: [`record`] is the wire format and its pure decoder, [`driver`] loads the program
//! and reads the ring, [`error`] is why it cannot, [`coverage`] says what the running kernel has of
//! what the program needs. The program itself is `bpf/hint_faults.bpf.c`.
//!
//! Times are `CLOCK_MONOTONIC`, the clock of [`terrace_core::Nanos`] in the supervisor. Which scan
//! a fault belongs to is not decided here but in terrace-track.

pub mod coverage;
pub mod driver;
pub mod error;
pub mod record;

pub use driver::HintFaults;
pub use driver::HintFaultsConfig;
pub use driver::Lost;
pub use error::HintFaultsError;
pub use record::DecodeError;
pub use record::Fault;
pub use record::Record;
pub use record::decode;
