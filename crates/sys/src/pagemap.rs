// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/self/pagemap`: what is behind each page of this process.
//!
//! Kernel contract: eight bytes a page; bit 56 says mapped once, bit 57 userfaultfd
//! write-protected, bit 62 swapped, bit 63 present. Frame numbers read as zero without `CAP_SYS_ADMIN`, which we do not need. The
//! `PAGEMAP_SCAN` ioctl (Linux 6.7) walks a range and gives runs of pages of one kind, with huge
//! pages and zero pages told apart.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use linux_raw_sys::general as abi;
use rustix::io::Errno;
use rustix::ioctl;

use crate::frames::EXCLUSIVE;
use crate::frames::PRESENT;

const PAGEMAP_SCAN: ioctl::Opcode = ioctl::opcode::read_write::<abi::pm_scan_arg>(b'f', 16);
const _: () = assert!(PAGEMAP_SCAN == 0xc060_6610);

const RUNS: usize = 64;

/// What is behind a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageKind {
    /// In memory.
    pub present: bool,
    /// On a swap device, or on its way between nodes.
    pub swapped: bool,
    /// The shared page of zeros.
    pub zero: bool,
    /// Part of a huge page that is mapped as one.
    pub huge: bool,
}

impl PageKind {
    /// Nothing is there: the next access faults it in.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !self.present && !self.swapped
    }
}

/// What the file's entry says of a base page, or of its part of a huge one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFlags {
    /// In memory.
    pub present: bool,
    /// Protected by userfaultfd.
    pub write_protected: bool,
    /// In memory, and mapped nowhere else (Linux 4.2).
    pub exclusive: bool,
}

/// A run of pages of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
    /// What they are.
    pub kind: PageKind,
}

/// The pagemap of this process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
}

impl Pagemap {
    /// Opens it, by way of the calling thread: the main thread may have ended.
    ///
    /// # Errors
    ///
    /// Where `/proc` is not mounted.
    pub fn own() -> std::io::Result<Self> {
        File::open("/proc/thread-self/pagemap").map(|file| Self { file })
    }

    /// Whether the page is there and write-protected by userfaultfd right now.
    #[must_use]
    pub fn is_write_protected(&self, addr: u64) -> bool {
        self.flags(addr, 1)
            .iter()
            .all(|page| page.present && page.write_protected)
    }

    /// What is said of each of so many base pages in a row; of none of them anything where the file does not
    /// say.
    #[must_use]
    pub fn flags(&self, start: u64, pages: usize) -> Vec<PageFlags> {
        let mut raw = vec![0; pages * 8];
        let read = self.file.read_exact_at(&mut raw, start >> 12 << 3);
        let entries = raw.as_chunks::<8>().0.iter();
        let entries = entries.map(|entry| read.as_ref().map_or(0, |()| u64::from_ne_bytes(*entry)));
        entries
            .map(|entry| PageFlags {
                present: entry & PRESENT != 0,
                write_protected: entry & 1 << 57 != 0,
                exclusive: entry & EXCLUSIVE != 0,
            })
            .collect()
    }

    /// Calls `each` with every run of pages in the range that are not empty, in order.
    ///
    /// # Errors
    ///
    /// `ENOTTY` before Linux 6.7.
    pub fn scan(&self, start: u64, end: u64, mut each: impl FnMut(Run)) -> Result<(), Errno> {
        let all =
            abi::PAGE_IS_PRESENT | abi::PAGE_IS_SWAPPED | abi::PAGE_IS_PFNZERO | abi::PAGE_IS_HUGE;
        let mut at = start;
        while at < end {
            let mut runs = [abi::page_region {
                start: 0,
                end: 0,
                categories: 0,
            }; RUNS];
            // SAFETY: the structure is made of integers, for which zero is a value.
            let mut arg: abi::pm_scan_arg = unsafe { std::mem::zeroed() };
            arg.size = size_of::<abi::pm_scan_arg>() as u64;
            arg.start = at;
            arg.end = end;
            arg.vec = runs.as_mut_ptr().addr() as u64;
            arg.vec_len = RUNS as u64;
            arg.category_anyof_mask = u64::from(abi::PAGE_IS_PRESENT | abi::PAGE_IS_SWAPPED);
            arg.return_mask = u64::from(all);
            let found = self.scan_once(&mut arg)?;
            for run in runs.iter().take(found) {
                each(run_of(run));
            }
            if arg.walk_end <= at {
                break;
            }
            at = arg.walk_end;
        }
        Ok(())
    }

    /// What is behind one page; empty where nothing is mapped.
    ///
    /// # Errors
    ///
    /// As [`Self::scan`].
    pub fn kind(&self, addr: u64) -> Result<PageKind, Errno> {
        let page = addr & !0xfff;
        let mut kind = PageKind::default();
        self.scan(page, page + 4096, |run| kind = run.kind)?;
        Ok(kind)
    }

    fn scan_once(&self, arg: &mut abi::pm_scan_arg) -> Result<usize, Errno> {
        use std::os::fd::AsRawFd;
        let fd = self.file.as_fd().as_raw_fd();
        // SAFETY: the opcode was computed from the type of `arg`, which outlives the call, as do
        // the runs it points to. rustix's wrapper drops the count this call returns.
        let found = unsafe { libc::ioctl(fd, libc::c_ulong::from(PAGEMAP_SCAN), &raw mut *arg) };
        usize::try_from(found).map_err(|_| crate::uffd::last_errno())
    }
}

fn run_of(run: &abi::page_region) -> Run {
    let has = |flag: u32| run.categories & u64::from(flag) != 0;
    Run {
        start: run.start,
        end: run.end,
        kind: PageKind {
            present: has(abi::PAGE_IS_PRESENT),
            swapped: has(abi::PAGE_IS_SWAPPED),
            zero: has(abi::PAGE_IS_PFNZERO),
            huge: has(abi::PAGE_IS_HUGE),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_and_untouched_pages_are_told_apart() {
        let area = crate::arena::Reservation::new(8 << 12, 1 << 12).expect("a few pages");
        area.commit(0, 8 << 12).expect("a few pages");
        let start = area.start();
        crate::arena::populate(start + 4096, 8192).expect("two pages");
        let pagemap = Pagemap::own().expect("/proc is mounted");
        let mut runs = Vec::new();
        pagemap
            .scan(start, start + (8 << 12), |run| runs.push(run))
            .expect("Linux 6.7");
        assert_eq!(runs.len(), 1);
        assert_eq!(
            (runs[0].start, runs[0].end),
            (start + 4096, start + 4096 * 3)
        );
        assert!(runs[0].kind.present && !runs[0].kind.zero);
        assert!(pagemap.kind(start).expect("Linux 6.7").is_empty());
        assert!(!pagemap.is_write_protected(start + 4096));
    }
}
