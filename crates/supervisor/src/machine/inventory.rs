// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is on the fast nodes, or on the others, found without any access: a walk over the processes' memory by
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

/// Which pages are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those of the fast nodes.
    Fast,
    /// Those of the others.
    Slow,
}

/// Walks under way, one after the other.
#[derive(Debug, Default)]
pub struct Inventory {
    left: VecDeque<(Wanted, Pid, Range)>,
}

impl Inventory {
    /// Starts a walk over these processes' private anonymous memory; a process that one for the same is under way for is
    /// left to that.
    pub fn start(&mut self, wanted: Wanted, pids: impl Iterator<Item = Pid>) {
        for pid in pids {
            if self.left.iter().any(|(w, p, _)| (*w, *p) == (wanted, pid)) {
                continue;
            }
            let maps = MapsFile::of(pid.0)
                .and_then(|mut maps| maps.all())
                .unwrap_or_default();
            let plain = maps
                .into_iter()
                .filter(|m| m.is_plain_anonymous() && !m.name.starts_with("[anon:terrace"));
            self.left.extend(plain.map(|m| (wanted, pid, m.range)));
        }
    }

    /// Whether there is something left to look at.
    #[must_use]
    pub fn active(&self) -> bool {
        !self.left.is_empty()
    }

    /// Looks at one slice and tells what of it is wanted; `fast` tells the nodes apart.
    pub fn step(&mut self, fast: impl Fn(NodeId) -> bool, mut tell: impl FnMut(PageRef, NodeId)) {
        let Some((wanted, pid, range)) = self.left.pop_front() else {
            return;
        };
        let end = range.end.0.min(range.start.0 + SLICE * 4096);
        if end < range.end.0 {
            let rest = Range {
                start: Addr(end),
                end: range.end,
            };
            self.left.push_front((wanted, pid, rest));
        }
        let pages: Vec<u64> = (range.start.0..end).step_by(4096).collect();
        let Ok(found) = move_pages::query(Target::Process(pid), &pages) else {
            return;
        };
        for (addr, status) in pages.into_iter().zip(found) {
            if let PageStatus::On(node) = status
                && fast(node) == (wanted == Wanted::Fast)
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
        let this = || std::iter::once(Pid(std::process::id()));
        let (mut found, mut slow) = (Vec::new(), 0);
        inventory.start(Wanted::Fast, this());
        inventory.start(Wanted::Slow, this());
        inventory.start(Wanted::Fast, this());
        while inventory.left.iter().any(|(w, ..)| *w == Wanted::Fast) {
            inventory.step(|_| true, |page, _| found.push(page.addr.0));
        }
        while inventory.active() {
            inventory.step(|_| true, |_, _| slow += 1);
        }
        assert_eq!(slow, 0, "all nodes are fast ones");
        assert!(found.contains(&first));
        assert!(
            found.windows(2).all(|w| w[0] < w[1]),
            "each page once, in order"
        );
        assert_eq!(memory[4096], 1);
    }
}
