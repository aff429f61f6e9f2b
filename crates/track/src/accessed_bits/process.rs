// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that is read: its page tables, which of its memory takes part, and its pass.
//!
//! What takes part: private memory, anonymous or written to a copy of a file. Shared memory does not, as
//! `MADV_COLD` leaves pages of several processes alone; nor does what is not memory. Nor do mappings that the process has placed itself, which
//! the kernel's NUMA balancing leaves alone, too. Of a process whose memory is bound to nodes
//! nothing does, as it is where somebody wants it, and nothing of a virtual machine: what runs in it sets accessed bits of
//! tables of its own, and the host's, once cleared, stay so.

use terrace_bpf::Bound;
use terrace_bpf::PageTables;
use terrace_bpf::PlacedRanges;
use terrace_bpf::RawChunk;
use terrace_bpf::Wanted;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::PageBits;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::Turns;
use terrace_core::lengthen;
use terrace_core::shorten;
use terrace_sys::advise;
use terrace_sys::frames::FrameMap;
use terrace_sys::mempolicy::bound_nodes;
use terrace_sys::process::PidFd;
use terrace_sys::process::Stat;
use terrace_sys::process::children;
use terrace_sys::procmaps::Mapping;
use terrace_sys::procmaps::MapsFile;

use super::nodes::Nodes;
use super::slice::Found;
use super::slice::Slice;
use super::slice::cut;

/// See the module.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    handle: PidFd,
    bound: Bound,
    /// The top table that this pass is of.
    root: u64,
    pub(super) slices: Vec<Slice>,
    /// When each slice of this pass is read after it was cleared.
    pub(super) rungs: Vec<Nanos>,
    /// What of its memory this pass reads.
    pub(super) turns: Turns,
    /// Slices that have readings before them.
    pub(super) left: usize,
    /// Entries and processor time of this pass so far.
    pub(super) pages: u64,
    pub(super) busy: Nanos,
    /// Entries whose bits the process has set again in this pass.
    pub(super) set: u64,
    /// Processor time of the last pass that read all.
    pub(super) busy_before: Nanos,
    /// Swapped bytes when last looked at.
    swapped: u64,
    /// Who it came from.
    pub(super) parent: Option<Pid>,
}

/// A processor of a virtual machine, as its mapping is called (`virt/kvm/kvm_main.c`).
const VIRTUAL_PROCESSOR: &str = "anon_inode:kvm-vcpu";

/// What became of the beginning of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// There is something to read.
    Reads,
    /// There is nothing: it is gone, or has no memory.
    Nothing,
    /// It is none of ours to read, or most of its memory is others' as well, whose bits cannot be cleared: what was known of it
    /// stays.
    LeftAlone,
}

/// What became of a clearing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cleared {
    /// Ranges that refused: locked, or gone since.
    pub(super) refused: u64,
    /// The process is gone, or may not be touched.
    pub(super) failed: bool,
}

impl Process {
    /// Takes hold of it; nothing where it is gone.
    pub(super) fn open(pid: Pid, tables: &PageTables) -> Option<Self> {
        Some(Self {
            pid,
            handle: PidFd::open(pid).ok()?,
            bound: tables.bind(pid).ok()?,
            root: 0,
            slices: Vec::new(),
            rungs: Vec::new(),
            turns: Turns::default(),
            left: 0,
            pages: 0,
            busy: Nanos::ZERO,
            set: 0,
            busy_before: Nanos::ZERO,
            swapped: 0,
            parent: Stat::read(pid).ok().map(|stat| stat.parent),
        })
    }

    /// The mappings that take part, in order of address; nothing of a process that is left alone.
    pub(super) fn private_memory(
        &self,
        nodes: &Nodes,
        placed: &PlacedRanges,
    ) -> Option<Vec<Range>> {
        let maps = MapsFile::of(self.pid.0).and_then(|mut maps| maps.all());
        let maps = maps.unwrap_or_default();
        let is_bound = || bound_nodes(self.pid).is_some_and(|bound| nodes.are_beyond(&bound));
        let mut names = maps.iter().map(|mapping| &mapping.name);
        if names.any(|name| name.starts_with(VIRTUAL_PROCESSOR)) || is_bound() {
            return None;
        }
        // Where that cannot be asked, nothing says that it has not.
        let placed = placed.of(self.pid).ok()?;
        let part = maps.iter().filter(|mapping| takes_part(mapping));
        let part = part.map(|mapping| mapping.range);
        Some(part.filter(|range| !touches(&placed, *range)).collect())
    }

