// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at named pages: reads their accessed bits and clears them, without reading all of a process.
//!
//! What a page shows is what was done since it was looked at before; so the first look says nothing. Pages are read and
//! cleared batch after batch ([`together`]), each by a walk and a call. A huge page is cleared whole, as a part would split it.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_sys::clock;

use super::named::Named;
use super::named::PAGE;
use super::named::Prices;
use super::named::named;
use super::named::ranges;
use super::named::together;
use super::named::wanted;
use super::process::Process;
use super::reader::Reader;
use super::reading::Looked;
use super::reading::Told;

/// What 2 MiB hold.
struct Chunk {
    pid: Pid,
    start: u64,
    huge: bool,
    present: PageBits,
    accessed: PageBits,
    on: Vec<(NodeId, PageBits)>,
}

impl Chunk {
    fn bit(&self, addr: u64) -> usize {
        usize::try_from((addr - self.start) / PAGE).unwrap_or(0)
    }

    /// What is found of a page; nothing where nobody knows which node it is on.
    fn looked(&self, addr: u64, size: PageSize) -> Option<Looked> {
        let bit = self.bit(addr);
        let (node, _) = self.on.iter().find(|(_, pages)| pages.get(bit))?;
        Some(Looked {
            page: PageRef {
                pid: self.pid,
                addr: Addr(addr),
                size,
            },
            node: *node,
            accessed: self.accessed.get(bit),
        })
    }
}

/// What pages show, and what is to be cleared.
#[derive(Debug, Default)]
struct Batch {
    looked: Vec<Looked>,
    ranges: Vec<Range>,
    /// Entries in those ranges, and those whose bits the program had set.
    entries: u64,
    set: u64,
}

impl Batch {
    fn take(&mut self, chunk: &Chunk, named: &[Named], prices: &Prices, set_ns: f64) {
        if chunk.huge {
            self.looked
                .extend(chunk.looked(chunk.start, PageSize::Huge2M));
            self.ranges.push(Range {
                start: Addr(chunk.start),
                end: Addr(chunk.start + CHUNK_BYTES),
            });
            self.entries += 1;
            self.set += u64::from(chunk.accessed.get(0));
            return;
        }
        let mut there = named.to_vec();
        there.retain(|page| chunk.present.get(chunk.bit(page.addr)));
        let looked = there
            .iter()
            .filter_map(|page| chunk.looked(page.addr, PageSize::Base4K));
        self.looked.extend(looked);
        for range in ranges(&there, prices, set_ns) {
            let bits = chunk.bit(range.start.0)..=chunk.bit(range.end.0 - PAGE);
            self.entries += range.bytes() / PAGE;
            self.set += bits.filter(|bit| chunk.accessed.get(*bit)).count() as u64;
            self.ranges.push(range);
        }
    }
}

impl Reader {
    /// Looks at named pages of tracked processes.
    pub(super) fn look(&mut self, pages: &[PageRef]) {
        let mut by_process: BTreeMap<Pid, Vec<u64>> = BTreeMap::new();
        for page in pages {
            let list = by_process.entry(page.pid).or_default();
            list.push(page.addr.0 & !(PAGE - 1));
        }
        for (pid, mut list) in by_process {
            list.sort_unstable();
            list.dedup();
            // One that is too young for a pass may be looked at: its pages are known.
            self.open_young(pid);
            if let Some(process) = self.processes.remove(&pid) {
                self.look_at(&process, &list);
                self.processes.insert(pid, process);
            }
        }
    }

    fn look_at(&mut self, process: &Process, pages: &[u64]) {
        self.measure_set();
        let set_ns = self.set_ns.unwrap_or(0.0);
        #[expect(clippy::cast_precision_loss, reason = "a time of milliseconds")]
        let stall_ns = self.config.max_stall.0 as f64;
        let began = clock::thread_cpu_time();
        let named = named(
            pages,
            &process
                .private_memory(&self.nodes, &self.placed)
                .unwrap_or_default(),
        );
        let (mut looked, mut set, mut left) = (Vec::with_capacity(named.len()), 0, &named[..]);
        while !left.is_empty() {
            let count = together(left, &self.prices, set_ns, stall_ns);
            let (these, others) = left.split_at(count);
            left = others;
            let Some(batch) = self.read_named(process, these, set_ns) else {
                break;
            };
            set += batch.set;
            let took = self.clear_named(process, batch, &mut looked);
            if !left.is_empty() {
                // As long for those who wait for the lock.
                std::thread::sleep(took.into());
            }
        }
        self.told.push(Told::Looked {
            pid: process.pid,
            looked,
            pages: pages.len() as u64,
            busy: clock::thread_cpu_time().since(began),
            lost: self.lost(set),
        });
    }

    /// Nothing where the process is gone.
    fn read_named(&mut self, process: &Process, pages: &[Named], set_ns: f64) -> Option<Batch> {
        let wanted = wanted(pages, &self.prices, set_ns);
        let mut batch = Batch::default();
        let (mut read, mut left) = (0, pages);
        let before = clock::now();
        let there = process.look(&wanted, &mut self.tables, |raw| {
            let (start, present) = (raw.start().0, raw.present());
            read += u64::from(present.count());
            left = &left[left.partition_point(|page| page.addr < start)..];
            let count = left.partition_point(|page| page.addr < start + CHUNK_BYTES);
            let (here, behind) = left.split_at(count);
            left = behind;
            if !here.is_empty() {
                let chunk = Chunk {
                    pid: process.pid,
                    start,
                    huge: raw.huge(),
                    present,
                    accessed: raw.accessed(),
                    on: self.nodes.of(raw, &present),
                };
                batch.take(&chunk, here, &self.prices, set_ns);
            }
        });
        let took = clock::now().since(before);
        self.shared.count(|counts| {
            counts.read += read;
            counts.read_time = counts.read_time + took;
        });
        there.then_some(batch)
    }

    /// Clears them, and tells those that could be; gives what it took.
    fn clear_named(&mut self, process: &Process, batch: Batch, looked: &mut Vec<Looked>) -> Nanos {
        let before = clock::now();
        let mut left_out: Vec<Range> = Vec::new();
        let failed = process.clear_ranges(&batch.ranges, |range| left_out.push(range));
        let took = clock::now().since(before);
        if failed {
            return took;
        }
        let ranges = batch.ranges.len() - left_out.len();
        if left_out.is_empty() {
            self.prices.took(ranges, batch.entries, took);
        }
        self.shared.count(|counts| {
            counts.refused += left_out.len() as u64;
            counts.cleared += batch.entries;
            counts.clear_time = counts.clear_time + took;
            counts.longest_clear = counts.longest_clear.max(took);
        });
        let kept = |one: &Looked| !left_out.iter().any(|range| range.contains(one.page.addr));
        looked.extend(batch.looked.into_iter().filter(kept));
        took
    }
}
