// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that clears and reads.
//!
//! Each process has passes of its own: find what is in memory, clear slice after slice, read each slice by
//! its ladder; when all slices have been read for the last time the next pass begins. One queue of what is due
//! next, over all processes. All of it together takes at most [`super::AccessedBitsConfig::budget`] of a
//! processor: passes become longer where that is not enough.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_bpf::PageTables;
use terrace_bpf::PlacedRanges;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_core::ladder;
use terrace_sys::clock;

use super::AccessedBitsConfig;
use super::length::Length;
use super::named::Prices;
use super::nodes::Nodes;
use super::process::Begun;
use super::process::Process;
use super::reading::Reading;
use super::reading::Told;
use super::shared::Asked;
use super::shared::Order;
use super::shared::Shared;

/// Clearing an entry takes so long, ns, before it was measured.
pub(super) const CLEAR_NS: f64 = 60.0;
/// A process is read when it has lived so long: what a shell or a build starts ends sooner, and there is
/// nothing to gain in it.
const YOUNG: Nanos = Nanos::from_millis(500);
/// What was read is told before the next wait, or when there is so much of it.
const MANY: usize = 4_096;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Begin,
    Slice(usize),
}

type Due = Reverse<(Nanos, Pid, What)>;

/// Memory to measure on, at most: programs have page tables that the caches do not hold.
const MEASURED_PAGES: u64 = 1 << 16;

/// See the module.
pub(super) struct Reader {
    pub(super) tables: PageTables,
    pub(super) nodes: Nodes,
    pub(super) placed: PlacedRanges,
    pub(super) shared: Arc<Shared>,
    pub(super) config: AccessedBitsConfig,
    pub(super) processes: BTreeMap<Pid, Process>,
    young: BTreeSet<Pid>,
    queue: BinaryHeap<Due>,
    /// Nothing is read before it was asked for.
    asked: Option<Asked>,
    paused: bool,
    /// What clearing named pages takes.
    pub(super) prices: Prices,
    /// Clearing an entry, ns, a running mean.
    clear_ns: f64,
    /// What it costs a program to set a bit again, ns, as measured here before the first pass: what ends sooner is not to wait for it.
    pub(super) set_ns: Option<f64>,
    length: Length,
    pub(super) told: Vec<Told>,
}

impl Reader {
    pub(super) fn new(
        (tables, placed): (PageTables, PlacedRanges),
        nodes: Nodes,
        shared: Arc<Shared>,
        config: AccessedBitsConfig,
    ) -> Self {
        Self {
            tables,
            nodes,
            placed,
            shared,
            length: Length::new(config.budget_permille),
            config,
            processes: BTreeMap::new(),
            young: BTreeSet::new(),
            queue: BinaryHeap::new(),
            asked: None,
            paused: false,
            prices: Prices::default(),
            clear_ns: CLEAR_NS,
            set_ns: None,
            told: Vec::new(),
        }
    }

    /// Until told to stop.
    pub(super) fn run(mut self) {
        while self.take_orders() {
            let now = clock::now();
            let next = self
                .queue
                .peek()
                .map_or(Nanos::MAX, |Reverse((at, ..))| *at);
            if next <= now {
                self.handle(now);
                if self.told.len() >= MANY {
                    self.shared.tell(&mut self.told);
                }
            } else {
                self.shared.tell(&mut self.told);
                self.wait(next.since(now));
            }
        }
    }

    fn wait(&self, time: Nanos) {
        let mut fds = [PollFd::new(&self.shared.orders, PollFlags::IN)];
        let timeout = Timespec::try_from(std::time::Duration::from(time)).ok();
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }

    /// False when it is over.
    fn take_orders(&mut self) -> bool {
        for order in self.shared.take_orders() {
            let now = clock::now();
            match order {
                Order::Add(pid) => self.add(pid, now),
                Order::Remove(pid) => {
                    self.young.remove(&pid);
                    self.processes.remove(&pid);
                }
                Order::Ask(asked) => self.ask(asked, now),
                Order::Look(pages) if !self.paused => self.look(&pages),
                Order::Look(_) => {}
                Order::Pause(paused) => self.pause(paused, now),
                Order::Stop => return false,
            }
        }
        true
    }

    fn add(&mut self, pid: Pid, now: Nanos) {
        // It may be another process of that number, or have another program now.
        self.processes.remove(&pid);
        self.young.insert(pid);
        self.queue.push(Reverse((now + YOUNG, pid, What::Begin)));
    }

