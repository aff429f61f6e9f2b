// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a domain may have of the fast tier (`--fast`), and what it has.
//!
//! The policy is told of a fast tier of that size: what the managed processes have on it counts as
//! used ([`crate::residency`]), the rest of the budget as free (never more than is really free).

use std::io;

use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Tiers;

use crate::residency::Residency;

/// A cap on the fast tier.
#[derive(Debug)]
pub struct Budget {
    fast_bytes: u64,
    residency: Residency,
}

impl Budget {
    /// Of so many bytes of the fast tier.
    ///
    /// # Errors
    ///
    /// Where the thread that reads what processes have cannot be started.
    pub fn start(fast_bytes: u64) -> io::Result<Self> {
        let residency = Residency::start()?;
        Ok(Self {
            fast_bytes,
            residency,
        })
    }

    /// Whose it is from now on.
    pub fn watch(&self, pids: impl Iterator<Item = Pid>) {
        self.residency.watch(pids);
    }

    /// What the policy is told of a fast node with that memory. Nothing before it is known what the processes
    /// have there.
    #[must_use]
    pub fn share(&self, node: NodeId, real: NodeMemory) -> Option<NodeMemory> {
        let used = self.residency.on(node)?;
        Some(capped(real, self.fast_bytes, used))
    }

    /// A page was moved.
    pub fn moved(&self, tiers: &Tiers, page: PageRef, to: NodeId) {
        let bytes = page.size.bytes().cast_signed();
        let mut top = tiers.top().map(|node| node.id);
        if tiers.is_top(to) {
            self.residency.moved(to, bytes);
        } else if let (Some(only), None) = (top.next(), top.next()) {
            self.residency.moved(only, -bytes);
        }
    }
}

/// What the policy is told of a fast node of which at most `cap` bytes may be used, `used` are.
fn capped(real: NodeMemory, cap: u64, used: u64) -> NodeMemory {
    let total = cap.min(real.total_bytes);
    // The kernel's watermarks guard the real node; within the cap nothing needs to stay free but
    // what the real node lacks.
    let spare = real.free_bytes.saturating_sub(real.high_bytes);
    NodeMemory {
        free_bytes: total.saturating_sub(used).min(spare),
        low_bytes: 0,
        high_bytes: 0,
        total_bytes: total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_leaves_what_is_not_used_and_never_more_than_is_free() {
        let real = NodeMemory {
            free_bytes: 100,
            low_bytes: 10,
            high_bytes: 20,
            total_bytes: 1000,
        };
        assert_eq!(capped(real, 50, 20).free_bytes, 30);
        assert_eq!(capped(real, 500, 20).free_bytes, 80);
        assert_eq!(capped(real, 50, 60).free_bytes, 0);
    }
}
