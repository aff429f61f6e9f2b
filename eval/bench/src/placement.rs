// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the pages of the workload are: put there while they are filled, and asked afterwards.
//!
//! Kernel contract: `set_mempolicy(2)` makes the calling thread allocate on a node; the policy ends
//! before the run begins, and the mapping itself never has one, because the kernel's NUMA scanner
//! leaves mappings and tasks with a bound policy alone. `MPOL_PREFERRED` and not `MPOL_BIND`: a
//! full node then spills to the next instead of calling the OOM killer, and [`nodes_of`]
//! (`move_pages(2)` without target nodes) tells what became of it.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_sys::mempolicy;
use terrace_sys::mempolicy::Policy;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;
use terrace_sys::topology::TopologyError;
use terrace_workload::PAGE_BYTES;
use thiserror::Error;

use crate::arena::Arena;

/// Pages asked for in one call.
const BATCH: usize = 4096;

/// Why a placement could not be made or found out.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// The kernel refused.
    #[error("{call} failed")]
    Call {
        /// Which system call.
        call: &'static str,
        /// What it said.
        #[source]
        source: Errno,
    },
    /// Sysfs does not tell what the nodes are.
    #[error("Cannot tell the machine's nodes")]
    Nodes(#[from] TopologyError),
    /// There is no node that has both.
    #[error("No node has memory and processors: no thread can be bound to a socket")]
    NoSocket,
    /// The oracle is not told how all sockets see the nodes.
    #[error("{given} orders of nodes for {sockets} sockets; give --order once for each")]
    Orders {
        /// How many were given.
        given: usize,
        /// How many there are to be.
        sockets: usize,
    },
    /// The kernel does not tell which processors this process may run on.
    #[error("Cannot tell which processors this process may run on")]
    Bound {
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The thread may not run where it belongs.
    #[error(
        "Cannot run on the processors of node {node}; give this program some of each node that has processors"
    )]
    Bind {
        /// Their node.
        node: NodeId,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file in sysfs or procfs could not be read.
    #[error("Cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file in sysfs or procfs does not say what it should.
    #[error("{path} has no {what}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
}

/// New pages of this thread come from `node` while the value lives.
#[derive(Debug)]
pub struct Preferred(());

impl Preferred {
    /// Sets the thread's policy.
    ///
    /// # Errors
    ///
    /// Where the kernel has no such node.
    pub fn node(node: NodeId) -> Result<Self, PlacementError> {
        set_policy(&Policy::Preferred(node))?;
        Ok(Self(()))
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        // Going back to the default cannot fail: there is no node to be missing.
        let _ = set_policy(&Policy::Default);
    }
}

fn set_policy(policy: &Policy) -> Result<(), PlacementError> {
    mempolicy::set_mempolicy(policy).map_err(|source| PlacementError::Call {
        call: "set_mempolicy",
        source,
    })
}

/// The node of each page of the arena, `None` where there is no page.
///
/// # Errors
///
/// Where the kernel has no NUMA support.
pub fn nodes_of(arena: &Arena) -> Result<Vec<Option<NodeId>>, PlacementError> {
    let first = arena.address(0);
    let addresses: Vec<u64> = (0..u64::from(arena.pages()))
        .map(|page| first + page * PAGE_BYTES)
        .collect();
    let mut nodes = Vec::with_capacity(addresses.len());
    for batch in addresses.chunks(BATCH) {
        let status =
            move_pages::query(Target::Own, batch).map_err(|source| PlacementError::Call {
                call: "move_pages",
                source,
            })?;
        nodes.extend(status.into_iter().map(|status| match status {
            PageStatus::On(node) => Some(node),
            _ => None,
        }));
    }
    Ok(nodes)
}

/// Bytes free on the node, as its `meminfo` says.
///
/// # Errors
///
/// Where there is no such node.
pub fn free_bytes(node: NodeId) -> Result<u64, PlacementError> {
    let path = PathBuf::from(format!("/sys/devices/system/node/node{node}/meminfo"));
    let text = read(&path)?;
    // Node 0 MemFree:         113664 kB
    text.lines()
        .find_map(|line| line.split_once("MemFree:"))
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or(PlacementError::Parse {
            path,
            what: "MemFree",
        })
}

/// The sum of the high watermarks of the node's zones in bytes: the kernel wants that much free.
///
/// # Errors
///
/// Where there is no such node.
pub fn high_watermark_bytes(node: NodeId) -> Result<u64, PlacementError> {
    let path = PathBuf::from("/proc/zoneinfo");
    let text = read(&path)?;
    high_watermark_pages(&text, node)
        .map(|pages| pages * PAGE_BYTES)
        .ok_or(PlacementError::Parse {
            path,
            what: "high watermark",
        })
}

fn high_watermark_pages(zoneinfo: &str, node: NodeId) -> Option<u64> {
    let header = format!("Node {node}, zone ");
    let mut inside = false;
    let mut sum = None;
    for line in zoneinfo.lines() {
        if line.starts_with("Node ") {
            inside = line.starts_with(&header);
        } else if inside && let Some(pages) = line.trim_start().strip_prefix("high ") {
            sum = Some(sum.unwrap_or(0) + pages.trim().parse::<u64>().ok()?);
        }
    }
    sum
}

fn read(path: &PathBuf) -> Result<String, PlacementError> {
    fs::read_to_string(path).map_err(|source| PlacementError::Read {
        path: path.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONEINFO: &str = "\
Node 0, zone      DMA
  pages free     3840
        min      66
        low      82
        high     98
Node 0, zone    DMA32
        high     1000
  nr_foreign   high
Node 1, zone   Normal
        high     5000
";

    #[test]
    fn watermarks_of_a_node_are_summed() {
        assert_eq!(high_watermark_pages(ZONEINFO, NodeId(0)), Some(1098));
        assert_eq!(high_watermark_pages(ZONEINFO, NodeId(1)), Some(5000));
        assert_eq!(high_watermark_pages(ZONEINFO, NodeId(2)), None);
    }

    #[test]
    fn this_machine_has_node_0() {
        assert!(free_bytes(NodeId(0)).expect("node 0") > 0);
        assert!(high_watermark_bytes(NodeId(0)).expect("node 0") > 0);
    }
}
