// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracker that reads the lab's emulated PMU.
//!
//! The emulator samples one in N last-level misses and writes {virtual address, physical address,
//! load or store, node, processor, time, page-table root} into memory that the guest maps
//! ([`layout`]). A sample belongs to a process by that root ([`roots`]), which is enrolled once and
//! spot-checked against the page map. Threads are not told apart: a sample's thread is its process.
//!
//! Nothing here waits for a descriptor: there is none, and who polls decides how often. Reading frame
//! numbers and mapping the device both need root.

mod family;
mod figures;
pub mod layout;
pub mod offset;
pub mod roots;

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use terrace_core::Addr;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_sys::clock;
use terrace_sys::frames::Frame;
use terrace_sys::frames::FrameMap;
use terrace_sys::ivshmem;
use terrace_sys::ivshmem::IvshmemError;
use terrace_sys::ivshmem::SharedMemory;
use thiserror::Error;

use crate::TrackError;
use crate::Tracker;
use crate::event::Sample;
use crate::event::TrackEvent;
use crate::event::TrackStats;
use family::Claim;
use family::Family;
pub(crate) use figures::Figures;
use layout::Control;
use layout::LayoutError;
use layout::Record;
use layout::RingCounts;
use layout::Rings;
use offset::Offset;
use roots::Ask;
use roots::Roots;

/// How often `/proc` is looked at for new and ended processes.
const LOOK: Nanos = Nanos::from_millis(250);
/// And how often at most where samples come that nobody claims.
const LOOK_AGAIN: Nanos = Nanos::from_millis(20);
/// As on the command line.
pub(crate) const NAME: &str = "emulated-pmu";
/// Pause between looks at the rings while waiting.
const NAP: Duration = Duration::from_millis(2);

/// Why there is no emulated PMU.
#[derive(Debug, Error)]
pub enum EmulatedError {
    /// Not in the lab.
    #[error("This machine has no emulated PMU; it is the lab's (terrace-lab run)")]
    NoDevice,
    /// The device does not let us.
    #[error(transparent)]
    Device(#[from] IvshmemError),
    /// Its memory is not ours.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Another reader has it.
    #[error("Another process reads the emulated PMU; it has one reader at a time")]
    Taken,
    /// Whose samples are whose cannot be found out.
    #[error("The emulated PMU needs the page map's frame numbers (CAP_SYS_ADMIN)")]
    NoFrames,
}

/// What to set; what is not given stays as the lab was told to have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmulatedPmuConfig {
    /// One sample in so many misses.
    pub period: Option<u64>,
    /// Samples a second of a processor at most, 0 for no limit.
    pub max_rate: Option<u64>,
}

/// What became of the samples read. `seen = reported + foreign`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmulatedCounts {
    /// Records read.
    pub seen: u64,
    /// Of tracked processes.
    pub reported: u64,
    /// Of those, stores.
    pub stores: u64,
    /// Of other processes, or of one that was not yet known.
    pub foreign: u64,
    /// Roots that a process claimed.
    pub enrolled: u64,
    /// Checks against the page map that confirmed.
    pub confirmed: u64,
    /// Checks that found another page there: it moved meanwhile, or the enrolment is wrong.
    pub mismatched: u64,
    /// Checks that found nothing there.
    pub unclear: u64,
    /// Records that did not match their place in the ring.
    pub torn: u64,
    /// Misses that the samples were taken of, by all processes.
    pub misses: u64,
    /// Samples lost for lack of room.
    pub lost: u64,
    /// Samples not taken because of the rate limit.
    pub throttled: u64,
}

