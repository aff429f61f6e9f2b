// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's own allocator: dlmalloc on a zone of the agent's address space.
//!
//! The program's malloc is never called by our Rust code, whatever library replaces it; our
//! records never lie on a page that we move. The zone is mapped piece by piece and never
//! given back. A forked child does not allocate: its agent is off.
//!
//! What fails to allocate aborts, by Rust's rules, and we may not abort the program. So a reserve is kept for the
//! end: once it is in use the agent [is short](is_short), takes no more orders and goes. Where even that does not do,
//! the thread lets go of everything that holds the program, and stands still for ever.

use std::alloc::GlobalAlloc;
use std::alloc::Layout as Shape;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use dlmalloc::Allocator;
use dlmalloc::Dlmalloc;

use crate::state::layout::Layout;
use crate::state::layout::Zone;
use crate::state::lock::Lock;

/// Mapped at a time: little, as mlockall(2) makes it memory.
const STEP: u64 = 128 << 10;
/// Mapped from the start, for the end: a worker's batch of orders takes less.
const RESERVE: u64 = 512 << 10;
/// All of it with [`crate::life::switches::SMALL_HEAP`].
const SMALL: u64 = 1 << 20;

static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
static USED: AtomicU64 = AtomicU64::new(RESERVE);
static SHORT: AtomicBool = AtomicBool::new(false);

/// The agent's address space; `None` where there was no room for it.
pub(crate) fn layout() -> Option<&'static Layout> {
    let make = || {
        let layout = Layout::new().ok()?;
        let reserve = Zone {
            start: layout.heap.start,
            len: RESERVE,
        };
        layout.commit(reserve).ok().map(|()| layout)
    };
    LAYOUT.get_or_init(make).as_ref()
}

/// Whether there is no more memory for records: the agent must go.
pub(crate) fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed)
}

/// Takes memory from the zone, never gives any back.
struct Source;

impl Source {
    fn fresh(layout: &Layout, len: u64) -> Option<u64> {
        let offset = USED.fetch_add(len, Ordering::Relaxed);
        let small = crate::life::switches::SMALL_HEAP.is_on();
        let most = if small { SMALL } else { layout.heap.len };
        if offset.saturating_add(len) > most {
            return None;
        }
        let start = layout.heap.start + offset;
        layout.commit(Zone { start, len }).ok().map(|()| start)
    }
}

// SAFETY: every call hands out bytes of the zone that were never handed out before, readable and
// writable, for ever.
unsafe impl Allocator for Source {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let refused = (std::ptr::null_mut(), 0, 0);
        let Some(layout) = layout() else {
            return refused;
        };
        let len = (size as u64).next_multiple_of(STEP);
        let (start, len) = match Self::fresh(layout, len) {
            Some(start) => (start, len),
            None if len <= RESERVE && !SHORT.swap(true, Ordering::Relaxed) => {
                (layout.heap.start, RESERVE)
            }
            None => return refused,
        };
        usize::try_from(len).map_or(refused, |bytes| {
            (crate::ops::memory::pointer(start), bytes, 0)
        })
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

/// Passes a piece on; or, on a thread of ours, does not return: who asked would abort the program.
fn or_stand_still(piece: *mut u8) -> *mut u8 {
    if piece.is_null()
        && LAYOUT
            .get()
            .and_then(Option::as_ref)
            .is_some_and(Layout::is_ours)
    {
        SHORT.store(true, Ordering::Relaxed);
        // SAFETY: a thread of ours has the agent's descriptors, not the program's.
        unsafe { crate::life::descriptors::stand_still() };
    }
    piece
}

// SAFETY: dlmalloc upholds the contract of an allocator, and the lock makes it one caller's at a
// time. Nothing in it calls back into the global allocator.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, shape: Shape) -> *mut u8 {
        // SAFETY: passed on from the caller.
        let piece = unsafe { self.inner.lock().malloc(shape.size(), shape.align()) };
        or_stand_still(piece)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, shape: Shape) {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.lock().free(pointer, shape.size(), shape.align()) }
    }

    unsafe fn alloc_zeroed(&self, shape: Shape) -> *mut u8 {
        // SAFETY: passed on from the caller.
        let piece = unsafe { self.inner.lock().calloc(shape.size(), shape.align()) };
        or_stand_still(piece)
    }

    unsafe fn realloc(&self, pointer: *mut u8, shape: Shape, size: usize) -> *mut u8 {
        let mut inner = self.inner.lock();
        // SAFETY: passed on from the caller.
        let piece = unsafe { inner.realloc(pointer, shape.size(), shape.align(), size) };
        drop(inner);
        or_stand_still(piece)
    }
}
