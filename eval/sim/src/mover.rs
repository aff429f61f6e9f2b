// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migration workers: each program's agent (transactions), and the kernel's (ordinary migration).
//!
//! A transaction (Nomad 3.1): protect, copy while the program goes on reading, then commit, during
//! which the page is inaccessible; a write during the copy aborts it. Pages of a batch are protected
//! and copied together and committed one after the other. Demotion of a page with a shadow on the
//! target is a commit without a copy (3.2). The ordinary way: the page is inaccessible from before the
//! copy until after it.
//!
//! As `terrace run` does it without options (`--commit copy`): a page that is to keep a shadow is moved by the kernel,
//! inaccessible while it is copied, so that no write aborts it; the shadow is a second copy. All others go the
//! ordinary way, but for demotions onto a shadow.
//!
//! Two pages that change places ([`Migration::Exchange`]) are inaccessible from before both copies until after them;
//! no memory is taken or given.
//!
//! Every order ends exactly once.

use std::collections::VecDeque;

use terrace_core::PageRef;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Refusal;
use terrace_policy::Served;
use terrace_policy::Verdict;

use crate::memory::Depth;
use crate::world::By;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::End;
use crate::world::World;
use crate::world::bits;
use crate::world::node_of;
use crate::world::round;
use crate::world::unit_of;

#[derive(Debug, Clone, Copy)]
struct Order {
    unit: u32,
    page: PageRef,
    migration: Migration,
    /// Where it is.
    from: usize,
    /// The other page of an exchange.
    with: Option<u32>,
    /// When it was given.
    since: u64,
}

/// One page of a job.
#[derive(Debug, Clone, Copy)]
struct Slot {
    order: Order,
    from: usize,
    to: usize,
    /// Onto its shadow: nothing is copied.
    remap: bool,
    dirtied: bool,
    /// Of the shootdown that pages which the kernel moves in one call have together.
    part: f64,
}

/// What a worker is at.
#[derive(Debug)]
enum Stage {
    /// All pages are being copied, and have been for so long.
    Copy { window: f64 },
    /// That page is being committed.
    Commit { index: usize },
}

#[derive(Debug)]
struct Job {
    slots: Vec<Slot>,
    stage: Stage,
    /// Utilisation that its copy adds: node and share.
    load: Vec<(usize, f64)>,
}

#[derive(Debug)]
struct Worker {
    /// Transactions, the kernel's migration with a shadow, or the kernel's migration.
    mechanism: Mechanism,
    queue: VecDeque<Order>,
    job: Option<Job>,
    next: u64,
}

/// All workers: one for each program, and the kernel's.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    pub(crate) next: u64,
}

impl Workers {
    pub(crate) fn new(programs: usize, commit_copies: bool) -> Self {
        let agent = if commit_copies {
            Mechanism::CopyInCommit
        } else {
            Mechanism::Transaction
        };
        let worker = |mechanism| Worker {
            mechanism,
            queue: VecDeque::new(),
            job: None,
            next: u64::MAX,
        };
        let mut workers: Vec<Worker> = (0..programs).map(|_| worker(agent)).collect();
        workers.push(worker(Mechanism::MovePages));
        Self {
            workers,
            next: u64::MAX,
        }
    }

    fn update(&mut self) {
        self.next = self
            .workers
            .iter()
            .map(|w| w.next)
            .min()
            .unwrap_or(u64::MAX);
    }
}

impl World {
    /// By what an order is carried out that is given now.
    fn mechanism(&self, page: PageRef, migration: Migration) -> Mechanism {
        let waits = match migration {
            Migration::Promote { .. } | Migration::Exchange { .. } => true,
            Migration::Demote { .. } => self.movement.demotes_in_fault,
        };
        if self.movement.synchronous && waits && self.in_fault.is_some() {
            Mechanism::InFault
        } else if matches!(migration, Migration::Exchange { .. }) {
            Mechanism::Exchange
        } else if !self.movement.transactions {
            Mechanism::MovePages
        } else if !self.movement.commit_copies {
            Mechanism::Transaction
        } else if self.shadowed(page, migration) {
            Mechanism::CopyInCommit
        } else {
            Mechanism::MovePages
        }
    }

