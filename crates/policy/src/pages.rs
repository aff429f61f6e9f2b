// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dense page metadata: 8 bytes a base page, in chunks of 2 MiB per process.
//!
//! A chunk exists once one of its pages was seen. A huge page uses the entry of its first base
//! page. Chunks are kept in address order (a `BTreeMap`), so
//! nothing depends on the order of a hash.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

const CHUNK_SHIFT: u8 = 21;
const CHUNK_PAGES: usize = 512;
const NO_NODE: u8 = u8::MAX;

/// Where a page stands in a policy's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum State {
    /// In no queue.
    #[default]
    Idle,
    /// Referenced once, waits for the second reference.
    Candidate,
    /// Chosen, waits for its migration.
    Pending,
    /// Its migration is under way.
    InFlight,
}

/// Metadata of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    last_ref_ms: u32,
    node: u8,
    /// Heat of the last references: class of the captured idle time, see [`idle_class`].
    pub idle_class: u8,
    /// Its queue.
    pub state: State,
    bits: u8,
}

const _: () = assert!(size_of::<Meta>() == 8);

const HUGE: u8 = 1;
const SHADOW: u8 = 1 << 1;
const WRITTEN: u8 = 1 << 2;
const TURNED: u8 = 1 << 3;
const RETRIES_SHIFT: u8 = 4;

impl Default for Meta {
    fn default() -> Self {
        Self {
            last_ref_ms: 0,
            node: NO_NODE,
            idle_class: u8::MAX,
            state: State::Idle,
            bits: 0,
        }
    }
}

impl Meta {
    /// When the page was last seen accessed (or arrived), to the millisecond.
    #[must_use]
    pub const fn last_ref(&self) -> Nanos {
        Nanos::from_millis(self.last_ref_ms as u64)
    }

    /// Notes an access. Times wrap after 49 days, which makes a page look young once.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "wraps on purpose, see above"
    )]
    pub const fn touch(&mut self, now: Nanos) {
        self.last_ref_ms = (now.0 / 1_000_000) as u32;
    }

    /// Where the page is, if known.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        if self.node == NO_NODE {
            None
        } else {
            Some(NodeId(self.node as u16))
        }
    }

    /// Notes where the page is. Nodes above 254 are not told apart (the kernel's limit is 1024,
    /// machines have at most some dozens).
    pub fn set_node(&mut self, node: NodeId) {
        self.node = u8::try_from(node.0).unwrap_or(NO_NODE - 1);
    }

    fn bit(self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    fn set_bit(&mut self, bit: u8, on: bool) {
        if on {
            self.bits |= bit
        } else {
            self.bits &= !bit
        }
    }

    /// Whether a valid shadow is known.
    #[must_use]
    pub fn shadow(&self) -> bool {
        self.bit(SHADOW)
    }

    /// Notes a shadow's coming or going.
    pub fn set_shadow(&mut self, on: bool) {
        self.set_bit(SHADOW, on);
    }

    /// Whether the last access seen was a write.
    #[must_use]
    pub fn written(&self) -> bool {
        self.bit(WRITTEN)
    }

    /// Notes what the last access was.
    pub fn set_written(&mut self, on: bool) {
        self.set_bit(WRITTEN, on);
    }

    /// Whether the page was migrated before: moving it back would be a turn.
    #[must_use]
    pub fn turned(&self) -> bool {
        self.bit(TURNED)
    }

    /// Notes a migration.
    pub fn set_turned(&mut self, on: bool) {
        self.set_bit(TURNED, on);
    }

    /// Tries since the last success, at most 15.
    #[must_use]
    pub const fn retries(&self) -> u8 {
        self.bits >> RETRIES_SHIFT
    }

    /// Sets the tries.
    pub fn set_retries(&mut self, n: u8) {
        self.bits = (self.bits & ((1 << RETRIES_SHIFT) - 1)) | (n.min(15) << RETRIES_SHIFT);
    }

    /// Whether the entry stands for a 2 MiB page.
    #[must_use]
    pub fn size(&self) -> PageSize {
        if self.bit(HUGE) {
            PageSize::Huge2M
        } else {
            PageSize::Base4K
        }
    }
}

/// Class of an idle time: eight per doubling of the time in microseconds, 0 for the hottest.
/// From half an hour on all are one class; unknown is colder still.
#[must_use]
pub fn idle_class(idle: Option<Nanos>) -> u8 {
    let Some(idle) = idle else { return u8::MAX };
    let micros = (idle.0 / 1_000).max(1);
    let octave = micros.ilog2();
    let eighth = if octave >= 3 {
        (micros >> (octave - 3)) & 7
    } else {
        (micros << (3 - octave)) & 7
    };
    u8::try_from(u64::from(octave) * 8 + eighth)
        .unwrap_or(u8::MAX)
        .min(u8::MAX - 1)
}

/// The shortest idle time of a class.
#[must_use]
pub const fn class_idle(class: u8) -> Nanos {
    let octave = class / 8;
    let eighth = (class % 8) as u64;
    let micros = if octave >= 3 {
        (8 + eighth) << (octave - 3)
    } else {
        (8 + eighth) >> (3 - octave)
    };
    Nanos(micros.saturating_mul(1_000))
}

type Key = (Pid, u64);

