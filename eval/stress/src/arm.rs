// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instead of moves by the agent: it arms pages at full rate, and `move_pages(2)` moves them from outside, as with a
//! policy that arms pages of its choice.

use anyhow::Context;
use rustix::io::Errno;
use terrace_core::Pid;
use terrace_proto::Op;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;

use crate::driver::Driver;
use crate::driver::RUN_MAX;

/// One in so many times pages are moved.
const MOVES: u64 = 4;

impl Driver<'_> {
    /// Has a run of pages armed, and at times moves another.
    pub(crate) fn arm_something(&mut self) -> anyhow::Result<()> {
        let (addr, size, room) = self.some_page();
        let run = 1 + self.random.below(RUN_MAX).min(room - 1);
        for n in 0..run {
            self.order(Op::Arm, addr + n * size.bytes(), size);
        }
        if self.random.below(MOVES) > 0 {
            return Ok(());
        }
        let (addr, size, room) = self.some_page();
        let run = 1 + self.random.below(RUN_MAX).min(room - 1);
        let pages: Vec<u64> = (0..run).map(|n| addr + n * size.bytes()).collect();
        let to = [self.fast, self.slow][usize::from(self.random.below(2) == 0)];
        let target = Target::Process(Pid(self.link.hello.pid));
        match move_pages::migrate(target, &pages, to, Sharing::OwnOnly) {
            Ok(found) => {
                let there = found.iter().filter(|page| **page == PageStatus::On(to));
                self.counts.moved_beside += there.count() as u64;
                Ok(())
            }
            // The node is full.
            Err(Errno::NOMEM) => Ok(()),
            Err(error) => Err(error).context("Cannot move pages from outside"),
        }
    }
}
