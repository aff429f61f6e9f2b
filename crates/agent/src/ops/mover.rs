// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves pages between the program's addresses and ours, in runs, under the lock.
//!
//! What must not happen here: content lost. A page that is out has its bytes in exactly one place
//! of ours until it is in again, or until the program gave its address back.

use rustix::io::Errno;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_sys::uffd::Moved;
use terrace_sys::uffd::Protected;
use terrace_sys::uffd::Stop;
use terrace_sys::uffd::Writers;

use crate::ops::clock;
use crate::ops::finish::free_source;
use crate::ops::item::End;
use crate::ops::item::Item;
use crate::ops::relocate::relocate;
use crate::ops::stage::Left;
use crate::ops::stage::Stage;
use crate::state::agent::Agent;
use crate::state::agent::State;
use crate::state::pages;
use crate::state::pages::EntryId;

const BASE: u64 = PageSize::Base4K.bytes();

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
    /// What the program still has of the page is, but not all by a move; the frame, or some of it, is still where
    /// it was.
    Copied,
    /// The program gave the address back; the frame is still where it was.
    Dropped,
}

/// How far one try to bring a part of a page in came, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Brought {
    moved: u64,
    copied: u64,
    /// Has no place in the program any more.
    left: u64,
    stop: Option<Stop>,
}

impl Agent {
    /// Moves each route's pages (dst, src) in as few calls as they allow. For every route `done` says how it
    /// ended. The caller looks at `Stop::Again` itself: routes may have changed.
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
            let moved = unsafe { relocate(&self.uffd, &self.pagemap, (dst, src), run * bytes) };
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
        self.set_protection(state, start, len, true)
    }

    /// The same, or lifts the protection for sure.
    pub(crate) fn set_protection(&self, state: &mut State, start: u64, len: u64, on: bool) -> bool {
        loop {
            match self.uffd.write_protect(start, len, on) {
                Ok(Protected::Done) => return true,
                Ok(Protected::Again) => self.drain_and_yield(state),
                Ok(Protected::NotThere) | Err(_) => return false,
            }
        }
    }

    /// Brings the bytes of a page that is out in again: by moving the frame at `from`, or, where
    /// the mapping does not allow that any more, by a copy. Never gives up while the program can
    /// still look at the address.
    ///
    /// The program may have changed parts of a huge page meanwhile. Of what it gave back or moved there were
    /// events ([`crate::state::pages`]); where a mapping only fell into several (mprotect(2), madvise(2)) there
    /// was none, and the kernel refuses what crosses from one to the next: then less is tried, down to a base
    /// page, and a base page that has no place any more is left.
    pub(crate) fn put_back(&self, state: &mut State, id: EntryId, from: u64) -> PutBack {
        let Some((begin, end)) = part_out(state, id) else {
            return PutBack::Dropped;
        };
        let (mut moved, mut copied) = (0, 0);
        let mut most = end - begin;
        while let Some(piece) = state.pages.first_out(id) {
            let len = piece.len.min(most);
            let mut brought = self.bring((piece.addr, from + piece.at), len);
            match brought.stop {
                _ if brought.moved + brought.copied > 0 => most = most.saturating_mul(2),
                Some(Stop::Again | Stop::NoMemory) => self.drain_and_yield(state),
                _ if len > BASE => most = (len / 2).next_multiple_of(BASE),
                // Not mapped, not registered any more, or somebody else's page there.
                _ => brought.left = BASE,
            }
            moved += brought.moved;
            copied += brought.copied;
            mark_in_up_to(
                state,
                id,
                piece.at + brought.moved + brought.copied + brought.left,
            );
        }
        match (moved, copied) {
            (0, 0) => PutBack::Dropped,
            _ if moved == end - begin => PutBack::Moved,
            _ => PutBack::Copied,
        }
    }

    /// Moves what is at `src` to the program's `dst`, or copies it where that is refused.
    fn bring(&self, (dst, src): (u64, u64), len: u64) -> Brought {
        const REFUSED: Moved = Moved {
            bytes: 0,
            stop: Some(Stop::Refused),
        };
        // SAFETY: the frame is ours and nothing refers to it; the program's address is empty.
        let moved = unsafe { relocate(&self.uffd, &self.pagemap, (dst, src), len) };
        let moved = moved.unwrap_or(REFUSED);
        let mut brought = Brought {
            moved: moved.bytes,
            stop: moved.stop,
            ..Brought::default()
        };
        if moved.bytes == 0 && !matches!(moved.stop, Some(Stop::Again | Stop::NoMemory)) {
            // The second way in: the mapping became read-only, locked, or something we cannot tell.
            // SAFETY: `src` is a present frame of ours, and the program's address is empty.
            let copied = unsafe { self.uffd.copy(dst, src, len, false) }.unwrap_or(REFUSED);
            (brought.copied, brought.stop) = (copied.bytes, copied.stop);
        }
        brought
    }

    /// Moves a huge page out. The kernel moves it whole where it is whole; where the program's
    /// mapping of it was split since we looked, it goes page by page and may get stuck half-way:
    /// then what is out goes back in. What changes mappings is waited out so many times.
    pub(crate) fn move_out_huge(&self, state: &mut State, item: &mut Item, mut waits: u32) {
        let Stage::Placed(page) = &item.stage else {
            return;
        };
        let (id, slot, bytes) = (page.id, page.slot(), item.order.bytes());
        let (mut done, mut since, mut in_use) = (0, 0, false);
        let refused: Option<End> = loop {
            let Some((addr, true)) = current(state, id) else {
                break Some(Outcome::Gone.into());
            };
            if done == 0 {
                since = clock::now();
            } else if is_dirty(state, id) {
                // Some of it may be elsewhere by now.
                break Some(Outcome::Dirtied.into());
            }
            let (route, len) = ((slot + done, addr + done), bytes - done);
            // SAFETY: the slot is ours and empty from `done` on; the page's bytes stay what they
            // are.
            let moved = match unsafe { relocate(&self.uffd, &self.pagemap, route, len) } {
                Ok(moved) => moved,
                Err(errno) => break Some(errno.into()),
            };
            done += moved.bytes;
            if done > 0 {
                mark_out(state, id, slot, done);
            }
            match moved.stop {
                _ if done == bytes => break None,
                Some(Stop::Again) if moved.bytes > 0 => {}
                Some(Stop::Again) if done == 0 && waits > 0 => {
                    waits -= 1;
                    self.drain_and_yield(state);
                    // What was touched is aborted.
                    self.look_again(state, std::slice::from_mut(item));
                    if item.waits_in().is_none() {
                        return;
                    }
                }
                stop => {
                    in_use = stop == Some(Stop::Exists);
                    break Some(refusal(stop.unwrap_or(Stop::Busy)).into());
                }
            }
        };
        match refused {
            None => {
                // One call can have moved it page by page.
                let whole = self.pagemap.kind(slot).is_ok_and(|kind| kind.huge);
                item.go_out(since, whole);
            }
            Some(end) if done > 0 => {
                let end = match self.put_back(state, id, slot) {
                    PutBack::Dropped => Outcome::Gone.into(),
                    PutBack::Moved | PutBack::Copied => end,
                };
                item.go_out_in_part(since, end);
            }
            Some(end) => {
                let left = if in_use { Left::Pieces } else { Left::Nothing };
                self.abort_with(state, item, end, left);
            }
        }
    }

    /// Ends an item's transaction without a move: the page stays where it is and writable, its frame
    /// and its slot are free.
    pub(crate) fn abort(&self, state: &mut State, item: &mut Item, why: impl Into<End>) {
        self.abort_with(state, item, why.into(), Left::Nothing);
    }

    /// The same where something is in the slot.
    pub(crate) fn abort_with(&self, state: &mut State, item: &mut Item, why: End, left: Left) {
        let (page, slot) = match std::mem::take(&mut item.stage) {
            Stage::Admitted(page) => (page, None),
            Stage::Placed(page) => {
                let (page, slot) = page.unplace();
                (page, Some(slot))
            }
            other => {
                item.stage = other;
                return;
            }
        };
        let order = item.order;
        if let Some(entry) = state.pages.end(page.id) {
            if !entry.dead {
                self.unprotect(state, entry.addr, entry.size.bytes());
            }
            if self.writers == Writers::Wait && (entry.dead || entry.addr != order.addr) {
                // Writers may wait where the page was.
                self.uffd.wake(order.addr, order.bytes());
            }
        }
        if let Some(slot) = slot {
            self.free_slot(state, order.size, slot, left);
        }
        free_source(state, &order, page.source);
        item.stage = Stage::Ended(why);
    }
}

