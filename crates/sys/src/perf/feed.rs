// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of a ring, in memory: what reads rings can be tested byte by byte, at any
//! rate, without a PMU.
//!
//! It keeps the kernel's rules: a record is written whole or not at all, one that finds no room is
//! counted, and the count is told by a record (`PERF_RECORD_LOST`) in front of the next one that
//! finds room. [`Feed::pending`] is what is counted and not yet told, as [`super::Event::lost`]
//! is for the kernel's rings.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::ring::Ring;
use super::ring::RingMemory;

/// `PERF_RECORD_LOST`.
const LOST: u32 = 2;
const LOST_BYTES: usize = 24;

/// Writes records into a ring; there is one for each.
#[derive(Debug)]
pub struct Feed {
    memory: Arc<RingMemory>,
    head: u64,
    id: u64,
    pending: u64,
}

/// The bytes of a record: `kind`, `misc` and a body, as the kernel writes them.
///
/// # Panics
///
/// Where the body is longer than a record can be.
#[must_use]
pub fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(body.len() + 8).expect("a record's length is a u16");
    let mut bytes = Vec::with_capacity(usize::from(size));
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(misc.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(body);
    bytes
}

impl Feed {
    /// A ring of `data_bytes` (a power of two of pages) and what writes it. `id` is the event that
    /// lost records are told for.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another size, `ENOMEM`.
    pub fn pair(data_bytes: usize, id: u64) -> Result<(Self, Ring), Errno> {
        let ring = Ring::anonymous(data_bytes)?;
        let feed = Self {
            memory: ring.memory(),
            head: 0,
            id,
            pending: 0,
        };
        Ok((feed, ring))
    }

    /// Lost records not yet told in the ring.
    #[must_use]
    pub const fn pending(&self) -> u64 {
        self.pending
    }

    /// Writes a record; false where there was no room, and then it counts as lost.
    pub fn push(&mut self, record: &[u8]) -> bool {
        let told = if self.pending > 0 { LOST_BYTES } else { 0 };
        if self.room() < record.len() + told {
            self.pending += 1;
            return false;
        }
        if self.pending > 0 {
            let mut body = self.id.to_ne_bytes().to_vec();
            body.extend(self.pending.to_ne_bytes());
            self.put(&self::record(LOST, 0, &body));
            self.pending = 0;
        }
        self.put(record);
        self.memory.head().store(self.head, Ordering::Release);
        true
    }

    /// Bytes that may be written. The kernel leaves one free, and so do we.
    fn room(&self) -> usize {
        // Pairs with the reader's release: it is through with what it gave back.
        let tail = self.memory.tail().load(Ordering::Acquire);
        let used = usize::try_from(self.head.wrapping_sub(tail)).unwrap_or(usize::MAX);
        self.memory
            .data_bytes()
            .saturating_sub(1)
            .saturating_sub(used)
    }

    fn put(&mut self, bytes: &[u8]) {
        // SAFETY: `room` said so, and nobody else writes.
        unsafe { self.memory.write(self.head, bytes) };
        self.head = self.head.wrapping_add(bytes.len() as u64);
    }

    /// Writes any bytes, as no kernel would, for tests of readers; false where there is no room.
    pub fn push_raw(&mut self, bytes: &[u8]) -> bool {
        if self.room() < bytes.len() {
            return false;
        }
        self.put(bytes);
        self.memory.head().store(self.head, Ordering::Release);
        true
    }

    /// Claims that the head is `bytes` further than it is, as no kernel would.
    pub fn lie(&mut self, bytes: u64) {
        self.head = self.head.wrapping_add(bytes);
        self.memory.head().store(self.head, Ordering::Release);
    }
}