    /// What is asked for holds for passes under way where it is shorter, and for those that are still being cleared: who asks when one is over
    /// asks for the next, which has begun meanwhile.
    fn ask(&mut self, asked: Asked, now: Nanos) {
        let before = self.asked.replace(asked);
        let pass = asked.pass;
        let first = before.is_none();
        if before.is_none_or(|before| pass < before.pass) {
            self.length.hurry(now);
        }
        let longer = self.pass(Nanos::ZERO);
        for (pid, process) in &mut self.processes {
            if first {
                self.queue.push(Reverse((now, *pid, What::Begin)));
            }
            process.shorten(pass, now);
            process.lengthen(longer);
            for (index, slice) in process.slices.iter().enumerate() {
                if let Some(due) = slice.due() {
                    self.queue.push(Reverse((due, *pid, What::Slice(index))));
                }
            }
        }
    }

    /// A pass that was broken off tells nothing more; the next begins when it goes on.
    fn pause(&mut self, paused: bool, now: Nanos) {
        self.paused = paused;
        self.queue.clear();
        self.processes.values_mut().for_each(Process::end);
        if !paused {
            let all = self.processes.keys().chain(&self.young);
            self.queue
                .extend(all.map(|pid| Reverse((now, *pid, What::Begin))));
        }
    }

    /// Does the first thing that is due.
    fn handle(&mut self, now: Nanos) {
        let Some(Reverse((_, pid, what))) = self.queue.pop() else {
            return;
        };
        self.open_young(pid);
        let Some(mut process) = self.processes.remove(&pid) else {
            return;
        };
        self.measure_set();
        let before = clock::thread_cpu_time();
        let goes_on = match what {
            What::Begin => self.begin(&mut process, now),
            What::Slice(index) => self.slice(&mut process, index, now),
        };
        process.busy = process.busy + clock::thread_cpu_time().since(before);
        if !goes_on {
            // Gone, replaced, without memory or swapping: another look a pass later.
            process.end();
            let again = now + self.pass(process.busy_before);
            self.queue.push(Reverse((again, pid, What::Begin)));
        } else if process.left == 0 && !process.slices.is_empty() {
            self.length.took(process.busy);
            self.told.push(Told::PassOver {
                pid,
                parts: process.turns.parts(),
                pages: process.pages,
                busy: process.busy,
                lost: self.lost(process.set),
            });
            process.end();
            self.queue.push(Reverse((now, pid, What::Begin)));
        }
        self.processes.insert(pid, process);
    }

    /// Takes hold of a process that was too young until now.
    pub(super) fn open_young(&mut self, pid: Pid) {
        if self.young.remove(&pid)
            && let Some(process) = Process::open(pid, &self.tables)
        {
            self.processes.insert(pid, process);
        }
    }

    /// Once, before the first bits are cleared.
    pub(super) fn measure_set(&mut self) {
        if self.set_ns.is_none() {
            self.set_ns = Some(set_ns());
            let one = self.lost(1);
            self.shared.count(|counts| counts.set = one);
        }
    }

