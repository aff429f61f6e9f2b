// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns the records of the BPF program into tracker events: which scan does a fault belong to.
//!
//! Pure: records come in with their times, events go out. One [`ScanTable`] per address space;
//! it goes when the process ends, calls exec, or is removed. All tables together keep at most
//! [`Limits::chunks_max`] chunks of 2 MiB.
//!
//! A scan in the kernel's mode 2 leaves out the top tier. Which mode that was is not in its record: whoever
//! sets it says so ([`Correlator::mode`]).
//!
//! A forked child starts without a table: pages marked before the fork fault in it without a known
//! scan until the scanner has come round.

use std::collections::HashMap;
use std::collections::VecDeque;

use terrace_bpf::Fault;
use terrace_bpf::Record;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

use crate::event::HintFault;
use crate::event::TrackEvent;
use crate::event::TrackStats;
use crate::scan_table::ScanTable;

/// What the tables may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Chunks of 2 MiB, over all processes; some 700 bytes each.
    pub chunks_max: usize,
}

impl Default for Limits {
    /// 1 TiB of scanned addresses: at most 350 MB for the tables, if all of it is in use.
    fn default() -> Self {
        Self {
            chunks_max: 512 << 10,
        }
    }
}

/// The state between records and events.
#[derive(Debug)]
pub struct Correlator {
    limits: Limits,
    /// Nodes that scans in mode 2 leave out.
    top: Vec<NodeId>,
    /// Since when scans take in all nodes, or not.
    modes: VecDeque<(Nanos, bool)>,
    tables: HashMap<Pid, ScanTable>,
    stats: TrackStats,
}

/// Records are read at most so many changes of the mode late.
const MODES: usize = 16;

impl Correlator {
    /// Without any process; `top` are the top tier's nodes.
    #[must_use]
    pub fn new(limits: Limits, top: Vec<NodeId>) -> Self {
        Self {
            limits,
            top,
            modes: VecDeque::new(),
            tables: HashMap::new(),
            stats: TrackStats::default(),
        }
    }

    /// What was counted; the counters of lost records are the source's.
    #[must_use]
    pub const fn stats(&self) -> TrackStats {
        self.stats
    }

    /// Takes a record, gives the event it stands for.
    pub fn observe(&mut self, record: Record) -> Option<TrackEvent> {
        match record {
            Record::Scan { pid, range, time } => {
                let all = self.all_at(time);
                self.scan(pid, range, time, all);
                Some(TrackEvent::Scanned {
                    pid,
                    range,
                    time,
                    all,
                })
            }
            Record::Fault(fault) => Some(TrackEvent::HintFault(self.fault(&fault))),
            Record::Fork {
                parent,
                child,
                time,
            } => Some(TrackEvent::Forked {
                parent,
                child,
                time,
            }),
            Record::Exec { pid, time } => {
                self.forget(pid);
                Some(TrackEvent::Execed { pid, time })
            }
            Record::Exit { pid, time } => {
                self.forget(pid);
                Some(TrackEvent::Exited { pid, time })
            }
        }
    }

    /// From then on scans take in all nodes, or leave out the top tier (which they do before anybody says
    /// so).
    pub fn mode(&mut self, all: bool, from: Nanos) {
        if self.modes.back().is_some_and(|(_, last)| *last == all) {
            return;
        }
        if self.modes.len() == MODES {
            self.modes.pop_front();
        }
        self.modes.push_back((from, all));
    }

    fn all_at(&self, time: Nanos) -> bool {
        let mut latest = self.modes.iter().rev();
        latest
            .find(|(from, _)| *from <= time)
            .is_some_and(|(_, all)| *all)
    }

    /// Drops what is known of a process.
    pub fn forget(&mut self, pid: Pid) {
        self.tables.remove(&pid);
    }

    /// A page became accessible by other means than a fault: it was moved.
    pub fn moved(&mut self, page: PageRef, time: Nanos) {
        if let Some(table) = self.tables.get_mut(&page.pid) {
            table.unmarked(page.addr, page.size, time);
        }
    }

    /// A range is mapped no more.
    pub fn unmapped(&mut self, pid: Pid, range: Range) {
        if let Some(table) = self.tables.get_mut(&pid) {
            table.unmap(range);
        }
    }

    fn scan(&mut self, pid: Pid, range: Range, time: Nanos, all: bool) {
        self.stats.scans += 1;
        self.stats.scanned_bytes = self.stats.scanned_bytes.saturating_add(range.bytes());
        let others: usize = self
            .tables
            .iter()
            .filter(|(p, _)| **p != pid)
            .map(|(_, table)| table.chunks())
            .sum();
        let table = self.tables.entry(pid).or_default();
        let forgotten = table.forgotten();
        table.limit(self.limits.chunks_max.saturating_sub(others));
        table.scan(range, time, all);
        self.stats.lost_scans += table.forgotten() - forgotten;
    }

