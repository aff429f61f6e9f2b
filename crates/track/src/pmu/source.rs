// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where records come from: the kernel's rings, or a test's.
//!
//! The kernel's: for each processor one ring, owned by an event that counts nothing, into which all
//! other events of that processor write. Watching processors, that event also carries the records of
//! forks, execs and exits; watching processes, each thread has one that does, and children inherit
//! all of them. A change of the period reaches events of processors at once; inherited events keep
//! theirs, so events of processes are opened anew.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use terrace_core::Pid;
use terrace_sys::perf::Event;
use terrace_sys::perf::EventSpec;
use terrace_sys::perf::Inherit;
use terrace_sys::perf::Layout;
use terrace_sys::perf::Malformed;
use terrace_sys::perf::Record;
use terrace_sys::perf::Ring;
use terrace_sys::perf::Target;
use terrace_sys::perf::event;
use terrace_sys::process::descendants;

use super::config::PmuError;
use super::plan::Plan;
use super::plan::RING_BYTES_MIN;
use super::plan::target;
use super::table::Access;

/// A turn over the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Turn {
    /// Rings that had samples or other records.
    pub(super) rings: u64,
    /// Bytes that are no records.
    pub(super) broken_bytes: u64,
}

/// What the sampling thread reads.
pub(super) trait Source: Send {
    /// Hands out the records that are there.
    fn drain(&mut self, sink: &mut dyn FnMut(Result<Record, Malformed>)) -> Turn;
    /// What the samples of an event are.
    fn access(&self, id: u64) -> Option<Access>;
    /// How many loads a sampled one stands for, and how many stores, where one in so many memory accesses is sampled.
    fn a_sample(&self, period: u64) -> [u64; 2];
    /// One sample in so many memory accesses from now on.
    fn set_period(&mut self, period: u64) -> Result<(), PmuError>;
    /// Watches a process, and with `follow` its future children.
    fn add(&mut self, pid: Pid, follow: bool) -> Result<(), PmuError>;
    /// Watches it no more.
    fn remove(&mut self, pid: Pid) -> Result<(), PmuError>;
    /// A child of a process that is followed has been seen.
    fn born(&mut self, child: Pid);
    /// A process has ended.
    fn ended(&mut self, pid: Pid);
    /// Samples and records of processes lost so far, as far as the kernel counts them itself.
    fn lost(&self) -> Lost;
    /// Readable when much is there.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;
}

/// What the kernel counts as lost, told by records or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lost {
    pub(super) samples: u64,
    pub(super) process_events: u64,
}

struct Processor {
    cpu: u32,
    owner: Event,
    ring: Ring,
}

/// The kernel's rings.
pub(super) struct KernelSource {
    plan: Plan,
    period: u64,
    processors: Vec<Processor>,
    events: Vec<Event>,
    // Not of samples.
    tasks: Vec<Event>,
    access: BTreeMap<u64, Access>,
    /// Of the events closed last: samples of theirs may lie in the rings still.
    access_before: BTreeMap<u64, Access>,
    /// What is watched, with whether children are; for processors nobody asks.
    processes: BTreeMap<Pid, bool>,
    /// Of events that are closed.
    lost_before: Lost,
}

