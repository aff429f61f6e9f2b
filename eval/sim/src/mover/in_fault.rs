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
}
