// SPDX-License-Identifier: MIT OR Apache-2.0
//! perf_event_open(2): sampled events, the rings that the kernel writes, and what is in them.
//!
//! * [`event`]: opening an event for a processor or a task, its period, its ring.
//! * [`ring`]: the mapped ring and the order in which memory must be read and given back.
//! * [`walk`]: cutting the ring into records; [`record`]: taking a record apart. Both are pure.
//! * [`data_source`]: what the processor says about where an access was served; pure.
//! * [`pmu`]: which PMUs, formats and limits this kernel has; [`cpu`]: which processor this is.
//! * [`feed`]: the kernel's side of a ring, in memory, for tests of what reads rings.
//! * [`sampler`]: one event of the calling thread, for measurements.
//!
//! Why no crate: those that are kept (perf-event2, perf-event-open) map one ring per counter, so a
//! processor with five events has five rings to read where the kernel offers one
//! (`PERF_EVENT_IOC_SET_OUTPUT`); they read only what perf_event_open made, so that a reader can
//! not be tested on bytes; and they publish the tail after each record. Their parsers would serve,
//! but a parser is the smaller part of this.
//!
//! Nothing here decides what to sample, keeps a thread, or knows processes' families.

pub mod cpu;
pub mod data_source;
pub mod event;
pub mod feed;
pub mod pmu;
pub mod record;
pub mod ring;
pub mod sampler;
pub mod walk;

pub use cpu::CpuModel;
pub use data_source::DataSource;
pub use data_source::Level;
pub use event::Event;
pub use event::EventSpec;
pub use event::Inherit;
pub use event::Target;
pub use feed::Feed;
pub use pmu::Pmu;
pub use record::Fields;
pub use record::Layout;
pub use record::Malformed;
pub use record::Record;
pub use record::Sample;
pub use record::Task;
pub use ring::Drained;
pub use ring::Ring;
pub use sampler::SampledEvent;
pub use sampler::Sampler;

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod ring_tests;
