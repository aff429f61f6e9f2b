// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves that the faulting thread makes itself, in the hint fault.

use terrace_policy::Mechanism;
use terrace_policy::Verdict;

use super::Order;
use crate::memory::Depth;
use crate::world::By;
use crate::world::Charge;
use crate::world::End;
use crate::world::World;
use crate::world::round;

impl World {
    /// An exchange in the hint fault: the faulting thread copies both ways. What is fixed comes once, no memory is
    /// taken, and all processors are told once.
    pub(super) fn exchange_in_fault(&mut self, now: u64, order: Order, other: u32, to: usize) {
        let (from, bytes) = (order.from, self.space.bytes(order.unit));
        let copies = self.copy_at_once(bytes, from, to) + self.copy_at_once(bytes, to, from);
        let wait = self.charge_in_fault(order.unit, copies);
        self.swap(order, other, to);
        self.end_in_fault(now, order, Verdict::Moved { shadow: false }, Some(wait));
    }

    /// Copies at once; the time it takes.
    fn copy_at_once(&mut self, bytes: u64, from: usize, to: usize) -> f64 {
        let busy = [self.busy[from], self.busy[to]];
        let copy = self.hardware.copy_ns(bytes, from, to, busy);
        for (node, share) in self.copy_load(bytes, copy, from, to) {
            self.copying.lump(node, share, copy);
        }
        copy
    }

    /// Charges the faulting thread what it waits, the copies included; gives that.
    fn charge_in_fault(&mut self, unit: u32, copies: f64) -> f64 {
        let program = self.program(unit);
        let shootdown = self.shootdown_ns(program, By::Program);
        let wait = copies + self.costs.promote_fixed_ns + shootdown;
        self.charge(program, Charge::Migration, wait);
        self.totals.stall += wait;
        self.charge_shootdowns(program, By::Program, Charge::Migration, 1.0);
        wait
    }

    fn end_in_fault(
        &mut self,
        now: u64,
        order: Order,
        verdict: Verdict,
        inaccessible: Option<f64>,
    ) {
        self.ends.push_back(End {
            at: now,
            page: order.page,
            migration: order.migration,
            from: Some(order.from),
            verdict,
            mechanism: Mechanism::InFault,
            took: round(inaccessible.unwrap_or(0.0)),
            inaccessible,
            busy: None,
        });
    }

    pub(super) fn swap(&mut self, order: Order, other: u32, to: usize) {
        let bytes = self.space.bytes(order.unit);
        for (unit, to) in [(order.unit, to), (other, order.from)] {
            self.totals.migrated[to] += bytes;
            self.place(unit, to);
        }
    }

    /// Synchronous migration: the faulting thread copies.
    pub(super) fn move_in_fault(&mut self, now: u64, order: Order, to: usize) {
        let bytes = self.space.bytes(order.unit);
        let program = self.program(order.unit);
        if !self.memory.take(to, bytes, Depth::Min) {
            self.charge(
                program,
                Charge::Migration,
                self.costs.promote_fixed_ns / 4.0,
            );
            self.end_in_fault(now, order, Verdict::NoMemory, None);
            return;
        }
        let from = self.node(order.unit);
        let copy = self.copy_at_once(bytes, from, to);
        let wait = self.charge_in_fault(order.unit, copy);
        self.memory.give(from, bytes);
        self.totals.migrated[to] += bytes;
        self.place(order.unit, to);
        self.end_in_fault(now, order, Verdict::Moved { shadow: false }, Some(wait));
    }
}
