// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shadows: old frames of promoted pages that nobody wrote to since.

use terrace_core::Nanos;
use terrace_policy::Engine;
use terrace_policy::Event;

use super::Note;
use super::World;
use super::bits;

impl World {
    /// The program wrote to a page with a shadow.
    pub(crate) fn shadow_written(&mut self, engine: &mut Engine, unit: u32, at: u64) {
        self.now = self.now.max(at);
        let program = self.program(unit);
        self.protected_write(program, self.costs.shadow_write_ns);
        self.drop_shadow(unit);
        let page = self.space.page(unit);
        engine.observe(Nanos(self.now), &Event::ShadowLost { page });
    }

    /// Gives a shadow's memory back. Does nothing where there is none.
    pub(crate) fn drop_shadow(&mut self, unit: u32) {
        if self.has(unit, bits::SHADOW) {
            self.clear(unit, bits::SHADOW);
            let node = usize::from(self.shadow_on[unit as usize]);
            let bytes = self.space.bytes(unit);
            self.memory.nodes[node].shadows -= bytes;
            self.memory.give(node, bytes);
        }
    }

    /// Keeps a promoted page's old frame.
    pub(crate) fn keep_shadow(&mut self, unit: u32, on: usize) {
        if self.shadow_on.is_empty() {
            self.shadow_on = vec![0; self.state.len()];
        }
        self.set(unit, bits::SHADOW);
        self.shadow_on[unit as usize] = u8::try_from(on).expect("below NODES");
        self.memory.nodes[on].shadows += self.space.bytes(unit);
        let program = self.program(unit);
        self.shadows[program].push_back(unit);
        let all = self.shadow_bytes();
        self.totals.shadow_max = self.totals.shadow_max.max(all);
        self.note(Note::Shadowed { unit });
    }

    pub(crate) fn shadow_bytes(&self) -> u64 {
        self.memory.nodes.iter().map(|node| node.shadows).sum()
    }

    /// Drops the oldest shadows of a program until `bytes` are given back; gives how many.
    pub(super) fn reclaim(&mut self, program: usize, bytes: u64) -> u64 {
        let (mut left, mut count) = (bytes, 0);
        while left > 0
            && let Some(unit) = self.shadows[program].pop_front()
        {
            // What a transaction is working on is left alone.
            if self.has(unit, bits::SHADOW) && !self.has(unit, bits::ORDERED) {
                left = left.saturating_sub(self.space.bytes(unit));
                count += 1;
                self.drop_shadow(unit);
            }
        }
        count
    }
}
