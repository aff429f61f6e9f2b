// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved address space that is made usable piece by piece: mmap(2), mprotect(2), madvise(2).
//!
//! Kernel contract: a reservation is `PROT_NONE` and costs nothing, neither memory nor commit
//! charge; [`Reservation::commit`] makes a part readable and writable, still without memory.
//! Pages come with the first touch or with [`populate`] (`MADV_POPULATE_WRITE`, Linux 5.14),
//! which reports failure where a touch would kill. Nothing of it survives a fork or goes into a
//! core dump. Offsets and lengths are bytes, page aligned.

use std::ffi::CStr;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::MprotectFlags;
use rustix::mm::ProtFlags;

/// A range of address space that belongs to us. It is never given back while the value lives.
#[derive(Debug)]
pub struct Reservation {
    start: u64,
    len: u64,
    whole_start: u64,
    whole_len: u64,
}

impl Reservation {
    /// Reserves `len` bytes aligned to `align`, with room on both sides that stays inaccessible,
    /// so that the kernel never merges a neighbour's mapping with ours.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where the address space, or the process's limit of it, is exhausted.
    pub fn new(len: u64, align: u64) -> Result<Self, Errno> {
        let align = align.max(1 << 12);
        let whole_len = len + 2 * align;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let whole = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                to_usize(whole_len),
                ProtFlags::empty(),
                flags,
            )
        }?;
        let whole_start = whole.expose_provenance() as u64;
        let reservation = Self {
            start: (whole_start + align).next_multiple_of(align),
            len,
            whole_start,
            whole_len,
        };
        advise(whole_start, whole_len, Advice::LinuxDontFork)?;
        advise(whole_start, whole_len, Advice::LinuxDontDump)?;
        Ok(reservation)
    }

    /// First byte.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// First byte behind.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Makes a part readable and writable.
    ///
    /// # Errors
    ///
    /// `ENOMEM` at the limit of mappings or of committed memory.
    pub fn commit(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::NOMEM);
        }
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range lies inside our own reservation; more access breaks no reference.
        unsafe { rustix::mm::mprotect(pointer(self.start + offset), to_usize(len), flags) }
    }
}

impl Reservation {
    /// Lets a forked child have a copy of a part, against the rule for the rest.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the range is not ours.
    pub fn inherit(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::INVAL);
        }
        advise(self.start + offset, len, Advice::LinuxDoFork)
    }

    /// Replaces a committed part by a new, empty mapping, page tables and all: what was set on
    /// it (policy, name, huge pages, registrations) is gone too.
    ///
    /// # Safety
    ///
    /// Nothing may refer to the contents any more, and no userfaultfd may report the range.
    ///
    /// # Errors
    ///
    /// `ENOMEM` at the limit of mappings.
    pub unsafe fn renew(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::NOMEM);
        }
        let start = self.start + offset;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range lies inside our own reservation; the caller answers for its contents.
        unsafe { rustix::mm::mmap_anonymous(pointer(start), to_usize(len), access, flags) }?;
        advise(start, len, Advice::LinuxDontFork)?;
        advise(start, len, Advice::LinuxDontDump)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is ours; who hands out addresses in it keeps the value alive as long
        // as they are used.
        let _ = unsafe { rustix::mm::munmap(pointer(self.whole_start), to_usize(self.whole_len)) };
    }
}

/// Gives a range a name in `/proc/PID/maps` (`CONFIG_ANON_VMA_NAME`); no harm where unsupported.
pub fn name(start: u64, len: u64, name: &CStr) {
    // SAFETY: PR_SET_VMA_ANON_NAME reads the string and changes no memory.
    unsafe {
        libc::prctl(
            libc::PR_SET_VMA,
            libc::PR_SET_VMA_ANON_NAME,
            start,
            len,
            name.as_ptr(),
        );
    }
}

/// Huge pages in the range wherever they fit (`true`) or never.
///
/// # Errors
///
/// `EINVAL` in a kernel without transparent huge pages.
pub fn huge_pages(start: u64, len: u64, wanted: bool) -> Result<(), Errno> {
    let advice = if wanted {
        Advice::LinuxHugepage
    } else {
        Advice::LinuxNoHugepage
    };
    advise(start, len, advice)
}

/// Takes in writable pages for the whole range, by the range's memory policy.
///
/// # Errors
///
/// `ENOMEM` where there is no memory (or nothing mapped), `EFAULT` where a page cannot be.
pub fn populate(start: u64, len: u64) -> Result<(), Errno> {
    advise(start, len, Advice::LinuxPopulateWrite)
}

/// Drops the pages of a range of our own.
///
/// # Safety
///
/// Nothing may refer to the contents any more: they read as zero afterwards.
///
/// # Errors
///
/// `EINVAL` for locked pages.
pub unsafe fn discard(start: u64, len: u64) -> Result<(), Errno> {
    advise(start, len, Advice::LinuxDontNeed)
}

fn advise(start: u64, len: u64, advice: Advice) -> Result<(), Errno> {
    // SAFETY: every advice used here but DONTNEED leaves content as it is; `discard` passes its
    // caller's word on.
    unsafe { rustix::mm::madvise(pointer(start), to_usize(len), advice) }
}

fn pointer(addr: u64) -> *mut core::ffi::c_void {
    ptr::with_exposed_provenance_mut(to_usize(addr))
}

/// Addresses and lengths of this process fit: 64-bit targets only.
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits, see above"
)]
const fn to_usize(value: u64) -> usize {
    const _: () = assert!(size_of::<usize>() == size_of::<u64>());
    value as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_parts_hold_data_and_discard_zeroes() {
        let area = Reservation::new(1 << 20, 1 << 16).expect("a megabyte of addresses");
        assert_eq!(area.start() % (1 << 16), 0);
        area.commit(4096, 8192).expect("two pages");
        assert_eq!(area.commit(1 << 20, 4096), Err(Errno::NOMEM));
        name(area.start() + 4096, 8192, c"terrace test");
        let word: *mut u64 = ptr::with_exposed_provenance_mut(to_usize(area.start() + 4096));
        // SAFETY: the page was committed and nobody else knows it.
        unsafe {
            word.write(7);
            assert_eq!(word.read(), 7);
            discard(area.start() + 4096, 4096).expect("our own page");
            assert_eq!(word.read(), 0);
        }
    }
}
