// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and handles the kernel's events. Always under the state lock, reading included.
//!
//! * Write to a protected page, where writers wait ([`terrace_sys::uffd::Writers`]): it waits for the
//!   commit. Where they go on there is no such event; the page map tells afterwards.
//! * Missing page: either we have it out, then its transaction will wake the reader; or nobody has
//!   touched it yet, then it gets the zero page, and its empty neighbours within 2 MiB with it, so
//!   that first touches cost one answer for many. The writes that follow copy it in the kernel, by
//!   the program's own thread and memory policy.
//! * Mappings that change: whatever we know of the range is forgotten, moved along, or aborted.

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::PageSize;
use terrace_proto::Commit;
use terrace_proto::Notice;
use terrace_sys::pagemap::PageFlags;
use terrace_sys::pagemap::PageKind;
use terrace_sys::uffd::EVENT_BYTES;
use terrace_sys::uffd::Event;
use terrace_sys::uffd::Protected;
use terrace_sys::uffd::Stop;
use terrace_sys::uffd::WAKE;

use crate::life::descriptors;
use crate::life::fork_child;
use crate::state::agent::Agent;
use crate::state::agent::Answer;
use crate::state::agent::State;
use crate::state::agent::range;
use crate::state::pages::Stage;

const BATCH: usize = 16;
const PAGE: u64 = PageSize::Base4K.bytes();
const AROUND: u64 = PageSize::Huge2M.bytes();
/// Runs of empty pages that one missing page fills at most.
const AROUND_RUNS: u32 = 4;

impl Agent {
    /// Reads and handles every event there is; whether there was one.
    pub(crate) fn drain(&self, state: &mut State) -> bool {
        let mut any = false;
        loop {
            let mut buffer = [0; BATCH * EVENT_BYTES];
            let count = self.read_events(&mut buffer);
            for wire in buffer.chunks_exact(EVENT_BYTES).take(count) {
                let Ok(wire) = wire.try_into() else { continue };
                // SAFETY: the bytes come from `read` and are decoded here only.
                self.handle(state, unsafe { Event::decode(wire) });
            }
            any |= count > 0;
            if count < BATCH {
                return any;
            }
        }
    }

    /// A fork event needs a descriptor for the child's context, and the program may have left none.
    fn read_events(&self, buffer: &mut [u8]) -> usize {
        match self.uffd.read(buffer) {
            Err(Errno::MFILE) => descriptors::read_all_the_same(&self.uffd, buffer),
            result => result.unwrap_or(0),
        }
    }

    /// For an ioctl that was refused because mappings are changing: handles what is to be read
    /// and lets the thread run that changes them.
    pub(crate) fn drain_and_yield(&self, state: &mut State) {
        if !self.drain(state) {
            rustix::thread::sched_yield();
        }
    }

    /// Tries the answers again that the kernel refused; whether some are left.
    pub(crate) fn answer_pending(&self, state: &mut State) -> bool {
        for answer in std::mem::take(&mut state.pending) {
            match answer {
                Answer::Fill(addr) => self.fill(state, addr),
                Answer::Unprotect(start, len) => {
                    // What was begun in the range since counts on its protection.
                    state.pages.disturb(start, start.saturating_add(len));
                    self.unprotect(state, start, len);
                }
            }
        }
        !state.pending.is_empty()
    }

    fn handle(&self, state: &mut State, event: Event) {
        match event {
            Event::WriteProtected { addr } => self.on_write(state, addr),
            Event::Missing { addr, write } => self.on_missing(state, addr, write),
            Event::Remove { start, end } => {
                self.on_gone(state, start, end);
                if let Some(last) = self.last_page(start, end) {
                    state.pending_drops.add(start, end, last);
                }
            }
            Event::Unmap { start, end } => {
                self.on_gone(state, start, end);
                state.ranges.unmap(start, end);
                state.pending_drops.unmap(start, end);
            }
            Event::Remap { from, to, len } => self.on_remap(state, from, to, len),
            Event::Fork(child) => fork_child::adopt(state, child),
            Event::Unknown(_) => {}
        }
    }

    fn on_write(&self, state: &mut State, addr: u64) {
        state.write_protect_faults += 1;
        let entry = state
            .pages
            .entry_over(addr, addr + PAGE)
            .and_then(|id| state.pages.get(id));
        if let Some(entry) = entry {
            let (start, len) = (entry.addr, entry.size.bytes());
            match entry.stage {
                // The writer waits until the page is in again; it has written nothing yet.
                Stage::Out { .. } => {
                    state.writes_waited = state.writes_waited.wrapping_add(1);
                }
                // So does this one: commit or abort wake it.
                Stage::Copying if self.options.commit == Commit::Wait && !entry.dirty => {
                    state.writes_waited = state.writes_waited.wrapping_add(1);
                }
                Stage::Copying | Stage::Verifying => {
                    entry.dirty = true;
                    self.unprotect(state, start, len);
                }
            }
        } else {
            self.unprotect_unknown(state, addr);
        }
    }

    /// A fault that was raised before its cause went away, or on protection that outlived its
    /// record. Lifting the protection of a part would tear a huge page.
    fn unprotect_unknown(&self, state: &mut State, addr: u64) {
        if !self.pagemap.is_write_protected(addr) {
            self.uffd.wake(addr, PAGE);
        } else if self.pagemap.kind(addr).is_ok_and(|kind| kind.huge) {
            self.unprotect(state, addr & !(AROUND - 1), AROUND);
        } else {
            self.unprotect(state, addr, PAGE);
        }
    }

