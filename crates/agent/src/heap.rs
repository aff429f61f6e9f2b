// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's own allocator: dlmalloc on a zone of the agent's address space.
//!
//! The program's malloc is never called by our Rust code, whatever library replaces it; our
//! records never lie on a page that we move. The zone is made usable piece by piece and never
//! given back. A forked child does not allocate: its agent is off.

use std::alloc::GlobalAlloc;
use std::alloc::Layout as Shape;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use dlmalloc::Allocator;
use dlmalloc::Dlmalloc;

use crate::layout::Layout;
use crate::layout::Zone;
use crate::lock::Lock;

const STEP: u64 = 1 << 20;

static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
static USED: AtomicU64 = AtomicU64::new(0);

/// The agent's address space; `None` where there was no room for it.
pub(crate) fn layout() -> Option<&'static Layout> {
    LAYOUT.get_or_init(|| Layout::new().ok()).as_ref()
}

/// Takes memory from the zone, never gives any back.
struct Source;

// SAFETY: every call hands out bytes of the zone that were never handed out before, readable and
// writable, for ever.
unsafe impl Allocator for Source {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let refused = (std::ptr::null_mut(), 0, 0);
        let Some(layout) = layout() else {
            return refused;
        };
        let len = (size as u64).next_multiple_of(STEP);
        let offset = USED.fetch_add(len, Ordering::Relaxed);
        if offset.saturating_add(len) > layout.heap.len {
            return refused;
        }
        let start = layout.heap.start + offset;
        match (layout.commit(Zone { start, len }), usize::try_from(len)) {
            (Ok(()), Ok(bytes)) => (crate::memory::pointer(start), bytes, 0),
            _ => refused,
        }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

/// The allocator of the library.
pub(crate) struct Heap {
    inner: Lock<Dlmalloc<Source>>,
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Heap")
    }
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self {
            inner: Lock::new(Dlmalloc::new_with_allocator(Source)),
        }
    }
}

// SAFETY: dlmalloc upholds the contract of an allocator, and the lock makes it one caller's at a
// time. Nothing in it calls back into the global allocator.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, shape: Shape) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.lock().malloc(shape.size(), shape.align()) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, shape: Shape) {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.lock().free(pointer, shape.size(), shape.align()) }
    }

    unsafe fn alloc_zeroed(&self, shape: Shape) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.lock().calloc(shape.size(), shape.align()) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, shape: Shape, size: usize) -> *mut u8 {
        let mut inner = self.inner.lock();
        // SAFETY: passed on from the caller.
        unsafe { inner.realloc(pointer, shape.size(), shape.align(), size) }
    }
}