    /// Whether a shadow comes of it, or is there for it.
    fn shadowed(&self, page: PageRef, migration: Migration) -> bool {
        match migration {
            Migration::Promote { keep_shadow, .. } => keep_shadow,
            Migration::Demote { .. } => {
                unit_of(self, page).is_some_and(|unit| self.has(unit, bits::SHADOW))
            }
            Migration::Exchange { .. } => false,
        }
    }

    /// Takes an order from the policy. The kernel's worker is there whatever else is.
    pub(crate) fn order(
        &mut self,
        now: u64,
        page: PageRef,
        migration: Migration,
        stated: Option<Mechanism>,
    ) -> Served {
        let own = self.mechanism(page, migration);
        let exchange = matches!(migration, Migration::Exchange { .. });
        let served = match stated {
            None => true,
            Some(_) if exchange && !self.movement.exchange => false,
            Some(Mechanism::MovePages) => !exchange,
            Some(mechanism) => mechanism == own,
        };
        if !served {
            return Err(Refusal::Unserved);
        }
        self.take_on(now, page, migration, stated.unwrap_or(own));
        Ok(())
    }

    fn take_on(&mut self, now: u64, page: PageRef, migration: Migration, mechanism: Mechanism) {
        let unit = unit_of(self, page);
        let from = unit.map(|unit| self.node(unit));
        let refuse = |this: &mut Self, verdict| {
            this.ends.push_back(End {
                at: now,
                page,
                migration,
                from,
                verdict,
                mechanism,
                took: 0,
                inaccessible: None,
                busy: None,
            });
        };
        let (Some(unit), Some(to)) = (unit, node_of(self, migration.target())) else {
            refuse(self, Verdict::Lost);
            return;
        };
        if self.has(unit, bits::ORDERED) || self.node(unit) == to {
            refuse(self, Verdict::Busy);
            return;
        }
        let with = match migration {
            Migration::Exchange { with, .. } => match self.partner(unit, to, with) {
                Some(other) => Some(other),
                None => return refuse(self, Verdict::Busy),
            },
            Migration::Promote { .. } | Migration::Demote { .. } => None,
        };
        let order = Order {
            unit,
            page,
            migration,
            from: self.node(unit),
            with,
            since: now,
        };
        if mechanism == Mechanism::InFault {
            match with {
                Some(other) => self.exchange_in_fault(now, order, other, to),
                None => self.move_in_fault(now, order, to),
            }
            return;
        }
        for unit in [Some(unit), with].into_iter().flatten() {
            self.set(unit, bits::ORDERED);
        }
        let index = match mechanism {
            Mechanism::Transaction | Mechanism::CopyInCommit => self.program(unit),
            _ => self.workers.workers.len() - 1,
        };
        let worker = &mut self.workers.workers[index];
        worker.queue.push_back(order);
        if worker.job.is_none() && worker.next == u64::MAX {
            worker.next = now;
            self.workers.next = self.workers.next.min(now);
        }
    }

    /// The page on that node that another can change places with.
    fn partner(&self, unit: u32, to: usize, with: PageRef) -> Option<u32> {
        let other = unit_of(self, with).filter(|_| self.movement.exchange)?;
        let alike = self.space.bytes(unit) == self.space.bytes(other);
        let free = !self.has(other, bits::ORDERED) && self.node(other) == to;
        (alike && free).then_some(other)
    }

    /// An exchange in the hint fault: the faulting thread copies both ways. What is fixed comes once, no memory is
    /// taken, and all processors are told once.
    fn exchange_in_fault(&mut self, now: u64, order: Order, other: u32, to: usize) {
        let (from, bytes) = (order.from, self.space.bytes(order.unit));
        let mut copies = 0.0;
        for (from, to) in [(from, to), (to, from)] {
            let busy = [self.busy[from], self.busy[to]];
            let copy = self.hardware.copy_ns(bytes, from, to, busy);
            for (node, share) in self.copy_load(bytes, copy, from, to) {
                self.copying.lump(node, share, copy);
            }
            copies += copy;
        }
        let program = self.program(order.unit);
        let shootdown = self.shootdown_ns(program, By::Program);
        let wait = copies + self.costs.promote_fixed_ns + shootdown;
        self.charge(program, Charge::Migration, wait);
        self.totals.stall += wait;
        self.charge_shootdowns(program, By::Program, Charge::Migration, 1.0);
        self.swap(order, other, to);
        self.ends.push_back(End {
            at: now,
            page: order.page,
            migration: order.migration,
            from: Some(from),
            verdict: Verdict::Moved { shadow: false },
            mechanism: Mechanism::InFault,
            took: round(wait),
            inaccessible: Some(wait),
            busy: None,
        });
    }

