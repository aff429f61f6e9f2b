// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs a program that the accessed bits of its pages were cleared: its first access to each looks the
//! translation up anew, and the processor has to set the bit, which it does for one access after the other.
//!
//! Measured on memory of our own: all its pages are touched in an order that no prefetcher follows, each access by
//! itself, once as they are and once after another thread has cleared their bits (`MADV_COLD`, which flushes the
//! translations, as [`crate::advise::cold`] does). The difference is the cost. It grows with the memory, from where
//! the caches do not hold its page tables any more, so few pages say too little of a large program.

use std::ptr;
use std::time::Instant;

use rustix::io::Errno;
use rustix::mm;
use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

const PAGE: usize = 4096;
const LINE: usize = 64;
/// Full period over a power of two: the first is 1 more than a multiple of 4, the second odd.
const STEP: (usize, usize) = (6_425, 8_191);
/// Of so many the median counts.
const ROUNDS: usize = 5;

/// ns that the first access to a page of 4 KiB takes more after its bit was cleared, on that many pages (rounded up
/// to a power of two), which are given back.
///
/// # Errors
///
/// `ENOMEM`, or what madvise(2) says of `MADV_COLD` (Linux 5.4).
pub fn measure(pages: usize) -> Result<f64, Errno> {
    let memory = Memory::new(pages.next_power_of_two())?;
    let mut more = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        memory.touch();
        let warm = memory.touch();
        // By another thread, as it is by the tracker: what that one loads is not in this one's own caches.
        std::thread::scope(|scope| {
            let cleared = scope.spawn(|| memory.clear()).join();
            cleared.unwrap_or(Err(Errno::NOTSUP))
        })?;
        more.push(memory.touch() - warm);
    }
    more.sort_by(f64::total_cmp);
    Ok(more[ROUNDS / 2].max(0.0))
}

/// A mapping of base pages, all present.
struct Memory {
    at: *mut u8,
    pages: usize,
}

// SAFETY: the memory is this value's alone, and is accessed by volatile reads only.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(pages: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = pages * PAGE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let at = unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        let memory = Self {
            at: at.cast(),
            pages,
        };
        // SAFETY: the mapping just made.
        unsafe { mm::madvise(at, bytes, Advice::LinuxNoHugepage) }?;
        // Reports failure where a touch would kill.
        crate::arena::populate(at.addr() as u64, bytes as u64)?;
        Ok(memory)
    }

    fn clear(&self) -> Result<(), Errno> {
        // SAFETY: the mapping is ours, and no content changes.
        unsafe { mm::madvise(self.at.cast(), self.pages * PAGE, Advice::LinuxCold) }
    }

    /// Reads a word of each page; ns for each.
    fn touch(&self) -> f64 {
        let before = Instant::now();
        let (mut page, mut sum) = (0, 0_u8);
        for _ in 0..self.pages {
            // Not the same line of each, which would have one set of the cache to share.
            let offset = page * PAGE + page % (PAGE / LINE) * LINE;
            // SAFETY: within the mapping.
            sum = sum.wrapping_add(unsafe { self.at.add(offset).read_volatile() });
            page = (page * STEP.0 + STEP.1) % self.pages;
        }
        std::hint::black_box(sum);
        #[expect(clippy::cast_precision_loss, reason = "a count of pages")]
        let pages = self.pages as f64;
        before.elapsed().as_secs_f64() * 1e9 / pages
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nobody else refers to it.
        let _ = unsafe { mm::munmap(self.at.cast(), self.pages * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_more_than_nothing_and_less_than_a_fault() {
        let each = measure(1 << 14).unwrap();
        assert!(each > 1.0 && each < 100_000.0, "{each} ns");
    }
}
