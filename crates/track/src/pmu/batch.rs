// SPDX-License-Identifier: MIT OR Apache-2.0
//! From records to events: whose they are, whether memory served them, in which order. Pure.
//!
//! Rings are read one after another, so records of several processors come out of order; a
//! [`Batch`] takes in all that one turn found and hands it out by time. Processes are followed by
//! their fork and exit records. A child's first samples can be read before its fork where the two
//! come in different turns; they are then counted as somebody else's.
//!
//! Of loads, those that a cache served are left out (a PMU with one event for all accesses reports
//! them, too). Stores are taken wherever they went, as HeMem takes `MEM_INST_RETIRED.ALL_STORES`.
//! Nothing is dropped without a count: [`Counts::records`] is the sum of the others.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::perf;
use terrace_sys::perf::Record;

use super::clock::LocalClock;
use super::table::Access;
use crate::event::Sample;
use crate::event::TrackEvent;

/// What became of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Samples that came out of the rings.
    pub records: u64,
    /// Reported.
    pub reported: u64,
    /// Of processes that are not tracked.
    pub foreign: u64,
    /// Loads that a cache served.
    pub cached: u64,
    /// Without an address of the program: the PMU had none, or it is the kernel's, or it was no
    /// access to memory at all.
    pub no_address: u64,
    /// Samples that found no room in a ring or in the PMU.
    pub lost: u64,
    /// Throttle records.
    pub throttled: u64,
    /// Records that are not what the kernel documents.
    pub malformed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    follow: bool,
    /// Its first thread has ended. Others may go on, or one of them takes its place by exec.
    ending: bool,
}

/// The processes that are tracked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Family {
    members: BTreeMap<Pid, Member>,
}

impl Family {
    /// Tracks a process, and with `follow` its future children.
    pub fn add(&mut self, pid: Pid, follow: bool) {
        let ending = false;
        self.members.insert(pid, Member { follow, ending });
    }

    /// Tracks it no more; whether it was.
    pub fn remove(&mut self, pid: Pid) -> bool {
        self.members.remove(&pid).is_some()
    }

    /// Whether it is tracked.
    #[must_use]
    pub fn has(&self, pid: Pid) -> bool {
        self.members.contains_key(&pid)
    }

    fn set_ending(&mut self, pid: Pid, ending: bool) -> bool {
        let member = self.members.get_mut(&pid);
        member.map(|member| member.ending = ending).is_some()
    }

    fn ending(&self) -> Vec<Pid> {
        let ending = self.members.iter().filter(|(_, member)| member.ending);
        ending.map(|(pid, _)| *pid).collect()
    }

    /// All, with whether their children are followed.
    pub fn iter(&self) -> impl Iterator<Item = (Pid, bool)> {
        self.members
            .iter()
            .map(|(pid, member)| (*pid, member.follow))
    }
}

#[derive(Debug, Clone, Copy)]
enum Item {
    Sample(perf::Sample, Access),
    Fork(perf::Task),
    Exit(perf::Task),
    Exec(u32),
}

/// What one turn over the rings found.
#[derive(Debug, Default)]
pub struct Batch {
    items: Vec<(u64, Item)>,
    counts: Counts,
}

impl Batch {
    /// Takes in a record. `access` says what the samples of an event are; of an event that it does
    /// not know, they have no address.
    pub fn take(
        &mut self,
        record: Result<Record, perf::Malformed>,
        access: impl Fn(u64) -> Option<Access>,
    ) {
        match record {
            Ok(Record::Sample(sample)) => {
                self.counts.records += 1;
                match access(sample.id) {
                    Some(access) => self.items.push((sample.time, Item::Sample(sample, access))),
                    None => self.counts.no_address += 1,
                }
            }
            Ok(Record::Lost { lost, .. } | Record::LostSamples { lost }) => {
                self.counts.lost += lost;
            }
            Ok(Record::Throttled { .. }) => self.counts.throttled += 1,
            // Threads of a process have its id as their parent's, or are of the same process.
            Ok(Record::Fork(task)) if task.pid != task.parent => {
                self.items.push((task.time, Item::Fork(task)));
            }
            Ok(Record::Exit(task)) if task.pid == task.tid => {
                self.items.push((task.time, Item::Exit(task)));
            }
            Ok(Record::Exec { pid, time }) => self.items.push((time, Item::Exec(pid))),
            Ok(
                Record::Fork(_) | Record::Exit(_) | Record::Unthrottled { .. } | Record::Other(_),
            ) => {}
            Err(_) => self.counts.malformed += 1,
        }
    }