impl EmulatedCounts {
    /// Stores of tracked processes that missed the emulated cache, estimated: the sampled ones, each for
    /// a period, and of those that were lost, torn or not taken the same part. `None` where none was
    /// sampled.
    #[must_use]
    pub fn all_stores(&self, period: u64) -> Option<u64> {
        let came = u128::from(self.seen);
        let missing = u128::from(self.lost) + u128::from(self.torn) + u128::from(self.throttled);
        let sampled = u128::from(self.stores) * u128::from(period);
        let all = (sampled * (came + missing)).checked_div(came)?;
        (all > 0).then(|| u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// The lab's emulated PMU.
#[derive(Debug)]
pub struct EmulatedPmu {
    memory: SharedMemory,
    /// Locked: a ring has one reader.
    _lock: File,
    family: Family,
    roots: Roots,
    offset: Offset,
    counts: EmulatedCounts,
    before: RingCounts,
    looked: Nanos,
    batch: Vec<Record>,
}

impl EmulatedPmu {
    /// Finds the device, sets it and starts sampling. No process is tracked yet.
    ///
    /// # Errors
    ///
    /// [`EmulatedError`]: outside the lab, without root, or where another process reads it.
    pub fn open(config: EmulatedPmuConfig) -> Result<Self, EmulatedError> {
        let devices = ivshmem::devices(Path::new("/"));
        let device = devices.first().ok_or(EmulatedError::NoDevice)?;
        if frames_are_hidden() {
            return Err(EmulatedError::NoFrames);
        }
        let memory = SharedMemory::of_device(device)?;
        let lock = File::open(device.join("resource2")).map_err(|_| EmulatedError::NoDevice)?;
        lock.try_lock().map_err(|_| EmulatedError::Taken)?;
        Self::over(memory, lock, config)
    }

    fn over(
        memory: SharedMemory,
        lock: File,
        config: EmulatedPmuConfig,
    ) -> Result<Self, EmulatedError> {
        let rings = Rings::new(memory.words())?;
        let now = rings.control();
        rings.skip();
        rings.set(Control {
            enabled: true,
            period: config.period.unwrap_or(now.period),
            max_rate: config.max_rate.unwrap_or(now.max_rate),
            ..now
        });
        let before = rings.counts();
        Ok(Self {
            memory,
            _lock: lock,
            family: Family::default(),
            roots: Roots::default(),
            offset: Offset::default(),
            counts: EmulatedCounts::default(),
            before,
            looked: Nanos::ZERO,
            batch: Vec::new(),
        })
    }

    fn rings(&self) -> Option<Rings<'_>> {
        // It was checked when we opened it; a peer that breaks its header ends the sampling.
        Rings::new(self.memory.words()).ok()
    }

    /// What is set now.
    #[must_use]
    pub fn control(&self) -> Option<Control> {
        self.rings().map(|rings| rings.control())
    }

    /// Takes samples, or takes none. What was taken before is forgotten.
    pub fn enable(&self, enabled: bool) {
        if let Some(rings) = self.rings() {
            rings.set(Control {
                enabled,
                ..rings.control()
            });
            rings.skip();
        }
    }

    /// What became of the samples.
    #[must_use]
    pub fn counts(&self) -> EmulatedCounts {
        let now = self.rings().map_or(self.before, |rings| rings.counts());
        EmulatedCounts {
            misses: now.misses.wrapping_sub(self.before.misses),
            lost: now.lost.wrapping_sub(self.before.lost),
            throttled: now.throttled.wrapping_sub(self.before.throttled),
            ..self.counts
        }
    }

    fn look(&mut self, now: Nanos, sink: &mut dyn FnMut(TrackEvent)) {
        self.looked = now;
        let roots = &mut self.roots;
        self.family.look(now, &mut |event| {
            match event {
                TrackEvent::Forked { .. } => roots.came(),
                TrackEvent::Exited { pid, .. } => roots.went(pid),
                _ => {}
            }
            sink(event);
        });
    }

    /// Reads all rings into the batch, in order of time.
    fn read(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let mut torn = 0;
        if let Some(rings) = self.rings() {
            for index in 0..rings.count() {
                torn += rings.drain(index, |record| batch.push(record)).torn;
            }
        }
        batch.sort_by_key(|record| record.time_ns);
        self.counts.torn += torn;
        self.counts.seen += batch.len() as u64;
        self.batch = batch;
    }

    /// Whose a sample is.
    fn attribute(
        &mut self,
        record: &Record,
        now: Nanos,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Option<Pid> {
        match self.roots.ask(record.root, now) {
            Ask::Of(pid) => Some(pid),
            Ask::Foreign => None,
            Ask::Check(pid) => {
                let confirmed = match self.family.claim(pid, record) {
                    Claim::Own | Claim::Shared => {
                        self.counts.confirmed += 1;
                        true
                    }
                    Claim::No => {
                        self.counts.mismatched += 1;
                        false
                    }
                    Claim::Unclear => {
                        self.counts.unclear += 1;
                        false
                    }
                };
                self.roots.checked(record.root, confirmed).then_some(pid)
            }
            Ask::Whose => self.enrol(record, now, sink),
        }
    }

    fn enrol(
        &mut self,
        record: &Record,
        now: Nanos,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Option<Pid> {
        let mut owner = self.family.owner(record);
        if owner.is_none() && now.since(self.looked) >= LOOK_AGAIN {
            self.look(now, sink);
            owner = self.family.owner(record);
        }
        let Some(pid) = owner else {
            self.roots.refused(record.root, now);
            return None;
        };
        self.counts.enrolled += 1;
        if self.roots.enrol(record.root, pid) > 0 {
            sink(TrackEvent::Execed { pid, time: now });
        }
        Some(pid)
    }
}

/// Whether the kernel keeps frame numbers from us.
fn frames_are_hidden() -> bool {
    let word = Box::new(1_u64);
    let addr = Addr((&raw const *std::hint::black_box(&word)).addr() as u64);
    let map = FrameMap::of(Pid(std::process::id()));
    !map.is_ok_and(|map| matches!(map.at(addr), Frame::Own(_) | Frame::Shared(_)))
}

impl Tracker for EmulatedPmu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn add(&mut self, pid: Pid, follow: bool) -> Result<(), TrackError> {
        self.family.add(pid, follow);
        self.roots.came();
        Ok(())
    }

    fn remove(&mut self, pid: Pid) -> Result<(), TrackError> {
        self.family.remove(pid);
        self.roots.went(pid);
        Ok(())
    }

    fn poll(
        &mut self,
        timeout: Duration,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Result<(), TrackError> {
        let until = clock::now() + Nanos::from(timeout);
        loop {
            self.read();
            let now = clock::now();
            if now.since(self.looked) >= LOOK {
                self.look(now, sink);
            }
            let batch = std::mem::take(&mut self.batch);
            let each = self.control().map_or(1, |now| now.period);
            if let Some(newest) = batch.last() {
                self.offset.saw(newest.time_ns, now);
            }
            for record in &batch {
                match self.attribute(record, now, sink) {
                    None => self.counts.foreign += 1,
                    Some(pid) => {
                        self.counts.reported += 1;
                        self.counts.stores += u64::from(record.store);
                        let time = self.offset.ours(record.time_ns);
                        sink(TrackEvent::Sample(sample(pid, record, each, time)));
                    }
                }
            }
            let done = !batch.is_empty() || now >= until;
            self.batch = batch;
            if done {
                return Ok(());
            }
            std::thread::sleep(NAP.min(Duration::from(until.since(now))));
        }
    }

    fn stats(&self) -> Result<TrackStats, TrackError> {
        let counts = self.counts();
        Ok(TrackStats {
            accesses: counts.reported,
            lost_accesses: counts.lost + counts.torn,
            throttled: counts.throttled,
            stores: self.control().and_then(|now| counts.all_stores(now.period)),
            ..TrackStats::default()
        })
    }

    fn counters(&self) -> Vec<Measurement> {
        let counts = self.counts();
        Figures {
            period: self.control().map_or(0, |control| control.period),
            seen: counts.seen,
            reported: counts.reported,
            foreign: counts.foreign,
            enrolled: counts.enrolled,
            checks_confirmed: counts.confirmed,
            checks_mismatched: counts.mismatched,
            checks_unclear: counts.unclear,
            misses: counts.misses,
            lost: counts.lost,
            torn: counts.torn,
            throttled: counts.throttled,
        }
        .values()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

fn sample(pid: Pid, record: &Record, accesses: u64, time: Nanos) -> Sample {
    Sample {
        pid,
        tid: pid.0,
        cpu: record.cpu,
        addr: Addr(record.vaddr),
        phys: Some(record.paddr),
        node: Some(NodeId(record.node)),
        write: record.store,
        accesses,
        time,
    }
}

impl Drop for EmulatedPmu {
    fn drop(&mut self) {
        self.enable(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_estimated_from_the_period_and_what_was_lost() {
        let counts = EmulatedCounts {
            seen: 1_000,
            reported: 800,
            stores: 200,
            lost: 90,
            torn: 10,
            throttled: 400,
            ..EmulatedCounts::default()
        };
        assert_eq!(counts.all_stores(397), Some(200 * 397 * 3 / 2));
        assert_eq!(EmulatedCounts::default().all_stores(397), None);
    }
}
