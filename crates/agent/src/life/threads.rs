// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the C library keeps the records of the program's threads.
//!
//! The kernel writes into them when a thread ends (the word that pthread_join(3) waits for, the states of
//! robust mutexes), and cannot wait then: such a write fails on a page that is out of place. So mappings with
//! such a record are left alone. get_robust_list(2) tells where a thread's record is: with glibc the list's
//! head is in it, at the upper end of the thread's stack.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::RawDir;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use terrace_sys::robust_list;

/// Bytes read of the folder at a time.
const ENTRIES: usize = 4096;

/// The threads of this process.
#[derive(Debug)]
pub(crate) struct Threads {
    folder: OwnedFd,
}

impl Threads {
    /// Opened once: a sandboxed program may not open files later.
    ///
    /// # Errors
    ///
    /// Where `/proc` is not mounted.
    pub(crate) fn of_this_process() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open("/proc/self/task", flags, Mode::empty())?;
        Ok(Self { folder })
    }

    /// Whether a thread's record lies in `start..end`; `true` where that cannot be told.
    pub(crate) fn have_a_record_in(&self, start: u64, end: u64) -> bool {
        let mut found = false;
        let read = self.each(|tid| {
            found |= record_of(tid).is_none_or(|at| at != 0 && (start..end).contains(&at));
        });
        found || read.is_err()
    }

    fn each(&self, mut see: impl FnMut(i32)) -> Result<(), Errno> {
        rustix::fs::seek(&self.folder, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); ENTRIES];
        let mut entries = RawDir::new(&self.folder, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if let Ok(tid) = name.parse() {
                see(tid);
            }
        }
        Ok(())
    }
}

/// The address of a thread's record, 0 where it has none; `None` where the kernel does not say. A thread
/// that has ended meanwhile has none.
fn record_of(tid: i32) -> Option<u64> {
    match robust_list::head_of(tid) {
        Ok(head) => Some(head),
        Err(Errno::SRCH) => Some(0),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_lie_in_stacks() {
        let threads = Threads::of_this_process().expect("/proc is mounted");
        let local = 0_u64;
        let here = (&raw const local).expose_provenance() as u64;
        // This test runs on a thread whose record is above this frame, at the end of its stack.
        assert!(threads.have_a_record_in(here, here + (64 << 20)));
        assert!(!threads.have_a_record_in(0, 0x1000));
        std::hint::black_box(local);
    }
}
