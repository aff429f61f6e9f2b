// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which mappings are managed (HeMem 3.3, "Memory allocation and placement").
//!
//! A mapping of at least the threshold is; a smaller one is left to the kernel, which keeps it where it
//! was first touched. A region that grows by small steps, each adjacent to it, is managed from when it
//! crosses the threshold, and stays so when it shrinks. All of a program with priority is managed.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Region {
    end: u64,
    managed: bool,
}

#[derive(Debug, Default)]
struct Process {
    priority: bool,
    by_start: BTreeMap<u64, Region>,
}

/// All processes' mappings.
#[derive(Debug, Default)]
pub(super) struct Regions {
    processes: BTreeMap<Pid, Process>,
}

impl Regions {
    /// A mapping appeared or grew. Whether (more) memory is managed now.
    pub(super) fn mapped(&mut self, pid: Pid, range: Range, threshold: u64) -> bool {
        if range.bytes() == 0 {
            return false;
        }
        let process = self.processes.entry(pid).or_default();
        let (mut start, mut end, mut managed) = (range.start.0, range.end.0, false);
        let mut known = 0;
        // What overlaps it or touches it grows together with it.
        while let Some((&at, &region)) = process.by_start.range(..=end).next_back()
            && region.end >= start
        {
            process.by_start.remove(&at);
            start = start.min(at);
            end = end.max(region.end);
            managed |= region.managed;
            known += if region.managed { region.end - at } else { 0 };
        }
        managed |= process.priority || end - start >= threshold;
        process.by_start.insert(start, Region { end, managed });
        managed && end - start > known
    }

    /// A range was given back.
    pub(super) fn unmapped(&mut self, pid: Pid, range: Range) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let (start, end) = (range.start.0, range.end.0);
        while let Some((&at, &region)) = process.by_start.range(..end).next_back()
            && region.end > start
        {
            process.by_start.remove(&at);
            if region.end > end {
                process.by_start.insert(end, region);
            }
            if at < start {
                let left = Region {
                    end: start,
                    ..region
                };
                process.by_start.insert(at, left);
            }
        }
    }

    /// A process ended.
    pub(super) fn gone(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Sets a process's priority; gives whether that changed something.
    pub(super) fn set_priority(&mut self, pid: Pid, on: bool, threshold: u64) -> bool {
        let process = self.processes.entry(pid).or_default();
        let changed = process.priority != on;
        process.priority = on;
        for (start, region) in &mut process.by_start {
            region.managed |= on || region.end - start >= threshold;
        }
        changed
    }

    pub(super) fn priority(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_some_and(|p| p.priority)
    }

    /// Processes with priority.
    pub(super) fn with_priority(&self) -> impl Iterator<Item = Pid> {
        let processes = self.processes.iter();
        processes.filter(|(_, p)| p.priority).map(|(pid, _)| *pid)
    }

    /// Whether all of the page of that size around an address is in one managed region.
    pub(super) fn holds(&self, pid: Pid, addr: Addr, size: PageSize) -> bool {
        let Some(process) = self.processes.get(&pid) else {
            return false;
        };
        let start = addr.align_down(size).0;
        let region = process.by_start.range(..=start).next_back();
        region.is_some_and(|(_, region)| region.managed && start + size.bytes() <= region.end)
    }

    /// Bytes that are managed.
    pub(super) fn managed_bytes(&self) -> u64 {
        let all = self.processes.values().flat_map(|p| p.by_start.iter());
        all.filter(|(_, region)| region.managed)
            .map(|(start, region)| region.end - start)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PID: Pid = Pid(1);

    fn range(start: u64, end: u64) -> Range {
        Range {
            start: Addr(start),
            end: Addr(end),
        }
    }

    fn managed(regions: &Regions, addr: u64) -> bool {
        regions.holds(PID, Addr(addr), PageSize::Base4K)
    }

    #[test]
    fn small_mappings_are_left_alone_and_growth_is_followed() {
        let mut regions = Regions::default();
        assert!(!regions.mapped(PID, range(0x10000, 0x18000), 0x10000));
        assert!(!managed(&regions, 0x10000));
        // The same mapping, grown: told as a whole, then as a piece beside it.
        assert!(!regions.mapped(PID, range(0x10000, 0x1f000), 0x10000));
        assert!(regions.mapped(PID, range(0x1f000, 0x20000), 0x10000));
        assert!(managed(&regions, 0x10000) && managed(&regions, 0x1f000));
        assert!(!managed(&regions, 0x20000));
        assert!(
            !regions.mapped(PID, range(0x10000, 0x20000), 0x10000),
            "nothing new"
        );
        assert!(regions.mapped(PID, range(0x10000, 0x21000), 0x10000));
        // It shrinks below the threshold and stays managed.
        regions.unmapped(PID, range(0x11000, 0x20000));
        assert!(managed(&regions, 0x10000) && managed(&regions, 0x20000));
        assert!(!managed(&regions, 0x11000));
        assert_eq!(regions.managed_bytes(), 0x2000);
        regions.gone(PID);
        assert!(!managed(&regions, 0x10000));
    }

    #[test]
    fn all_of_a_program_with_priority_is_managed() {
        let mut regions = Regions::default();
        regions.mapped(PID, range(0x1000, 0x3000), 1 << 30);
        assert!(!managed(&regions, 0x1000));
        assert!(regions.set_priority(PID, true, 1 << 30));
        assert!(managed(&regions, 0x1000) && regions.priority(PID));
        assert!(regions.mapped(PID, range(0x8000, 0x9000), 1 << 30));
        assert!(!regions.set_priority(PID, true, 1 << 30));
    }

    #[test]
    fn a_page_that_sticks_out_of_its_region_is_not_held() {
        let mut regions = Regions::default();
        regions.mapped(PID, range(0x10_0000, 0x70_0000), 0x1000);
        let holds = |addr| regions.holds(PID, Addr(addr), PageSize::Huge2M);
        assert!(!holds(0x10_0000) && holds(0x20_0000) && holds(0x5f_ffff) && !holds(0x60_0000));
    }

    proptest! {
        /// Against a bitmap of pages.
        #[test]
        fn mapped_and_unmapped_as_a_bitmap(steps in prop::collection::vec((any::<bool>(), 0_u64..64, 1_u64..16), 0..60)) {
            let (mut regions, mut map) = (Regions::default(), [false; 96]);
            for (map_it, start, pages) in steps {
                let of = range(start << 12, (start + pages) << 12);
                if map_it { regions.mapped(PID, of, 1); } else { regions.unmapped(PID, of); }
                for page in start..start + pages {
                    map[usize::try_from(page).expect("small")] = map_it;
                }
                for (page, on) in (0_u64..).zip(map) {
                    prop_assert_eq!(managed(&regions, page << 12), on, "page {}", page);
                }
            }
        }
    }
}
