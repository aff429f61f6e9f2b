// SPDX-License-Identifier: MIT OR Apache-2.0
//! move_pages(2): where pages are, and the kernel's own migration of them.
//!
//! Kernel contract: another process needs `PTRACE_MODE_READ_REALCREDS`; moving pages that several
//! processes map needs `CAP_SYS_NICE`. The result is a status a page: the node it is on, or a
//! negative errno. A positive return is the number of pages not moved for reasons beyond their
//! status. A page of a huge page moves the whole of it.
//! Nothing here retries: what to do about a status is the caller's decision.

use std::ffi::c_int;
use std::ffi::c_void;

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_core::Pid;

use crate::uffd::last_errno;

const MPOL_MF_MOVE: c_int = 2;
const MPOL_MF_MOVE_ALL: c_int = 4;
const UNTOUCHED: c_int = c_int::MIN;

/// What became of a page, or where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageStatus {
    /// On this node now.
    On(NodeId),
    /// Nothing is there.
    NotPresent,
    /// The shared page of zeros, or not memory of the process.
    NotMapped,
    /// In use elsewhere (writeback, pinned, on its way): try again later.
    Busy,
    /// The target node has no free memory.
    NoMemory,
    /// Mapped by several processes, and not asked to move those.
    SharedByProcesses,
    /// The kernel did not come to it.
    Untried,
    /// Something else.
    Other(Errno),
}

impl PageStatus {
    fn from_raw(status: c_int) -> Self {
        if status == UNTOUCHED {
            return Self::Untried;
        }
        if let Ok(node) = u16::try_from(status) {
            return Self::On(NodeId(node));
        }
        match Errno::from_raw_os_error(status.wrapping_neg()) {
            Errno::NOENT => Self::NotPresent,
            Errno::FAULT => Self::NotMapped,
            Errno::BUSY => Self::Busy,
            Errno::NOMEM => Self::NoMemory,
            Errno::ACCESS => Self::SharedByProcesses,
            other => Self::Other(other),
        }
    }
}

/// Whose mappings may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Only pages that this process alone maps.
    OwnOnly,
    /// Pages that several processes map too (`CAP_SYS_NICE`).
    Everyone,
}

/// Which process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The calling one.
    Own,
    /// Another.
    Process(Pid),
}

impl Target {
    fn raw(self) -> c_int {
        match self {
            Self::Own => 0,
            Self::Process(pid) => c_int::try_from(pid.0).unwrap_or(c_int::MAX),
        }
    }
}

fn call(
    target: Target,
    pages: &[u64],
    nodes: Option<&[c_int]>,
    status: &mut [c_int],
    flags: c_int,
) -> Result<(), Errno> {
    // The structure of the ABI is an array of pointers; addresses of 64 bits are those.
    let addresses: *const *const c_void = pages.as_ptr().cast();
    let nodes = nodes.map_or(std::ptr::null(), <[c_int]>::as_ptr);
    // SAFETY: the arrays have one entry a page and outlive the call; the addresses are looked up
    // by the kernel and not dereferenced; moving a page changes no content.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            target.raw(),
            pages.len(),
            addresses,
            nodes,
            status.as_mut_ptr(),
            flags,
        )
    };
    if result >= 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Where pages are, one status for each.
///
/// # Errors
///
/// `ESRCH` and `EPERM` for the process.
pub fn query(target: Target, pages: &[u64]) -> Result<Vec<PageStatus>, Errno> {
    let mut status = vec![UNTOUCHED; pages.len()];
    call(target, pages, None, &mut status, 0)?;
    Ok(status.into_iter().map(PageStatus::from_raw).collect())
}

/// Moves pages to a node, one status for each afterwards.
///
/// # Errors
///
/// `ESRCH` and `EPERM` for the process, `ENODEV` and `EACCES` for the node.
pub fn migrate(
    target: Target,
    pages: &[u64],
    node: NodeId,
    sharing: Sharing,
) -> Result<Vec<PageStatus>, Errno> {
    let mut status = vec![UNTOUCHED; pages.len()];
    let nodes = vec![c_int::from(node.0); pages.len()];
    let flags = match sharing {
        Sharing::OwnOnly => MPOL_MF_MOVE,
        Sharing::Everyone => MPOL_MF_MOVE_ALL,
    };
    call(target, pages, Some(&nodes), &mut status, flags)?;
    Ok(status.into_iter().map(PageStatus::from_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_have_a_node_and_others_do_not() {
        let area = crate::arena::Reservation::new(4 << 12, 1 << 12).expect("pages");
        area.commit(0, 4 << 12).expect("pages");
        crate::arena::populate(area.start(), 4096).expect("a page");
        let pages = [area.start(), area.start() + 4096, 0x1000];
        let found = query(Target::Own, &pages).expect("own pages");
        let PageStatus::On(node) = found[0] else {
            panic!("a touched page is {:?}", found[0]);
        };
        assert_eq!(found[1], PageStatus::NotPresent);
        assert_eq!(found[2], PageStatus::NotMapped);
        let moved = migrate(Target::Own, &pages[..1], node, Sharing::OwnOnly).expect("own page");
        assert_eq!(moved, [PageStatus::On(node)]);
    }

    #[test]
    fn statuses_are_named() {
        assert_eq!(PageStatus::from_raw(-16), PageStatus::Busy);
        assert_eq!(PageStatus::from_raw(-12), PageStatus::NoMemory);
        assert_eq!(PageStatus::from_raw(-13), PageStatus::SharedByProcesses);
        assert_eq!(PageStatus::from_raw(1), PageStatus::On(NodeId(1)));
    }
}