impl KernelSource {
    pub(super) fn open(plan: Plan, period: u64, ring_bytes: usize) -> Result<Self, PmuError> {
        let mut source = Self {
            period,
            processors: Vec::with_capacity(plan.cpus.len()),
            events: Vec::new(),
            tasks: Vec::new(),
            access: BTreeMap::new(),
            access_before: BTreeMap::new(),
            processes: BTreeMap::new(),
            lost_before: Lost::default(),
            plan,
        };
        for cpu in source.plan.cpus.clone() {
            match source.processor(cpu, ring_bytes) {
                Ok(processor) => source.processors.push(processor),
                // It went offline.
                Err(PmuError::Open {
                    source: Errno::NODEV,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        if source.plan.per_cpu {
            source.open_all(0, None, Inherit::None)?;
        }
        Ok(source)
    }

    /// A processor's ring and its owner, which without processors to watch belongs to this process
    /// and counts nothing.
    fn processor(&self, cpu: u32, ring_bytes: usize) -> Result<Processor, PmuError> {
        let per_cpu = self.plan.per_cpu;
        let spec = EventSpec {
            tasks: per_cpu,
            watermark: watermark(ring_bytes),
            ..self.dummy()
        };
        // The process' first thread lives as long as it does.
        let target = target(per_cpu, std::process::id(), cpu);
        let owner = Event::open(&spec, target).map_err(|source| PmuError::Open {
            event: "the ring's owner".to_owned(),
            cpu,
            pid: None,
            source,
        })?;
        let mut bytes = ring_bytes;
        let ring = loop {
            match Ring::map(&owner, bytes) {
                Err(Errno::PERM | Errno::NOMEM) if bytes > RING_BYTES_MIN => bytes /= 2,
                mapped => break mapped.map_err(|source| PmuError::Ring { cpu, source })?,
            }
        };
        if per_cpu {
            self.started(&owner, "the ring's owner", cpu, None)?;
        }
        Ok(Processor { cpu, owner, ring })
    }

    /// Counts nothing, so that it costs nothing.
    fn dummy(&self) -> EventSpec {
        EventSpec {
            kind: event::SOFTWARE,
            config: event::DUMMY,
            fields: self.plan.fields,
            user_only: true,
            ..EventSpec::default()
        }
    }

    /// Opens every event on every processor, for a task or for all.
    fn open_all(&mut self, tid: u32, pid: Option<Pid>, inherit: Inherit) -> Result<(), PmuError> {
        for processor in &self.processors {
            let cpu = processor.cpu;
            let target = target(self.plan.per_cpu, tid, cpu);
            for planned in &self.plan.events {
                let spec = EventSpec {
                    period: planned.event.period(self.period),
                    inherit,
                    watermark: 1,
                    ..planned.spec
                };
                let event = self.joined(&spec, target, processor, &planned.name, pid)?;
                let id = event.id().map_err(|source| PmuError::Open {
                    event: planned.name.clone(),
                    cpu,
                    pid,
                    source,
                })?;
                self.access.insert(id, planned.access);
                self.events.push(event);
            }
            if !self.plan.per_cpu {
                let spec = EventSpec {
                    tasks: true,
                    inherit,
                    ..self.dummy()
                };
                let name = "records of processes";
                let event = self.joined(&spec, target, processor, name, pid)?;
                self.tasks.push(event);
            }
        }
        Ok(())
    }

    /// An event that writes into the ring of `processor`, switched on.
    fn joined(
        &self,
        spec: &EventSpec,
        target: Target,
        processor: &Processor,
        name: &str,
        pid: Option<Pid>,
    ) -> Result<Event, PmuError> {
        let cpu = processor.cpu;
        let opened = Event::open(spec, target).and_then(|event| {
            event.redirect(&processor.owner)?;
            Ok(event)
        });
        let event = opened.map_err(|source| PmuError::Open {
            event: name.to_owned(),
            cpu,
            pid,
            source,
        })?;
        self.started(&event, name, cpu, pid)?;
        Ok(event)
    }

    fn started(
        &self,
        event: &Event,
        name: &str,
        cpu: u32,
        pid: Option<Pid>,
    ) -> Result<(), PmuError> {
        event.enable().map_err(|source| PmuError::Open {
            event: name.to_owned(),
            cpu,
            pid,
            source,
        })
    }

    /// Opens the events of all threads of a process; of those that start meanwhile, too.
    fn open_process(&mut self, pid: Pid, follow: bool) -> Result<(), PmuError> {
        let inherit = if follow {
            Inherit::All
        } else {
            Inherit::Threads
        };
        let mut known = BTreeSet::new();
        loop {
            let new: Vec<u32> = threads(pid)
                .into_iter()
                .filter(|t| known.insert(*t))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            for tid in new {
                match self.open_all(tid, Some(pid), inherit) {
                    // The thread is gone; if it was the process, its end will be noticed.
                    Err(PmuError::Open {
                        source: Errno::SRCH,
                        ..
                    }) => {}
                    opened => opened?,
                }
            }
        }
    }

    /// Opens the events of all processes anew. Of a child that is born meanwhile nobody can tell
    /// whether it has inherited the new events or the old; it can be sampled twice.
    fn reopen(&mut self) -> Result<(), PmuError> {
        self.lost_before = self.lost();
        self.events.clear();
        self.tasks.clear();
        self.access_before = std::mem::take(&mut self.access);
        for (pid, follow) in self.processes.clone() {
            self.open_process(pid, follow)?;
            let children = if follow {
                descendants(pid).unwrap_or_default()
            } else {
                Vec::new()
            };
            for child in children {
                if self.processes.insert(child, true).is_none() {
                    self.open_process(child, true)?;
                }
            }
        }
        Ok(())
    }
}

impl Source for KernelSource {
    fn drain(&mut self, sink: &mut dyn FnMut(Result<Record, Malformed>)) -> Turn {
        let layout = Layout(self.plan.fields);
        let mut turn = Turn::default();
        for processor in &mut self.processors {
            let drained = processor.ring.drain(&mut |bytes| sink(layout.parse(bytes)));
            turn.rings += u64::from(drained.bytes > 0);
            turn.broken_bytes += drained.broken_bytes;
        }
        turn
    }

    fn access(&self, id: u64) -> Option<Access> {
        let before = || self.access_before.get(&id);
        self.access.get(&id).or_else(before).copied()
    }

    fn a_sample(&self, period: u64) -> [u64; 2] {
        [Access::Store, Access::Load].map(|other| {
            let mut events = self.plan.events.iter();
            let sees = events.find(|planned| planned.access != other);
            sees.map_or(0, |planned| planned.event.period(period))
        })
    }

    fn set_period(&mut self, period: u64) -> Result<(), PmuError> {
        self.period = period;
        if !self.plan.per_cpu {
            return self.reopen();
        }
        let planned = self.plan.events.iter().cycle();
        for (event, planned) in self.events.iter().zip(planned) {
            let set = event.set_period(planned.event.period(period));
            set.map_err(|source| PmuError::Open {
                event: planned.name.clone(),
                cpu: 0,
                pid: None,
                source,
            })?;
        }
        Ok(())
    }

    fn add(&mut self, pid: Pid, follow: bool) -> Result<(), PmuError> {
        if self.plan.per_cpu || self.processes.contains_key(&pid) {
            return Ok(());
        }
        self.open_process(pid, follow)?;
        self.processes.insert(pid, follow);
        Ok(())
    }

    fn remove(&mut self, pid: Pid) -> Result<(), PmuError> {
        match self.processes.remove(&pid) {
            Some(_) => self.reopen(),
            None => Ok(()),
        }
    }

    fn born(&mut self, child: Pid) {
        if !self.plan.per_cpu {
            self.processes.insert(child, true);
        }
    }

    fn ended(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    fn lost(&self) -> Lost {
        let count = |events: &mut dyn Iterator<Item = &Event>| -> u64 {
            events.map(|e| e.lost().ok().flatten().unwrap_or(0)).sum()
        };
        let owners = &mut self.processors.iter().map(|p| &p.owner);
        Lost {
            samples: self.lost_before.samples + count(&mut self.events.iter()),
            process_events: self.lost_before.process_events
                + count(&mut self.tasks.iter().chain(owners)),
        }
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let owners = self.processors.iter().map(|p| &p.owner);
        owners.map(AsFd::as_fd).collect()
    }
}

/// Half a ring.
fn watermark(ring_bytes: usize) -> u32 {
    u32::try_from(ring_bytes / 2).unwrap_or(u32::MAX)
}

fn threads(pid: Pid) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries.into_iter().flatten().flatten();
    let tids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.collect()
}
