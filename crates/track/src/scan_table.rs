// SPDX-License-Identifier: MIT OR Apache-2.0
//! When each page of a process was last scanned, and when it was marked.
//!
//! Units: addresses are grouped in chunks of 2 MiB, 512 pages of 4 KiB. A chunk remembers its last
//! [`HISTORY`] scans, each with the pages it covered, and for each page which of those scans its
//! last fault came after: one byte a page, kept only in chunks that had a fault. A scan may leave out
//! the top tier: where a page is when it faults says whether that scan can have marked it. So a chunk costs
//! 220 bytes or so, and 512 more once faulted on: at most 0.04 % of the memory it describes.
//!
//! Bounded: a table takes at most the number of chunks it was made with. Scans of further chunks
//! are not remembered, and counted.
//!
//! Not here: whose table this is ([`crate::correlate`]), what is hot (the policy).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::hash::Hasher;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_core::Range;

/// Scans a chunk remembers.
pub const HISTORY: u32 = 8;

const CHUNK_SHIFT: u32 = 21;
const PAGE_SHIFT: u32 = 12;
const PAGES: usize = 512;
/// Ages of pages are kept modulo 256; what is older than this is as old as this.
const OLDEST_AGE: u8 = 128;
/// Ages are capped at least this often, so that none goes round.
const SWEEP_EVERY: u32 = 64;

/// What is known about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scanned {
    /// The latest scan of the page before the fault.
    pub last: Option<Nanos>,
    /// The first remembered scan after the page's last fault that marks pages where it is: this one
    /// marked it.
    pub armed: Option<Nanos>,
}

/// The scans of one address space.
#[derive(Debug, Default)]
pub struct ScanTable {
    chunks: HashMap<u64, Chunk, BuildHasherDefault<Spread>>,
    chunks_max: usize,
    forgotten: u64,
}

/// A hash of a chunk's number: one multiplication. There is one lookup a fault, and a program that
/// chose its addresses to collide would only slow down how its own faults are looked at.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
        let folded = product as u64 ^ (product >> 64) as u64;
        self.0 = folded;
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Scan {
    time: Nanos,
    /// First page of the chunk it covered.
    first: u16,
    /// The page behind its last.
    end: u16,
    /// Whether it marks pages of the top tier, too.
    all: bool,
}

#[derive(Debug, Default)]
struct Chunk {
    scans: [Scan; HISTORY as usize],
    /// Scans so far; the latest is at `(count - 1) % HISTORY`. The n-th has number n, from 1.
    count: u32,
    /// For each page, the low byte of the number of the latest scan before its last fault.
    faulted: Option<Box<[u8; PAGES]>>,
}

impl ScanTable {
    /// An empty one of at most `chunks_max` chunks.
    #[must_use]
    pub fn new(chunks_max: usize) -> Self {
        Self {
            chunks: HashMap::default(),
            chunks_max,
            forgotten: 0,
        }
    }

    /// Takes at most `chunks_max` chunks from now on; what is there stays.
    pub const fn limit(&mut self, chunks_max: usize) {
        self.chunks_max = chunks_max;
    }

    /// Chunks in the table.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Scans of a chunk that were not remembered because the table is full.
    #[must_use]
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The scanner began to mark `range`; `all`: pages of the top tier, too.
    pub fn scan(&mut self, range: Range, time: Nanos, all: bool) {
        if range.bytes() == 0 {
            return;
        }
        let first_chunk = range.start.0 >> CHUNK_SHIFT;
        let last_chunk = (range.end.0 - 1) >> CHUNK_SHIFT;
        for number in first_chunk..=last_chunk {
            let base = number << CHUNK_SHIFT;
            let first = page_in_chunk(range.start.0.max(base));
            let end = page_in_chunk((range.end.0 - 1).min(base | ((1 << CHUNK_SHIFT) - 1))) + 1;
            let full = self.chunks.len() >= self.chunks_max;
            if full && !self.chunks.contains_key(&number) {
                // Whatever follows may be there already, but a range this long is not walked
                // chunk by chunk for the sake of it.
                if last_chunk - number > self.chunks_max as u64 {
                    self.forgotten += last_chunk - number + 1;
                    return;
                }
                self.forgotten += 1;
                continue;
            }
            self.chunks.entry(number).or_default().scanned(Scan {
                time,
                first,
                end,
                all,
            });
        }
    }

