// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of each page, in 8 bytes, dense by address.
//!
//! A *unit* is a page of the size that is tracked (2 MiB or 4 KiB). 512 of them that follow each other
//! in one process's addresses are a block; blocks are numbered, and a unit's number is its block's
//! times 512 and its place in it. So a list can hold units in 32 bits. Blocks appear when a page of
//! theirs is first told of and go with their process, or when nothing of them is mapped any more.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

/// Units of a block.
const FAN: usize = 512;
const FAN_SHIFT: u8 = 9;
/// Counts stop here.
pub(super) const COUNT_MAX: u8 = 63;
/// The cooling clock counts modulo this.
pub(super) const CLOCK_TURN: u16 = 1 << 12;

/// Where a page is, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tier {
    /// Never seen.
    Unknown = 0,
    /// In the fastest tier.
    Fast = 1,
    /// In another.
    Slow = 2,
}

/// One unit. Two words: its place in a list, and everything else in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Meta {
    /// Place in its list, meaningless where it is in none.
    pub(super) seq: u32,
    bits: u32,
}

const _: () = assert!(size_of::<Meta>() == 8);

macro_rules! field {
    ($get:ident, $set:ident, $type:ty, $shift:expr, $width:expr, $doc:expr) => {
        #[doc = $doc]
        pub(super) const fn $get(self) -> $type {
            ((self.bits >> $shift) & ((1 << $width) - 1)) as $type
        }

        #[doc = concat!("Sets: ", $doc)]
        pub(super) const fn $set(&mut self, value: $type) {
            let mask = ((1 << $width) - 1) << $shift;
            self.bits = self.bits & !mask | ((value as u32) << $shift) & mask;
        }
    };
}

macro_rules! flag {
    ($get:ident, $set:ident, $shift:expr, $doc:expr) => {
        #[doc = $doc]
        pub(super) const fn $get(self) -> bool {
            self.bits & (1 << $shift) != 0
        }

        #[doc = concat!("Sets: ", $doc)]
        pub(super) const fn $set(&mut self, on: bool) {
            self.bits = self.bits & !(1 << $shift) | (on as u32) << $shift;
        }
    };
}

impl Meta {
    field!(reads, set_reads, u8, 0, 6, "Sampled loads.");
    field!(writes, set_writes, u8, 6, 6, "Sampled stores.");
    field!(
        clock,
        set_clock,
        u16,
        12,
        12,
        "Cooling clock up to which it was cooled."
    );
    field!(tier_bits, set_tier_bits, u8, 24, 2, "Its tier as a number.");
    field!(
        retries,
        set_retries,
        u8,
        26,
        2,
        "Failed migrations in a row."
    );
    flag!(hot, set_hot, 28, "Whether it is hot.");
    flag!(heavy, set_heavy, 29, "Whether it is write-heavy.");
    flag!(listed, set_listed, 30, "Whether it is in a list.");
    flag!(
        moving,
        set_moving,
        31,
        "Whether a migration of it is under way."
    );

    pub(super) const fn tier(self) -> Tier {
        match self.tier_bits() {
            1 => Tier::Fast,
            2 => Tier::Slow,
            _ => Tier::Unknown,
        }
    }

    pub(super) const fn set_tier(&mut self, tier: Tier) {
        self.set_tier_bits(tier as u8);
    }
}

#[derive(Debug)]
struct Block {
    pid: Pid,
    /// First address.
    start: u64,
    metas: Box<[Meta; FAN]>,
}

/// All units.
#[derive(Debug)]
pub(super) struct Table {
    size: PageSize,
    blocks: Vec<Option<Block>>,
    free: Vec<u32>,
    index: BTreeMap<(Pid, u64), u32>,
    /// The block found last.
    recent: Option<((Pid, u64), u32)>,
}

const fn place(unit: u32) -> usize {
    unit as usize & (FAN - 1)
}

impl Table {
    pub(super) const fn new(size: PageSize) -> Self {
        Self {
            size,
            blocks: Vec::new(),
            free: Vec::new(),
            index: BTreeMap::new(),
            recent: None,
        }
    }

    const fn shift(&self) -> u8 {
        self.size.shift() + FAN_SHIFT
    }

    fn number(block: u32, addr: u64, size: PageSize) -> u32 {
        let at = (addr >> size.shift()) & (FAN as u64 - 1);
        (block << FAN_SHIFT) | u32::try_from(at).expect("below FAN")
    }

    /// The unit at an address, if its block is there.
    pub(super) fn find(&self, pid: Pid, addr: Addr) -> Option<u32> {
        let key = (pid, addr.0 >> self.shift());
        let block = match self.recent {
            Some((recent, block)) if recent == key => block,
            _ => *self.index.get(&key)?,
        };
        Some(Self::number(block, addr.0, self.size))
    }