    fn on_missing(&self, state: &mut State, addr: u64, write: bool) {
        state.missing_faults = state.missing_faults.saturating_add(1);
        let entry = state
            .pages
            .entry_over(addr, addr + PAGE)
            .and_then(|id| state.pages.get(id));
        if let Some(entry) = entry {
            if matches!(entry.stage, Stage::Out { .. }) {
                state.writes_waited = state.writes_waited.wrapping_add(u32::from(write));
                return;
            }
            entry.dirty = true;
        }
        // A page that vanished must not come back from its shadow.
        self.drop_shadows(state, addr, addr + PAGE);
        self.fill(state, addr);
    }

    /// Maps the zero page at `addr`, if nothing is there, and around it.
    fn fill(&self, state: &mut State, addr: u64) {
        if let Some(id) = state.pages.entry_over(addr, addr + PAGE)
            && let Some(entry) = state.pages.get(id)
            && matches!(entry.stage, Stage::Out { .. })
        {
            return;
        }
        let window = addr & !(AROUND - 1);
        let dropped = self.is_pending_drop(state, window, window + AROUND);
        if !dropped && self.fill_around(state, addr, window) {
            return;
        }
        match self.zero_page(addr) {
            Ok(Some(Stop::Again)) => {
                state.pending.push(Answer::Fill(addr));
                self.kick.ring();
            }
            // Somebody else filled it, or nothing is mapped there any more: look again.
            _ => self.uffd.wake(addr, PAGE),
        }
    }

    /// Maps the zero page; what kept it from being there. An empty page that was protected has a marker
    /// (`UFFD_FEATURE_WP_UNPOPULATED`, which comes with asynchronous protection), and the kernel takes that
    /// for a page: it goes first.
    fn zero_page(&self, addr: u64) -> Result<Option<Stop>, Errno> {
        let filled = self.uffd.zero_page(addr, PAGE, WAKE)?;
        let marked = |page: &PageFlags| !page.present && page.write_protected;
        if filled.stop != Some(Stop::Exists) || !self.pagemap.flags(addr, 1).iter().any(marked) {
            return Ok(filled.stop);
        }
        Ok(match self.uffd.write_protect(addr, PAGE, false)? {
            Protected::Done => self.uffd.zero_page(addr, PAGE, WAKE)?.stop,
            Protected::Again => Some(Stop::Again),
            Protected::NotThere => Some(Stop::NotThere),
        })
    }

    /// Fills the empty pages of the window; whether the page at `addr` is among what is filled.
    fn fill_around(&self, state: &State, addr: u64, window: u64) -> bool {
        let Some((first, last)) = state.ranges.holding(addr, addr + PAGE) else {
            return false;
        };
        let (low, high) = (first.max(window), last.min(window + AROUND));
        // A page that is out is empty and ours: nothing may be put there.
        if state
            .pages
            .out()
            .any(|piece| piece.addr < high && piece.addr + piece.len > low)
        {
            return false;
        }
        let Ok(ahead) = self.uffd.zero_page(addr, high - addr, WAKE) else {
            return false;
        };
        if ahead.bytes == 0 {
            return false;
        }
        let mut at = addr + ahead.bytes + PAGE;
        for _ in 0..AROUND_RUNS {
            if at >= high {
                break;
            }
            match self.uffd.zero_page(at, high - at, WAKE) {
                Ok(filled) if filled.stop == Some(Stop::Again) && filled.bytes == 0 => break,
                Ok(filled) => at += filled.bytes + PAGE,
                Err(_) => break,
            }
        }
        if low < addr {
            let _ = self.uffd.zero_page(low, addr - low, WAKE).is_ok();
        }
        true
    }

    /// The program gave the pages of a range back.
    fn on_gone(&self, state: &mut State, start: u64, end: u64) {
        state.pages.kill(start, end);
        // Who waits there is not woken with the page: that may be elsewhere by now.
        self.uffd.wake(start, end.saturating_sub(start));
        // The protection goes with the pages, and the one notice tells of all.
        while let Some((_, shadow)) = state.shadows.take_over(start, end) {
            state.frames.release(PageSize::Base4K, shadow.frame);
        }
        self.reports.notice(Notice::Unmapped(range(start, end)));
    }

    fn on_remap(&self, state: &mut State, from: u64, to: u64, len: u64) {
        // Shadows are found by address: those of the old place go. Protection moved along with
        // the pages; where writers wait for it, it is lifted at the new one.
        while let Some((addr, shadow)) = state.shadows.take_over(from, from.saturating_add(len)) {
            self.forget_shadow(state, addr, shadow);
        }
        self.drop_shadows(state, to, to.saturating_add(len));
        state.pages.kill(to, to.saturating_add(len));
        state.pages.follow(from, to, len);
        state.ranges.follow(from, to, len);
        state.pending_drops.unmap(to, to.saturating_add(len));
        self.unprotect(state, to, len);
        self.uffd.wake(from, len);
        self.reports.notice(Notice::Remapped {
            from: Addr(from),
            to: Addr(to),
        });
    }

    /// Whether pages of the range are about to be dropped by the kernel.
    pub(crate) fn is_pending_drop(&self, state: &mut State, start: u64, end: u64) -> bool {
        state.pending_drops.covers(start, end, |page| {
            self.pagemap.kind(page).is_ok_and(PageKind::is_empty)
        })
    }

    /// The last page of the range that is there. Searched from behind, in growing steps.
    fn last_page(&self, start: u64, end: u64) -> Option<u64> {
        let mut high = end;
        let mut step = AROUND;
        while high > start {
            let low = high.saturating_sub(step).max(start);
            let mut last = None;
            let scan = self
                .pagemap
                .scan(low, high, |run| last = Some(run.end - PAGE));
            if scan.is_err() {
                // Cannot tell: a page that never goes.
                return Some(u64::MAX);
            }
            if last.is_some() {
                return last;
            }
            high = low;
            step = step.saturating_mul(2);
        }
        None
    }
}
