// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forked child's userfaultfd: fills what we had out in the parent, then lets go.
//!
//! With `EVENT_FORK` the kernel hands us the child's context: its mappings are registered like the
//! parent's were, and a page that was out at the fork is missing in the child too. Each gets a
//! copy; then the context is closed, which unregisters everything and wakes who waits. The child's
//! agent is off. Until it is closed, the child's own changes of mappings wait for us to read them.
//!
//! What the program wants wiped in children (`MADV_WIPEONFORK`) stays empty. The kernel says so in one place that is slow
//! to read; but where the child has the page beside the hole, by the same mapping, it was not wiped.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use terrace_core::Addr;
use terrace_sys::procmaps::MapsFile;
use terrace_sys::procmaps::SmapsFile;
use terrace_sys::uffd::DONT_WAKE;
use terrace_sys::uffd::EVENT_BYTES;
use terrace_sys::uffd::Event;
use terrace_sys::uffd::Stop;
use terrace_sys::uffd::Uffd;

use crate::state::agent::State;
use crate::state::lock::Lock;
use crate::state::pieces;
use crate::state::pieces::Piece;

/// A fork within a fork within ...: nobody does more before the first was looked at.
const DEPTH: u32 = 8;
const PAGE: u64 = 4096;

/// The flags of mappings; opened once, while files may be opened.
static SMAPS: OnceLock<Lock<SmapsFile>> = OnceLock::new();

/// Before the first fork is reported.
///
/// # Errors
///
/// Where `/proc` is not mounted.
pub(crate) fn prepare() -> std::io::Result<()> {
    let file = SmapsFile::own()?;
    SMAPS.get_or_init(|| Lock::new(file));
    Ok(())
}

/// Gives the child what it lacks and lets it go.
pub(crate) fn adopt(state: &mut State, child: Option<OwnedFd>) {
    let Some(fd) = child else { return };
    let child = Uffd::from_child(fd);
    // What the child lacks, and its bytes with us.
    let out: Vec<Piece> = state.pages.out().collect();
    let mut holes = Vec::new();
    for hole in out {
        by_mapping(&mut state.maps, hole, &mut holes);
    }
    // Not to be taken for the child's: what it lacks, and the zeros that looking leaves behind.
    let mut ours: Vec<(u64, u64)> = holes.iter().map(|hole| (hole.addr, hole.len)).collect();
    holes.retain(|hole| !is_wiped(&mut state.maps, &child, hole, &mut ours));
    settle(&child, holes, DEPTH);
}

/// The hole, cut where one mapping ends and the next begins: the program may have cut it while the page was out.
fn by_mapping(maps: &mut MapsFile, hole: Piece, holes: &mut Vec<Piece>) {
    let mut rest = Some(hole);
    while let Some(hole) = rest {
        let mapping = match hole.len {
            PAGE => None,
            _ => maps.find(Addr(hole.addr)).ok().flatten(),
        };
        let end = mapping.map_or(u64::MAX, |mapping| mapping.range.end.0);
        let [_, inside, behind] = hole.cut(hole.addr, end);
        holes.extend(inside);
        rest = behind;
    }
}

/// Whether the child must find zeros where the hole is.
fn is_wiped(maps: &mut MapsFile, child: &Uffd, hole: &Piece, ours: &mut Vec<(u64, u64)>) -> bool {
    let mapping = maps.find(Addr(hole.addr)).ok().flatten();
    for beside in [hole.addr + hole.len, hole.addr.wrapping_sub(PAGE)] {
        let in_place = mapping
            .as_ref()
            .is_some_and(|m| m.range.contains(Addr(beside)))
            && !ours
                .iter()
                .any(|(at, len)| (*at..at + len).contains(&beside));
        if !in_place {
            continue;
        }
        // Where nothing is, a page of zeros is what the child would find anyway.
        let looked = child.zero_page(beside, PAGE, DONT_WAKE);
        if looked.is_ok_and(|filled| filled.stop == Some(Stop::Exists)) {
            return false;
        }
        ours.push((beside, PAGE));
    }
    let asked = SMAPS
        .get()
        .map(|smaps| smaps.lock().has_flag(Addr(hole.addr), "wf"));
    matches!(asked, Some(Ok(Some(true))))
}

