// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs' memory as units: one unit is one mapped page of 4 KiB, 2 MiB or 1 GiB.
//!
//! Units are numbered from 0 over all programs, in order of program and address. A program's memory
//! begins at [`BASE`]; its pid is [`FIRST_PID`] plus its index.

use std::ops::Range;

use terrace_core::Addr;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;

use crate::Setup;
use crate::SimError;

/// Where a program's memory begins.
pub(crate) const BASE: u64 = 1 << 40;
/// The first program's pid.
pub(crate) const FIRST_PID: u32 = 1000;

/// Neighbouring pages of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    /// Its program.
    pub(crate) program: usize,
    /// First base page in the program.
    pub(crate) base: u32,
    /// First unit.
    pub(crate) unit: u32,
    /// Units.
    pub(crate) count: u32,
    pub(crate) size: PageSize,
}

/// All programs' memory.
#[derive(Debug, Clone)]
pub(crate) struct Space {
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
    /// Maps the programs of a set-up.
    pub(crate) fn map(setup: &Setup) -> Result<Self, SimError> {
        for name in setup.mappings.keys() {
            if !setup.workload.programs.iter().any(|p| p.name == *name) {
                return Err(SimError::Mapping(format!("no program '{name}'")));
            }
        }
        let mut space = Self {
            regions: Vec::new(),
            starts: vec![0],
            first_region: vec![0],
        };
        let mut unit = 0_u32;
        for (index, program) in setup.workload.programs.iter().enumerate() {
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
                split(at..range.start, setup.page_size, &mut pieces);
                at = range.end;
                split(range, size, &mut pieces);
            }
            split(at..program.pages, setup.page_size, &mut pieces);
            for (range, size) in pieces {
                let count = (range.end - range.start) >> base_shift(size);
                space.regions.push(Region {
                    program: index,
                    base: range.start,
                    unit,
                    count,
                    size,
                });
                unit = unit
                    .checked_add(count)
                    .filter(|n| *n < 1 << 30)
                    .ok_or_else(|| {
                        SimError::Limit("More than 2^30 pages; take larger pages".to_owned())
                    })?;
            }
            space.starts.push(unit);
            space.first_region.push(space.regions.len());
        }
        Ok(space)
    }

    /// All units.
    pub(crate) fn units(&self) -> u32 {
        *self.starts.last().expect("has the number of all")
    }

    /// The units of a program.
    pub(crate) fn program_units(&self, program: usize) -> Range<u32> {
        self.starts[program]..self.starts[program + 1]
    }

    /// The regions of a program.
    pub(crate) fn program_regions(&self, program: usize) -> &[Region] {
        &self.regions[self.first_region[program]..self.first_region[program + 1]]
    }

    /// Bytes of a program.
    pub(crate) fn program_bytes(&self, program: usize) -> u64 {
        let regions = self.program_regions(program).iter();
        regions.map(|r| u64::from(r.count) * r.size.bytes()).sum()
    }

    /// Number of programs.
    pub(crate) fn programs(&self) -> usize {
        self.starts.len() - 1
    }

    /// The region of a unit.
    #[inline]
    pub(crate) fn region(&self, unit: u32) -> &Region {
        if let [only] = &self.regions[..] {
            return only;
        }
        let at = self.regions.partition_point(|r| r.unit <= unit);
        &self.regions[at - 1]
    }

    /// Its first base page and how many.
    #[inline]
    pub(crate) fn base_pages(&self, unit: u32) -> (u32, u32) {
        let region = self.region(unit);
        let shift = base_shift(region.size);
        (region.base + ((unit - region.unit) << shift), 1 << shift)
    }

    /// Bytes of a unit.
    #[inline]
    pub(crate) fn bytes(&self, unit: u32) -> u64 {
        self.region(unit).size.bytes()
    }

    /// How the policy names it.
    #[inline]
    pub(crate) fn page(&self, unit: u32) -> PageRef {
        let region = self.region(unit);
        let base =
            u64::from(region.base) + (u64::from(unit - region.unit) << base_shift(region.size));
        PageRef {
            pid: pid(region.program),
            addr: Addr(BASE + (base << 12)),
            size: region.size,
        }
    }

    /// The units that lie in a page of whatever size, or the one around it.
    pub(crate) fn within(&self, page: PageRef) -> Range<u32> {
        let Some(program) = program_of(page.pid).filter(|p| *p < self.programs()) else {
            return 0..0;
        };
        let (start, end) = (page.addr.0, page.addr.0 + page.size.bytes());
        let base = |addr: u64| u32::try_from(addr.saturating_sub(BASE) >> 12).unwrap_or(u32::MAX);
        let (first, end) = (base(start), if end > BASE { base(end - 1) } else { 0 });
        let Some(unit) = self.at(program, first).filter(|_| start >= BASE) else {
            return 0..0;
        };
        let last = self.at(program, end);
        // What reaches beyond the program's memory ends with it.
        unit..last.map_or(self.starts[program + 1], |last| last + 1)
    }

    /// The addresses of a program.
    pub(crate) fn program_range(&self, program: usize) -> terrace_core::Range {
        let last = self.program_regions(program).last();
        let pages = last.map_or(0, |r| {
            u64::from(r.base) + (u64::from(r.count) << base_shift(r.size))
        });
        terrace_core::Range {
            start: Addr(BASE),
            end: Addr(BASE + (pages << 12)),
        }
    }

    /// The unit at that address, if it is mapped.
    pub(crate) fn find(&self, page: PageRef) -> Option<u32> {
        let program = program_of(page.pid).filter(|p| *p < self.programs())?;
        let base = u32::try_from(page.addr.0.checked_sub(BASE)? >> 12).ok()?;
        self.at(program, base)
    }

    /// The unit that holds a base page of a program.
    #[inline]
    pub(crate) fn at(&self, program: usize, base: u32) -> Option<u32> {
        let regions = self.program_regions(program);
        let at = regions.partition_point(|r| r.base <= base);
        let region = regions.get(at.checked_sub(1)?)?;
        let index = (base - region.base) >> base_shift(region.size);
        (index < region.count).then_some(region.unit + index)
    }
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
