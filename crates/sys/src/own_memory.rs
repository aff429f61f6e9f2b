// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of our own that is touched to measure what that takes here ([`crate::set_again`], [`crate::walk`]).

use std::path::Path;
use std::ptr;
use std::time::Instant;

use rustix::io::Errno;
use rustix::mm;
use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

use crate::spare_memory;

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
const LINE: usize = 64;
/// Full period over a power of two: the first is 1 more than a multiple of 4, the second odd.
const STEP: (usize, usize) = (6_425, 8_191);
/// Of so many the median counts.
const ROUNDS: usize = 5;
/// Of the memory that is to spare, what may be measured on.
const SHARE: u64 = 64;

/// A mapping, all of it present.
pub(crate) struct OwnMemory {
    /// Begins at a huge page.
    at: *mut u8,
    pages: usize,
    mapped: (*mut core::ffi::c_void, usize),
}

// SAFETY: the memory is this value's alone, and is accessed by volatile reads only.
unsafe impl Sync for OwnMemory {}

/// How many pages may be measured on here, at most so many: a 64th of what is to spare ([`spare_memory`]).
#[must_use]
pub fn pages_to_spare(most: u64) -> usize {
    let spare = spare_memory::bytes(Path::new("/")) / 4096;
    let pages = (spare / SHARE).clamp(1, most.max(1));
    // A power of two, of which none is larger than that.
    1_usize << pages.ilog2()
}

/// The median of what so many rounds take more, ns; 0 where that is less.
pub(crate) fn median(mut round: impl FnMut() -> Result<f64, Errno>) -> Result<f64, Errno> {
    let mut more = [0.0; ROUNDS];
    for more in &mut more {
        *more = round()?;
    }
    more.sort_by(f64::total_cmp);
    Ok(more[ROUNDS / 2].max(0.0))
}

impl OwnMemory {
    /// So many base pages, rounded up to a power of two; in huge pages, where there are any, or without.
    pub(crate) fn new(pages: usize, huge: bool) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = pages.next_power_of_two() * PAGE;
        let all = bytes + HUGE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let mapped =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), all, access, MapFlags::PRIVATE) }?;
        let ahead = mapped.addr().next_multiple_of(HUGE) - mapped.addr();
        let memory = Self {
            at: mapped.cast::<u8>().wrapping_add(ahead),
            pages: bytes / PAGE,
            mapped: (mapped, all),
        };
        let start = memory.at.addr() as u64;
        crate::arena::huge_pages(start, bytes as u64, huge)?;
        crate::arena::populate(start, bytes as u64)?;
        Ok(memory)
    }

    /// Clears the accessed bits.
    pub(crate) fn clear(&self) -> Result<(), Errno> {
        // SAFETY: the mapping is ours, and no content changes.
        unsafe { mm::madvise(self.at.cast(), self.pages * PAGE, Advice::LinuxCold) }
    }

    /// Reads a word of each page, in an order that no prefetcher follows; where `AFTER`, each when the one before is there. ns for each.
    pub(crate) fn touch<const AFTER: bool>(&self) -> f64 {
        let before = Instant::now();
        let (mut page, mut sum) = (0, 0_u8);
        for _ in 0..self.pages {
            // Not the same line of each, which would have one set of the cache to share.
            let offset = page * PAGE + page % (PAGE / LINE) * LINE;
            // SAFETY: within the mapping.
            let word = unsafe { self.at.add(offset).read_volatile() };
            sum = sum.wrapping_add(word);
            // All words are 0.
            let after = if AFTER { usize::from(word) } else { 0 };
            page = (page * STEP.0 + STEP.1 + after) % self.pages;
        }
        std::hint::black_box(sum);
        #[expect(clippy::cast_precision_loss, reason = "a count of pages")]
        let pages = self.pages as f64;
        before.elapsed().as_secs_f64() * 1e9 / pages
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        let (mapped, bytes) = self.mapped;
        // SAFETY: nobody else refers to it.
        let _ = unsafe { mm::munmap(mapped, bytes) };
    }
}
