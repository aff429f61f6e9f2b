// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where an access was served, as the processor says (`PERF_SAMPLE_DATA_SRC`).
//!
//! Contract: `union perf_mem_data_src` in `linux/perf_event.h`. The older word for the level
//! (`mem_lvl`, bits 5 to 18) is a set with "hit" and "miss"; the newer one (`mem_lvl_num`, bits 33
//! to 36, Linux 4.14) is a number and knows persistent memory and CXL. Both are looked at, the
//! newer one first. Pure.

/// What the processor says of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataSource(pub u64);

/// What served an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A cache, or a line on its way into one.
    Cache,
    /// DRAM of the processor's own socket.
    LocalMemory,
    /// DRAM of another socket.
    RemoteMemory,
    /// Persistent memory.
    Persistent,
    /// Memory behind CXL.
    Cxl,
    /// A device, or memory that is not cached.
    Device,
    /// The processor does not say.
    Unknown,
}

impl Level {
    /// Whether memory, of whatever kind, served it, or may have.
    #[must_use]
    pub const fn may_be_memory(self) -> bool {
        !matches!(self, Self::Cache | Self::Device)
    }
}

const LOAD: u64 = 0x02;
const STORE: u64 = 0x04;

const LEVEL_SHIFT: u32 = 5;
const HIT: u64 = 0x02;
const CACHES: u64 = 0x08 | 0x10 | 0x20 | 0x40 | 0x400 | 0x800;
const LOCAL_RAM: u64 = 0x80;
const REMOTE_RAM: u64 = 0x100 | 0x200;
const DEVICES: u64 = 0x1000 | 0x2000;

const NUMBER_SHIFT: u32 = 33;
const REMOTE: u64 = 1 << 37;

impl DataSource {
    /// Whether it was a store.
    #[must_use]
    pub const fn is_store(self) -> bool {
        self.0 & STORE != 0
    }

    /// Whether it was a load.
    #[must_use]
    pub const fn is_load(self) -> bool {
        self.0 & LOAD != 0
    }

    /// What served it.
    #[must_use]
    pub const fn level(self) -> Level {
        let set = self.0 >> LEVEL_SHIFT & 0x3fff;
        let hit = set & HIT != 0;
        match self.0 >> NUMBER_SHIFT & 0xf {
            // Levels 1 to 4, any cache, line fill buffer.
            0x1..=0x4 | 0xb | 0xc if hit || set & !1 == 0 => Level::Cache,
            0x9 => Level::Cxl,
            0xa => Level::Device,
            0xd if self.0 & REMOTE != 0 || set & REMOTE_RAM != 0 => Level::RemoteMemory,
            0xd => Level::LocalMemory,
            0xe => Level::Persistent,
            _ => Self::level_of(set),
        }
    }

    const fn level_of(set: u64) -> Level {
        if set & REMOTE_RAM != 0 {
            Level::RemoteMemory
        } else if set & LOCAL_RAM != 0 {
            Level::LocalMemory
        } else if set & DEVICES != 0 {
            Level::Device
        } else if set & HIT != 0 && set & CACHES != 0 {
            Level::Cache
        } else {
            Level::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(op: u64, set: u64, number: u64, remote: bool) -> DataSource {
        DataSource(op | set << 5 | number << 33 | u64::from(remote) << 37)
    }

    #[test]
    fn levels_of_what_kernels_write() {
        // Intel, DRAM: LVL(LOC_RAM | HIT), LVLNUM(RAM); and the same from a remote node.
        assert_eq!(source(LOAD, 0x82, 0xd, false).level(), Level::LocalMemory);
        assert_eq!(source(LOAD, 0x102, 0xd, true).level(), Level::RemoteMemory);
        // Intel, persistent memory: LVLNUM(PMEM), with REMOTE or not.
        assert_eq!(source(LOAD, 0, 0xe, false).level(), Level::Persistent);
        assert_eq!(source(LOAD, 0, 0xe, true).level(), Level::Persistent);
        // AMD, Zen 4: LVLNUM(CXL); L3 or a cache of another core.
        assert_eq!(source(LOAD, 0, 0x9, true).level(), Level::Cxl);
        assert_eq!(source(LOAD, 0x42, 0x3, false).level(), Level::Cache);
        assert_eq!(source(LOAD, 0x802, 0xb, true).level(), Level::Cache);
        // AMD says nothing of stores that miss: LVL(NA), LVLNUM(NA).
        assert_eq!(source(STORE, 0x1, 0xf, false).level(), Level::Unknown);
        // Kernels before 4.14 have the set only.
        assert_eq!(source(LOAD, 0x202, 0, false).level(), Level::RemoteMemory);
        assert_eq!(source(LOAD, 0x0a, 0, false).level(), Level::Cache);
        // Intel, store that missed the first level: that is all there is to know.
        assert_eq!(source(STORE, 0x0c, 0, false).level(), Level::Unknown);
        assert_eq!(source(LOAD, 0x1002, 0xa, false).level(), Level::Device);
        assert_eq!(DataSource(0).level(), Level::Unknown);
    }

    #[test]
    fn loads_and_stores() {
        assert!(source(LOAD, 0, 0, false).is_load() && !source(LOAD, 0, 0, false).is_store());
        assert!(source(STORE, 0, 0, false).is_store());
        assert!(!DataSource(1).is_load() && !DataSource(1).is_store());
    }
}
