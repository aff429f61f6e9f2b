// SPDX-License-Identifier: MIT OR Apache-2.0
//! mbind(2), set_mempolicy(2), get_mempolicy(2), migrate_pages(2): where new pages are allocated.
//!
//! Kernel contract: a policy on a range steers pages allocated there from now on; it moves nothing
//! unless asked. `Preferred` falls back to other nodes and so cannot run a node into the
//! out-of-memory killer, which `MPOL_BIND` can: it is not offered. A range with any explicit policy is passed over by the
//! NUMA-balancing scanner (unless it has `MPOL_F_NUMA_BALANCING`).
//! Nodes are numbered below [`NODES_MAX`].

use std::fs::File;
use std::io::Read as _;

use linux_raw_sys::mempolicy as abi;
use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_core::Pid;

use crate::topology::node_list;
use crate::uffd::last_errno;

/// Nodes a mask holds; the kernel's own limit is 1024.
pub const NODES_MAX: u16 = 1024;
const MASK_WORDS: usize = NODES_MAX as usize / 64;

/// Where pages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// What the task's or the system's policy says.
    Default,
    /// The node of the faulting processor, said explicitly.
    Local,
    /// This node, others when it is full.
    Preferred(NodeId),
    /// These nodes, the nearest first, others when they are full; hint faults go on (`MPOL_F_NUMA_BALANCING`, which
    /// the kernel takes with this mode since Linux 6.9).
    PreferredMany(Vec<NodeId>),
    /// These nodes in turn.
    Interleave(Vec<NodeId>),
}

impl Policy {
    fn mode(&self) -> abi::_bindgen_ty_1 {
        match self {
            Self::Default => abi::_bindgen_ty_1::MPOL_DEFAULT,
            Self::Local => abi::_bindgen_ty_1::MPOL_LOCAL,
            Self::Preferred(_) => abi::_bindgen_ty_1::MPOL_PREFERRED,
            Self::PreferredMany(_) => abi::_bindgen_ty_1::MPOL_PREFERRED_MANY,
            Self::Interleave(_) => abi::_bindgen_ty_1::MPOL_INTERLEAVE,
        }
    }

    fn mask(&self) -> [u64; MASK_WORDS] {
        let mut mask = [0; MASK_WORDS];
        let mut set = |node: NodeId| {
            if let Some(word) = mask.get_mut(usize::from(node.0 / 64)) {
                *word |= 1 << (node.0 % 64);
            }
        };
        match self {
            Self::Default | Self::Local => {}
            Self::Preferred(node) => set(*node),
            Self::PreferredMany(nodes) | Self::Interleave(nodes) => {
                nodes.iter().copied().for_each(set)
            }
        }
        mask
    }

    /// Mode, mask pointer (null where the mode takes none) and mask size in bits, plus one as
    /// the kernel counts.
    fn raw(&self, mask: &[u64; MASK_WORDS]) -> (libc::c_long, *const u64, libc::c_long) {
        let mut mode = self.mode() as libc::c_long;
        if matches!(self, Self::PreferredMany(_)) {
            mode |= libc::c_long::from(abi::MPOL_F_NUMA_BALANCING);
        }
        if matches!(self, Self::Default | Self::Local) {
            (mode, std::ptr::null(), 0)
        } else {
            (mode, mask.as_ptr(), libc::c_long::from(NODES_MAX) + 1)
        }
    }
}

fn checked(result: libc::c_long) -> Result<(), Errno> {
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Sets the policy of a range of this process.
///
/// # Errors
///
/// `EINVAL` for a node the task may not use, `EFAULT` for a range with holes.
pub fn mbind(start: u64, len: u64, policy: &Policy) -> Result<(), Errno> {
    let mask = policy.mask();
    let (mode, pointer, bits) = policy.raw(&mask);
    // SAFETY: the mask outlives the call; with flags 0 no page moves and no content changes.
    checked(unsafe { libc::syscall(libc::SYS_mbind, start, len, mode, pointer, bits, 0) })
}

/// Sets the policy of the calling thread; children inherit it.
///
/// # Errors
///
/// `EINVAL` for a node the task may not use.
pub fn set_mempolicy(policy: &Policy) -> Result<(), Errno> {
    let mask = policy.mask();
    let (mode, pointer, bits) = policy.raw(&mask);
    // SAFETY: the mask outlives the call.
    checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) })
}

