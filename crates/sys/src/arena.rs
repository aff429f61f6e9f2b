// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address space that is made usable piece by piece: mmap(2), mprotect(2), madvise(2).
//!
//! Kernel contract: a [`Reservation`] is `PROT_NONE` and costs neither memory nor commit charge, yet counts
//! towards `RLIMIT_AS` and what mlockall(2) would lock; [`Reservation::commit`] makes a part readable and
//! writable, still without memory. A [`Territory`] is addresses only and counts nowhere until a part is taken.
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

/// Addresses that are meant for us: nothing is mapped there, and nothing counts towards a limit, until a part is
/// taken. Chosen far from where the kernel puts mappings by itself; where something else comes to lie in it
/// all the same, that part cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Territory {
    start: u64,
    len: u64,
}

impl Territory {
    /// Between what lies low (programs, their heaps, address sanitizers, Go) and what the kernel places high.
    const LOWEST: u64 = 0x2000_0000_0000;
    const STEP: u64 = 0x0600_0000_0000;
    const STEPS: u64 = 8;

    /// Finds `len` bytes, aligned to `align`, where nothing is mapped. `salt` says where to look first.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where every place has something in it, or is none in this process.
    pub fn find(len: u64, align: u64, salt: u64) -> Result<Self, Errno> {
        let align = align.max(1 << 12);
        let mut last = Errno::NOMEM;
        for n in 0..Self::STEPS {
            let step = (salt.wrapping_add(n)) % Self::STEPS;
            let offset = (salt >> 3).wrapping_mul(align) % (Self::STEP / 2);
            let start = (Self::LOWEST + step * Self::STEP + offset).next_multiple_of(align);
            match Self::is_empty(start, len) {
                Ok(true) => return Ok(Self { start, len }),
                Ok(false) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Whether nothing is mapped there. A limit of the address space keeps the kernel from saying so for all of
    /// it at once; the ends then stand for the rest.
    fn is_empty(start: u64, len: u64) -> Result<bool, Errno> {
        match Self::can_map(start, len) {
            Err(Errno::NOMEM) => {
                Ok(Self::can_map(start, 4096)? && Self::can_map(start + len - 4096, 4096)?)
            }
            other => other,
        }
    }

    fn can_map(start: u64, len: u64) -> Result<bool, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: an inaccessible mapping where there was none; the kernel refuses to replace one.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(pointer(start), to_usize(len), ProtFlags::empty(), flags)
        };
        match mapped {
            Ok(_) => {
                // SAFETY: the mapping just made, which nobody knows.
                unsafe { rustix::mm::munmap(pointer(start), to_usize(len)) }?;
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error),
        }
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

    /// Maps a part, readable and writable, left out of forks and core dumps, and never locked in memory: where
    /// the process locks what it will map (`MCL_FUTURE`), the lock goes before a page comes.
    ///
    /// # Errors
    ///
    /// `EEXIST` where something is mapped there, `ENOMEM` and `EAGAIN` at a limit of the process.
    pub fn take(&self, start: u64, len: u64) -> Result<(), Errno> {
        if start < self.start || start.checked_add(len).is_none_or(|end| end > self.end()) {
            return Err(Errno::NOMEM);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let (at, bytes) = (pointer(start), to_usize(len));
        // SAFETY: an inaccessible mapping where there was none; the kernel refuses to replace one.
        unsafe { rustix::mm::mmap_anonymous(at, bytes, ProtFlags::empty(), flags) }?;
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the mapping just made, which nobody knows; access to it is what changes.
        let made = unsafe {
            rustix::mm::munlock(at, bytes)
                .and_then(|()| advise(start, len, Advice::LinuxDontFork))
                .and_then(|()| advise(start, len, Advice::LinuxDontDump))
                .and_then(|()| rustix::mm::mprotect(at, bytes, access))
        };
        if made.is_err() {
            // SAFETY: as above.
            let _ = unsafe { rustix::mm::munmap(at, bytes) };
        }
        made
    }

    /// Gives a part back, whatever of it was taken.
    ///
    /// # Safety
    ///
    /// Nothing may refer to it any more, and no userfaultfd of ours may report it.
    pub unsafe fn give_back(&self, start: u64, len: u64) {
        if start >= self.start && start.saturating_add(len) <= self.end() {
            // SAFETY: the range is ours, and the caller answers for its contents.
            let _ = unsafe { rustix::mm::munmap(pointer(start), to_usize(len)) };
        }
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

/// Lets the kernel drop the pages of a range of our own when it needs memory, until they are written again
/// (`MADV_FREE`, Linux 4.5): they go before anything is swapped or anybody is killed.
///
/// # Safety
///
/// Whoever reads them later must be prepared for zeros.
///
/// # Errors
///
/// `EINVAL` for locked pages.
pub unsafe fn give_up_on_demand(start: u64, len: u64) -> Result<(), Errno> {
    advise(start, len, Advice::LinuxFree)
}

fn advise(start: u64, len: u64, advice: Advice) -> Result<(), Errno> {
    // SAFETY: every advice used here but DONTNEED and FREE leaves content as it is; `discard` and
    // `give_up_on_demand` pass their caller's word on.
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
    fn a_territory_costs_nothing_until_a_part_is_taken() {
        let land = Territory::find(64 << 30, 1 << 21, 5).expect("a place");
        assert_eq!(land.start() % (1 << 21), 0);
        let at = land.start() + (1 << 30);
        land.take(at, 8192).expect("two pages");
        assert_eq!(
            land.take(at, 4096),
            Err(Errno::EXIST),
            "what is there stays"
        );
        assert_eq!(land.take(land.end(), 4096), Err(Errno::NOMEM));
        let other = Territory::find(64 << 30, 1 << 21, 5).expect("another place");
        assert_ne!(land.start(), other.start(), "something is mapped there");
        let word: *mut u64 = ptr::with_exposed_provenance_mut(to_usize(at));
        // SAFETY: the page was taken and nobody else knows it.
        unsafe {
            word.write(7);
            land.give_back(at, 8192);
        }
        land.take(at, 4096).expect("free again");
        // SAFETY: as above.
        assert_eq!(unsafe { word.read() }, 0);
    }

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
