// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs' memory as units: one unit is one mapped page of 4 KiB, 2 MiB or 1 GiB.
//!
//! Units are numbered from 0 over all programs, in order of program and address. Every program's memory
//! begins at the same address; the programs' pids are consecutive. For whoever knows all memory
//! beforehand: the simulator, and policies that stand for its kernel.

use std::ops::Range;

use crate::Addr;
use crate::PageRef;
use crate::PageSize;
use crate::Pid;

/// Units at most.
const UNITS_MAX: u32 = 1 << 30;

/// Neighbouring pages of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Its program.
    pub program: usize,
    /// First base page in the program.
    pub base: u32,
    /// First unit.
    pub unit: u32,
    /// Units.
    pub count: u32,
    pub size: PageSize,
}

/// All programs' memory.
#[derive(Debug, Clone)]
pub struct Space {
    first_pid: u32,
    base: u64,
    regions: Vec<Region>,
    /// First unit of each program, and the number of all.
    starts: Vec<u32>,
    /// First region of each program, and the number of all.
    first_region: Vec<usize>,
}

fn base_shift(size: PageSize) -> u8 {
    size.shift() - 12
}

/// `range` in pages of `size` where whole ones fit, of smaller sizes at the ends.
fn split(range: Range<u32>, size: PageSize, out: &mut Vec<(Range<u32>, PageSize)>) {
    if range.is_empty() {
        return;
    }
    let smaller = match size {
        PageSize::Base4K => {
            out.push((range, size));
            return;
        }
        PageSize::Huge2M => PageSize::Base4K,
        PageSize::Giant1G => PageSize::Huge2M,
    };
    let shift = base_shift(size);
    let pages = 1_u64 << shift;
    let first = u64::from(range.start).next_multiple_of(pages);
    let last = u64::from(range.end) >> shift << shift;
    let (Ok(first), Ok(last)) = (u32::try_from(first), u32::try_from(last)) else {
        split(range, smaller, out);
        return;
    };
    if first >= last {
        split(range, smaller, out);
        return;
    }
    split(range.start..first, smaller, out);
    out.push((first..last, size));
    split(last..range.end, smaller, out);
}

impl Space {
    /// Without a program yet; the first will have that pid, and each begins at that address.
    #[must_use]
    pub fn new(first_pid: Pid, base: Addr) -> Self {
        Self {
            first_pid: first_pid.0,
            base: base.0,
            regions: Vec::new(),
            starts: vec![0],
            first_region: vec![0],
        }
    }

    /// Adds a program that maps these ranges of base pages, one after the other, with pages of that
    /// size where whole ones fit. Whether there is room for their units.
    #[must_use]
    pub fn add(&mut self, ranges: impl IntoIterator<Item = (Range<u32>, PageSize)>) -> bool {
        let mut pieces = Vec::new();
        for (range, size) in ranges {
            split(range, size, &mut pieces);
        }
        let program = self.programs();
        let mut unit = self.units();
        for (range, size) in pieces {
            let count = (range.end - range.start) >> base_shift(size);
            self.regions.push(Region {
                program,
                base: range.start,
                unit,
                count,
                size,
            });
            match unit.checked_add(count).filter(|n| *n < UNITS_MAX) {
                Some(next) => unit = next,
                None => return false,
            }
        }
        self.starts.push(unit);
        self.first_region.push(self.regions.len());
        true
    }

    fn program_of(&self, pid: Pid) -> Option<usize> {
        let program = usize::try_from(pid.0.checked_sub(self.first_pid)?).ok()?;
        (program < self.programs()).then_some(program)
    }

    fn pid(&self, program: usize) -> Pid {
        Pid(self.first_pid + u32::try_from(program).expect("far fewer programs"))
    }

    /// All units.
    #[must_use]
    pub fn units(&self) -> u32 {
        *self.starts.last().expect("has the number of all")
    }

    /// The units of a program.
    #[must_use]
    pub fn program_units(&self, program: usize) -> Range<u32> {
        self.starts[program]..self.starts[program + 1]
    }

    /// The regions of a program.
    #[must_use]
    pub fn program_regions(&self, program: usize) -> &[Region] {
        &self.regions[self.first_region[program]..self.first_region[program + 1]]
    }