    /// What bits set again took of their process.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time, not negative"
    )]
    pub(super) fn lost(&self, set: u64) -> Nanos {
        Nanos((set as f64 * self.set_ns.unwrap_or(0.0)) as u64)
    }

    /// How long a pass is: as asked for, or doubled as often as the budget wants it. `own` is what the last pass took of
    /// the process at hand, which is not among the others meanwhile.
    fn pass(&mut self, own: Nanos) -> Nanos {
        let asked = self.asked.map_or(Nanos::from_secs(1), |asked| asked.pass);
        let others = self.processes.values().map(|process| process.busy_before.0);
        let busy = Nanos(others.sum::<u64>() + own.0);
        self.length.of(asked, busy)
    }

    fn begin(&mut self, process: &mut Process, now: Nanos) -> bool {
        let Some(asked) = self.asked.filter(|_| !self.paused && process.left == 0) else {
            // Begun when it is asked for, or begun already.
            return true;
        };
        #[expect(clippy::cast_precision_loss, reason = "a time of milliseconds")]
        let most = self.config.max_stall.0 as f64 / self.clear_ns;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive and small"
        )]
        let most = (most as u64).max(1);
        if process.is_swapping() {
            self.shared.count(|counts| counts.swapping += 1);
            return false;
        }
        let mappings = process.private_memory(&self.nodes, &self.placed);
        let begun = mappings.map_or(Begun::LeftAlone, |mappings| {
            let shares = self.shares(process);
            process.begin(&mut self.tables, (&mappings, shares), (most, asked.parts))
        });
        if begun == Begun::LeftAlone {
            self.shared.count(|counts| counts.left_alone += 1);
        }
        if begun != Begun::Reads {
            return false;
        }
        // The same for all slices.
        process.rungs = ladder(asked.shortest, self.pass(process.busy_before));
        self.queue.push(Reverse((now, process.pid, What::Slice(0))));
        true
    }

    /// Whether others may map pages of a process: those it forked or was forked with, or any where the kernel merges equal pages.
    fn shares(&self, process: &Process) -> bool {
        let mut others = self.processes.values();
        let is_relative = |other: &Process| {
            other.parent == Some(process.pid)
                || process.parent == Some(other.pid)
                || process.parent == other.parent
        };
        others.any(is_relative) || process.has_children() || merges_equal_pages()
    }

    fn slice(&mut self, process: &mut Process, index: usize, now: Nanos) -> bool {
        let Some(slice) = process.slices.get(index) else {
            return true;
        };
        if !slice.begun() {
            return self.clear(process, index);
        }
        match slice.due() {
            Some(_) if slice.may_be_read(now) => self.read(process, index, now),
            _ => true,
        }
    }

    fn clear(&mut self, process: &mut Process, index: usize) -> bool {
        let (before, ran) = (clock::now(), clock::cpu_time_of(process.pid));
        let done = process.clear(index);
        let took = clock::now().since(before);
        if done.failed {
            return false;
        }
        let entries = process.slices[index].entries.max(1);
        #[expect(clippy::cast_precision_loss, reason = "a time of milliseconds")]
        let each = took.0 as f64 / entries as f64;
        self.clear_ns = self.clear_ns * 0.9 + each * 0.1;
        self.shared.count(|counts| {
            counts.refused += done.refused;
            counts.cleared += entries;
            counts.clear_time = counts.clear_time + took;
            counts.longest_clear = counts.longest_clear.max(took);
        });
        let middle = before + Nanos(took.0 / 2);
        let slice = &mut process.slices[index];
        slice.begin(middle, ran, process.rungs.clone());
        if let Some(due) = slice.due() {
            self.queue
                .push(Reverse((due, process.pid, What::Slice(index))));
        }
        // As much time between two clearings as one takes, for the first readings of the one before and for
        // those who wait for the lock: it is given to who asks at once rather than to them.
        if index + 1 < process.slices.len() {
            let next = before + took + took;
            self.queue
                .push(Reverse((next, process.pid, What::Slice(index + 1))));
        }
        true
    }

    /// Reads a slice, and those behind it that may be read with it.
    fn read(&mut self, process: &mut Process, index: usize, now: Nanos) -> bool {
        let behind = process.slices[index..].iter();
        let count = behind.take_while(|slice| slice.may_be_read(now)).count();
        let together = index..index + count.max(1);
        let (nodes, told, pid) = (&self.nodes, &mut self.told, process.pid);
        let parts = process.turns.parts();
        let (before, mut entries, mut set) = (told.len(), 0, 0);
        let ran = clock::cpu_time_of(pid);
        let there = process.read(together.clone(), &mut self.tables, |slice, chunk, found| {
            let (since, until, last) = slice.times(now);
            let Some(seen) = slice.take(&found, &chunk.accessed()) else {
                return;
            };
            let present = u64::from(seen.present.count());
            entries += present;
            slice.pages += if last { present } else { 0 };
            set += u64::from(seen.fresh.count());
            if seen.present.is_empty() || seen.fresh.is_empty() && !last {
                return;
            }
            told.push(Told::Reading(Reading {
                pid,
                parts,
                start: found.start,
                since,
                until,
                ran: slice.ran(ran),
                last,
                huge: found.huge,
                present: seen.present,
                accessed: seen.accessed,
                fresh: seen.fresh,
                nodes: nodes.of(chunk, &seen.present),
            }));
        });
        if !there {
            self.told.truncate(before);
            return false;
        }
        process.set += set;
        for index in together {
            let slice = &mut process.slices[index];
            let (_, until, _) = slice.times(now);
            slice.read(until, ran);
            match slice.due() {
                Some(due) => self.queue.push(Reverse((due, pid, What::Slice(index)))),
                None => {
                    process.left -= 1;
                    process.pages += slice.pages;
                }
            }
        }
        let took = clock::now().since(now);
        self.shared.count(|counts| {
            counts.read += entries;
            counts.read_time = counts.read_time + took;
        });
        true
    }
}

/// Whether KSM is at work (`/sys/kernel/mm/ksm/run`).
fn merges_equal_pages() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/ksm/run").is_ok_and(|run| run.trim() == "1")
}

/// What it costs a program here to set a bit again, ns; 0 where that cannot be measured.
pub(super) fn set_ns() -> f64 {
    let pages = terrace_sys::own_memory::pages_to_spare(MEASURED_PAGES);
    terrace_sys::set_again::measure(pages).unwrap_or(0.0)
}