    /// Begins a pass over these mappings, of which others may share pages, one in so many of all memory: finds what is in memory and cuts
    /// what of it is to be read into slices of so many entries.
    pub(super) fn begin(
        &mut self,
        tables: &mut PageTables,
        (mappings, shares): (&[Range], bool),
        (most, parts): (u64, u32),
    ) -> Begun {
        self.slices.clear();
        self.pages = 0;
        self.set = 0;
        let (Some(first), Some(last)) = (mappings.first(), mappings.last()) else {
            return Begun::Nothing;
        };
        let hull = Range {
            start: chunk_of(first.start),
            end: last.end,
        };
        let mut found = Vec::new();
        let walked = tables.walk(&self.bound, hull, |chunk| found.push(as_found(chunk)));
        let Some(walked) = walked.ok().filter(|walked| !walked.gone) else {
            return Begun::Nothing;
        };
        self.root = walked.root;
        self.turns.begin(parts);
        found.retain(|chunk| self.turns.has(chunk.start));
        if shares {
            self.leave_out_shared(&mut found);
        }
        let slices = cut(&found, mappings, most);
        let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>();
        match (sum(|slice| slice.entries), sum(|slice| slice.shared)) {
            (0, _) => return Begun::Nothing,
            (own, shared) if own < shared => return Begun::LeftAlone,
            _ => {}
        }
        self.left = slices.len();
        self.slices = slices;
        Begun::Reads
    }

    /// Finds out what others map as well.
    fn leave_out_shared(&self, found: &mut [Found]) {
        let Ok(frames) = FrameMap::of(self.pid) else {
            return;
        };
        for chunk in found {
            if let Some(own) = frames.exclusive(chunk.start) {
                chunk.leave_out_shared(&own);
            }
        }
    }

    /// Its pass shall be so long, where that can be so for all of it: while it is being cleared, and nothing was read for the last time.
    pub(super) fn lengthen(&mut self, pass: Nanos) {
        let is_cleared = self.slices.last().is_none_or(Slice::begun);
        if !is_cleared && self.left == self.slices.len() {
            lengthen(&mut self.rungs, pass);
            let slices = self.slices.iter_mut();
            slices.for_each(|slice| slice.lengthen(pass));
        }
    }

    /// Its pass shall not be longer than that any more.
    pub(super) fn shorten(&mut self, pass: Nanos, now: Nanos) {
        shorten(&mut self.rungs, 0, pass);
        let slices = self.slices.iter_mut();
        slices.for_each(|slice| slice.shorten(pass, now));
    }

    /// Whether the kernel swaps it out at present: then its idle pages are the kernel's to find, and
    /// clearing would hide which those are.
    pub(super) fn is_swapping(&mut self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let now = status.ok().as_deref().and_then(swapped_kb).unwrap_or(0);
        std::mem::replace(&mut self.swapped, now) < now
    }

    /// Whether it may have children: a page that they have shared with it since they were forked keeps its bit, as `MADV_COLD` leaves it alone.
    pub(super) fn has_children(&self) -> bool {
        children(self.pid).map_or(true, |children| !children.is_empty())
    }

    /// Clears a slice's bits.
    pub(super) fn clear(&mut self, index: usize) -> Cleared {
        let mut refused = Vec::new();
        let failed = self.clear_ranges(&self.slices[index].ranges, |range| refused.push(range));
        let slice = &mut self.slices[index];
        refused.iter().for_each(|range| slice.leave_out(*range));
        Cleared {
            refused: refused.len() as u64,
            failed,
        }
    }

