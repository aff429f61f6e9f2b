// SPDX-License-Identifier: MIT OR Apache-2.0
//! What supervisor and agent say to each other, and how.
//!
//! A connection starts on a Unix stream socket whose path the agent finds in [`SOCKET_ENV`]:
//!
//! 1. the agent sends [`Hello`] (48 bytes);
//! 2. the supervisor answers [`Welcome`] (32 bytes) and, with it, three descriptors by
//!    `SCM_RIGHTS`: a memfd with both rings, the eventfd that wakes the agent and the eventfd that
//!    wakes the supervisor;
//! 3. from there on all traffic is fixed records in the rings ([`ring`]): [`Command`]s to the agent,
//!    [`Report`]s back. Each command is answered by exactly one report with its sequence number;
//!    notices (sequence number 0) come when they come.
//!
//! The socket stays open and says one thing only: when it closes, the other side is gone. The agent
//! then finishes or rolls back what is in flight, drops its shadows and goes quiet; the program
//! runs on.
//!
//! Layout of the memfd: command ring at 0, report ring at [`Welcome::ring_bytes`].
//! Records are arrays of `u64` words in native order; both sides run on one machine.
#![forbid(unsafe_code)]

mod handshake;
mod record;
pub mod ring;

pub use handshake::Commit;
pub use handshake::HELLO_BYTES;
pub use handshake::HandshakeError;
pub use handshake::Hello;
pub use handshake::PROTOCOL_VERSION;
pub use handshake::WELCOME_BYTES;
pub use handshake::Welcome;
pub use handshake::features;
pub use record::Command;
pub use record::DecodeError;
pub use record::Notice;
pub use record::Op;
pub use record::Outcome;
pub use record::RECORD_WORDS;
pub use record::Report;
pub use record::ReportBody;
pub use record::Words;

/// Names the supervisor's socket to the agent.
pub const SOCKET_ENV: &str = "TERRACE_SOCKET";
