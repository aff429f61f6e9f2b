// SPDX-License-Identifier: MIT OR Apache-2.0
//! move_pages(2): where pages are, and the kernel's own migration of them.
//!
//! Kernel contract: another process needs `PTRACE_MODE_READ_REALCREDS`; moving pages that several
//! processes map needs `CAP_SYS_NICE`. The result is a status a page: the node it is on, or a
//! negative errno. A positive return is the number of pages not moved for reasons beyond their
//! status. A page of a huge page moves the whole of it.
//!
//! A call begins with a grace period of RCU and a visit to all processors that hold pages back
//! (`lru_cache_disable`, since 5.13), whatever it moves. Then it looks pages up, and moves those that it has found when it meets
//! one that cannot be moved, which goes to another node, or the last: together, so that who touches one of them waits
//! for all. Where one of these stays it ends, tells nothing of that part, and tries no more (`do_pages_move`, 4.17 to 7.0).
//!
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
/// No address of a program's.
const NOWHERE: u64 = u64::MAX - 0xfff;

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

impl Sharing {
    const fn raw(self) -> c_int {
        match self {
            Self::OwnOnly => MPOL_MF_MOVE,
            Self::Everyone => MPOL_MF_MOVE_ALL,
        }
    }
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
    call(target, pages, Some(&nodes), &mut status, sharing.raw())?;
    Ok(status.into_iter().map(PageStatus::from_raw).collect())
}

/// What became of a call that moves pages in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// One for each page. The first [`PageStatus::Untried`] and those like it up to the next part are of pages that
    /// were tried; [`query`] tells where they are.
    pub status: Vec<PageStatus>,
    /// The node had no free memory for one of those.
    pub no_memory: bool,
}

/// As [`migrate`], so many pages at a time, so that a program waits for no more than that many.
///
/// # Errors
///
/// As [`migrate`].
pub fn migrate_in_parts(
    target: Target,
    pages: &[u64],
    node: NodeId,
    sharing: Sharing,
    part: usize,
) -> Result<Tried, Errno> {
    let mut addresses = Vec::with_capacity(pages.len() + pages.len() / part.max(1));
    for pages in pages.chunks(part.max(1)) {
        addresses.extend_from_slice(pages);
        // What is nowhere cannot be moved: the kernel moves those before it first.
        addresses.push(NOWHERE);
    }
    let mut status = vec![UNTOUCHED; addresses.len()];
    let nodes = vec![c_int::from(node.0); addresses.len()];
    let called = call(target, &addresses, Some(&nodes), &mut status, sharing.raw());
    let no_memory = called == Err(Errno::NOMEM);
    if !no_memory {
        called?;
    }
    let parts = status.chunks(part.max(1) + 1);
    let status = parts.flat_map(|part| &part[..part.len() - 1]);
    Ok(Tried {
        status: status.map(|raw| PageStatus::from_raw(*raw)).collect(),
        no_memory,
    })
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
        for part in [0, 1, 2, 3, 9] {
            let tried = migrate_in_parts(Target::Own, &pages, node, Sharing::OwnOnly, part);
            assert_eq!(tried.expect("own pages").status, found);
        }
    }

    #[test]
    fn statuses_are_named() {
        assert_eq!(PageStatus::from_raw(-16), PageStatus::Busy);
        assert_eq!(PageStatus::from_raw(-12), PageStatus::NoMemory);
        assert_eq!(PageStatus::from_raw(-13), PageStatus::SharedByProcesses);
        assert_eq!(PageStatus::from_raw(1), PageStatus::On(NodeId(1)));
    }
}
