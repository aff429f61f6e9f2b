// SPDX-License-Identifier: MIT OR Apache-2.0
//! MTM's way of copying (7.2): beside the program, by several threads, until the first write; then at once while
//! whoever touches the page waits. And Nimble's, with which the paper compares it: several threads, who touches the
//! page waits from the beginning.
//!
//! Writes are looked for by protection, for which processors are told once; the fault of the first one is answered
//! in user space ([`FAULT_NS`]) and ends the tracking. One worker takes order after order.

use terrace_core::PageRef;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Refusal;
use terrace_policy::Served;
use terrace_policy::Verdict;

use crate::in_turn::InTurn;
use crate::memory::Depth;
use crate::world::By;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::End;
use crate::world::World;
use crate::world::bits;
use crate::world::node_of;
use crate::world::unit_of;

/// The fault of a write during the copy (9.5: about 40 us).
const FAULT_NS: f64 = 40_000.0;
/// Whether a page was written is looked at so often during its copy.
const PARTS: u32 = 8;

/// How it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadedCopy {
    /// Threads for one page.
    pub(crate) threads: u32,
    /// The program goes on until it writes; else it waits from the beginning.
    pub(crate) adaptive: bool,
}

impl ThreadedCopy {
    const fn mechanism(self) -> Mechanism {
        if self.adaptive {
            Mechanism::AdaptiveCopy
        } else {
            Mechanism::ParallelCopy
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Order {
    unit: u32,
    page: PageRef,
    migration: Migration,
    from: usize,
    /// When it was given.
    since: u64,
}

#[derive(Debug)]
struct Job {
    order: Order,
    to: usize,
    /// Parts of the copy that are left while the program goes on; none: it waits.
    left: Option<u32>,
    /// How long the page is inaccessible at the end.
    waits: f64,
    /// Utilisation that the copy adds: node and share.
    load: Vec<(usize, f64)>,
}

/// The worker.
#[derive(Debug)]
pub(crate) struct Copier {
    copying: ThreadedCopy,
    turn: InTurn<Order, Job>,
}

impl Copier {
    pub(crate) const fn new(copying: ThreadedCopy) -> Self {
        Self {
            copying,
            turn: InTurn::new(),
        }
    }

    /// When it goes on.
    pub(crate) const fn next(&self) -> u64 {
        self.turn.next
    }
}

impl World {
    /// Takes an order from the policy.
    pub(crate) fn order_threaded(
        &mut self,
        now: u64,
        page: PageRef,
        migration: Migration,
        stated: Option<Mechanism>,
    ) -> Served {
        let own = self.movement.threaded.map(ThreadedCopy::mechanism);
        if stated.is_some() && stated != own {
            return Err(Refusal::Unserved);
        }
        let unit = unit_of(self, page);
        let to = node_of(self, migration.target());
        let exchange = matches!(migration, Migration::Exchange { .. });
        let (Some(unit), Some(to)) = (unit, to) else {
            self.end_threaded(page, migration, None, (now, now), (Verdict::Lost, None));
            return Ok(());
        };
        let from = self.node(unit);
        if self.has(unit, bits::ORDERED) || from == to || exchange {
            let end = (Verdict::Busy, None);
            self.end_threaded(page, migration, Some(from), (now, now), end);
            return Ok(());
        }
        self.set(unit, bits::ORDERED);
        if let Some(worker) = &mut self.copier {
            let order = Order {
                unit,
                page,
                migration,
                from,
                since: now,
            };
            worker.turn.push(now, order);
        }
        Ok(())
    }

    fn end_threaded(
        &mut self,
        page: PageRef,
        migration: Migration,
        from: Option<usize>,
        (since, at): (u64, u64),
        (verdict, inaccessible): (Verdict, Option<f64>),
    ) {
        let own = self.movement.threaded.map(ThreadedCopy::mechanism);
        self.ends.push_back(End {
            at,
            page,
            migration,
            from,
            verdict,
            mechanism: own.unwrap_or(Mechanism::MovePages),
            took: at.saturating_sub(since),
            inaccessible,
            busy: None,
        });
    }

    /// Lets the worker go on if its time has come.
    pub(crate) fn threaded_step(&mut self, clock: &mut dyn Clock) {
        let Some(mut worker) = self.copier.take() else {
            return;
        };
        while worker.turn.next <= self.now {
            let at = worker.turn.next;
            let took = match worker.turn.job.take() {
                None => self.begin_threaded(&mut worker, at, clock),
                Some(job) => self.proceed_threaded(&mut worker, job, at, clock),
            };
            worker.turn.took(at, took);
        }
        self.copier = Some(worker);
    }

    /// The copy of an order's page by all threads, ns.
    fn threaded_ns(&self, copying: ThreadedCopy, order: &Order, to: usize) -> f64 {
        let bytes = self.space.bytes(order.unit);
        let busy = [self.busy[order.from], self.busy[to]];
        let threads = f64::from(copying.threads);
        self.hardware.copy_by(threads, bytes, order.from, to, busy)
    }

    /// More copying from now on, by all threads.
    fn load_threaded(&mut self, copying: ThreadedCopy, job: &mut Job, at: u64, copy: f64) {
        let bytes = self.space.bytes(job.order.unit);
        let load = self.copy_load(bytes, copy.max(1.0), job.order.from, job.to);
        for (node, share) in load {
            self.copying.change(at, node, share);
            job.load.push((node, share));
        }
        self.totals.workers += copy * f64::from(copying.threads);
    }

    fn begin_threaded(&mut self, worker: &mut Copier, at: u64, clock: &mut dyn Clock) -> f64 {
        let Some(order) = worker.turn.pop() else {
            return 0.0;
        };
        let to = usize::from(order.migration.target().0);
        if !self
            .memory
            .take(to, self.space.bytes(order.unit), Depth::Min)
        {
            self.clear(order.unit, bits::ORDERED);
            let (page, migration) = (order.page, order.migration);
            self.end_threaded(
                page,
                migration,
                Some(order.from),
                (order.since, at),
                (Verdict::NoMemory, None),
            );
            return 0.0;
        }
        let mut job = Job {
            order,
            to,
            left: None,
            waits: 0.0,
            load: Vec::new(),
        };
        let program = self.program(order.unit);
        if !worker.copying.adaptive {
            let wait = self.wait_threaded(worker.copying, &mut job, at, true, clock);
            worker.turn.job = Some(job);
            return wait;
        }
        // Protected: processors are told once.
        let shootdown = self.shootdown_ns(program, By::Worker);
        self.charge_shootdowns(program, By::Worker, Charge::Migration, 1.0);
        self.totals.workers += shootdown;
        self.set(order.unit, bits::COPYING);
        let copy = self.threaded_ns(worker.copying, &order, to);
        self.load_threaded(worker.copying, &mut job, at, copy);
        job.left = Some(PARTS);
        worker.turn.job = Some(job);
        shootdown + copy / f64::from(PARTS)
    }

    /// From here on whoever touches the page waits: for the copy, where one is needed, and the new mapping.
    fn wait_threaded(
        &mut self,
        copying: ThreadedCopy,
        job: &mut Job,
        at: u64,
        copies: bool,
        clock: &mut dyn Clock,
    ) -> f64 {
        let (unit, program) = (job.order.unit, self.program(job.order.unit));
        let shootdown = self.shootdown_ns(program, By::Worker);
        self.charge_shootdowns(program, By::Worker, Charge::Migration, 1.0);
        let mut wait = self.costs.migrate_fixed_ns + shootdown;
        self.totals.workers += wait;
        if copies {
            let copy = self.threaded_ns(copying, &job.order, job.to);
            self.load_threaded(copying, job, at, copy);
            wait += copy;
        }
        self.clear(unit, bits::COPYING | bits::DIRTIED);
        self.set(unit, bits::BLOCKED);
        clock.blocked(self, unit, wait);
        (job.left, job.waits) = (None, wait);
        wait
    }

    fn proceed_threaded(
        &mut self,
        worker: &mut Copier,
        mut job: Job,
        at: u64,
        clock: &mut dyn Clock,
    ) -> f64 {
        let Some(left) = job.left else {
            self.arrive_threaded(&job, at);
            return 0.0;
        };
        let copy = self.threaded_ns(worker.copying, &job.order, job.to);
        let part = copy / f64::from(PARTS);
        let written = clock.written(self, job.order.unit, part);
        if written {
            // What the fault costs the writer more than one that the kernel answers.
            let program = self.program(job.order.unit);
            let more = (FAULT_NS - self.costs.write_protect_fault_ns).max(0.0);
            self.charge(program, Charge::Migration, more);
            // The rest of the copy is not made.
            self.totals.workers -= part * f64::from((left - 1) * worker.copying.threads);
        } else if left > 1 {
            job.left = Some(left - 1);
            worker.turn.job = Some(job);
            return part;
        }
        for (node, share) in std::mem::take(&mut job.load) {
            self.copying.change(at, node, -share);
        }
        let wait = self.wait_threaded(worker.copying, &mut job, at, written, clock);
        worker.turn.job = Some(job);
        wait
    }

    fn arrive_threaded(&mut self, job: &Job, at: u64) {
        for (node, share) in &job.load {
            self.copying.change(at, *node, -share);
        }
        let order = job.order;
        let bytes = self.space.bytes(order.unit);
        self.clear(order.unit, bits::ORDERED | bits::BLOCKED);
        self.drop_shadow(order.unit);
        self.memory.give(order.from, bytes);
        self.totals.migrated[job.to] += bytes;
        self.place(order.unit, job.to);
        let end = (Verdict::Moved { shadow: false }, Some(job.waits));
        let (page, migration) = (order.page, order.migration);
        self.end_threaded(page, migration, Some(order.from), (order.since, at), end);
    }
}
