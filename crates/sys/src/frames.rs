// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/PID/pagemap`: which page frame is behind an address of another process.
//!
//! Kernel contract: eight bytes a page; bits 0 to 54 are the frame number, which reads as zero
//! without `CAP_SYS_ADMIN`; bit 56 says that nobody else maps the page, bit 61 that it is of a file or
//! shared memory, bit 63 that it is present. An open file stays with the address space of its moment:
//! after an exec it reads as empty.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use terrace_core::Addr;
use terrace_core::CHUNK_PAGES;
use terrace_core::PageBits;
use terrace_core::Pid;

const FRAME: u64 = (1 << 55) - 1;
pub(crate) const EXCLUSIVE: u64 = 1 << 56;
const OF_FILE: u64 = 1 << 61;
pub(crate) const PRESENT: u64 = 1 << 63;

/// What is behind an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A frame that this process alone maps, anonymous: its number.
    Own(u64),
    /// A frame of a file, of shared memory, or that several processes map: its number.
    Shared(u64),
    /// Nothing is present there.
    Absent,
    /// There is no such address space any more.
    Gone,
    /// The kernel does not tell us frame numbers (`CAP_SYS_ADMIN`).
    Hidden,
}

/// The page map of a process.
#[derive(Debug)]
pub struct FrameMap {
    file: File,
}

impl FrameMap {
    /// Of the address space the process has now.
    ///
    /// # Errors
    ///
    /// Where it does not exist or is not ours to look at.
    pub fn of(pid: Pid) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/pagemap")).map(|file| Self { file })
    }

    /// What is behind an address now.
    #[must_use]
    pub fn at(&self, addr: Addr) -> Frame {
        let mut raw = [0; 8];
        match self.file.read_exact_at(&mut raw, addr.0 >> 12 << 3) {
            Ok(()) => decode(u64::from_ne_bytes(raw)),
            Err(_) => Frame::Gone,
        }
    }
}

impl FrameMap {
    /// The pages of 2 MiB that begin there which nobody else maps, of those that are present. Nothing where there is no such address
    /// space any more.
    #[must_use]
    pub fn exclusive(&self, chunk: Addr) -> Option<PageBits> {
        let mut raw = [0; 8 * CHUNK_PAGES];
        self.file.read_exact_at(&mut raw, chunk.0 >> 12 << 3).ok()?;
        let mut pages = PageBits::NONE;
        for (page, entry) in raw.chunks_exact(8).enumerate() {
            let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
            if entry & EXCLUSIVE != 0 && entry & PRESENT != 0 {
                pages.set(page);
            }
        }
        Some(pages)
    }
}

const fn decode(entry: u64) -> Frame {
    if entry & PRESENT == 0 {
        return Frame::Absent;
    }
    match entry & FRAME {
        0 => Frame::Hidden,
        frame if entry & EXCLUSIVE != 0 && entry & OF_FILE == 0 => Frame::Own(frame),
        frame => Frame::Shared(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart() {
        assert_eq!(decode(PRESENT | EXCLUSIVE | 7), Frame::Own(7));
        assert_eq!(decode(PRESENT | 7), Frame::Shared(7));
        assert_eq!(decode(PRESENT | EXCLUSIVE | OF_FILE | 7), Frame::Shared(7));
        assert_eq!(decode(PRESENT | EXCLUSIVE), Frame::Hidden);
        // A swapped page has other things in these bits.
        assert_eq!(decode(1 << 62 | 7), Frame::Absent);
    }

    /// A child that was forked and has not written maps the same pages.
    #[test]
    fn pages_that_a_child_shares_are_not_exclusive() {
        let bytes = 4 << 20;
        let memory = crate::arena::Reservation::new(bytes, 2 << 20).expect("addresses");
        memory.commit(0, bytes).expect("memory");
        crate::arena::huge_pages(memory.start(), bytes, false).expect("base pages");
        crate::arena::populate(memory.start(), 8 << 12).expect("pages");
        // It is not inherited by default.
        let range = (memory.start() as *mut core::ffi::c_void, 4 << 12);
        // SAFETY: the mapping is ours, and no content changes.
        unsafe { rustix::mm::madvise(range.0, range.1, rustix::mm::Advice::LinuxDoFork) }
            .expect("pages");
        let map = FrameMap::of(Pid(std::process::id())).expect("own map");
        let own = || map.exclusive(Addr(memory.start())).expect("lives").count();
        assert_eq!(own(), 8);
        // SAFETY: the child does nothing but wait and end, by calls that are safe after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::pause();
                libc::_exit(0);
            }
        }
        let shared = own();
        // SAFETY: it is our child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert_eq!(shared, 4);
        assert_eq!(own(), 8);
    }

    #[test]
    fn a_touched_page_of_this_process_is_its_own_or_hidden() {
        let memory = vec![1_u8; 64 << 10];
        let map = FrameMap::of(Pid(std::process::id())).expect("own map");
        let middle = Addr((memory.as_ptr().addr() as u64 + (32 << 10)) & !0xfff);
        assert!(matches!(map.at(middle), Frame::Own(_) | Frame::Hidden));
        assert_eq!(map.at(Addr(0)), Frame::Absent);
        assert_eq!(memory[40 << 10], 1);
    }
}
