// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a process that it has placed itself, range by range: mbind(2), libnuma, a Java machine with `-XX:+UseNUMA`.
//!
//! The program (`bpf/placed_ranges.bpf.c`) is an iterator over a task's mappings (Linux 5.12, of one task 6.1) and holds back those that `mmap_lock` is
//! held for, as `/proc/PID/maps` does. What `/proc/PID/numa_maps` says of policies costs a walk over all page tables. It needs what page tables need
//! ([`crate::page_tables`]).

use std::io::Read;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;

use libbpf_rs::Object;
use terrace_core::Addr;
use terrace_core::Pid;
use terrace_core::Range;

use crate::error::PageTablesError;
use crate::iterator;
use crate::object::Aligned;
use crate::object::object;

/// As much as the kernel has ready at a time.
const BUFFER: usize = 32 << 10;

static OBJECT: &Aligned<[u8]> = object!("placed_ranges");

/// The loaded program.
pub struct PlacedRanges {
    program: OwnedFd,
    _object: Object,
}

impl std::fmt::Debug for PlacedRanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlacedRanges").finish_non_exhaustive()
    }
}

impl PlacedRanges {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// Where the kernel lacks what is needed, or permission is missing.
    pub fn open() -> Result<Self, PageTablesError> {
        let (object, program) = iterator::load("placed_ranges", &OBJECT.0, "placed")?;
        Ok(Self {
            program,
            _object: object,
        })
    }

    /// The mappings of a process with a policy that does not let the kernel's NUMA balancing move them, in order of address. Of one that
    /// is gone there are none.
    ///
    /// # Errors
    ///
    /// Where the program cannot be run.
    pub fn of(&self, pid: Pid) -> Result<Vec<Range>, PageTablesError> {
        let link = iterator::bind(self.program.as_fd(), pid)?;
        let mut run = iterator::start(link.as_fd())?;
        let (mut all, mut buffer) = (Vec::new(), vec![0; BUFFER]);
        loop {
            let read = run.read(&mut buffer).map_err(PageTablesError::Run)?;
            if read == 0 || !goes_on(&mut all, decode(&buffer[..read])) {
                return Ok(all);
            }
        }
    }
}

/// Adds what is behind what is there; whether that is all of it. At the end of one task's mappings the kernel begins again with the last of
/// them (seen on 6.18).
fn goes_on(all: &mut Vec<Range>, told: Vec<Range>) -> bool {
    let end = |all: &[Range]| all.last().map_or(Addr(0), |last| last.end);
    for range in told {
        if range.start < end(all) {
            return false;
        }
        all.push(range);
    }
    true
}

/// Pairs of addresses.
fn decode(told: &[u8]) -> Vec<Range> {
    let words = told.as_chunks::<8>().0.iter();
    let words: Vec<u64> = words.map(|word| u64::from_ne_bytes(*word)).collect();
    let ranges = words.as_chunks::<2>().0.iter();
    let ranges = ranges.map(|[start, end]| Range {
        start: Addr(*start),
        end: Addr(*end),
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_comes_again_is_the_end() {
        let range = |start| Range {
            start: Addr(start),
            end: Addr(start + 1),
        };
        let mut all = Vec::new();
        assert!(goes_on(&mut all, vec![range(1), range(2)]));
        assert!(goes_on(&mut all, vec![range(5)]));
        assert!(!goes_on(&mut all, vec![range(6), range(2), range(7)]));
        assert_eq!(all, [1, 2, 5, 6].map(range));
    }

    proptest! {
        #[test]
        fn fuzz_ranges(told in prop::collection::vec(any::<u8>(), 0..100)) {
            let ranges = decode(&told);
            prop_assert_eq!(ranges.len(), told.len() / 16);
            for (range, told) in ranges.iter().zip(told.chunks(16)) {
                prop_assert_eq!(&range.start.0.to_ne_bytes()[..], &told[..8]);
                prop_assert_eq!(&range.end.0.to_ne_bytes()[..], &told[8..]);
            }
        }
    }
}
