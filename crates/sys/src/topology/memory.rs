// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory is free on a node, what page cache it would give back, and the kernel's watermarks.
//!
//! Contract: `/sys/devices/system/node/nodeN/meminfo`, short; `/proc/zoneinfo`, long, and read
//! only when asked for: watermarks change with `vm.watermark_scale_factor` and memory hotplug;
//! `/sys/kernel/mm/lru_gen/enabled`, with them.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use terrace_core::NodeId;
use terrace_core::NodeMemory;

use super::TopologyError;
use super::cache;
use super::meminfo;
use super::node_file;
use super::parse;
use super::read;

/// Reads the memory of nodes again and again.
#[derive(Debug)]
pub struct MemoryReader {
    root: PathBuf,
    watermarks: BTreeMap<NodeId, parse::Watermarks>,
    /// Reclaim goes by generations.
    generations: bool,
}

impl MemoryReader {
    /// Reads the watermarks and how the kernel reclaims.
    ///
    /// # Errors
    ///
    /// Where `/proc/zoneinfo` cannot be read.
    pub fn open(root: &Path) -> Result<Self, TopologyError> {
        let mut reader = Self {
            root: root.to_owned(),
            watermarks: BTreeMap::new(),
            generations: false,
        };
        reader.refresh()?;
        Ok(reader)
    }

    /// Reads the watermarks and how the kernel reclaims again; once in some seconds is enough.
    ///
    /// # Errors
    ///
    /// Where `/proc/zoneinfo` cannot be read.
    pub fn refresh(&mut self) -> Result<(), TopologyError> {
        self.watermarks = parse::zoneinfo(&read(&self.root.join("proc/zoneinfo"))?);
        self.generations = read(&self.root.join("sys/kernel/mm/lru_gen/enabled"))
            .is_ok_and(|text| parse::generations(&text));
        Ok(())
    }

    /// What is free on a node now.
    ///
    /// # Errors
    ///
    /// Where there is no such node.
    pub fn read(&self, node: NodeId) -> Result<NodeMemory, TopologyError> {
        Ok(self.read_with_cache(node)?.0)
    }

    /// What is free on a node now, and beside it the bytes of page cache that the kernel would give
    /// back at once to who allocates there and nowhere else (`topology/cache.rs`).
    ///
    /// # Errors
    ///
    /// Where there is no such node.
    pub fn read_with_cache(&self, node: NodeId) -> Result<(NodeMemory, u64), TopologyError> {
        let memory = meminfo(&self.root, node)?;
        let watermarks = self.watermarks.get(&node).copied().unwrap_or_default();
        let page_bytes = rustix::param::page_size() as u64;
        let low_bytes = watermarks.low_pages.saturating_mul(page_bytes);
        let sample = NodeMemory {
            free_bytes: memory.free_bytes,
            low_bytes,
            high_bytes: watermarks.high_pages.saturating_mul(page_bytes),
            total_bytes: memory.total_bytes,
        };
        Ok((
            sample,
            cache::at_once(&memory, self.generations, low_bytes, page_bytes),
        ))
    }

    /// Pages of a node's page cache that were read again, since the start of the machine, so soon after the kernel had dropped them that
    /// it took them for part of a working set (`workingset_activate_file`, mm/workingset.c).
    ///
    /// # Errors
    ///
    /// Where there is no such node, or the kernel does not say (before Linux 5.9).
    pub fn missed_cache_pages(&self, node: NodeId) -> Result<u64, TopologyError> {
        let path = node_file(&self.root, node, "vmstat");
        parse::counter(&read(&path)?, "workingset_activate_file").ok_or(TopologyError::Form(path))
    }
}