    /// Bytes of a program.
    #[must_use]
    pub fn program_bytes(&self, program: usize) -> u64 {
        let regions = self.program_regions(program).iter();
        regions.map(|r| u64::from(r.count) * r.size.bytes()).sum()
    }

    /// Number of programs.
    #[must_use]
    pub fn programs(&self) -> usize {
        self.starts.len() - 1
    }

    /// The region of a unit.
    #[inline]
    #[must_use]
    pub fn region(&self, unit: u32) -> &Region {
        if let [only] = &self.regions[..] {
            return only;
        }
        let at = self.regions.partition_point(|r| r.unit <= unit);
        &self.regions[at - 1]
    }

    /// Its first base page and how many.
    #[inline]
    #[must_use]
    pub fn base_pages(&self, unit: u32) -> (u32, u32) {
        let region = self.region(unit);
        let shift = base_shift(region.size);
        (region.base + ((unit - region.unit) << shift), 1 << shift)
    }

    /// Bytes of a unit.
    #[inline]
    #[must_use]
    pub fn bytes(&self, unit: u32) -> u64 {
        self.region(unit).size.bytes()
    }

    /// How the policy names it.
    #[inline]
    #[must_use]
    pub fn page(&self, unit: u32) -> PageRef {
        let region = self.region(unit);
        let base =
            u64::from(region.base) + (u64::from(unit - region.unit) << base_shift(region.size));
        PageRef {
            pid: self.pid(region.program),
            addr: Addr(self.base + (base << 12)),
            size: region.size,
        }
    }

    /// The units that lie in a page of whatever size, or the one around it.
    #[must_use]
    pub fn within(&self, page: PageRef) -> Range<u32> {
        let Some(program) = self.program_of(page.pid) else {
            return 0..0;
        };
        let (start, end) = (page.addr.0, page.addr.0 + page.size.bytes());
        let base =
            |addr: u64| u32::try_from(addr.saturating_sub(self.base) >> 12).unwrap_or(u32::MAX);
        let (first, end) = (base(start), if end > self.base { base(end - 1) } else { 0 });
        let Some(unit) = self.at(program, first).filter(|_| start >= self.base) else {
            return 0..0;
        };
        let last = self.at(program, end);
        // What reaches beyond the program's memory ends with it.
        unit..last.map_or(self.starts[program + 1], |last| last + 1)
    }

    /// The addresses of a program.
    #[must_use]
    pub fn program_range(&self, program: usize) -> crate::Range {
        let last = self.program_regions(program).last();
        let pages = last.map_or(0, |r| {
            u64::from(r.base) + (u64::from(r.count) << base_shift(r.size))
        });
        crate::Range {
            start: Addr(self.base),
            end: Addr(self.base + (pages << 12)),
        }
    }

    /// The unit at that address, if it is mapped.
    #[must_use]
    pub fn find(&self, page: PageRef) -> Option<u32> {
        let program = self.program_of(page.pid)?;
        let base = u32::try_from(page.addr.0.checked_sub(self.base)? >> 12).ok()?;
        self.at(program, base)
    }

    /// The unit that holds a base page of a program.
    #[inline]
    #[must_use]
    pub fn at(&self, program: usize, base: u32) -> Option<u32> {
        let regions = self.program_regions(program);
        let at = regions.partition_point(|r| r.base <= base);
        let region = regions.get(at.checked_sub(1)?)?;
        let index = (base - region.base) >> base_shift(region.size);
        (index < region.count).then_some(region.unit + index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(range: Range<u32>, size: PageSize) -> Vec<(Range<u32>, PageSize)> {
        let mut out = Vec::new();
        split(range, size, &mut out);
        out
    }

    #[test]
    fn whole_pages_inside_and_smaller_ones_at_the_ends() {
        assert_eq!(
            pieces(100..1100, PageSize::Huge2M),
            [
                (100..512, PageSize::Base4K),
                (512..1024, PageSize::Huge2M),
                (1024..1100, PageSize::Base4K)
            ]
        );
        assert_eq!(
            pieces(0..300, PageSize::Giant1G),
            [(0..300, PageSize::Base4K)]
        );
        let giant = pieces(0..(1 << 18) + 600, PageSize::Giant1G);
        assert_eq!(giant[0], (0..1 << 18, PageSize::Giant1G));
        assert_eq!(giant[1].1, PageSize::Huge2M);
        assert_eq!(giant[2].1, PageSize::Base4K);
    }
}
