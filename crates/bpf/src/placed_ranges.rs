// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a process that it has placed itself, range by range: mbind(2), libnuma, a Java machine with `-XX:+UseNUMA`.
//!
//! The program (`bpf/placed_ranges.bpf.c`) is an iterator over a task's mappings (Linux 5.12, of one task 6.1). It holds `mmap_lock` for reading, and lets go of
//! it between two reads and where somebody else wants it. What `/proc/PID/numa_maps` says of policies costs a walk over all page tables. It needs what page tables need
//! ([`crate::page_tables`]).

use std::io::Read;
use std::os::fd::AsFd;

use terrace_core::Addr;
use terrace_core::Pid;
use terrace_core::Range;

use crate::error::PageTablesError;
use crate::iterator;
use crate::iterator::TaskIterator;
use crate::object::Aligned;
use crate::object::object;

/// As much as the kernel has ready at a time.
const BUFFER: usize = 32 << 10;

static OBJECT: &Aligned<[u8]> = object!("placed_ranges");

/// The loaded program.
#[derive(Debug)]
pub struct PlacedRanges(TaskIterator);

impl PlacedRanges {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// Where the kernel lacks what is needed, or permission is missing.
    pub fn open() -> Result<Self, PageTablesError> {
        TaskIterator::load("placed_ranges", &OBJECT.0, "placed").map(Self)
    }

    /// The mappings of a process with a policy that does not let the kernel's NUMA balancing move them, in order of address. Of one that
    /// is gone there are none.
    ///
    /// # Errors
    ///
    /// Where the program cannot be run.
    pub fn of(&self, pid: Pid) -> Result<Vec<Range>, PageTablesError> {
        let link = self.0.bind(pid)?;
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

/// Adds what is behind what is there; whether there was anything. A mapping that changes between two reads is told again, as it is now: what it has gained
/// counts. At the end of one task's mappings the kernel begins again with the last of them (seen on 6.18).
fn goes_on(all: &mut Vec<Range>, told: Vec<Range>) -> bool {
    let before = all.len();
    for Range { start, end } in told {
        let start = all.last().map_or(start, |last| last.end.max(start));
        if start < end {
            all.push(Range { start, end });
        }
    }
    all.len() > before
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

    const fn range(start: u64, end: u64) -> Range {
        Range {
            start: Addr(start),
            end: Addr(end),
        }
    }

    #[test]
    fn a_read_with_nothing_new_is_the_end() {
        let mut all = Vec::new();
        assert!(goes_on(&mut all, vec![range(1, 2), range(2, 3)]));
        assert!(goes_on(&mut all, vec![range(5, 6), range(5, 6)]));
        assert!(!goes_on(&mut all, vec![range(5, 6), range(5, 6)]));
        assert_eq!(all, [range(1, 2), range(2, 3), range(5, 6)]);
    }

    #[test]
    fn a_mapping_that_grew_between_two_reads_is_not_the_end() {
        let mut all = Vec::new();
        assert!(goes_on(&mut all, vec![range(1, 4)]));
        assert!(goes_on(&mut all, vec![range(2, 6), range(8, 9)]));
        assert_eq!(all, [range(1, 4), range(4, 6), range(8, 9)]);
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
