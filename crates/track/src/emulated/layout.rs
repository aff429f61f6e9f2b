// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated PMU's shared memory: what is where, and reading records out of its rings. Pure: words
//! in, records out.
//!
//! `eval/lab/plugin/pmu.h` is the other side and says what each word means. The other side is trusted no
//! more than a device: sizes are checked against the memory there is, and a record whose number is
//! not the one its place must have is counted as torn and left out.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use thiserror::Error;

const MAGIC: u64 = u64::from_le_bytes(*b"TRRCPMU1");
const VERSION: u64 = 1;
const RECORD_WORDS: usize = 6;

/// Words of the header.
mod header {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const RINGS: usize = 2;
    pub(super) const RING_RECORDS: usize = 3;
    pub(super) const RECORD_BYTES: usize = 4;
    pub(super) const HEADER_BYTES: usize = 5;
    pub(super) const RING_BYTES: usize = 6;
    pub(super) const ENABLED: usize = 8;
    pub(super) const PERIOD: usize = 9;
    pub(super) const MAX_RATE: usize = 10;
    pub(super) const CHARGE_NS: usize = 11;
    pub(super) const ROOM: usize = 12;
    pub(super) const WORDS: usize = 13;
}

/// Words of a ring.
mod ring {
    pub(super) const HEAD: usize = 0;
    pub(super) const TAIL: usize = 8;
    pub(super) const TAKEN: usize = 16;
    pub(super) const LOST: usize = 17;
    pub(super) const THROTTLED: usize = 18;
    pub(super) const MISSES: usize = 19;
    pub(super) const HEADER_WORDS: usize = 512;
}

/// Why memory is not an emulated PMU's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Something else is in it.
    #[error("The shared memory is no emulated PMU's: it begins with {0:#x}")]
    Magic(u64),
    /// Another version of the lab.
    #[error(
        "The emulated PMU speaks version {found}, this program version {VERSION}; build both from one tree"
    )]
    Version {
        /// Its.
        found: u64,
    },
    /// A size cannot be.
    #[error("The emulated PMU's header says {what} is {found}, which cannot be in {bytes} bytes")]
    Size {
        /// Which.
        what: &'static str,
        /// What it says.
        found: u64,
        /// Size of the memory.
        bytes: usize,
    },
}

/// What the guest can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Whether samples are taken.
    pub enabled: bool,
    /// One sample in so many misses.
    pub period: u64,
    /// Samples a second of a processor, 0 for no limit.
    pub max_rate: u64,
    /// What a sample costs, ns of the machine's time.
    pub charge_ns: u64,
    /// Unread records that a ring holds, 0 for all it has places for.
    pub room: u64,
}

/// What a ring counted since the emulator started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingCounts {
    /// Records written.
    pub taken: u64,
    /// Not written for lack of room.
    pub lost: u64,
    /// Not taken because of the rate limit.
    pub throttled: u64,
    /// Misses seen while samples were taken.
    pub misses: u64,
}

/// One sample as the emulator wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Virtual address of the access.
    pub vaddr: u64,
    /// Its physical address.
    pub paddr: u64,
    /// The host's monotonic clock, ns.
    pub time_ns: u64,
    /// The page-table root: the processor's CR3 without process-context and other bits.
    pub root: u64,
    /// The processor.
    pub cpu: u32,
    /// The node that served it.
    pub node: u16,
    /// Whether it was a store.
    pub store: bool,
}

/// Bits of CR3 that are the address of the page table: not the process-context id (bits 0 to 11),
/// nor what newer processors keep above the physical address (52 and up).
const ROOT: u64 = 0x000f_ffff_ffff_f000;

impl Record {
    fn decode(words: &[u64; RECORD_WORDS]) -> Self {
        let [vaddr, paddr, time_ns, cr3, place, _number] = *words;
        let [c0, c1, c2, c3, n0, n1, s0, s1] = place.to_le_bytes();
        Self {
            vaddr,
            paddr,
            time_ns,
            root: cr3 & ROOT,
            cpu: u32::from_le_bytes([c0, c1, c2, c3]),
            node: u16::from_le_bytes([n0, n1]),
            store: u16::from_le_bytes([s0, s1]) != 0,
        }
    }
}

/// What reading a ring gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Records handed out.
    pub records: u64,
    /// Records that did not match their place.
    pub torn: u64,
}

/// A checked view of the memory.
#[derive(Debug, Clone, Copy)]
pub struct Rings<'a> {
    words: &'a [AtomicU64],
    count: usize,
    records: u64,
    first: usize,
    stride: usize,
}

