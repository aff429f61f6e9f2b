// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a node's page cache the kernel gives back at once to who allocates on that node alone. Pure.
//!
//! Less than the kernel's own estimates, of which each part is taken:
//! * `node_pagecache_reclaimable` (mm/vmscan.c): page cache that no process maps and that is not dirty.
//!   Reclaim skips pages under writeback, too.
//! * Only the inactive list: the active one's pages were used twice, so somebody may miss them. With the multi-generation
//!   LRU both: its kernel counts the two youngest generations as active (`lru_gen_is_active`), whatever they were used for,
//!   and where older ones are gone that is where a file goes that is read once (`lru_gen_folio_seq`). A page that is read
//!   twice does not change its generation.
//! * `prepare_scan_control` (mm/vmscan.c): reclaim leaves anonymous memory alone while the inactive list has
//!   4,096 pages (its length >> priority, which begins at 12, is not 0). With `demotion_enabled` or
//!   swap it would otherwise take pages of programs, which we promoted a moment ago. The multi-generation
//!   LRU has no such mark; it was seen to take cache alone down to this one (`docs/agent.md`).
//! * `si_mem_available` (mm/show_mem.c): some page cache, the low watermark's worth, is taken to be in use.

use super::parse::Meminfo;

/// `1 << DEF_PRIORITY` of mm/vmscan.c.
const TRIM_PAGES: u64 = 1 << 12;

pub(super) fn at_once(memory: &Meminfo, generations: bool, low_bytes: u64, page_bytes: u64) -> u64 {
    let stays = low_bytes.max(TRIM_PAGES.saturating_mul(page_bytes));
    let active = if generations {
        memory.active_file_bytes
    } else {
        0
    };
    memory
        .inactive_file_bytes
        .saturating_add(active)
        .saturating_sub(memory.mapped_bytes)
        .saturating_sub(memory.unwritten_bytes)
        .saturating_sub(stays)
}

#[cfg(test)]
mod tests {
    use super::super::parse::meminfo;
    use super::*;

    const MIB: u64 = 1 << 20;

    /// As in the emulated machine after a file was read.
    const FILLED: &str = "Node 0 MemTotal:         146284 kB\nNode 0 MemFree:            8192 kB\n\
        Node 0 Active(file):       2048 kB\nNode 0 Inactive(file):   109568 kB\n\
        Node 0 Dirty:              1024 kB\nNode 0 Writeback:          1024 kB\n\
        Node 0 Mapped:             2048 kB\n";

    #[test]
    fn clean_unmapped_inactive_cache_less_what_stays() {
        let memory = meminfo(FILLED).unwrap();
        assert_eq!(memory.free_bytes, 8 * MIB);
        assert_eq!(at_once(&memory, false, 7 * MIB, 4096), (107 - 4 - 16) * MIB);
        assert_eq!(
            at_once(&memory, false, 40 * MIB, 4096),
            (107 - 4 - 40) * MIB
        );
        assert_eq!(at_once(&memory, false, 400 * MIB, 4096), 0);
    }

    #[test]
    fn of_generations_the_youngest_too() {
        let memory = meminfo(FILLED).unwrap();
        assert_eq!(at_once(&memory, true, 7 * MIB, 4096), (109 - 4 - 16) * MIB);
    }

    #[test]
    fn a_kernel_that_does_not_say_has_none() {
        let memory = meminfo("Node 0 MemTotal: 100 kB\nNode 0 MemFree: 50 kB\n").unwrap();
        assert_eq!(at_once(&memory, true, 0, 4096), 0);
    }
}
