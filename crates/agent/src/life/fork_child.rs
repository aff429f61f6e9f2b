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

/// A fork within a fork within ...: nobody does more before the first was looked at.
const DEPTH: u32 = 8;
const PAGE: u64 = 4096;

/// A page the child lacks: where it is there, its bytes with us.
#[derive(Debug, Clone, Copy)]
struct Hole {
    addr: u64,
    len: u64,
    content: u64,
}

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
    let mut holes: Vec<Hole> = state
        .pages
        .out()
        .map(|(addr, len, content)| Hole { addr, len, content })
        .collect();
    // Not to be taken for the child's: what it lacks, and the zeros that looking leaves behind.
    let mut ours: Vec<(u64, u64)> = holes.iter().map(|hole| (hole.addr, hole.len)).collect();
    holes.retain(|hole| !is_wiped(&mut state.maps, &child, hole, &mut ours));
    settle(&child, holes, DEPTH);
}

/// Whether the child must find zeros where the hole is.
fn is_wiped(maps: &mut MapsFile, child: &Uffd, hole: &Hole, ours: &mut Vec<(u64, u64)>) -> bool {
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

fn settle(child: &Uffd, mut holes: Vec<Hole>, depth: u32) {
    while let Some(hole) = holes.last().copied() {
        // SAFETY: the content is a present frame of ours, held as long as the page is out, which
        // the lock of our caller ensures; the destination is in another process.
        match unsafe { child.copy(hole.addr, hole.content, hole.len, false) } {
            Ok(filled) if filled.stop == Some(Stop::Again) => {
                advance(&mut holes, filled.bytes);
                follow(child, &mut holes, depth);
                rustix::thread::sched_yield();
            }
            Ok(filled) if filled.stop == Some(Stop::NoMemory) => rustix::thread::sched_yield(),
            Ok(filled) if filled.stop == Some(Stop::Exists) => advance(&mut holes, PAGE),
            // Filled; or the child has no such mapping.
            _ => {
                holes.pop();
            }
        }
    }
}

/// A huge page may have been out in part, and a copy may stop in the middle.
fn advance(holes: &mut Vec<Hole>, bytes: u64) {
    if let Some(hole) = holes.last_mut() {
        hole.addr += bytes;
        hole.content += bytes;
        hole.len -= bytes.min(hole.len);
        if hole.len == 0 {
            holes.pop();
        }
    }
}

/// The child changes its mappings already.
fn follow(child: &Uffd, holes: &mut Vec<Hole>, depth: u32) {
    let mut wire = [0; EVENT_BYTES];
    while child.read(&mut wire).unwrap_or(0) > 0 {
        // SAFETY: the bytes come from `read` and are decoded once.
        match unsafe { Event::decode(&wire) } {
            Event::Unmap { start, end } | Event::Remove { start, end } => {
                holes.retain(|hole| hole.addr + hole.len <= start || hole.addr >= end);
            }
            Event::Remap { from, to, len } => {
                for hole in holes.iter_mut() {
                    if hole.addr >= from && hole.addr - from < len {
                        hole.addr = hole.addr - from + to;
                    }
                }
            }
            Event::Fork(Some(fd)) if depth > 0 => {
                settle(&Uffd::from_child(fd), holes.clone(), depth - 1);
            }
            _ => {}
        }
    }
}
