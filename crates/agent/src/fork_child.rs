// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forked child's userfaultfd: fills what we had out in the parent, then lets go.
//!
//! With `EVENT_FORK` the kernel hands us the child's context: its mappings are registered like the
//! parent's were, and a page that was out at the fork is missing in the child too. Each gets a
//! copy; then the context is closed, which unregisters everything and wakes who waits. The child's
//! agent is off. Until it is closed, the child's own changes of mappings wait for us to read them.

use std::os::fd::OwnedFd;

use terrace_sys::uffd::EVENT_BYTES;
use terrace_sys::uffd::Event;
use terrace_sys::uffd::Stop;
use terrace_sys::uffd::Uffd;

use crate::agent::State;

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

/// Gives the child what it lacks and lets it go.
pub(crate) fn adopt(state: &State, child: Option<OwnedFd>) {
    let Some(fd) = child else { return };
    let holes = state
        .pages
        .out()
        .map(|(addr, len, content)| Hole { addr, len, content })
        .collect();
    settle(&Uffd::from_child(fd), holes, DEPTH);
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
