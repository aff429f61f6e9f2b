// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes' free memory, sampled for the policy: with the page cache that counts as room, and within the
//! budget where there is one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::Pid;
use terrace_core::Tiers;
use terrace_policy::Engine;
use terrace_sys::topology::TopologyError;
use terrace_sys::topology::memory::MemoryReader;

use super::cache_room::CacheRoom;
use crate::budget::Budget;

/// See [`FreeMemory::sample`].
const CHANGED: u64 = 1024;

/// What is free, and what of it is cache.
#[derive(Debug)]
pub struct FreeMemory {
    reader: MemoryReader,
    /// Where page cache counts as room.
    pub cache_room: CacheRoom,
    /// Free bytes, as last told.
    told: BTreeMap<NodeId, u64>,
}

impl FreeMemory {
    /// Reads the watermarks.
    ///
    /// # Errors
    ///
    /// Where `/proc/zoneinfo` cannot be read.
    pub fn open() -> Result<Self, TopologyError> {
        let reader = MemoryReader::open(Path::new("/"))?;
        Ok(Self {
            reader,
            cache_room: CacheRoom::default(),
            told: BTreeMap::new(),
        })
    }

    /// Reads again what rarely changes: watermarks, with `vm.watermark_scale_factor` and when memory comes or goes, and how the
    /// kernel reclaims.
    pub fn refresh(&mut self) {
        if let Err(error) = self.reader.refresh() {
            tracing::warn!("Watermarks not read again: {error}");
        }
    }

    /// What is free on a node, and the bytes of cache beside it; nothing where it has no memory.
    #[must_use]
    pub fn read(&self, node: NodeId) -> Option<(NodeMemory, u64)> {
        self.reader.read_with_cache(node).ok()
    }

    /// Pages of a node's cache that were missed; not looked at where there is none to give back.
    fn missed(&self, node: NodeId, cache_bytes: u64) -> Option<u64> {
        let known = (cache_bytes > 0).then(|| self.reader.missed_cache_pages(node));
        known?.ok()
    }

    /// Samples all nodes. Whether the free memory of one of them has changed since the sample before, by more than
    /// a [`CHANGED`]th of it.
    pub fn sample(
        &mut self,
        now: Nanos,
        tiers: &Tiers,
        budget: Option<&Budget>,
        engine: &mut Engine,
    ) -> bool {
        let mut changed = false;
        for node in tiers.nodes().iter().map(|node| node.id) {
            let Some((memory, cache_bytes)) = self.read(node) else {
                continue;
            };
            let is_top = tiers.is_top(node);
            let cache = (cache_bytes, self.missed(node, cache_bytes));
            let whole = self.cache_room.sample(now, (node, is_top), memory, cache);
            let sample = match budget.filter(|_| is_top) {
                Some(budget) => budget.share(node, whole),
                None => Some(whole),
            };
            if let Some(sample) = sample {
                let before = self.told.insert(node, sample.free_bytes).unwrap_or(0);
                let by = before.abs_diff(sample.free_bytes);
                changed |= by > sample.total_bytes / CHANGED;
                engine.memory(now, node, sample);
            }
        }
        changed
    }
}

/// Bytes of the largest of these processes.
#[must_use]
pub fn largest(pids: impl Iterator<Item = Pid>) -> u64 {
    pids.map(resident_anywhere).max().unwrap_or(0)
}

/// Bytes that a process has in memory, from statm (proc_pid_statm(5)). Zero where it is gone.
fn resident_anywhere(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1);
    let pages: u64 = pages.and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_one_that_is_gone_has_none() {
        assert!(resident_anywhere(Pid(std::process::id())) > 1 << 20);
        assert_eq!(resident_anywhere(Pid(0)), 0);
    }
}
