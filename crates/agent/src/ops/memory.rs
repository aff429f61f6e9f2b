// SPDX-License-Identifier: MIT OR Apache-2.0
//! Touches memory by address: the agent's own frames directly, the program's never.
//!
//! Addresses are numbers everywhere else in this crate; here they become pointers. The program's
//! pages are read through `terrace_sys::self_memory`, because they may vanish at any time.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use terrace_core::PageSize;

/// A pointer from an address of this process.
pub(crate) fn pointer<T>(addr: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(usize::try_from(addr).unwrap_or(0))
}

fn words(bytes: u64) -> usize {
    usize::try_from(bytes / 8).unwrap_or(0)
}

/// Whether two ranges hold the same bytes.
///
/// # Safety
///
/// Both must be readable, page aligned and owned by the caller: present frames of our own zones
/// that nobody writes meanwhile.
pub(crate) unsafe fn same(one: u64, other: u64, bytes: u64) -> bool {
    // SAFETY: the caller's word; u64 has no invalid value, and pages are aligned for it.
    let (one, other) = unsafe {
        (
            std::slice::from_raw_parts(pointer::<u64>(one), words(bytes)),
            std::slice::from_raw_parts(pointer::<u64>(other), words(bytes)),
        )
    };
    one == other
}

/// Keeps a page that the kernel may take back (`MADV_FREE`) from being taken: its first word is written, as it is. A
/// page that is gone by now is there again, of zeros.
///
/// # Safety
///
/// The page must be a frame of our own, which nobody writes meanwhile.
pub(crate) unsafe fn take_back(page: u64) {
    // SAFETY: the caller's word; pages are aligned for it.
    unsafe { &*pointer::<AtomicU64>(page) }.fetch_or(0, Ordering::Relaxed);
}

/// Copies bytes between two frames of our own.
///
/// # Safety
///
/// As [`same`], `to` writable, and the two must not overlap.
pub(crate) unsafe fn copy(from: u64, to: u64, bytes: u64) {
    // SAFETY: the caller's word.
    unsafe { std::ptr::copy_nonoverlapping(pointer::<u64>(from), pointer::<u64>(to), words(bytes)) }
}

/// Copies like [`copy`], past the caches where the processor can: a page that moves is seldom read
/// at once, and what it would push out of the caches is.
///
/// # Safety
///
/// As [`copy`]; both addresses must be multiples of 8, `bytes` of 64.
pub(crate) unsafe fn stream(from: u64, to: u64, bytes: u64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::_mm_sfence;
        use std::arch::x86_64::_mm_stream_si64;
        for at in (0..bytes).step_by(8) {
            // SAFETY: the caller's word; every x86-64 processor has these stores.
            unsafe { _mm_stream_si64(pointer(to + at), pointer::<i64>(from + at).read()) };
        }
        // SAFETY: an instruction without operands; the stores are seen before what follows.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's word.
    unsafe {
        copy(from, to, bytes);
    }
}

/// The address range of the code and data of this library, .bss included.
pub(crate) fn own_image() -> (u64, u64) {
    unsafe extern "C" {
        #[link_name = "__ehdr_start"]
        static IMAGE_START: u8;
        #[link_name = "_end"]
        static IMAGE_END: u8;
    }
    // Only the addresses of the linker's symbols mean something; they are never read.
    let start = (&raw const IMAGE_START).expose_provenance() as u64;
    let end = (&raw const IMAGE_END).expose_provenance() as u64;
    (start, end)
}

/// Which page sizes have frames, as an index.
pub(crate) const fn size_index(size: PageSize) -> usize {
    match size {
        PageSize::Base4K => 0,
        _ => 1,
    }
}
