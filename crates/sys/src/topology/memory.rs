// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory is free on a node, and the kernel's watermarks.
//!
//! Contract: `/sys/devices/system/node/nodeN/meminfo`, short; `/proc/zoneinfo`, long, and read
//! only when asked for: watermarks change with `vm.watermark_scale_factor` and memory hotplug.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use terrace_core::NodeId;
use terrace_core::NodeMemory;

use super::TopologyError;
use super::parse;
use super::read;

/// Reads the memory of nodes again and again.
#[derive(Debug)]
pub struct MemoryReader {
    root: PathBuf,
    watermarks: BTreeMap<NodeId, parse::Watermarks>,
}

impl MemoryReader {
    /// Reads the watermarks.
    ///
    /// # Errors
    ///
    /// Where `/proc/zoneinfo` cannot be read.
    pub fn open(root: &Path) -> Result<Self, TopologyError> {
        let mut reader = Self {
            root: root.to_owned(),
            watermarks: BTreeMap::new(),
        };
        reader.refresh_watermarks()?;
        Ok(reader)
    }

    /// Reads the watermarks again; once in some seconds is enough.
    ///
    /// # Errors
    ///
    /// Where `/proc/zoneinfo` cannot be read.
    pub fn refresh_watermarks(&mut self) -> Result<(), TopologyError> {
        self.watermarks = parse::zoneinfo(&read(&self.root.join("proc/zoneinfo"))?);
        Ok(())
    }

    /// What is free on a node now.
    ///
    /// # Errors
    ///
    /// Where there is no such node.
    pub fn read(&self, node: NodeId) -> Result<NodeMemory, TopologyError> {
        let directory = self.root.join("sys/devices/system/node");
        let path = directory.join(format!("node{node}/meminfo"));
        let memory = parse::meminfo(&read(&path)?).ok_or(TopologyError::Form(path))?;
        let watermarks = self.watermarks.get(&node).copied().unwrap_or_default();
        let page_bytes = rustix::param::page_size() as u64;
        Ok(NodeMemory {
            free_bytes: memory.free_bytes,
            low_bytes: watermarks.low_pages.saturating_mul(page_bytes),
            high_bytes: watermarks.high_pages.saturating_mul(page_bytes),
            total_bytes: memory.total_bytes,
        })
    }
}