/// Moves the pages of this process that are on some nodes to another, those of its program's file
/// too where no other process maps them (migrate\_pages(2)). Gives how many could not be moved.
///
/// # Errors
///
/// `EINVAL` for a node the task may not use, `ENOSYS` without NUMA in the kernel.
pub fn migrate_own_pages(from: &[NodeId], to: NodeId) -> Result<u64, Errno> {
    let from = Policy::Interleave(from.to_vec()).mask();
    let to = Policy::Preferred(to).mask();
    let bits = libc::c_long::from(NODES_MAX) + 1;
    // SAFETY: the masks outlive the call; pages keep their addresses and contents.
    let left =
        unsafe { libc::syscall(libc::SYS_migrate_pages, 0, bits, from.as_ptr(), to.as_ptr()) };
    u64::try_from(left).map_err(|_| last_errno())
}

/// The nodes the calling thread may allocate from.
///
/// # Errors
///
/// `ENOSYS` without NUMA in the kernel.
pub fn allowed_nodes() -> Result<Vec<NodeId>, Errno> {
    let mut mask = [0_u64; MASK_WORDS];
    let flags = abi::MPOL_F_MEMS_ALLOWED;
    // SAFETY: the mask outlives the call and is as long as said.
    checked(unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            std::ptr::null_mut::<i32>(),
            mask.as_mut_ptr(),
            libc::c_long::from(NODES_MAX) + 1,
            0,
            flags,
        )
    })?;
    let has = |node: &u16| mask[usize::from(node / 64)] & (1 << (node % 64)) != 0;
    Ok((0..NODES_MAX).filter(has).map(NodeId).collect())
}

/// The nodes that another process has its memory bound to as a whole (`numactl --membind`); none where it has not, or that
/// cannot be told. Ranges that it bound itself (mbind(2)) count for nothing.
///
/// Kernel contract: `/proc/PID/numa_maps` (`CONFIG_NUMA`) has the policy of each mapping, else of the first thread, and walks the page tables of
/// those that it tells of: of the first alone where no more than a part of a line is read.
#[must_use]
pub fn bound_nodes(pid: Pid) -> Option<Vec<NodeId>> {
    let mut line = [0; 64];
    let mut file = File::open(format!("/proc/{pid}/numa_maps")).ok()?;
    let read = file.read(&mut line).ok()?;
    bound(std::str::from_utf8(&line[..read]).ok()?)
}

/// `00400000 bind:0-1 file=/bin/sh`, `00400000 bind=static:0 ...`.
fn bound(line: &str) -> Option<Vec<NodeId>> {
    let policy = line.split_ascii_whitespace().nth(1)?;
    let (mode, nodes) = policy.split_once(':')?;
    let is_bind = mode == "bind" || mode.starts_with("bind=");
    let nodes = node_list(nodes).filter(|_| is_bind)?.into_iter();
    nodes
        .map(|node| u16::try_from(node).ok().map(NodeId))
        .collect()
}

/// The node that holds the page at an address of this process; takes the page in if it is not
/// there.
///
/// # Errors
///
/// `EFAULT` where nothing is mapped.
pub fn node_of(addr: u64) -> Result<NodeId, Errno> {
    let mut node = 0_i32;
    let flags = abi::MPOL_F_NODE | abi::MPOL_F_ADDR;
    // SAFETY: `node` outlives the call; the address is looked up, not written.
    checked(unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            std::ptr::null_mut::<u64>(),
            0,
            addr,
            flags,
        )
    })?;
    u16::try_from(node).map(NodeId).map_err(|_| Errno::RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_node_is_allowed_and_holds_our_memory() {
        let allowed = allowed_nodes().expect("the kernel has NUMA calls");
        let word = Box::new(7_u64);
        let addr = (&raw const *word).addr() as u64;
        let node = node_of(addr).expect("the word is mapped");
        assert!(allowed.contains(&node));
        assert_eq!(*word, 7);
    }

    #[test]
    fn who_is_bound_is_told_by_the_first_mapping() {
        let of =
            |line| bound(line).map(|nodes| nodes.iter().map(|node| node.0).collect::<Vec<_>>());
        assert_eq!(of("00400000 bind:0 file=/bin/sh mapped=2"), Some(vec![0]));
        assert_eq!(of("00400000 bind=static:0-1,3 anon=1"), Some(vec![0, 1, 3]));
        assert_eq!(of("00400000 default file=/bin/sh"), None);
        assert_eq!(of("00400000 interleave:0-1 file=/bin/sh"), None);
        assert_eq!(of("00400000 prefer (many):0 anon=1"), None);
        assert_eq!(of(""), None);
        assert_eq!(bound_nodes(Pid(std::process::id())), None);
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused() {
        assert_eq!(
            set_mempolicy(&Policy::Preferred(NodeId(1000))),
            Err(Errno::INVAL)
        );
        assert_eq!(set_mempolicy(&Policy::Default), Ok(()));
    }
}