    /// A page of `size` at `addr`, on the `top` tier or not, was touched while marked, and is marked no more.
    pub fn fault(&mut self, addr: Addr, size: PageSize, time: Nanos, top: bool) -> Scanned {
        let Some(chunk) = self.chunks.get_mut(&(addr.0 >> CHUNK_SHIFT)) else {
            return Scanned::default();
        };
        chunk.faulted(page_in_chunk(addr.0), size, time, top)
    }

    /// A page became accessible by other means, for instance because it was moved: the next scan
    /// will mark it anew.
    pub fn unmarked(&mut self, addr: Addr, size: PageSize, time: Nanos) {
        self.fault(addr, size, time, false);
    }

    /// The range is mapped no more. Chunks it covers in part are kept.
    pub fn unmap(&mut self, range: Range) {
        let first = range.start.0.div_ceil(1 << CHUNK_SHIFT);
        let end = range.end.0 >> CHUNK_SHIFT;
        self.chunks
            .retain(|number, _| !(first..end).contains(number));
    }
}

impl Chunk {
    fn scanned(&mut self, scan: Scan) {
        self.count = self.count.wrapping_add(1).max(1);
        self.scans[slot(self.count)] = scan;
        if self.count.is_multiple_of(SWEEP_EVERY) {
            self.cap_ages();
        }
    }

    fn cap_ages(&mut self) {
        let now = low_byte(self.count);
        for page in self.faulted.iter_mut().flat_map(|f| f.iter_mut()) {
            if now.wrapping_sub(*page) > OLDEST_AGE {
                *page = now.wrapping_sub(OLDEST_AGE);
            }
        }
    }

    /// Numbers of the remembered scans that came before `time`, latest first.
    fn before(&self, time: Nanos) -> impl Iterator<Item = (u32, Scan)> {
        let oldest = self.count.saturating_sub(HISTORY) + 1;
        (oldest..=self.count)
            .rev()
            .map(|number| (number, self.scans[slot(number)]))
            .filter(move |(_, scan)| scan.time <= time)
    }

    fn faulted(&mut self, page: u16, size: PageSize, time: Nanos, top: bool) -> Scanned {
        let now = low_byte(self.count);
        let age = match &self.faulted {
            Some(pages) => now.wrapping_sub(pages[usize::from(page)]),
            None => age_of_the_untouched(self.count),
        };
        let mut found = Scanned::default();
        for (number, scan) in self.before(time) {
            if !(scan.first..scan.end).contains(&page) {
                continue;
            }
            found.last = found.last.max(Some(scan.time));
            if self.count - number < u32::from(age) && (scan.all || !top) {
                found.armed = Some(found.armed.map_or(scan.time, |a| a.min(scan.time)));
            }
        }
        let latest = self.before(time).next().map(|(number, _)| number);
        if let Some(number) = latest {
            self.remember_fault(page, size, number);
        }
        found
    }

    fn remember_fault(&mut self, page: u16, size: PageSize, number: u32) {
        let (count, now) = (self.count, low_byte(self.count));
        let untouched = now.wrapping_sub(age_of_the_untouched(count));
        let pages = self
            .faulted
            .get_or_insert_with(|| Box::new([untouched; PAGES]));
        let touched = match size {
            PageSize::Base4K => &mut pages[usize::from(page)..=usize::from(page)],
            PageSize::Huge2M | PageSize::Giant1G => &mut pages[..],
        };
        for page in touched {
            // A fault that comes late does not undo a later one.
            if now.wrapping_sub(*page) > low_byte(count - number) {
                *page = low_byte(number);
            }
        }
    }
}

fn slot(number: u32) -> usize {
    ((number - 1) % HISTORY) as usize
}

/// The age of a page that never faulted: all scans are later than its last fault.
fn age_of_the_untouched(count: u32) -> u8 {
    u8::try_from(count).map_or(OLDEST_AGE, |age| age.min(OLDEST_AGE))
}

#[expect(clippy::cast_possible_truncation, reason = "kept modulo 256")]
const fn low_byte(number: u32) -> u8 {
    number as u8
}

#[expect(clippy::cast_possible_truncation, reason = "below 512")]
const fn page_in_chunk(addr: u64) -> u16 {
    ((addr >> PAGE_SHIFT) & (PAGES as u64 - 1)) as u16
}

#[cfg(test)]
mod tests;