    /// A hint fault with the times of its page's scans.
    pub(crate) fn fault(&mut self, fault: &Fault) -> HintFault {
        let size = match fault.pages {
            512 => PageSize::Huge2M,
            _ => PageSize::Base4K,
        };
        let top = fault.node.is_some_and(|node| self.top.contains(&node));
        let scanned = self
            .tables
            .get_mut(&fault.pid)
            .map(|table| table.fault(fault.addr, size, fault.time, top))
            .unwrap_or_default();
        self.stats.accesses += 1;
        self.stats.unmatched += u64::from(scanned.last.is_none());
        HintFault {
            pid: fault.pid,
            tid: fault.tid,
            cpu: fault.cpu,
            cpu_node: fault.cpu_node,
            addr: fault.addr.align_down(size),
            size,
            node: fault.node,
            write: fault.write,
            migrated: fault.migrated,
            fault_time: fault.time,
            took: Some(fault.took),
            scan_time: scanned.last,
            armed_time: scanned.armed,
        }
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Addr;

    use super::*;

    const CHUNK: u64 = 2 << 20;

    fn scan(pid: u32, start: u64, end: u64, time: u64) -> Record {
        Record::Scan {
            pid: Pid(pid),
            range: Range {
                start: Addr(start),
                end: Addr(end),
            },
            time: Nanos(time),
        }
    }

    fn fault(pid: u32, addr: u64, pages: u16, time: u64) -> Record {
        Record::Fault(Fault {
            pid: Pid(pid),
            tid: pid + 1,
            cpu: 0,
            cpu_node: Some(NodeId(0)),
            addr: Addr(addr),
            node: Some(NodeId(1)),
            pages,
            write: true,
            migrated: false,
            time: Nanos(time),
            took: Nanos(9),
        })
    }

    fn hint(correlator: &mut Correlator, record: Record) -> HintFault {
        match correlator.observe(record) {
            Some(TrackEvent::HintFault(hint)) => hint,
            other => panic!("expected a hint fault, got {other:?}"),
        }
    }

    #[test]
    fn fault_gets_the_scan_of_its_own_process() {
        let mut c = Correlator::new(Limits::default(), Vec::new());
        let scanned = TrackEvent::Scanned {
            pid: Pid(1),
            range: Range {
                start: Addr(0),
                end: Addr(CHUNK),
            },
            time: Nanos(10),
            all: false,
        };
        assert_eq!(c.observe(scan(1, 0, CHUNK, 10)), Some(scanned));
        c.observe(scan(2, 0, CHUNK, 20));
        let h = hint(&mut c, fault(1, 0x1234, 1, 35));
        assert_eq!(h.addr, Addr(0x1000));
        assert_eq!(h.size, PageSize::Base4K);
        assert_eq!(h.scan_time, Some(Nanos(10)));
        assert_eq!(h.idle(), Some(Nanos(25)));
        let unknown = hint(&mut c, fault(3, 0x1234, 1, 35));
        assert_eq!((unknown.scan_time, unknown.idle()), (None, None));
        assert_eq!(c.stats().unmatched, 1);
        assert_eq!(c.stats().scanned_bytes, 2 * CHUNK);
    }

    #[test]
    fn huge_page_faults_as_a_whole() {
        let mut c = Correlator::new(Limits::default(), Vec::new());
        c.observe(scan(1, 0, CHUNK, 10));
        let h = hint(&mut c, fault(1, 0x12_3456, 512, 30));
        assert_eq!((h.addr, h.size), (Addr(0), PageSize::Huge2M));
        // No page of it is marked any more.
        let again = hint(&mut c, fault(1, 0x1000, 1, 31));
        assert_eq!(again.idle(), None);
    }

    #[test]
    fn moved_page_is_marked_by_the_next_scan() {
        let mut c = Correlator::new(Limits::default(), Vec::new());
        c.observe(scan(1, 0, CHUNK, 10));
        let page = PageRef {
            pid: Pid(1),
            addr: Addr(0x1000),
            size: PageSize::Base4K,
        };
        c.moved(page, Nanos(15));
        c.observe(scan(1, 0, CHUNK, 20));
        assert_eq!(hint(&mut c, fault(1, 0x1000, 1, 21)).idle(), Some(Nanos(1)));
        assert_eq!(
            hint(&mut c, fault(1, 0x2000, 1, 21)).idle(),
            Some(Nanos(11))
        );
    }

    #[test]
    fn a_page_of_the_top_tier_is_marked_by_scans_that_take_it_in() {
        let mut c = Correlator::new(Limits::default(), vec![NodeId(1)]);
        c.mode(false, Nanos(0));
        c.mode(true, Nanos(15));
        c.mode(false, Nanos(40));
        for time in [10, 20, 50] {
            let Some(TrackEvent::Scanned { all, .. }) = c.observe(scan(1, 0, CHUNK, time)) else {
                panic!("expected a scan");
            };
            assert_eq!(all, time == 20);
        }
        let idle = hint(&mut c, fault(1, 0x1000, 1, 60)).idle();
        assert_eq!(idle, Some(Nanos(40)), "marked at 20");
        // By now it is unmarked, and a scan of the other tiers leaves it so.
        c.observe(scan(1, 0, CHUNK, 70));
        assert_eq!(hint(&mut c, fault(1, 0x1000, 1, 80)).idle(), None);
    }

    #[test]
    fn end_and_exec_forget_the_address_space() {
        for end in [
            Record::Exec {
                pid: Pid(1),
                time: Nanos(11),
            },
            Record::Exit {
                pid: Pid(1),
                time: Nanos(11),
            },
        ] {
            let mut c = Correlator::new(Limits::default(), Vec::new());
            c.observe(scan(1, 0, CHUNK, 10));
            assert!(c.observe(end).is_some());
            assert_eq!(hint(&mut c, fault(1, 0, 1, 12)).scan_time, None);
            assert!(c.tables.is_empty());
        }
    }

    #[test]
    fn all_processes_share_one_limit() {
        let mut c = Correlator::new(Limits { chunks_max: 3 }, Vec::new());
        c.observe(scan(1, 0, 2 * CHUNK, 1));
        c.observe(scan(2, 0, 2 * CHUNK, 2));
        assert_eq!(c.stats().lost_scans, 1);
        c.forget(Pid(1));
        c.observe(scan(2, 0, 2 * CHUNK, 3));
        assert_eq!(c.stats().lost_scans, 1);
        assert_eq!(
            hint(&mut c, fault(2, CHUNK, 1, 4)).scan_time,
            Some(Nanos(3))
        );
    }
}