impl<'a> Rings<'a> {
    /// Checks the header.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] where it is not one of ours, or its sizes go beyond the memory.
    pub fn new(words: &'a [AtomicU64]) -> Result<Self, LayoutError> {
        let get = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
        if get(header::MAGIC) != MAGIC {
            return Err(LayoutError::Magic(get(header::MAGIC)));
        }
        if get(header::VERSION) != VERSION {
            let found = get(header::VERSION);
            return Err(LayoutError::Version { found });
        }
        let bytes = words.len() * 8;
        let size = |what, at, good: &dyn Fn(usize) -> bool| {
            let found = get(at);
            let value = usize::try_from(found).ok().filter(|&value| good(value));
            value.ok_or(LayoutError::Size { what, found, bytes })
        };
        let first = size("its header", header::HEADER_BYTES, &|n| {
            n >= header::WORDS * 8 && n % 8 == 0 && n <= bytes
        })?;
        size("a record", header::RECORD_BYTES, &|n| n == RECORD_WORDS * 8)?;
        let records = size("a ring's records", header::RING_RECORDS, &|n| {
            n.is_power_of_two() && n <= bytes
        })?;
        let stride = size("a ring", header::RING_BYTES, &|n| {
            n % 8 == 0 && n <= bytes && n >= ring::HEADER_WORDS * 8 + records * RECORD_WORDS * 8
        })?;
        let count = size("the number of rings", header::RINGS, &|n| {
            n <= (bytes - first) / stride
        })?;
        Ok(Self {
            words,
            count,
            records: records as u64,
            first: first / 8,
            stride: stride / 8,
        })
    }

    /// How many rings there are, one a processor.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// What is set.
    #[must_use]
    pub fn control(&self) -> Control {
        let get = |at: usize| self.words[at].load(Ordering::Relaxed);
        Control {
            enabled: get(header::ENABLED) != 0,
            period: get(header::PERIOD),
            max_rate: get(header::MAX_RATE),
            charge_ns: get(header::CHARGE_NS),
            room: get(header::ROOM),
        }
    }

    /// Sets everything.
    pub fn set(&self, control: Control) {
        let set = |at: usize, value| self.words[at].store(value, Ordering::Relaxed);
        set(header::PERIOD, control.period);
        set(header::MAX_RATE, control.max_rate);
        set(header::CHARGE_NS, control.charge_ns);
        set(header::ROOM, control.room);
        self.words[header::ENABLED].store(u64::from(control.enabled), Ordering::Release);
    }

    fn ring(&self, index: usize) -> &'a [AtomicU64] {
        let start = self.first + index * self.stride;
        &self.words[start..start + self.stride]
    }

    /// What the rings counted, together.
    #[must_use]
    pub fn counts(&self) -> RingCounts {
        (0..self.count).fold(RingCounts::default(), |sum, index| {
            let ring = self.ring(index);
            let get = |at: usize| ring[at].load(Ordering::Relaxed);
            RingCounts {
                taken: sum.taken.wrapping_add(get(ring::TAKEN)),
                lost: sum.lost.wrapping_add(get(ring::LOST)),
                throttled: sum.throttled.wrapping_add(get(ring::THROTTLED)),
                misses: sum.misses.wrapping_add(get(ring::MISSES)),
            }
        })
    }

    /// Forgets what is unread.
    pub fn skip(&self) {
        for index in 0..self.count {
            let ring = self.ring(index);
            let head = ring[ring::HEAD].load(Ordering::Acquire);
            ring[ring::TAIL].store(head, Ordering::Release);
        }
    }

    /// Hands out the unread records of a ring, oldest first, and gives their places back.
    pub fn drain(&self, index: usize, mut sink: impl FnMut(Record)) -> Drained {
        let ring = self.ring(index);
        let mut drained = Drained::default();
        let head = ring[ring::HEAD].load(Ordering::Acquire);
        let tail = ring[ring::TAIL].load(Ordering::Relaxed);
        // More unread than there are places: somebody else wrote here. What is in the places is
        // recognised by its number, or counted as torn.
        let from = tail.max(head.saturating_sub(self.records)).min(head);
        for number in from..head {
            let place = usize::try_from(number % self.records).expect("a ring is memory of ours");
            let at = ring::HEADER_WORDS + place * RECORD_WORDS;
            let mut words = [0; RECORD_WORDS];
            for (word, from) in words.iter_mut().zip(&ring[at..]) {
                *word = from.load(Ordering::Relaxed);
            }
            if words[RECORD_WORDS - 1] == number {
                drained.records += 1;
                sink(Record::decode(&words));
            } else {
                drained.torn += 1;
            }
        }
        ring[ring::TAIL].store(head, Ordering::Release);
        drained
    }
}

#[cfg(test)]
mod tests;