/// Metadata of all pages seen.
#[derive(Debug, Default)]
pub struct Pages {
    chunks: BTreeMap<Key, Box<[Meta; CHUNK_PAGES]>>,
}

const fn key(pid: Pid, addr: Addr) -> Key {
    (pid, addr.0 >> CHUNK_SHIFT)
}

const fn index(addr: Addr) -> usize {
    (addr.0 >> 12) as usize & (CHUNK_PAGES - 1)
}

impl Pages {
    /// The page's entry, made where there was none.
    pub fn entry(&mut self, page: PageRef) -> &mut Meta {
        let chunk = self
            .chunks
            .entry(key(page.pid, page.addr))
            .or_insert_with(|| Box::new([Meta::default(); CHUNK_PAGES]));
        let at = if page.size == PageSize::Base4K {
            index(page.addr)
        } else {
            0
        };
        let meta = &mut chunk[at];
        meta.set_bit(HUGE, page.size != PageSize::Base4K);
        meta
    }

    /// The page's entry, if it was ever seen.
    pub fn get_mut(&mut self, page: PageRef) -> Option<&mut Meta> {
        let chunk = self.chunks.get_mut(&key(page.pid, page.addr))?;
        Some(
            &mut chunk[if page.size == PageSize::Base4K {
                index(page.addr)
            } else {
                0
            }],
        )
    }

    /// The page's entry, if it was ever seen.
    #[must_use]
    pub fn get(&self, page: PageRef) -> Option<&Meta> {
        let chunk = self.chunks.get(&key(page.pid, page.addr))?;
        Some(
            &chunk[if page.size == PageSize::Base4K {
                index(page.addr)
            } else {
                0
            }],
        )
    }

    /// All pages seen, by process and address.
    pub fn iter(&self) -> impl Iterator<Item = (PageRef, &Meta)> {
        self.chunks.iter().flat_map(|(&(pid, chunk), metas)| {
            (0_u64..)
                .zip(metas.iter())
                .filter(|(_, m)| m.node != NO_NODE)
                .map(move |(i, meta)| {
                    let addr = Addr((chunk << CHUNK_SHIFT) + (i << 12));
                    (
                        PageRef {
                            pid,
                            addr,
                            size: meta.size(),
                        },
                        meta,
                    )
                })
        })
    }

    /// Forgets a range.
    pub fn forget(&mut self, pid: Pid, range: Range) {
        let first = range.start.0 >> CHUNK_SHIFT;
        let last = range.end.0.saturating_sub(1) >> CHUNK_SHIFT;
        let inside: Vec<Key> = self
            .chunks
            .range((pid, first)..=(pid, last))
            .map(|(k, _)| *k)
            .collect();
        for k in inside {
            let start = k.1 << CHUNK_SHIFT;
            let whole = range.start.0 <= start && start + (1 << CHUNK_SHIFT) <= range.end.0;
            if whole {
                self.chunks.remove(&k);
            } else if let Some(chunk) = self.chunks.get_mut(&k) {
                for (i, meta) in (0_u64..).zip(chunk.iter_mut()) {
                    if range.contains(Addr(start + (i << 12))) {
                        *meta = Meta::default();
                    }
                }
            }
        }
    }

    /// Forgets a process.
    pub fn forget_process(&mut self, pid: Pid) {
        let keys: Vec<Key> = self
            .chunks
            .range((pid, 0)..=(pid, u64::MAX))
            .map(|(k, _)| *k)
            .collect();
        for k in keys {
            self.chunks.remove(&k);
        }
    }

    /// Bytes the metadata takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.chunks.len() * (CHUNK_PAGES * size_of::<Meta>() + size_of::<Key>())) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(addr: u64) -> PageRef {
        PageRef {
            pid: Pid(1),
            addr: Addr(addr),
            size: PageSize::Base4K,
        }
    }

    proptest! {
        /// Classes keep the order of idle times, and are at most an eighth of a doubling wide.
        #[test]
        fn classes_keep_order(a in 1_000_u64..1 << 41, b in 1_000_u64..1 << 41) {
            let (ca, cb) = (idle_class(Some(Nanos(a))), idle_class(Some(Nanos(b))));
            if a <= b { prop_assert!(ca <= cb); } else { prop_assert!(cb <= ca); }
            let floor = class_idle(ca).0;
            prop_assert!(floor <= a, "{floor} > {a}");
            prop_assert!(a < floor + floor / 8 + 2_000 || floor < 8_000);
        }

        /// Forgetting a range forgets its pages and no other.
        #[test]
        fn forget_is_exact(start in 0_u64..1200, len in 1_u64..1200, seen in prop::collection::btree_set(0_u64..2400, 0..60)) {
            let mut pages = Pages::default();
            for n in &seen { pages.entry(page(n << 12)).set_node(NodeId(0)); }
            let range = Range { start: Addr(start << 12), end: Addr((start + len) << 12) };
            pages.forget(Pid(1), range);
            let left: Vec<u64> = pages.iter().map(|(p, _)| p.addr.0 >> 12).collect();
            let want: Vec<u64> = seen.into_iter().filter(|n| !range.contains(Addr(n << 12))).collect();
            prop_assert_eq!(left, want);
        }
    }

    #[test]
    fn unknown_idle_is_coldest() {
        assert_eq!(idle_class(None), u8::MAX);
        assert!(idle_class(Some(Nanos::from_secs(3600))) < u8::MAX);
    }
}