    /// Clears the bits of these ranges; those that refuse, as they are locked or gone since, go to the sink. Whether the process
    /// is gone, or may not be touched.
    pub(super) fn clear_ranges(&self, ranges: &[Range], mut refused: impl FnMut(Range)) -> bool {
        let mut left = ranges;
        while let Some((first, others)) = left.split_first() {
            match advise::cold(&self.handle, left) {
                Ok(some) if some > 0 => left = &left[some..],
                Ok(_) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOMEM) => {
                    refused(*first);
                    left = others;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
        false
    }

    /// Reads the wanted bits; each chunk with memory there goes to the sink. False where the process is gone.
    pub(super) fn look(
        &self,
        wanted: &[Wanted],
        tables: &mut PageTables,
        sink: impl FnMut(&RawChunk),
    ) -> bool {
        let walked = tables.look(&self.bound, wanted, sink);
        walked.is_ok_and(|walked| !walked.gone)
    }

    /// Reads the bits of neighbouring slices; each chunk with memory goes to the sink, with its slice. False
    /// where the process is gone or has another address space.
    pub(super) fn read(
        &mut self,
        slices: std::ops::Range<usize>,
        tables: &mut PageTables,
        mut sink: impl FnMut(&mut Slice, &RawChunk, Found),
    ) -> bool {
        let slices = &mut self.slices[slices];
        let hull = Range {
            start: slices.first().map_or(Addr(0), |slice| slice.hull().start),
            end: slices.last().map_or(Addr(0), |slice| slice.hull().end),
        };
        // Between the chunks of a sample lie others.
        let wanted = (self.turns.parts() > 1).then(|| {
            let starts = slices.iter().flat_map(Slice::starts);
            let words = u8::MAX;
            let whole = starts.map(|start| Wanted { start, words });
            whole.collect::<Vec<_>>()
        });
        let mut at = 0;
        let each = |chunk: &RawChunk| {
            while slices[at].hull().end <= chunk.start() {
                at += 1;
            }
            sink(&mut slices[at], chunk, as_found(chunk));
        };
        let walked = match wanted {
            None => tables.walk(&self.bound, hull, each),
            Some(wanted) => tables.look(&self.bound, &wanted, each),
        };
        walked.is_ok_and(|walked| !walked.gone && walked.root == self.root)
    }

    /// Ends the pass.
    pub(super) fn end(&mut self) {
        self.slices.clear();
        self.left = 0;
        let busy = std::mem::take(&mut self.busy);
        if self.turns.parts() == 1 {
            self.busy_before = busy;
        }
    }
}

fn as_found(chunk: &RawChunk) -> Found {
    Found {
        start: chunk.start(),
        huge: chunk.huge(),
        present: chunk.present(),
        shared: PageBits::NONE,
    }
}

const fn chunk_of(addr: Addr) -> Addr {
    Addr(addr.0 & !(terrace_core::CHUNK_BYTES - 1))
}

/// Whether a range has addresses of any of these, which are in order.
fn touches(ranges: &[Range], range: Range) -> bool {
    let behind = ranges.partition_point(|one| one.end <= range.start);
    ranges.get(behind).is_some_and(|one| one.start < range.end)
}

fn takes_part(mapping: &Mapping) -> bool {
    let special = [
        "[vvar",
        "[vdso",
        "[vsyscall",
        "[anon:terrace",
        "/anon_hugepage",
        "/dev/",
    ];
    let named = special.iter().any(|name| mapping.name.starts_with(name));
    mapping.readable && !mapping.shared && !named && (mapping.inode == 0 || mapping.writable)
}

/// `VmSwap` of `/proc/PID/status`.
fn swapped_kb(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSwap:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_have_addresses_in_common_are_found() {
        let range = |start, end| Range {
            start: Addr(start),
            end: Addr(end),
        };
        let placed = [range(10, 20), range(30, 40)];
        for (start, end, expected) in [
            (0, 10, false),
            (0, 11, true),
            (19, 25, true),
            (20, 30, false),
            (35, 36, true),
            (40, 50, false),
        ] {
            assert_eq!(
                touches(&placed, range(start, end)),
                expected,
                "{start} {end}"
            );
        }
        assert!(!touches(&[], range(0, 50)));
    }

    #[test]
    fn private_memory_takes_part() {
        let mapping = |name: &str, inode, writable, shared| Mapping {
            range: Range {
                start: Addr(0),
                end: Addr(4096),
            },
            readable: true,
            writable,
            executable: false,
            shared,
            offset: 0,
            inode,
            name: name.to_owned(),
        };
        assert!(takes_part(&mapping("", 0, true, false)));
        assert!(takes_part(&mapping("[heap]", 0, true, false)));
        assert!(
            takes_part(&mapping("", 0, false, false)),
            "a heap made read-only"
        );
        assert!(takes_part(&mapping("/usr/lib/libc.so", 7, true, false)));
        assert!(!takes_part(&mapping("/usr/lib/libc.so", 7, false, false)));
        assert!(!takes_part(&mapping("[vvar]", 0, false, false)));
        assert!(!takes_part(&mapping("/dev/shm/x", 9, true, true)));
        assert!(!takes_part(&mapping(
            "[anon:terrace agent]",
            0,
            true,
            false
        )));
        assert_eq!(swapped_kb("VmRSS:\t 9 kB\nVmSwap:\t     12 kB\n"), Some(12));
    }
}
