// SPDX-License-Identifier: MIT OR Apache-2.0
//! A perf ring, read: where memory ordering is got right, and nothing else.
//!
//! Contract (perf_event_open(2), "MMAP layout"): one page of control data, then 2^n pages of
//! records. The kernel writes a record and then `data_head` with release semantics; the reader loads
//! the head with acquire, reads what lies before it, and gives the room back by storing `data_tail`
//! with release. Both only grow; a place is their value modulo the size. The mapping must be
//! writable, or the kernel overwrites what is not read. Mapped memory counts against
//! `kernel.perf_event_mlock_kb` for each processor and then RLIMIT_MEMLOCK (`EPERM`), but for
//! CAP_IPC_LOCK.
//!
//! Room is given back in portions of an eighth of the ring, so that the kernel has it while we
//! read on.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::mm;

use super::event::Event;
use super::walk::walk;

/// The control page.
pub(super) const CONTROL_BYTES: usize = 4096;
/// Of `data_head` in `struct perf_event_mmap_page`.
const HEAD_OFFSET: usize = 1024;
/// Of `data_tail`.
const TAIL_OFFSET: usize = 1032;

/// Memory of a ring: the kernel's, or anonymous memory of ours that stands for it.
#[derive(Debug)]
pub(super) struct RingMemory {
    base: NonNull<u8>,
    data_bytes: usize,
}

// SAFETY: it is memory and no more; who reads and writes which part of it and when is settled by
// head and tail, which are atomic.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Maps the ring of an event, or anonymous memory without one.
    fn map(event: Option<&Event>, data_bytes: usize) -> Result<Self, Errno> {
        if !data_bytes.is_power_of_two() || data_bytes < CONTROL_BYTES {
            return Err(Errno::INVAL);
        }
        let bytes = CONTROL_BYTES + data_bytes;
        let protection = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        let at = std::ptr::null_mut();
        let base = match event {
            // SAFETY: the kernel chooses an address where nothing is.
            Some(event) => unsafe {
                mm::mmap(
                    at,
                    bytes,
                    protection,
                    mm::MapFlags::SHARED,
                    event.as_fd(),
                    0,
                )
            },
            // SAFETY: likewise.
            None => unsafe { mm::mmap_anonymous(at, bytes, protection, mm::MapFlags::PRIVATE) },
        }?;
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            data_bytes,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the two offsets used are inside the control page and aligned; both sides treat
        // these words as atomic.
        unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() }
    }

    pub(super) fn head(&self) -> &AtomicU64 {
        self.word(HEAD_OFFSET)
    }

    pub(super) fn tail(&self) -> &AtomicU64 {
        self.word(TAIL_OFFSET)
    }

    pub(super) const fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Where a place lies in the data, and how many bytes follow it up to the end.
    fn place(&self, at: u64) -> (usize, usize) {
        let mask = self.data_bytes as u64 - 1;
        let offset = usize::try_from(at & mask).expect("less than the ring's bytes");
        (offset, self.data_bytes - offset)
    }

    /// Copies bytes to place `at`, over the end where need be.
    ///
    /// # Safety
    ///
    /// The room must be the writer's: behind the head, less than a ring's bytes from the tail.
    pub(super) unsafe fn write(&self, at: u64, bytes: &[u8]) {
        let (offset, room) = self.place(at);
        let (front, back) = bytes.split_at(bytes.len().min(room));
        // SAFETY: both parts lie inside the data, and the caller has the room for itself.
        unsafe {
            let data = self.base.add(CONTROL_BYTES);
            data.add(offset)
                .copy_from_nonoverlapping(NonNull::from(front).cast(), front.len());
            data.copy_from_nonoverlapping(NonNull::from(back).cast(), back.len());
        }
    }

    /// The bytes from `tail` to `head`.
    ///
    /// # Safety
    ///
    /// They must be the reader's: head not beyond `data_head`, tail `data_tail`, at most a ring's
    /// bytes apart, and the tail not published while the slices live.
    unsafe fn between(&self, tail: u64, head: u64) -> (&[u8], &[u8]) {
        let (offset, room) = self.place(tail);
        let bytes = usize::try_from(head - tail).expect("at most the ring's bytes");
        let front = bytes.min(room);
        // SAFETY: both parts lie inside the data; the writer leaves them alone until the tail is
        // published.
        unsafe {
            let data = self.base.add(CONTROL_BYTES);
            (
                std::slice::from_raw_parts(data.add(offset).as_ptr(), front),
                std::slice::from_raw_parts(data.as_ptr(), bytes - front),
            )
        }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        let bytes = CONTROL_BYTES + self.data_bytes;
        // SAFETY: the range is our mapping, into which no reference points. It cannot fail.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), bytes) };
    }
}

/// What a turn of reading found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Bytes taken out.
    pub bytes: u64,
    /// Bytes given up because a header among them cannot be. The kernel writes no such thing.
    pub broken_bytes: u64,
}

/// The reader of a ring; there is one.
#[derive(Debug)]
pub struct Ring {
    memory: Arc<RingMemory>,
    tail: u64,
    buffer: Vec<u8>,
}

impl Ring {
    /// Maps the ring of `event`, with `data_bytes` (a power of two of pages) for records.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another size, `EPERM` where that much may not be locked, `ENOMEM`.
    pub fn map(event: &Event, data_bytes: usize) -> Result<Self, Errno> {
        Ok(Self::of(RingMemory::map(Some(event), data_bytes)?))
    }

    /// A ring that no kernel writes; see [`super::Feed`].
    pub(super) fn anonymous(data_bytes: usize) -> Result<Self, Errno> {
        Ok(Self::of(RingMemory::map(None, data_bytes)?))
    }

    fn of(memory: RingMemory) -> Self {
        let tail = memory.tail().load(Ordering::Relaxed);
        Self {
            memory: Arc::new(memory),
            tail,
            buffer: Vec::new(),
        }
    }

    pub(super) fn memory(&self) -> Arc<RingMemory> {
        Arc::clone(&self.memory)
    }

    /// Bytes waiting.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let head = self.memory.head().load(Ordering::Acquire);
        head.wrapping_sub(self.tail)
    }

    /// Hands out the records that are there when it begins, oldest first, and gives their room
    /// back.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) -> Drained {
        let mut drained = Drained::default();
        // Pairs with the release of who writes: the records before the head are whole.
        let head = self.memory.head().load(Ordering::Acquire);
        let size = self.memory.data_bytes();
        while self.tail != head {
            let waiting = head.wrapping_sub(self.tail);
            if waiting > size as u64 {
                drained.broken_bytes += waiting;
                self.give_back(head);
                break;
            }
            // SAFETY: head is `data_head` or was, tail is `data_tail`, they are at most a ring's
            // bytes apart, and the tail is published after the last use of the slices.
            let (first, second) = unsafe { self.memory.between(self.tail, head) };
            let walked = walk(first, second, size / 8, &mut self.buffer, sink);
            drained.bytes += walked.bytes as u64;
            let mut tail = self.tail.wrapping_add(walked.bytes as u64);
            if walked.broken {
                drained.broken_bytes += head.wrapping_sub(tail);
                tail = head;
            }
            self.give_back(tail);
        }
        drained
    }

    fn give_back(&mut self, tail: u64) {
        self.tail = tail;
        // Our reads happen before who writes sees the room.
        self.memory.tail().store(tail, Ordering::Release);
    }
}