    fn swap(&mut self, order: Order, other: u32, to: usize) {
        let bytes = self.space.bytes(order.unit);
        for (unit, to) in [(order.unit, to), (other, order.from)] {
            self.totals.migrated[to] += bytes;
            self.place(unit, to);
        }
    }

    /// Synchronous migration: the faulting thread copies.
    fn move_in_fault(&mut self, now: u64, order: Order, to: usize) {
        let bytes = self.space.bytes(order.unit);
        let end = |verdict, inaccessible: Option<f64>| End {
            at: now,
            page: order.page,
            migration: order.migration,
            from: Some(order.from),
            verdict,
            mechanism: Mechanism::InFault,
            took: round(inaccessible.unwrap_or(0.0)),
            inaccessible,
            busy: None,
        };
        let program = self.program(order.unit);
        if !self.memory.take(to, bytes, Depth::Min) {
            self.charge(
                program,
                Charge::Migration,
                self.costs.promote_fixed_ns / 4.0,
            );
            self.ends.push_back(end(Verdict::NoMemory, None));
            return;
        }
        let from = self.node(order.unit);
        let copy = self
            .hardware
            .copy_ns(bytes, from, to, [self.busy[from], self.busy[to]]);
        for (node, share) in self.copy_load(bytes, copy, from, to) {
            self.copying.lump(node, share, copy);
        }
        let shootdown = self.shootdown_ns(program, By::Program);
        let wait = copy + self.costs.promote_fixed_ns + shootdown;
        self.charge(program, Charge::Migration, wait);
        self.totals.stall += wait;
        self.charge_shootdowns(program, By::Program, Charge::Migration, 1.0);
        self.memory.give(from, bytes);
        self.totals.migrated[to] += bytes;
        self.place(order.unit, to);
        self.ends
            .push_back(end(Verdict::Moved { shadow: false }, Some(wait)));
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a page")]
    pub(crate) fn copy_load(
        &self,
        bytes: u64,
        ns: f64,
        from: usize,
        to: usize,
    ) -> [(usize, f64); 2] {
        let bandwidth = |f: fn(&crate::hardware::View) -> f64, node: usize| {
            let views = self.hardware.views.iter();
            views.map(|v| f(&v[node])).fold(0.0, f64::max)
        };
        let rate = bytes as f64 / ns;
        [
            (from, rate / bandwidth(|v| v.read_bw, from)),
            (to, rate / bandwidth(|v| v.write_bw, to)),
        ]
    }

    /// Lets the workers go on whose time has come.
    pub(crate) fn movers_step(&mut self, clock: &mut dyn Clock) {
        for index in 0..self.workers.workers.len() {
            while self.workers.workers[index].next <= self.now {
                let mut worker = std::mem::replace(
                    &mut self.workers.workers[index],
                    Worker {
                        mechanism: Mechanism::MovePages,
                        queue: VecDeque::new(),
                        job: None,
                        next: u64::MAX,
                    },
                );
                let at = worker.next;
                let took = match worker.job.take() {
                    None => self.begin(&mut worker, at, clock),
                    Some(job) => self.proceed(&mut worker, job, at, clock),
                };
                worker.next = match (&worker.job, worker.queue.is_empty()) {
                    (None, true) => u64::MAX,
                    _ => at + round(took).max(1),
                };
                self.totals.workers += took;
                self.workers.workers[index] = worker;
            }
        }
        self.workers.update();
    }

    /// Takes the next orders on; gives how long their copy takes.
    fn begin(&mut self, worker: &mut Worker, at: u64, clock: &mut dyn Clock) -> f64 {
        let most = match worker.mechanism {
            Mechanism::MovePages => 1,
            _ => self.costs.batch_pages as usize,
        };
        let mut slots = Vec::with_capacity(most);
        while slots.len() < most
            && let Some(order) = worker.queue.pop_front()
        {
            slots.extend(self.prepare(worker.mechanism, order, at));
        }
        if slots.is_empty() {
            return 0.0;
        }
        let program = self.program(slots[0].order.unit);
        let copied = slots.iter().filter(|slot| !slot.remap).count();
        #[expect(clippy::cast_precision_loss, reason = "pages of a batch")]
        let copied = copied as f64;
        let (fixed, shootdowns) = match worker.mechanism {
            Mechanism::MovePages => (self.costs.migrate_fixed_ns, 1.0),
            // Protected together.
            Mechanism::CopyInCommit => (self.costs.shadow_fixed_ns * copied, copied.min(1.0)),
            _ => (
                self.costs.transaction_fixed_ns * copied,
                self.costs.transaction_shootdowns * copied,
            ),
        };
        for slot in &mut slots {
            slot.part = 1.0 / copied.max(1.0);
        }
        let shootdown = self.shootdown_ns(program, By::Worker) * shootdowns;
        self.charge_shootdowns(program, By::Worker, Charge::Migration, shootdowns);
        let mut window = 0.0;
        let mut load = Vec::new();
        for slot in slots.iter().filter(|slot| !slot.remap) {
            let bytes = self.space.bytes(slot.order.unit);
            let back = slot.order.with.map(|_| (slot.to, slot.from));
            for (from, to) in [Some((slot.from, slot.to)), back].into_iter().flatten() {
                let busy = [self.busy[from], self.busy[to]];
                let copy = self.hardware.copy_ns(bytes, from, to, busy);
                window += copy;
                let added = self.copy_load(bytes, copy, from, to);
                load.extend(added.map(|(node, share)| (node, share * copy)));
            }
        }
        let wait = window + shootdown + fixed;
        for (node, share) in &mut load {
            *share /= wait.max(1.0);
            self.copying.change(at, *node, *share);
        }
        if worker.mechanism == Mechanism::MovePages {
            for slot in &slots {
                for unit in [Some(slot.order.unit), slot.order.with]
                    .into_iter()
                    .flatten()
                {
                    self.set(unit, bits::BLOCKED);
                    clock.blocked(self, unit, wait);
                }
            }
        }
        worker.job = Some(Job {
            slots,
            stage: Stage::Copy { window: wait },
            load,
        });
        wait
    }

    fn prepare(&mut self, mechanism: Mechanism, order: Order, at: u64) -> Option<Slot> {
        let unit = order.unit;
        let (from, to) = (self.node(unit), usize::from(order.migration.target().0));
        let bytes = self.space.bytes(unit);
        if let Some(other) = order.with.filter(|other| self.node(*other) != to) {
            self.clear(other, bits::ORDERED);
            self.finish(mechanism, order, at, Verdict::Busy, None);
            return None;
        }
        let remap = mechanism != Mechanism::MovePages
            && matches!(order.migration, Migration::Demote { .. })
            && self.has(unit, bits::SHADOW)
            && usize::from(self.shadow_on[unit as usize]) == to;
        if !remap && order.with.is_none() && !self.memory.take(to, bytes, Depth::Min) {
            self.finish(mechanism, order, at, Verdict::NoMemory, None);
            return None;
        }
        if !remap && mechanism == Mechanism::Transaction {
            self.set(unit, bits::COPYING);
        }
        Some(Slot {
            order,
            from,
            to,
            remap,
            dirtied: false,
            part: 1.0,
        })
    }

    fn finish(
        &mut self,
        mechanism: Mechanism,
        order: Order,
        at: u64,
        verdict: Verdict,
        inaccessible: Option<f64>,
    ) {
        self.clear(
            order.unit,
            bits::ORDERED | bits::COPYING | bits::BLOCKED | bits::DIRTIED,
        );
        self.ends.push_back(End {
            at,
            page: order.page,
            migration: order.migration,
            from: Some(order.from),
            verdict,
            mechanism: match order.with {
                Some(_) => Mechanism::Exchange,
                None => mechanism,
            },
            took: at.saturating_sub(order.since),
            inaccessible,
            busy: (self.reader.is_some() && mechanism == Mechanism::MovePages)
                .then_some(inaccessible)
                .flatten(),
        });
    }

    /// The next stage of a job; gives how long it takes.
    fn proceed(
        &mut self,
        worker: &mut Worker,
        mut job: Job,
        at: u64,
        clock: &mut dyn Clock,
    ) -> f64 {
        let index = match job.stage {
            Stage::Copy { window } => {
                for (node, share) in std::mem::take(&mut job.load) {
                    self.copying.change(at, node, -share);
                }
                if worker.mechanism == Mechanism::MovePages {
                    let slot = job.slots[0];
                    self.moved(worker.mechanism, slot, at, false, window);
                    return 0.0;
                }
                let aborts = worker.mechanism == Mechanism::Transaction;
                for slot in job.slots.iter_mut().filter(|slot| aborts && !slot.remap) {
                    slot.dirtied = clock.written(self, slot.order.unit, window);
                }
                0
            }
            Stage::Commit { index } => {
                self.committed(worker.mechanism, job.slots[index], at);
                index + 1
            }
        };
        // Aborted ones have nothing to commit, nor those whose shadow a write has dropped meanwhile.
        let mut index = index;
        while let Some(slot) = job.slots.get(index)
            && (slot.dirtied || slot.remap && !self.has(slot.order.unit, bits::SHADOW))
        {
            if !slot.remap {
                let bytes = self.space.bytes(slot.order.unit);
                self.memory.give(slot.to, bytes);
                self.totals.migrated[slot.to] += bytes;
            }
            self.finish(worker.mechanism, slot.order, at, Verdict::Dirtied, None);
            index += 1;
        }
        let Some(slot) = job.slots.get(index) else {
            return 0.0;
        };
        let wait = self.commit_ns(*slot);
        let program = self.program(slot.order.unit);
        let shootdowns = self.commit_shootdowns(*slot);
        self.charge_shootdowns(program, By::Worker, Charge::Migration, shootdowns);
        self.set(slot.order.unit, bits::BLOCKED);
        self.clear(slot.order.unit, bits::COPYING);
        clock.blocked(self, slot.order.unit, wait);
        job.stage = Stage::Commit { index };
        worker.job = Some(job);
        wait
    }

    fn commit_ns(&self, slot: Slot) -> f64 {
        let program = self.program(slot.order.unit);
        let shootdown = self.shootdown_ns(program, By::Worker) * self.commit_shootdowns(slot);
        if slot.remap {
            self.costs.shadow_demote_ns + shootdown
        } else if self.movement.commit_copies {
            let (from, to) = (slot.from, slot.to);
            let busy = [self.busy[from], self.busy[to]];
            let bytes = self.space.bytes(slot.order.unit);
            let copy = self.hardware.copy_ns(bytes, from, to, busy);
            self.costs.migrate_fixed_ns + copy + shootdown
        } else {
            self.costs.commit_ns + shootdown
        }
    }

    const fn commit_shootdowns(&self, slot: Slot) -> f64 {
        if slot.remap {
            self.costs.shadow_demote_shootdowns
        } else if self.movement.commit_copies {
            slot.part
        } else {
            self.costs.commit_shootdowns
        }
    }

    fn committed(&mut self, mechanism: Mechanism, slot: Slot, at: u64) {
        let keep = matches!(
            slot.order.migration,
            Migration::Promote {
                keep_shadow: true,
                ..
            }
        );
        let wait = self.commit_ns(slot);
        self.moved(mechanism, slot, at, keep, wait);
    }

    fn moved(&mut self, mechanism: Mechanism, slot: Slot, at: u64, keep: bool, inaccessible: f64) {
        let unit = slot.order.unit;
        let bytes = self.space.bytes(unit);
        let verdict = if let Some(other) = slot.order.with {
            self.swap(slot.order, other, slot.to);
            self.clear(other, bits::ORDERED | bits::BLOCKED);
            Verdict::Moved { shadow: false }
        } else if slot.remap {
            // The page takes its shadow's frame.
            self.clear(unit, bits::SHADOW);
            self.memory.nodes[slot.to].shadows -= bytes;
            self.memory.give(slot.from, bytes);
            self.place(unit, slot.to);
            Verdict::MovedOntoShadow
        } else {
            self.drop_shadow(unit);
            self.totals.migrated[slot.to] += bytes;
            self.place(unit, slot.to);
            if self.movement.arms_demoted
                && matches!(slot.order.migration, Migration::Demote { .. })
            {
                self.arm(unit);
            }
            if keep {
                self.keep_shadow(unit, slot.from);
            } else {
                self.memory.give(slot.from, bytes);
            }
            Verdict::Moved { shadow: keep }
        };
        self.finish(mechanism, slot.order, at, verdict, Some(inaccessible));
    }
}