/// Where a page under a transaction is now, and whether the program still has it.
pub(crate) fn current(state: &mut State, id: EntryId) -> Option<(u64, bool)> {
    let entry = state.pages.get(id)?;
    Some((entry.addr, !entry.dead))
}

/// Notes that the page is out up to `to`, its bytes at `content`.
pub(crate) fn mark_out(state: &mut State, id: EntryId, content: u64, to: u64) {
    if let Some(entry) = state.pages.get(id) {
        entry.stage = pages::Stage::Out {
            content,
            from: 0,
            to,
        };
    }
}

/// Notes that the part up to `done` is in again.
pub(crate) fn mark_in_up_to(state: &mut State, id: EntryId, done: u64) {
    if let Some(entry) = state.pages.get(id)
        && let pages::Stage::Out { from, .. } = &mut entry.stage
    {
        *from = done;
    }
}

/// Which part of the page is out.
fn part_out(state: &mut State, id: EntryId) -> Option<(u64, u64)> {
    match state.pages.get(id)?.stage {
        pages::Stage::Out { from, to, .. } => Some((from, to)),
        pages::Stage::Copying | pages::Stage::Verifying => None,
    }
}

fn is_dirty(state: &mut State, id: EntryId) -> bool {
    state.pages.get(id).is_some_and(|entry| entry.dirty)
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
