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

use terrace_core::NodeId;
use terrace_workload::PAGE_BYTES;
use thiserror::Error;

use crate::arena::Arena;

const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_PREFERRED: libc::c_int = 1;
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
    /// No such node.
    #[error("Node {0} is beyond the 64 that a placement can name")]
    Node(NodeId),
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
        let bit = 1u64
            .checked_shl(u32::from(node.0))
            .ok_or(PlacementError::Node(node))?;
        set_policy(MPOL_PREFERRED, Some(bit))?;
        Ok(Self(()))
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        // Going back to the default cannot fail: there is no node to be missing.
        let _ = set_policy(MPOL_DEFAULT, None);
    }
}

fn set_policy(mode: libc::c_int, nodes: Option<u64>) -> Result<(), PlacementError> {
    let (mask, bits) = match &nodes {
        // The kernel reads one bit less than it is told.
        Some(mask) => (std::ptr::from_ref(mask), 65usize),
        None => (std::ptr::null(), 0),
    };
    // SAFETY: the mask is null with no bits, or 64 bits that outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    if result == 0 {
        Ok(())
    } else {
        Err(PlacementError::Call {
            call: "set_mempolicy",
            source: io::Error::last_os_error(),
        })
    }
}

/// The node of each page of the arena, `None` where there is no page.
///
/// # Errors
///
/// Where the kernel has no NUMA support.
pub fn nodes_of(arena: &Arena) -> Result<Vec<Option<NodeId>>, PlacementError> {
    let mut nodes = Vec::with_capacity(arena.pages() as usize);
    let first = arena.address(0);
    let addresses: Vec<u64> = (0..u64::from(arena.pages()))
        .map(|page| first + page * PAGE_BYTES)
        .collect();
    let mut status = [0i32; BATCH];
    for batch in addresses.chunks(BATCH) {
        // SAFETY: both arrays have at least `batch.len()` elements and outlive the call; without
        // target nodes the call moves nothing and writes only to `status`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                batch.len(),
                batch.as_ptr(),
                std::ptr::null::<i32>(),
                status.as_mut_ptr(),
                0,
            )
        };
        if result != 0 {
            return Err(PlacementError::Call {
                call: "move_pages",
                source: io::Error::last_os_error(),
            });
        }
        nodes.extend(
            status[..batch.len()]
                .iter()
                .map(|&node| u16::try_from(node).ok().map(NodeId)),
        );
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
