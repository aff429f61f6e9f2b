// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves pages between the program's addresses and ours, in runs, under the lock.
//!
//! What must not happen here: content lost. A page that is out has its bytes in exactly one place
//! of ours until it is in again, or until the program gave its address back.

use rustix::io::Errno;
use terrace_proto::Outcome;
use terrace_sys::uffd::Protected;
use terrace_sys::uffd::Stop;

use crate::agent::Agent;
use crate::agent::State;
use crate::clock;
use crate::item::Item;
use crate::pages::Stage;
use crate::relocate::relocate;

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
        let Some((mut done, end)) = part_out(state, item) else {
            return PutBack::Dropped;
        };
        while done < end {
            let Some((addr, true)) = current(state, item) else {
                return PutBack::Dropped;
            };
            let (route, len) = ((addr + done, from + done), end - done);
            // SAFETY: the frame is ours and nothing refers to it; the page's address is empty.
            let moved = unsafe { relocate(&self.uffd, &self.pagemap, route, len) };
            let stop = match moved {
                Ok(moved) => {
                    done += moved.bytes;
                    moved.stop
                }
                Err(_) => Some(Stop::Refused),
            };
            mark_in_up_to(state, item, done);
            match stop {
                Some(Stop::Again | Stop::NoMemory) if done < end => self.drain_and_yield(state),
                Some(_) if done < end => return self.copy_back(state, item, from, done, end),
                _ => {}
            }
        }
        PutBack::Moved
    }

    /// The second way in: the mapping became read-only, locked, or something we cannot tell.
    fn copy_back(
        &self,
        state: &mut State,
        item: &Item,
        from: u64,
        mut done: u64,
        end: u64,
    ) -> PutBack {
        while done < end {
            let Some((addr, true)) = current(state, item) else {
                return PutBack::Dropped;
            };
            // SAFETY: `from` is a present frame of ours, and the page's address is empty.
            let copied = unsafe { self.uffd.copy(addr + done, from + done, end - done, false) };
            let Ok(filled) = copied else {
                return PutBack::Dropped;
            };
            done += filled.bytes;
            mark_in_up_to(state, item, done);
            match filled.stop {
                Some(Stop::Again | Stop::NoMemory) if done < end => self.drain_and_yield(state),
                // Not mapped, not registered any more, or somebody else's page there.
                Some(_) if done < end => return PutBack::Dropped,
                _ => {}
            }
        }
        PutBack::Copied
    }

    /// Moves a huge page out. The kernel moves it whole where it is whole; where the program's
    /// mapping of it was split since we looked, it goes page by page and may get stuck half-way:
    /// then what is out goes back in.
    pub(crate) fn move_out_huge(&self, state: &mut State, item: &mut Item) {
        let Some(slot) = item.slot else { return };
        let (mut done, bytes) = (0, item.bytes());
        loop {
            let Some((addr, alive)) = current(state, item) else {
                return;
            };
            if !alive {
                // What is out already has no owner any more; the slot holds part of a page.
                item.torn |= done > 0;
                self.abort(state, item, Outcome::Gone);
                return;
            }
            if done == 0 {
                item.since = clock::now();
            }
            let (route, len) = ((slot + done, addr + done), bytes - done);
            // SAFETY: the slot is ours and empty from `done` on; the page's bytes stay what they
            // are.
            let moved = unsafe { relocate(&self.uffd, &self.pagemap, route, len) };
            let (count, stop) = match moved {
                Ok(moved) => (moved.bytes, moved.stop),
                Err(errno) => {
                    item.fail(errno);
                    (0, Some(Stop::Busy))
                }
            };
            done += count;
            item.torn |= done > 0 && done < bytes;
            if done > 0 {
                mark_out(state, item, slot, done);
            }
            match stop {
                _ if done == bytes => break,
                Some(Stop::Again) if count > 0 => {}
                Some(Stop::Again) => self.drain_and_yield(state),
                _ if done > 0 => {
                    item.torn = true;
                    if self.put_back(state, item, slot) == PutBack::Dropped {
                        item.outcome.get_or_insert(Outcome::Gone);
                    }
                    item.outcome
                        .get_or_insert(refusal(stop.unwrap_or(Stop::Busy)));
                    return;
                }
                stop => {
                    item.torn |= stop == Some(Stop::Exists);
                    self.abort(state, item, refusal(stop.unwrap_or(Stop::Busy)));
                    return;
                }
            }
            if done == 0 && is_dirty(state, item) {
                self.settle_dirty(state, std::slice::from_mut(item));
                return;
            }
        }
        item.out = true;
        // One call can have moved it page by page.
        item.torn |= !self.pagemap.kind(slot).is_ok_and(|kind| kind.huge);
    }

    /// Ends an item's transaction without a move: the page stays where it is and writable.
    pub(crate) fn abort(&self, state: &mut State, item: &mut Item, why: Outcome) {
        if let Some(entry) = item.id.take().and_then(|id| state.pages.end(id)) {
            if !entry.dead {
                self.unprotect(state, entry.addr, entry.size.bytes());
            }
            if self.options.writers_wait && (entry.dead || entry.addr != item.addr) {
                // Writers may wait where the page was.
                self.uffd.wake(item.addr, item.bytes());
            }
        }
        item.outcome.get_or_insert(why);
    }
}

/// Where the item's page is now, and whether the program still has it.
pub(crate) fn current(state: &mut State, item: &Item) -> Option<(u64, bool)> {
    let entry = state.pages.get(item.id?)?;
    Some((entry.addr, !entry.dead))
}

/// Notes that the page is out up to `to`, its bytes at `content`.
pub(crate) fn mark_out(state: &mut State, item: &Item, content: u64, to: u64) {
    if let Some(entry) = item.id.and_then(|id| state.pages.get(id)) {
        entry.stage = Stage::Out {
            content,
            from: 0,
            to,
        };
    }
}

/// Notes that the part up to `done` is in again.
fn mark_in_up_to(state: &mut State, item: &Item, done: u64) {
    if let Some(entry) = item.id.and_then(|id| state.pages.get(id))
        && let Stage::Out { from, .. } = &mut entry.stage
    {
        *from = done;
    }
}

/// Notes that all of the page is in again.
pub(crate) fn mark_in(state: &mut State, item: &Item) {
    mark_in_up_to(state, item, item.bytes());
}

/// Which part of the page is out.
fn part_out(state: &mut State, item: &Item) -> Option<(u64, u64)> {
    match state.pages.get(item.id?)?.stage {
        Stage::Out { from, to, .. } => Some((from, to)),
        Stage::Copying | Stage::Verifying => None,
    }
}

fn is_dirty(state: &mut State, item: &Item) -> bool {
    item.id
        .and_then(|id| state.pages.get(id))
        .is_some_and(|entry| entry.dirty)
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
