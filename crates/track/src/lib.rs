// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trackers: what is accessed, from which source.
//!
//! A [`Tracker`] turns what a source says into [`TrackEvent`]s. The sources: the kernel's
//! NUMA-balancing scanner ([`HintFaultTracker`]), pages that an agent arms one by one ([`ChosenFaultTracker`]), samples of the processor's PMU ([`PmuTracker`]) and
//! of the lab's ([`EmulatedPmu`]), and the accessed bits of all pages ([`AccessedBits`]).
//!
//! [`scan_table`] and [`correlate`] are pure: they take records with their times and are tested
//! without a kernel. [`hint_faults`] puts them behind the BPF program. [`pmu`] is alike, and has the
//! one thread here: what reads the PMU's rings. Nothing here changes a kernel setting; switching the
//! scanner on is `terrace_sys::settings`' business.

pub mod accessed_bits;
pub mod chosen_faults;
pub mod correlate;
pub mod emulated;
pub mod event;
pub mod hint_faults;
pub mod pmu;
pub mod scan_table;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use terrace_core::Figure;
use terrace_core::Measurement;
use terrace_core::Pid;

pub use accessed_bits::AccessedBits;
pub use accessed_bits::AccessedBitsConfig;
pub use chosen_faults::ChosenFaultTracker;
pub use emulated::EmulatedPmu;
pub use emulated::EmulatedPmuConfig;
pub use event::HintFault;
pub use event::Sample;
pub use event::TrackEvent;
pub use event::TrackStats;
pub use hint_faults::HintFaultTracker;
pub use hint_faults::HintFaultTrackerConfig;
pub use pmu::EventTable;
pub use pmu::PmuConfig;
pub use pmu::PmuScope;
pub use pmu::PmuTracker;
use thiserror::Error;

/// Why a tracker fails.
#[derive(Debug, Error)]
pub enum TrackError {
    /// The reader of accessed bits.
    #[error(transparent)]
    PageTables(#[from] terrace_bpf::PageTablesError),
    /// The hint-fault source.
    #[error(transparent)]
    HintFaults(#[from] terrace_bpf::HintFaultsError),
    /// The PMU.
    #[error(transparent)]
    Pmu(#[from] pmu::PmuError),
    /// The lab's emulated PMU.
    #[error(transparent)]
    Emulated(#[from] emulated::EmulatedError),
}

/// Each tracker's own figures, by its name.
pub const FIGURES: [(&str, &[Figure]); 5] = [
    (accessed_bits::NAME, accessed_bits::Figures::FIGURES),
    (hint_faults::NAME, hint_faults::Figures::FIGURES),
    (chosen_faults::NAME, chosen_faults::Figures::FIGURES),
    (pmu::NAME, pmu::Figures::FIGURES),
    (emulated::NAME, emulated::Figures::FIGURES),
];

/// A source of events about memory accesses.
pub trait Tracker {
    /// Its name, as `terrace status` shows it.
    fn name(&self) -> &'static str;

    /// Reports `pid` from now on; with `follow`, its future children as well.
    ///
    /// # Errors
    ///
    /// Where the source refuses.
    fn add(&mut self, pid: Pid, follow: bool) -> Result<(), TrackError>;

    /// Reports `pid` no more and forgets what is known of it.
    ///
    /// # Errors
    ///
    /// Where the source refuses; a process that is not there is no error.
    fn remove(&mut self, pid: Pid) -> Result<(), TrackError>;

    /// Waits until much is there or `timeout` is over, then hands out all there is, in the order
    /// in which the source saw it; accesses that came between two events of another kind are in
    /// the order of time only where they are to the same page.
    ///
    /// # Errors
    ///
    /// Where the source is broken; it will not come back.
    fn poll(
        &mut self,
        timeout: Duration,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Result<(), TrackError>;

    /// What was seen and what was lost.
    ///
    /// # Errors
    ///
    /// Where the source's counters cannot be read.
    fn stats(&self) -> Result<TrackStats, TrackError>;

    /// Its own figures, always the same ones in the same order.
    fn counters(&self) -> Vec<Measurement>;

    /// One of them is readable when [`Tracker::poll`] would not wait, if the source has such descriptors.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Whether one of them is as soon as anything is there, and not only when it is much: then nobody has to ask.
    fn tells(&self) -> bool {
        false
    }
}