/// The child's mappings may have been cut, like the parent's: what does not go as a whole goes in parts, and
/// a base page for which the child has no place is left.
fn settle(child: &Uffd, mut holes: Vec<Piece>, depth: u32) {
    let mut most = u64::MAX;
    while let Some(hole) = holes.last().copied() {
        let len = hole.len.min(most);
        // SAFETY: the content is a present frame of ours, held as long as the page is out, which
        // the lock of our caller ensures; the destination is in another process.
        let (bytes, stop) = match unsafe { child.copy(hole.addr, hole.at, len, false) } {
            Ok(filled) => (filled.bytes, filled.stop),
            Err(_) => (0, Some(Stop::Refused)),
        };
        match stop {
            None => {
                advance(&mut holes, len);
                most = most.saturating_mul(2);
            }
            Some(Stop::Again) => {
                advance(&mut holes, bytes);
                follow(child, &mut holes, depth);
                rustix::thread::sched_yield();
            }
            Some(Stop::NoMemory) => rustix::thread::sched_yield(),
            Some(Stop::Exists) => advance(&mut holes, PAGE),
            Some(_) if len > PAGE => most = (len / 2).next_multiple_of(PAGE),
            Some(_) => advance(&mut holes, PAGE),
        }
    }
}

/// The start of the last hole is filled.
fn advance(holes: &mut Vec<Piece>, bytes: u64) {
    if let Some(hole) = holes.pop() {
        holes.extend(hole.within(hole.at + bytes, u64::MAX));
    }
}

/// The child changes its mappings already.
fn follow(child: &Uffd, holes: &mut Vec<Piece>, depth: u32) {
    let mut wire = [0; EVENT_BYTES];
    while child.read(&mut wire).unwrap_or(0) > 0 {
        // SAFETY: the bytes come from `read` and are decoded once.
        match unsafe { Event::decode(&wire) } {
            Event::Unmap { start, end } | Event::Remove { start, end } => {
                pieces::take(holes, start, end);
            }
            Event::Remap { from, to, len } => {
                let moved = pieces::take(holes, from, from + len);
                holes.extend(moved.into_iter().map(|hole| Piece {
                    addr: hole.addr - from + to,
                    ..hole
                }));
            }
            Event::Fork(Some(fd)) if depth > 0 => {
                settle(&Uffd::from_child(fd), holes.clone(), depth - 1);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;

    use terrace_sys::arena::Reservation;
    use terrace_sys::uffd::Events;
    use terrace_sys::uffd::Writers;

    use super::*;
    use crate::ops::memory;

    fn number(page: u64) -> &'static AtomicU64 {
        // SAFETY: callers name pages of their own areas, mapped for as long as they look.
        unsafe { AtomicU64::from_ptr(memory::pointer(page)) }
    }

    /// Needs userfaultfd for kernel faults, as the agent does.
    #[test]
    fn a_child_that_cut_its_mapping_lacks_only_what_has_no_place() {
        let Ok(child) = Uffd::open(Events::None, Writers::Wait) else {
            println!("SKIPPED: no userfaultfd for kernel faults");
            return;
        };
        let [ours, area] = [8 * PAGE; 2].map(|len| Reservation::new(len, PAGE).expect("pages"));
        ours.commit(0, 8 * PAGE).expect("a few pages");
        let pages = |area: &Reservation| {
            let start = area.start();
            (0..8).map(move |n| number(start + n * PAGE))
        };
        pages(&ours).for_each(|word| word.store(7, Ordering::Relaxed));
        // Three mappings, and the last page is of none that is the context's.
        area.commit(2 * PAGE, 3 * PAGE).expect("three pages");
        let registered = child.register(area.start(), 7 * PAGE, true);
        registered.expect("private memory");
        let hole = Piece {
            addr: area.start(),
            len: 8 * PAGE,
            at: ours.start(),
        };
        settle(&child, vec![hole], DEPTH);
        child.unregister(area.start(), 7 * PAGE).expect("as it was");
        area.commit(0, 8 * PAGE).expect("all of it");
        let found: Vec<u64> = pages(&area)
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        assert_eq!(found, [7, 7, 7, 7, 7, 7, 7, 0]);
    }

    #[test]
    fn a_hole_goes_mapping_by_mapping() {
        let area = Reservation::new(8 * PAGE, PAGE).expect("a few pages");
        area.commit(2 * PAGE, 3 * PAGE).expect("three pages");
        let hole = Piece {
            addr: area.start(),
            len: 8 * PAGE,
            at: 0x1000,
        };
        let mut maps = MapsFile::own().expect("/proc is mounted");
        let mut holes = Vec::new();
        by_mapping(&mut maps, hole, &mut holes);
        let places: Vec<_> = holes
            .iter()
            .map(|hole| (hole.addr - area.start(), hole.at, hole.len / PAGE))
            .collect();
        assert_eq!(
            places,
            [(0, 0x1000, 2), (2 * PAGE, 0x3000, 3), (5 * PAGE, 0x6000, 3)]
        );
    }
}
