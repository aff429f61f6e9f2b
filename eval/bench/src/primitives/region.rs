// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece of memory to measure on: mapped, touched, copied and read through raw pointers only,
//! so that no Rust reference is in the way of what the kernel does with it.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm;
use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::MprotectFlags;
use rustix::mm::ProtFlags;

pub(super) const PAGE: usize = 4096;

/// A mapping of whole 4 KiB pages; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Region {
    at: NonNull<u8>,
    pages: usize,
}

impl Region {
    fn new(
        map: impl FnOnce(usize) -> Result<*mut std::ffi::c_void, Errno>,
        pages: usize,
    ) -> Result<Self, Errno> {
        let at = NonNull::new(map(pages * PAGE)?.cast()).ok_or(Errno::NOMEM)?;
        let region = Self { at, pages };
        // SAFETY: the range is the mapping just made.
        unsafe {
            mm::madvise(
                region.at.as_ptr().cast(),
                pages * PAGE,
                Advice::LinuxNoHugepage,
            )
        }?;
        Ok(region)
    }

    /// Anonymous memory, nothing of it present.
    pub(super) fn anonymous(pages: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is.
        let map = |length| unsafe {
            mm::mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::PRIVATE)
        };
        Self::new(map, pages)
    }

    /// Anonymous memory, every page written to.
    pub(super) fn populated(pages: usize) -> Result<Self, Errno> {
        let region = Self::anonymous(pages)?;
        region.touch_all();
        Ok(region)
    }

    /// A file whose pages are all in memory and of which none is mapped yet.
    pub(super) fn cached_file(pages: usize) -> Result<Self, Errno> {
        let file = rustix::fs::memfd_create("terrace-primitives", rustix::fs::MemfdFlags::CLOEXEC)?;
        for _ in 0..pages {
            rustix::io::write(&file, &[1; PAGE])?;
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is; the mapping keeps the file.
        let map = |length| unsafe {
            mm::mmap(
                std::ptr::null_mut(),
                length,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        Self::new(map, pages)
    }

    pub(super) fn start(&self) -> u64 {
        self.at.as_ptr().addr() as u64
    }

    pub(super) const fn bytes(&self) -> u64 {
        (self.pages * PAGE) as u64
    }

    /// Writes one byte of each page.
    pub(super) fn touch_all(&self) {
        for page in 0..self.pages {
            // SAFETY: the offset is inside the mapping, which is writable and ours alone.
            unsafe { self.at.add(page * PAGE).write_volatile(1) };
        }
    }

    /// Copies a region as long as this one, so many bytes at a time.
    pub(super) fn copy_from(&self, from: &Self, piece: usize) {
        let bytes = self.pages.min(from.pages) * PAGE;
        for at in (0..bytes - bytes % piece).step_by(piece) {
            // SAFETY: both offsets are inside their mappings, which are different ones.
            unsafe {
                self.at
                    .add(at)
                    .copy_from_nonoverlapping(from.at.add(at), piece)
            };
        }
    }

    /// Clears page after page.
    pub(super) fn clear(&self) {
        for page in 0..self.pages {
            // SAFETY: the page is inside the mapping, which is writable and ours alone.
            unsafe { self.at.add(page * PAGE).write_bytes(0, PAGE) };
        }
    }

    /// Reads words at pseudo-random places; each place depends on the word before.
    pub(super) fn read_randomly(&self, reads: usize) {
        let words = self.pages * PAGE / 8;
        let mut x = 88_172_645_463_325_252_u64;
        for _ in 0..reads {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let word = usize::try_from(x >> 8).unwrap_or(0) % words;
            // SAFETY: the word is inside the mapping and aligned.
            x = x.wrapping_add(unsafe { self.at.cast::<u64>().add(word).read_volatile() } & 1);
        }
        std::hint::black_box(x);
    }

    /// Takes all access away, in one call.
    pub(super) fn forbid(&self) -> Result<(), Errno> {
        self.protect(MprotectFlags::empty())
    }

    /// Takes the right to write away, gives it back, and writes: the first of the three is a
    /// change that every processor must see.
    pub(super) fn flip(&self) -> Result<(), Errno> {
        self.protect(MprotectFlags::READ)?;
        self.protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
        self.touch_all();
        Ok(())
    }

    fn protect(&self, flags: MprotectFlags) -> Result<(), Errno> {
        // SAFETY: the range is our mapping; nothing accesses it without the right but `drop`.
        unsafe { mm::mprotect(self.at.as_ptr().cast(), self.pages * PAGE, flags) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is our mapping, into which no reference points. It cannot fail.
        let _ = unsafe { mm::munmap(self.at.as_ptr().cast(), self.pages * PAGE) };
    }
}