    /// Hands out everything by time and is empty again. A process whose first thread has ended is
    /// reported as ended once `lives` says that nothing of it is left, in this turn or a later one.
    pub fn finish(
        &mut self,
        now: Nanos,
        clock: &mut LocalClock,
        family: &mut Family,
        lives: &dyn Fn(Pid) -> bool,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Counts {
        if let Some(newest) = self.items.iter().map(|(time, _)| *time).max() {
            clock.observe(now, newest);
        }
        // Stable: a ring's order is kept where times are equal.
        self.items.sort_by_key(|(time, _)| *time);
        for (time, item) in self.items.drain(..) {
            let time = clock.monotonic(time, now);
            match item {
                Item::Sample(sample, access) => {
                    let event = judge(&mut self.counts, &sample, access, time, family);
                    event.into_iter().for_each(&mut *sink);
                }
                Item::Fork(task) => {
                    let (parent, child) = (Pid(task.parent), Pid(task.pid));
                    if family.members.get(&parent).is_some_and(|m| m.follow) {
                        family.add(child, true);
                        sink(TrackEvent::Forked {
                            parent,
                            child,
                            time,
                        });
                    }
                }
                Item::Exec(pid) => {
                    let pid = Pid(pid);
                    if family.set_ending(pid, false) {
                        sink(TrackEvent::Execed { pid, time });
                    }
                }
                Item::Exit(task) => {
                    let _ = family.set_ending(Pid(task.pid), true);
                }
            }
        }
        for pid in family.ending().into_iter().filter(|pid| !lives(*pid)) {
            family.remove(pid);
            sink(TrackEvent::Exited { pid, time: now });
        }
        std::mem::take(&mut self.counts)
    }
}

fn judge(
    counts: &mut Counts,
    sample: &perf::Sample,
    access: Access,
    time: Nanos,
    family: &Family,
) -> Option<TrackEvent> {
    let pid = Pid(sample.pid);
    if !family.has(pid) {
        counts.foreign += 1;
        return None;
    }
    let source = sample.source.unwrap_or_default();
    let write = match access {
        Access::Load => Some(false),
        Access::Store => Some(true),
        Access::DataSource if source.is_store() => Some(true),
        Access::DataSource => source.is_load().then_some(false),
    };
    // Addresses of the upper half are the kernel's.
    let (Some(write), 1..0x8000_0000_0000_0000) = (write, sample.addr) else {
        counts.no_address += 1;
        return None;
    };
    if !write && !source.level().may_be_memory() {
        counts.cached += 1;
        return None;
    }
    counts.reported += 1;
    Some(TrackEvent::Sample(Sample {
        pid,
        tid: sample.tid,
        cpu: sample.cpu,
        addr: Addr(sample.addr),
        phys: sample.phys,
        node: None,
        write,
        // Whoever set the period knows.
        accesses: 1,
        time,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use terrace_sys::perf::DataSource;
    use terrace_sys::perf::Task;

    use super::*;

    const LOAD: u64 = 1;
    const STORE: u64 = 2;
    const ANY: u64 = 3;

    fn access(id: u64) -> Option<Access> {
        match id {
            LOAD => Some(Access::Load),
            STORE => Some(Access::Store),
            ANY => Some(Access::DataSource),
            _ => None,
        }
    }

    fn sample(id: u64, pid: u32, time: u64) -> perf::Sample {
        perf::Sample {
            id,
            pid,
            tid: pid + 1,
            time,
            addr: 0x7000_1234,
            cpu: 3,
            ..perf::Sample::default()
        }
    }

    fn task(pid: u32, parent: u32, tid: u32, time: u64) -> Task {
        Task {
            pid,
            parent,
            tid,
            time,
        }
    }

    struct Setting {
        batch: Batch,
        family: Family,
        clock: LocalClock,
        lives: bool,
    }

    impl Setting {
        fn tracking(pid: u32, follow: bool) -> Self {
            let mut family = Family::default();
            family.add(Pid(pid), follow);
            Self {
                batch: Batch::default(),
                family,
                clock: LocalClock::default(),
                lives: false,
            }
        }

        fn turn(&mut self, records: &[Record]) -> (Vec<TrackEvent>, Counts) {
            for record in records {
                self.batch.take(Ok(*record), access);
            }
            let mut events = Vec::new();
            let lives = self.lives;
            let counts = self.batch.finish(
                Nanos(1_000_000),
                &mut self.clock,
                &mut self.family,
                &|_| lives,
                &mut |event| events.push(event),
            );
            (events, counts)
        }
    }

    #[test]
    fn accesses_are_told_apart() {
        let mut setting = Setting::tracking(7, false);
        let cache = DataSource(2 | 0x42 << 5 | 3 << 33);
        let memory = DataSource(2 | 0xd << 33);
        let records = [
            sample(LOAD, 7, 1),
            sample(STORE, 7, 2),
            perf::Sample {
                source: Some(DataSource(4)),
                ..sample(ANY, 7, 3)
            },
            perf::Sample {
                source: Some(memory),
                phys: Some(0x1234),
                ..sample(ANY, 7, 4)
            },
            // Not to be reported: a cache, no access, no address, the kernel's, a stranger's, an
            // event nobody knows.
            perf::Sample {
                source: Some(cache),
                ..sample(ANY, 7, 5)
            },
            sample(ANY, 7, 6),
            perf::Sample {
                addr: 0,
                ..sample(LOAD, 7, 7)
            },
            perf::Sample {
                addr: 0xffff_8880_0000_0000,
                ..sample(LOAD, 7, 8)
            },
            sample(LOAD, 8, 9),
            sample(9, 7, 10),
        ]
        .map(Record::Sample);
        let (events, counts) = setting.turn(&records);
        let writes: Vec<_> = events
            .iter()
            .map(|event| match event {
                TrackEvent::Sample(s) => (s.write, s.phys, s.addr.0, s.tid, s.cpu),
                other => panic!("{other:?}"),
            })
            .collect();
        let at = 0x7000_1234;
        assert_eq!(
            writes,
            [
                (false, None, at, 8, 3),
                (true, None, at, 8, 3),
                (true, None, at, 8, 3),
                (false, Some(0x1234), at, 8, 3)
            ]
        );
        let expected = Counts {
            records: 10,
            reported: 4,
            foreign: 1,
            cached: 1,
            no_address: 4,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn children_are_followed_by_time_not_by_ring() {
        let mut setting = Setting::tracking(7, true);
        // The ring of the child's processor was read first.
        let (events, counts) = setting.turn(&[
            Record::Sample(sample(LOAD, 9, 30)),
            Record::Exit(task(9, 7, 9, 40)),
            Record::Fork(task(9, 7, 9, 20)),
            Record::Fork(task(7, 7, 11, 21)),
            Record::Exec { pid: 9, time: 25 },
        ]);
        let names: Vec<_> = events
            .iter()
            .map(|event| match event {
                TrackEvent::Forked { parent, child, .. } => format!("fork {parent} {child}"),
                TrackEvent::Execed { pid, .. } => format!("exec {pid}"),
                TrackEvent::Exited { pid, .. } => format!("exit {pid}"),
                TrackEvent::Sample(s) => format!("sample {}", s.pid),
                TrackEvent::HintFault(_) | TrackEvent::Scanned { .. } => {
                    unreachable!("no PMU makes one")
                }
            })
            .collect();
        assert_eq!(names, ["fork 7 9", "exec 9", "sample 9", "exit 9"]);
        assert_eq!((counts.reported, counts.foreign), (1, 0));
        assert!(!setting.family.has(Pid(9)) && setting.family.has(Pid(7)));
    }

    #[test]
    fn children_of_one_alone_are_not() {
        let mut setting = Setting::tracking(7, false);
        let (events, _) = setting.turn(&[
            Record::Fork(task(9, 7, 9, 20)),
            Record::Sample(sample(LOAD, 9, 30)),
            Record::Exec { pid: 9, time: 31 },
            Record::Exit(task(9, 7, 9, 40)),
        ]);
        assert_eq!(events, []);
    }

    #[test]
    fn a_process_ends_with_its_last_thread() {
        let mut setting = Setting::tracking(7, false);
        // A thread, then the first one while others live on.
        let (events, _) = setting.turn(&[Record::Exit(task(7, 1, 8, 10))]);
        assert_eq!(events, []);
        setting.lives = true;
        let (events, _) = setting.turn(&[Record::Exit(task(7, 1, 7, 20))]);
        assert_eq!(events, []);
        setting.lives = false;
        let (events, _) = setting.turn(&[]);
        assert!(matches!(events[..], [TrackEvent::Exited { .. }]));
        assert_eq!(setting.turn(&[]).0, []);
    }

    #[test]
    fn another_thread_can_take_the_first_ones_place() {
        let mut setting = Setting::tracking(7, false);
        let (events, _) = setting.turn(&[
            Record::Exit(task(7, 1, 7, 20)),
            Record::Exec { pid: 7, time: 21 },
        ]);
        assert!(matches!(events[..], [TrackEvent::Execed { .. }]));
        assert_eq!(setting.turn(&[]).0, []);
    }

    #[test]
    fn losses_are_counted() {
        let mut setting = Setting::tracking(7, false);
        setting
            .batch
            .take(Err(perf::Malformed { kind: 9, bytes: 8 }), access);
        let (_, counts) = setting.turn(&[
            Record::Lost { id: 1, lost: 3 },
            Record::LostSamples { lost: 4 },
            Record::Throttled { id: 1 },
            Record::Unthrottled { id: 1 },
        ]);
        let expected = Counts {
            lost: 7,
            throttled: 1,
            malformed: 1,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
        // Counted once.
        assert_eq!(setting.turn(&[]).1, Counts::default());
    }

    proptest! {
        /// Whatever samples come, each is in exactly one of the counts.
        #[test]
        fn every_sample_is_accounted_for(
            samples in prop::collection::vec(
                (0u64..5, 5u32..9, any::<u64>(), any::<u64>(), prop::option::of(any::<u64>())),
                0..200,
            ),
        ) {
            let mut setting = Setting::tracking(7, true);
            let records: Vec<_> = samples
                .iter()
                .map(|(id, pid, time, addr, source)| Record::Sample(perf::Sample {
                    addr: *addr,
                    source: source.map(DataSource),
                    ..sample(*id, *pid, *time)
                }))
                .collect();
            let (events, counts) = setting.turn(&records);
            prop_assert_eq!(counts.records, samples.len() as u64);
            prop_assert_eq!(counts.reported, events.len() as u64);
            let sum = counts.reported + counts.foreign + counts.cached + counts.no_address;
            prop_assert_eq!(counts.records, sum);
        }
    }
}
