// SPDX-License-Identifier: MIT OR Apache-2.0
//! When what was armed, cleared or kept as a shadow is touched: drawn, in work of its program.

use terrace_policy::Engine;

use super::Rate;
use crate::calendar::Due;
use crate::world::World;
use crate::world::bits;

impl Rate {
    /// The work from now, or from where draws ended before, to the first access of an armed page that has no
    /// draw; with its program and block.
    fn draw_fault(&mut self, world: &World, unit: u32) -> Option<(f64, usize, usize)> {
        if world.has(unit, bits::FAULT_DUE) || !world.has(unit, bits::ARMED) {
            return None;
        }
        let index = world.program(unit);
        let (read, write) = self.truth.programs[index].visits(&world.space, unit);
        let share = read + write;
        if share <= 0.0 {
            return None;
        }
        let draw = self.exponential() / share;
        let first = world.space.program_units(index).start;
        Some((draw, index, ((unit - first) >> self.block_shift) as usize))
    }

    /// A page was armed between passes: its block's horizon stays, or others of it that have no draw yet would
    /// lose what lies before the new one.
    pub(super) fn arm_alone(&mut self, world: &mut World, unit: u32) {
        if self.block_shift == 0 {
            self.arm(world, unit, true);
        } else if let Some((draw, index, block)) = self.draw_fault(world, unit) {
            let work = self.flows[index].work_at(world.now) + draw;
            self.keep_fault(world, unit, index, block, work);
        }
    }

    /// Keeps what was drawn if it is before the horizon.
    fn keep_fault(&mut self, world: &mut World, unit: u32, index: usize, block: usize, work: f64) {
        let flow = &mut self.flows[index];
        if work <= flow.horizon[block] {
            let due = Due {
                work,
                unit,
                write: false,
            };
            flow.due.push(due, flow.bucket());
            world.set(unit, bits::FAULT_DUE);
        }
    }

    pub(super) fn arm(&mut self, world: &mut World, unit: u32, fresh: bool) {
        let Some((draw, index, block)) = self.draw_fault(world, unit) else {
            return;
        };
        let flow = &mut self.flows[index];
        let work = flow.work_at(world.now);
        if flow.moved_horizon.0 != block {
            flow.moved_horizon = (block, flow.horizon[block]);
            // Passes ahead: some for small memories, so that a faster program needs no redraw; fewer
            // where the kept draws would fill the memory.
            let passes = if self.block_shift == 0 { 16.0 } else { 2.0 };
            #[expect(clippy::cast_precision_loss, reason = "a time")]
            let pass = world.scanners[index].pass.min(1 << 50) as f64;
            let ahead = flow.rate.max(1e-6) * pass * passes;
            flow.horizon[block] = flow.horizon[block].max(work + ahead);
        }
        let start = if fresh {
            work
        } else {
            work.max(flow.moved_horizon.1)
        };
        self.keep_fault(world, unit, index, block, start + draw);
    }

    /// An armed page has no access but its fault: whether its accessed bit was set before is settled when it is armed.
    pub(super) fn settle_bit(&mut self, world: &mut World, unit: u32) {
        if !world.has(unit, bits::ACCESSED) && self.accessed_since(world, unit) {
            world.set(unit, bits::ACCESSED);
        }
    }

    /// Draws whether the page was visited since its bit was cleared, or settled; it is now.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "single precision on purpose"
    )]
    pub(super) fn accessed_since(&mut self, world: &World, unit: u32) -> bool {
        if self.cleared_at.is_empty() {
            self.cleared_at = vec![0.0; world.state.len()];
        }
        let index = world.program(unit);
        let (read, write) = self.truth.programs[index].visits(&world.space, unit);
        let work = self.flows[index].work_at(world.now);
        let since = work - f64::from(self.cleared_at[unit as usize]);
        self.cleared_at[unit as usize] = work as f32;
        self.uniform() > (-(read + write) * since.max(0.0)).exp()
    }

    pub(super) fn watch_shadow(&mut self, world: &mut World, unit: u32) {
        if world.has(unit, bits::WRITE_DUE) || !world.has(unit, bits::SHADOW) {
            return;
        }
        let index = world.program(unit);
        let (_, write) = self.truth.programs[index].visits(&world.space, unit);
        if write <= 0.0 {
            return;
        }
        let work = self.flows[index].work_at(world.now) + self.exponential() / write;
        let due = Due {
            work,
            unit,
            write: true,
        };
        let flow = &mut self.flows[index];
        flow.due.push(due, flow.bucket());
        world.set(unit, bits::WRITE_DUE);
    }

    /// One event of a program has come.
    pub(super) fn fire(&mut self, world: &mut World, engine: &mut Engine, due: Due) {
        let unit = due.unit;
        if due.write {
            world.clear(unit, bits::WRITE_DUE);
            if world.has(unit, bits::BLOCKED) {
                // The write waits for the commit; what comes after is drawn anew.
                self.watch_shadow(world, unit);
            } else if world.has(unit, bits::SHADOW) {
                world.shadow_written(engine, unit, world.now);
            }
            return;
        }
        world.clear(unit, bits::FAULT_DUE);
        if world.has(unit, bits::ARMED) {
            let index = world.program(unit);
            let (read, write) = self.truth.programs[index].visits(&world.space, unit);
            let is_write = write > 0.0 && self.uniform() * (read + write) < write;
            if world.reader.is_some() {
                world.set(unit, bits::ACCESSED);
            }
            world.hint_fault(engine, unit, is_write, world.now);
        }
    }
}
