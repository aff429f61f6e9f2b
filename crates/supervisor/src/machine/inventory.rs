// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is on the fast nodes, found without any access: a walk over the processes' memory by
//! `move_pages(2)` without targets, a slice at a time so that nobody waits for it.

use std::collections::VecDeque;

use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;
use terrace_sys::procmaps::MapsFile;

/// Pages asked for in one step.
const SLICE: u64 = 512;

/// A walk under way.
#[derive(Debug, Default)]
pub struct Inventory {
    left: VecDeque<(Pid, Range)>,
}

impl Inventory {
    /// Starts a walk over these processes' private anonymous memory; one under way goes on.
    pub fn start(&mut self, pids: impl Iterator<Item = Pid>) {
        if !self.left.is_empty() {
            return;
        }
        for pid in pids {
            let maps = MapsFile::of(pid.0)
                .and_then(|mut maps| maps.all())
                .unwrap_or_default();
            let wanted = maps
                .into_iter()
                .filter(|m| m.is_plain_anonymous() && !m.name.starts_with("[anon:terrace"));
            self.left.extend(wanted.map(|m| (pid, m.range)));
        }
    }

    /// Whether there is something left to look at.
    #[must_use]
    pub fn active(&self) -> bool {
        !self.left.is_empty()
    }

    /// Looks at one slice and tells what is on a node that `wanted` names.
    pub fn step(&mut self, wanted: impl Fn(NodeId) -> bool, mut tell: impl FnMut(PageRef, NodeId)) {
        let Some((pid, range)) = self.left.pop_front() else {
            return;
        };
        let end = range.end.0.min(range.start.0 + SLICE * 4096);
        if end < range.end.0 {
            self.left.push_front((
                pid,
                Range {
                    start: Addr(end),
                    end: range.end,
                },
            ));
        }
        let pages: Vec<u64> = (range.start.0..end).step_by(4096).collect();
        let Ok(found) = move_pages::query(Target::Process(pid), &pages) else {
            return;
        };
        for (addr, status) in pages.into_iter().zip(found) {
            if let PageStatus::On(node) = status
                && wanted(node)
            {
                tell(
                    PageRef {
                        pid,
                        addr: Addr(addr),
                        size: PageSize::Base4K,
                    },
                    node,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_touched_page_of_this_process_and_no_untouched_one() {
        let memory = vec![1_u8; 1 << 20];
        let first = (memory.as_ptr().addr() as u64).next_multiple_of(4096);
        let mut inventory = Inventory::default();
        inventory.start(std::iter::once(Pid(std::process::id())));
        let mut found = Vec::new();
        while inventory.active() {
            inventory.step(|_| true, |page, _| found.push(page.addr.0));
        }
        assert!(found.contains(&first));
        assert!(
            found.windows(2).all(|w| w[0] < w[1]),
            "each page once, in order"
        );
        assert_eq!(memory[4096], 1);
    }
}
