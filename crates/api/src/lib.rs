// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is asked of a supervisor and what it answers: the words of its control socket, one JSON object a line.
//!
//! * [`request`]: what can be asked, and the answer. [`status`]: the figures of a run, their JSON schema
//!   (`docs/status.schema.json`); `text` shows them to people. [`why`]: what a policy believes of a process.
//! * Each figure is defined where it is counted: a run's in [`terrace_policy::Stats`], a policy's and a tracker's own
//!   beside them. What is shown here goes through those tables.
//!
//! Pure: sockets and files are the supervisor's.
#![forbid(unsafe_code)]

pub mod request;
pub mod status;
mod text;
pub mod why;

pub use request::Answer;
pub use request::Join;
pub use request::Request;
pub use status::NodeStatus;
pub use status::ProcessStatus;
pub use status::SCHEMA_VERSION;
pub use status::Status;
pub use status::TrackerStatus;
pub use why::Why;
pub use why::WhyQuestion;
