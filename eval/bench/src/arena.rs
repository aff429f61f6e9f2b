// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory a workload works on: one private anonymous mapping, seen as words.
//!
//! Words are atomics: pages may be moved by another thread of this process or by the kernel while
//! they are read and written, and a moved page keeps its contents, so a relaxed load or store of a
//! word is all that is needed. Access is by one thread; an update is a load and a store.

use std::ptr;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm;
use terrace_workload::PAGE_BYTES;
use terrace_workload::WORDS_PER_PAGE;

#[expect(clippy::cast_possible_truncation, reason = "4096, a constant")]
const PAGE: usize = PAGE_BYTES as usize;

/// A mapping of whole pages, unmapped when dropped.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<AtomicU64>,
    pages: u32,
}

impl Arena {
    /// Maps `pages` pages; none of them is allocated yet.
    ///
    /// # Errors
    ///
    /// What `mmap` or `madvise` say.
    pub fn map(pages: u32, huge: bool) -> Result<Self, Errno> {
        let bytes = pages as usize * PAGE;
        // SAFETY: a new private mapping at an address of the kernel's choice replaces nothing.
        let address = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                bytes,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::PRIVATE | mm::MapFlags::NORESERVE,
            )?
        };
        let base = NonNull::new(address.cast()).expect("the kernel maps nothing at address 0");
        let arena = Self { base, pages };
        let advice = if huge {
            mm::Advice::LinuxHugepage
        } else {
            mm::Advice::LinuxNoHugepage
        };
        // SAFETY: the range is the mapping just made; the advice does not change its contents.
        unsafe { mm::madvise(address, bytes, advice)? };
        Ok(arena)
    }

    /// All words, by index.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let count = u64::from(self.pages) * WORDS_PER_PAGE;
        let count = usize::try_from(count).expect("it was mapped, so it fits the address space");
        // SAFETY: the mapping is page aligned, has that many words, is readable and writable and
        // lives as long as `self`; anonymous memory is zero, a valid atomic, until written.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), count) }
    }

    /// The address of a word.
    #[must_use]
    pub fn address(&self, word: u64) -> u64 {
        self.base.as_ptr().addr() as u64 + word * 8
    }

    /// Pages mapped.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = self.pages as usize * PAGE;
        // SAFETY: the mapping is ours and `words` cannot outlive `self`. If the kernel refuses, the
        // memory stays until the process ends.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), bytes) };
    }
}
