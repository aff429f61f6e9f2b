// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs' memory as units ([`Space`]). A program's memory begins at [`BASE`]; its pid is
//! [`FIRST_PID`] plus its index.

use terrace_core::Addr;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
pub(crate) use terrace_core::Space;

use crate::Setup;
use crate::SimError;

/// Where a program's memory begins.
pub(crate) const BASE: u64 = 1 << 40;
/// The first program's pid.
pub(crate) const FIRST_PID: u32 = 1000;

/// Maps the programs of a set-up.
pub(crate) fn map(setup: &Setup) -> Result<Space, SimError> {
    for name in setup.mappings.keys() {
        if !setup.workload.programs.iter().any(|p| p.name == *name) {
            return Err(SimError::Mapping(format!("no program '{name}'")));
        }
    }
    let mut space = Space::new(Pid(FIRST_PID), Addr(BASE));
    for program in &setup.workload.programs {
        let mut named = setup
            .mappings
            .get(&program.name)
            .cloned()
            .unwrap_or_default();
        named.sort_by_key(|(range, _)| range.start);
        let mut pieces = Vec::new();
        let mut at = 0;
        for (range, size) in named {
            if range.start < at || range.end > program.pages || range.is_empty() {
                return Err(SimError::Mapping(format!(
                    "pages {} to {} of '{}' overlap, are none or are beyond its {} pages",
                    range.start, range.end, program.name, program.pages
                )));
            }
            pieces.push((at..range.start, setup.page_size));
            at = range.end;
            pieces.push((range, size));
        }
        pieces.push((at..program.pages, setup.page_size));
        if !space.add(pieces) {
            let text = "More than 2^30 pages; take larger pages";
            return Err(SimError::Limit(text.to_owned()));
        }
    }
    Ok(space)
}

/// How the policy names a base page of a program.
pub(crate) fn base_page(program: usize, page: u32) -> PageRef {
    PageRef {
        pid: pid(program),
        addr: Addr(BASE + (u64::from(page) << 12)),
        size: PageSize::Base4K,
    }
}

/// A program's pid.
pub(crate) fn pid(program: usize) -> Pid {
    Pid(FIRST_PID + u32::try_from(program).expect("far fewer programs"))
}

/// The program with that pid, if it is one of ours.
pub(crate) fn program_of(pid: Pid) -> Option<usize> {
    usize::try_from(pid.0.checked_sub(FIRST_PID)?).ok()
}