    /// The unit at an address; makes its block. Nothing where there are 2^32 units already.
    pub(super) fn find_or_make(&mut self, pid: Pid, addr: Addr) -> Option<u32> {
        if let Some(unit) = self.find(pid, addr) {
            let key = (pid, addr.0 >> self.shift());
            self.recent = Some((key, unit >> FAN_SHIFT));
            return Some(unit);
        }
        let key = (pid, addr.0 >> self.shift());
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                // The last number is no unit's: lists use it for gaps.
                let number = u32::try_from(self.blocks.len()).ok()?;
                if number >= (u32::MAX >> FAN_SHIFT) {
                    return None;
                }
                self.blocks.push(None);
                number
            }
        };
        self.blocks[number as usize] = Some(Block {
            pid,
            start: key.1 << self.shift(),
            metas: Box::new([Meta::default(); FAN]),
        });
        self.index.insert(key, number);
        self.recent = Some((key, number));
        Some(Self::number(number, addr.0, self.size))
    }

    fn block(&self, unit: u32) -> &Block {
        let block = self.blocks[(unit >> FAN_SHIFT) as usize].as_ref();
        block.expect("a unit's block stays until its units are forgotten")
    }

    pub(super) fn get(&self, unit: u32) -> Meta {
        self.block(unit).metas[place(unit)]
    }

    pub(super) fn set(&mut self, unit: u32, meta: Meta) {
        let block = self.blocks[(unit >> FAN_SHIFT) as usize].as_mut();
        let block = block.expect("a unit's block stays until its units are forgotten");
        block.metas[place(unit)] = meta;
    }

    /// How the movers name it.
    pub(super) fn page(&self, unit: u32) -> PageRef {
        let block = self.block(unit);
        PageRef {
            pid: block.pid,
            addr: Addr(block.start + ((place(unit) as u64) << self.size.shift())),
            size: self.size,
        }
    }

    pub(super) fn pid(&self, unit: u32) -> Pid {
        self.block(unit).pid
    }

    /// The blocks' units that overlap a range of a process.
    pub(super) fn units(&self, pid: Pid, range: Range) -> Vec<u32> {
        if range.bytes() == 0 {
            return Vec::new();
        }
        let (first, last) = (
            range.start.0 >> self.shift(),
            (range.end.0 - 1) >> self.shift(),
        );
        let mut units = Vec::new();
        for (&(_, block_key), &block) in self.index.range((pid, first)..=(pid, last)) {
            let start = block_key << self.shift();
            for at in 0..FAN as u64 {
                let addr = start + (at << self.size.shift());
                if addr < range.end.0 && range.start.0 < addr + self.size.bytes() {
                    units.push(Self::number(block, addr, self.size));
                }
            }
        }
        units
    }

    /// Drops the blocks of a process that lie in a range wholly; no list may hold a unit of theirs.
    pub(super) fn drop_blocks(&mut self, pid: Pid, range: Range) {
        let bytes = 1 << self.shift();
        let first = range.start.0.div_ceil(bytes);
        let end = range.end.0 / bytes;
        if first >= end {
            return;
        }
        let keys: Vec<(Pid, u64)> = self
            .index
            .range((pid, first)..(pid, end))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            if let Some(block) = self.index.remove(&key) {
                self.blocks[block as usize] = None;
                self.free.push(block);
            }
        }
        self.recent = None;
    }

    /// Bytes it takes, without what the allocator adds.
    pub(super) fn bytes(&self) -> u64 {
        let blocks = self.blocks.capacity() * size_of::<Option<Block>>();
        let metas = self.index.len() * size_of::<[Meta; FAN]>();
        (blocks + metas + self.index.len() * size_of::<((Pid, u64), u32)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PID: Pid = Pid(7);

    proptest! {
        /// What is packed into the bits comes out again, and nothing disturbs another.
        #[test]
        fn fields_do_not_mix(reads in 0_u8..=COUNT_MAX, writes in 0_u8..=COUNT_MAX, clock in 0..CLOCK_TURN, retries in 0_u8..4, on in any::<[bool; 4]>()) {
            let mut meta = Meta::default();
            meta.set_moving(on[0]);
            meta.set_clock(clock);
            meta.set_listed(on[1]);
            meta.set_writes(writes);
            meta.set_tier(Tier::Slow);
            meta.set_heavy(on[2]);
            meta.set_reads(reads);
            meta.set_retries(retries);
            meta.set_hot(on[3]);
            prop_assert_eq!((meta.reads(), meta.writes(), meta.clock()), (reads, writes, clock));
            prop_assert_eq!([meta.moving(), meta.listed(), meta.heavy(), meta.hot()], on);
            prop_assert_eq!((meta.tier(), meta.retries()), (Tier::Slow, retries));
        }
    }

    #[test]
    fn units_are_found_named_and_dropped() {
        for size in [PageSize::Base4K, PageSize::Huge2M] {
            let mut table = Table::new(size);
            let addr = Addr(0x7f00_0000_0000 + 5 * size.bytes());
            let unit = table.find_or_make(PID, addr).expect("room");
            assert_eq!(table.find_or_make(PID, Addr(addr.0 + 17)), Some(unit));
            assert_eq!(table.page(unit).addr, addr);
            assert_eq!(table.find(Pid(8), addr), None);
            let range = |from, to| Range {
                start: Addr(from),
                end: Addr(to),
            };
            let two = range(addr.0, addr.0 + size.bytes() + 1);
            assert_eq!(table.units(PID, two), [unit, unit + 1]);
            table.drop_blocks(PID, two);
            assert_eq!(table.find(PID, addr), Some(unit), "the block is larger");
            table.drop_blocks(PID, range(0, 1 << 47));
            assert_eq!(table.find(PID, addr), None);
            assert_eq!(
                table.find_or_make(PID, addr),
                Some(unit),
                "numbers come back"
            );
            assert_eq!(table.get(unit), Meta::default());
        }
    }

    #[test]
    fn eight_bytes_a_page() {
        let mut table = Table::new(PageSize::Base4K);
        let pages = 1 << 18;
        for page in 0..pages {
            table.find_or_make(PID, Addr(page << 12)).expect("room");
        }
        assert!(table.bytes() * 100 <= pages * 8 * 102, "{}", table.bytes());
    }
}
