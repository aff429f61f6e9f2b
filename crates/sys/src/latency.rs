// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a read takes that memory serves, by node, as it is now: with what else uses that memory.
//!
//! A MiB of the node, locked there, holds one chain through all its lines, in an order that no prefetcher
//! follows. A measurement goes some steps of it: each load needs the one before. The lines are flushed
//! from the caches first (`clflush`, x86-64). Time is `CLOCK_MONOTONIC`; of several stretches the median counts, as
//! the thread can lose its processor in one.
//!
//! Kernel contract: memory that is bound to a node (`MPOL_BIND`) has the OOM killer end a program, and the largest is the
//! managed one, where the node has nothing left to reclaim. `MPOL_PREFERRED` takes from other nodes then, and move\_pages(2) reports it
//! (`__GFP_THISNODE`, for which `__alloc_pages_may_oom` kills nobody).

use std::ptr;

use rustix::io::Errno;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use terrace_core::NodeId;

use crate::clock;
use crate::mempolicy;
use crate::mempolicy::Policy;
use crate::move_pages;
use crate::move_pages::PageStatus;
use crate::move_pages::Sharing;
use crate::move_pages::Target;

const LINE_WORDS: usize = 8;
/// A power of two.
const LINES: usize = 1 << 14;
const BYTES: usize = LINES * LINE_WORDS * 8;
const PAGE_BYTES: usize = 4096;
/// Full period over a power of two: the first is 1 more than a multiple of 4, the second odd.
const STEP: (usize, usize) = (6_425, 8_191);
const STRETCHES: usize = 8;
const STRETCH: usize = 32;

/// Memory on a node to read from.
#[derive(Debug)]
pub struct Latency {
    words: *mut usize,
    at: usize,
}

// SAFETY: the memory is this value's alone.
unsafe impl Send for Latency {}

impl Latency {
    /// Takes a MiB of the node.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a node the task may not use, `ENOMEM` where it has none to give and for memory beyond `RLIMIT_MEMLOCK`, `EPERM`
    /// where that is 0, `ENOSYS` on another processor than x86-64.
    pub fn open(node: NodeId) -> Result<Self, Errno> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Errno::NOSYS);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), BYTES, protection, MapFlags::PRIVATE)
        }?;
        let this = Self {
            words: start.cast(),
            at: 0,
        };
        let address = start.addr() as u64;
        mempolicy::mbind(address, BYTES as u64, &Policy::Preferred(node))?;
        crate::arena::populate(address, BYTES as u64)?;
        bring(address, node)?;
        // Nobody reads most of it for long: reclaim would demote it, whatever it is bound to, or swap it out.
        // SAFETY: the mapping is this value's.
        unsafe { rustix::mm::mlock(start, BYTES) }?;
        let mut line = 0;
        for _ in 0..LINES {
            let next = (line * STEP.0 + STEP.1) % LINES;
            // SAFETY: within the mapping.
            unsafe { this.words.add(line * LINE_WORDS).write(next) };
            line = next;
        }
        Ok(this)
    }

    /// ns that a read takes now.
    #[must_use]
    pub fn measure(&mut self) -> f64 {
        let mut times: [f64; STRETCHES] = std::array::from_fn(|_| self.stretch());
        times.sort_by(f64::total_cmp);
        f64::midpoint(times[STRETCHES / 2 - 1], times[STRETCHES / 2])
    }

    fn stretch(&mut self) -> f64 {
        let first = self.at;
        let mut line = first;
        for _ in 0..STRETCH {
            // By the rule, not by the chain: the lines are not to be read.
            flush(self.words.wrapping_add(line * LINE_WORDS));
            line = (line * STEP.0 + STEP.1) % LINES;
        }
        fence();
        let before = clock::now();
        let mut line = first;
        for _ in 0..STRETCH {
            // SAFETY: within the mapping: the chain holds numbers of lines.
            line = unsafe { self.words.add(line * LINE_WORDS).read_volatile() } % LINES;
        }
        let took = clock::now().since(before);
        self.at = line;
        #[expect(clippy::cast_precision_loss, reason = "microseconds")]
        let each = took.0 as f64 / STRETCH as f64;
        each
    }
}

/// Has the pages at an address on the node.
fn bring(start: u64, node: NodeId) -> Result<(), Errno> {
    let pages: Vec<u64> = (start..start + BYTES as u64).step_by(PAGE_BYTES).collect();
    let strays = || -> Result<Vec<u64>, Errno> {
        let status = move_pages::query(Target::Own, &pages)?;
        let all = pages.iter().copied().zip(status);
        let strays = all.filter(|(_, status)| *status != PageStatus::On(node));
        Ok(strays.map(|(page, _)| page).collect())
    };
    let there = strays()?;
    if there.is_empty() {
        return Ok(());
    }
    move_pages::migrate(Target::Own, &there, node, Sharing::OwnOnly)?;
    if strays()?.is_empty() {
        Ok(())
    } else {
        Err(Errno::NOMEM)
    }
}

impl Drop for Latency {
    fn drop(&mut self) {
        // SAFETY: nobody else refers to it.
        let _ = unsafe { rustix::mm::munmap(self.words.cast(), BYTES) };
    }
}

#[cfg(target_arch = "x86_64")]
fn flush(at: *mut usize) {
    // SAFETY: a line of our own mapping; no content changes.
    unsafe { std::arch::x86_64::_mm_clflush(at.cast()) }
}

#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: orders memory accesses, nothing else.
    unsafe { std::arch::x86_64::_mm_mfence() }
}

#[cfg(not(target_arch = "x86_64"))]
fn flush(_: *mut usize) {}

#[cfg(not(target_arch = "x86_64"))]
fn fence() {}

#[cfg(test)]
mod tests {
    use terrace_core::Addr;

    use super::*;
    use crate::procmaps::SmapsFile;

    #[test]
    fn the_chain_comes_by_every_line() {
        let mut seen = vec![false; LINES];
        let mut line = 0;
        for _ in 0..LINES {
            assert!(!std::mem::replace(&mut seen[line], true));
            line = (line * STEP.0 + STEP.1) % LINES;
        }
        assert_eq!(line, 0);
    }

    #[test]
    fn a_read_that_memory_serves_is_slower_than_one_from_the_cache() {
        let mut latency = Latency::open(NodeId(0)).expect("a node 0");
        let memory = latency.measure();
        let words = [0_usize; 8];
        let before = clock::now();
        let mut at = 0;
        for _ in 0..100_000 {
            at = std::hint::black_box(&words)[at];
        }
        let cache = clock::now().since(before).0 / 100_000;
        println!("{memory} ns a read, {cache} ns from the cache");
        assert!(memory > 2.0 * cache as f64, "{memory} against {cache}");
        assert_eq!(at, 0);
    }

    #[test]
    fn reclaim_leaves_it_where_it_is() {
        let latency = Latency::open(NodeId(0)).expect("a node 0");
        let at = Addr(latency.words.addr() as u64);
        let mut smaps = SmapsFile::own().expect("/proc is mounted");
        assert_eq!(smaps.has_flag(at, "lo").expect("own smaps"), Some(true));
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        assert!(Latency::open(NodeId(1000)).is_err());
    }
}
