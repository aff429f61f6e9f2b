// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a worker does with its orders: takes some, copies them, commits them.

use std::collections::VecDeque;

use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Verdict;

use super::Job;
use super::Order;
use super::Slot;
use super::Stage;
use super::Worker;
use crate::memory::Depth;
use crate::world::By;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::End;
use crate::world::World;
use crate::world::bits;
use crate::world::round;

impl World {
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
