// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves pages between the program's addresses and ours, in runs, under the lock.
//!
//! What must not happen here: content lost. A page that is out has its bytes in exactly one place
//! of ours until it is in again, or until the program gave its address back.

use rustix::io::Errno;
use terrace_proto::Outcome;
use terrace_sys::uffd::DONT_WAKE;
use terrace_sys::uffd::Protected;
use terrace_sys::uffd::Stop;

use crate::agent::Agent;
use crate::agent::State;
use crate::item::Item;
use crate::pages::Stage;

/// What became of one page that was to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageMove {
    /// Moved.
    Done,
    /// Not moved, because.
    Stopped(Stop),
    /// Not moved, and nobody foresaw why.
    Failed(Errno),
}

/// How a page came back in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutBack {
    /// The frame itself is at the page's address; its old address is empty.
    Moved,
    /// A copy is; the frame is still where it was.
    Copied,
    /// The program gave the address back; the frame is still where it was.
    Dropped,
}

impl Agent {
    /// Moves each route's pages (dst, src) in as few calls as they allow. For every route `done`
    /// says how it ended. The caller looks at `Stop::Again` itself: routes may have changed.
    pub(crate) fn move_runs(
        &self,
        routes: &[(u64, u64)],
        bytes: u64,
        mut done: impl FnMut(usize, PageMove),
    ) {
        let mut at = 0;
        while let Some((dst, src)) = routes.get(at).copied() {
            let behind = routes.get(at + 1..).unwrap_or_default();
            let run = 1
                + (1_u64..)
                    .zip(behind)
                    .take_while(|(n, next)| **next == (dst + n * bytes, src + n * bytes))
                    .map(|_| 1)
                    .sum::<u64>();
            // SAFETY: one side is a frame or slot of ours that nothing refers to, the other a
            // page of the program, whose bytes stay what they are.
            let moved = unsafe { self.uffd.move_pages(dst, src, run * bytes, DONT_WAKE) };
            let (count, stop) = match moved {
                Ok(moved) => (moved.bytes / bytes, moved.stop.map(PageMove::Stopped)),
                Err(errno) => (0, Some(PageMove::Failed(errno))),
            };
            for _ in 0..count.min(run) {
                done(at, PageMove::Done);
                at += 1;
            }
            // A call that stopped half-way does not say why: the rest is tried on its own.
            if let Some(why) = stop
                && count == 0
            {
                done(at, why);
                at += 1;
            }
        }
    }

    /// Protects a range for sure: waits out changes of mappings, handling their events.
    /// `false` where it is not mapped or not registered.
    pub(crate) fn protect(&self, state: &mut State, start: u64, len: u64) -> bool {
        loop {
            match self.uffd.write_protect(start, len, true) {
                Ok(Protected::Done) => return true,
                Ok(Protected::Again) => self.drain_and_yield(state),
                Ok(Protected::NotThere) | Err(_) => return false,
            }
        }
    }

    /// Brings the bytes of a page that is out back in: by moving the frame at `from`, or, where
    /// the mapping does not allow that any more, by a copy. Never gives up while the program can
    /// still look at the address.
    pub(crate) fn put_back(&self, state: &mut State, item: &Item, from: u64) -> PutBack {
        let mut done = 0;
        let bytes = item.bytes();
        loop {
            let Some((addr, alive)) = current(state, item) else {
                return PutBack::Dropped;
            };
            if !alive {
                return PutBack::Dropped;
            }
            let (dst, src, len) = (addr + done, from + done, bytes - done);
            // SAFETY: the frame is ours and nothing refers to it; the page's address is empty.
            let stop = match unsafe { self.uffd.move_pages(dst, src, len, DONT_WAKE) } {
                Ok(moved) => {
                    done += moved.bytes;
                    moved.stop
                }
                Err(_) => Some(Stop::Refused),
            };
            match stop {
                None => return PutBack::Moved,
                Some(_) if done >= bytes => return PutBack::Moved,
                Some(Stop::Again | Stop::NoMemory) => self.drain_and_yield(state),
                Some(_) => return self.copy_back(state, item, from, done),
            }
        }
    }

    /// The second way in: the mapping became read-only, locked, or something we cannot tell.
    fn copy_back(&self, state: &mut State, item: &Item, from: u64, mut done: u64) -> PutBack {
        loop {
            let Some((addr, true)) = current(state, item) else {
                return PutBack::Dropped;
            };
            let left = item.bytes() - done;
            // SAFETY: `from` is a present frame of ours, and the page's address is empty.
            match unsafe { self.uffd.copy(addr + done, from + done, left) } {
                Ok(filled) => {
                    done += filled.bytes;
                    match filled.stop {
                        None => return PutBack::Copied,
                        Some(_) if done >= item.bytes() => return PutBack::Copied,
                        Some(Stop::Again | Stop::NoMemory) => self.drain_and_yield(state),
                        // Not mapped, not registered any more, or somebody else's page there.
                        Some(_) => return PutBack::Dropped,
                    }
                }
                Err(_) => return PutBack::Dropped,
            }
        }
    }

    /// Ends an item's transaction without a move: the page stays where it is and writable.
    pub(crate) fn abort(&self, state: &mut State, item: &mut Item, why: Outcome) {
        if let Some(entry) = item.id.take().and_then(|id| state.pages.end(id))
            && !entry.dead
        {
            self.unprotect(state, entry.addr, entry.size.bytes());
        }
        item.outcome.get_or_insert(why);
    }
}

/// Where the item's page is now, and whether the program still has it.
pub(crate) fn current(state: &mut State, item: &Item) -> Option<(u64, bool)> {
    let entry = state.pages.get(item.id?)?;
    Some((entry.addr, !entry.dead))
}

/// Notes that the page is out, its bytes at `content`.
pub(crate) fn mark_out(state: &mut State, item: &Item, content: u64) {
    if let Some(entry) = item.id.and_then(|id| state.pages.get(id)) {
        entry.stage = Stage::Out { content };
    }
}

/// The outcome of a move out that the kernel refused.
pub(crate) const fn refusal(stop: Stop) -> Outcome {
    match stop {
        Stop::Again | Stop::Busy | Stop::Exists => Outcome::Busy,
        Stop::NotThere => Outcome::Gone,
        Stop::Refused => Outcome::NotManaged,
        Stop::NoMemory => Outcome::NoMemory,
    }
}
