// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page tables of processes, read by BPF: which pages are present, which accessed, which in which frames.
//!
//! The program (`bpf/accessed_bits.bpf.c`) is a task iterator bound to one thread; each [`PageTables::walk`]
//! runs it as often as the range needs, some 3 ns a page. Nobody waits for it: it holds no lock of the
//! process. It needs CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, Linux 6.1 (iterators of one task, `bpf_loop`), and x86-64: the
//! bits are the processor's.
//!
//! Tables are read where the kernel maps all memory. Where that is the kernel says (`direct_map.rs`), else it is
//! found: GiB by GiB below this process's own top table, until a page of ours is seen in the frame that
//! `/proc/self/pagemap` gives.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use libbpf_rs::MapCore;
use libbpf_rs::Object;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::PageBits;
use terrace_core::Pid;
use terrace_core::Range;

use crate::direct_map;
use crate::error::PageTablesError;
use crate::iterator;
use crate::iterator::TaskIterator;
use crate::mapped::Mapped;
use crate::object::Aligned;
use crate::object::object;

static OBJECT: &Aligned<[u8]> = object!("accessed_bits");

/// `ACCESSED_CHUNKS` of `accessed_bits.h`.
const CHUNKS: usize = 256;
/// `ACCESSED_RANGES`: how many ranges of frames can be told apart.
pub const FRAME_RANGES: usize = 8;
/// How far below its top table the start of the kernel's map of all memory is looked for.
const BASE_TRIES: u64 = 1 << 16;
const GIB: u64 = 1 << 30;

/// Page frames that belong together.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameRange {
    /// The first frame's number.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// `struct accessed_walk`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Walk {
    next: u64,
    end: u64,
    base: u64,
    levels5: u64,
    named: u64,
    ranges: u64,
    range: [FrameRange; FRAME_RANGES],
    pgd: u64,
    chunks: u64,
    torn: u64,
    gone: u64,
}
const _: () = assert!(size_of::<Walk>() == 26 * 8);

/// 2 MiB of a process's addresses that have memory (`struct accessed_chunk`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawChunk {
    start: u64,
    huge: u64,
    first_frame: u64,
    words: u64,
    present: [u64; 8],
    accessed: [u64; 8],
    within: [[u64; 8]; FRAME_RANGES],
}
const _: () = assert!(size_of::<RawChunk>() == 84 * 8);

impl RawChunk {
    /// What is asked of 2 MiB.
    fn asked(wanted: Wanted) -> Self {
        Self {
            start: wanted.start.0,
            words: u64::from(wanted.words),
            huge: 0,
            first_frame: 0,
            present: [0; 8],
            accessed: [0; 8],
            within: [[0; 8]; FRAME_RANGES],
        }
    }

    /// Its first address.
    #[must_use]
    pub const fn start(&self) -> Addr {
        Addr(self.start)
    }

    /// Whether one huge page maps it (or a part of one of 1 GiB): then bit 0 stands for all.
    #[must_use]
    pub const fn huge(&self) -> bool {
        self.huge != 0
    }

    /// Frame of its first page, where that is present.
    #[must_use]
    pub const fn first_frame(&self) -> u64 {
        self.first_frame
    }

    /// Pages in memory.
    #[must_use]
    pub const fn present(&self) -> PageBits {
        PageBits(self.present)
    }

    /// Of those, the ones whose accessed bit is set.
    #[must_use]
    pub const fn accessed(&self) -> PageBits {
        PageBits(self.accessed)
    }

    /// Of the pages in memory, those in the frames of that range; none behind the last.
    #[must_use]
    pub fn within(&self, range: usize) -> PageBits {
        self.within
            .get(range)
            .map_or(PageBits::NONE, |bits| PageBits(*bits))
    }
}

/// Pages of 2 MiB that are looked at without all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Where the 2 MiB begin.
    pub start: Addr,
    /// Which of its eighths, of 64 pages each, the first in bit 0. What a huge page maps is told whatever is wanted.
    pub words: u8,
}

/// What came of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walked {
    /// Where the top table is; another one is another address space. 0 where the thread has no memory.
    pub root: u64,
    /// Tables that went while they were read; they are left out.
    pub torn: u64,
    /// The thread has no memory (any more), or left it during the walk: what was told may be of nobody.
    pub gone: bool,
}

impl Walked {
    /// One more run of the program.
    const fn add(&mut self, run: &Walk) {
        self.root = run.pgd;
        self.torn += run.torn;
        self.gone = run.gone != 0;
    }
}

/// A thread whose page tables are to be read.
#[derive(Debug)]
pub struct Bound {
    link: OwnedFd,
}

/// The loaded program.
pub struct PageTables {
    walks: Mapped<Walk>,
    chunks: Mapped<RawChunk>,
    frames: Vec<FrameRange>,
    base: u64,
    levels5: bool,
    searched: bool,
    walker: TaskIterator,
}

impl std::fmt::Debug for PageTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageTables").finish_non_exhaustive()
    }
}

impl PageTables {
    /// Loads the program; walks will tell those ranges of frames apart, of which [`FRAME_RANGES`] count.
    ///
    /// # Errors
    ///
    /// Where the kernel or the processor lacks what is needed, or permission is missing.
    pub fn open(frames: &[FrameRange]) -> Result<Self, PageTablesError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(PageTablesError::Processor);
        }
        let walker = TaskIterator::load("accessed_bits", &OBJECT.0, "walk")?;
        let mut tables = Self {
            walks: map(&walker.object, "walks", 1)?,
            chunks: map(&walker.object, "chunks", CHUNKS)?,
            frames: frames.iter().take(FRAME_RANGES).copied().collect(),
            base: 0,
            levels5: five_levels()?,
            searched: false,
            walker,
        };
        tables.find_base()?;
        Ok(tables)
    }

    /// Where the kernel maps all memory, and whether that had to be searched for.
    #[must_use]
    pub const fn direct_map(&self) -> (u64, bool) {
        (self.base, self.searched)
    }

    /// Takes hold of a thread, by its id in the pid namespace of the caller: one that is not there (any more) has
    /// no memory, and a later one of that number another address space, as [`Walked`] says.
    ///
    /// # Errors
    ///
    /// Where the kernel lacks iterators of one task (Linux 6.1).
    pub fn bind(&self, thread: Pid) -> Result<Bound, PageTablesError> {
        let link = self.walker.bind(thread)?;
        Ok(Bound { link })
    }

    /// Reads the tables of a range and hands out each 2 MiB of it with memory, in the order of addresses.
    /// What the thread's process does meanwhile may be seen or not.
    ///
    /// # Errors
    ///
    /// Where the program cannot be run.
    pub fn walk(
        &mut self,
        bound: &Bound,
        range: Range,
        mut sink: impl FnMut(&RawChunk),
    ) -> Result<Walked, PageTablesError> {
        let mut all = Walked::default();
        let mut next = range.start.0;
        while next < range.end.0 {
            let done = self.step(bound, next, range.end.0)?;
            all.add(&done);
            if all.gone || done.next <= next {
                break;
            }
            next = done.next;
            let found = usize::try_from(done.chunks).unwrap_or(0).min(CHUNKS);
            (0..found).for_each(|index| sink(&self.chunks.get(index)));
        }
        Ok(all)
    }

    /// Reads the tables of these 2 MiB, only the entries that are wanted, and hands out each that has memory there.
    ///
    /// # Errors
    ///
    /// Where the program cannot be run.
    pub fn look(
        &mut self,
        bound: &Bound,
        wanted: &[Wanted],
        mut sink: impl FnMut(&RawChunk),
    ) -> Result<Walked, PageTablesError> {
        let mut all = Walked::default();
        for some in wanted.chunks(CHUNKS) {
            for (index, one) in some.iter().enumerate() {
                self.chunks.set(index, RawChunk::asked(*one));
            }
            let ask = Walk {
                named: some.len() as u64,
                ..self.question()
            };
            let done = self.run(bound, ask)?;
            all.add(&done);
            if all.gone {
                break;
            }
            let found = usize::try_from(done.chunks).unwrap_or(0).min(some.len());
            let found = (0..found).map(|index| self.chunks.get(index));
            found
                .filter(|chunk| !chunk.present().is_empty())
                .for_each(|chunk| sink(&chunk));
        }
        Ok(all)
    }

    /// One run of the program. Nothing was seen where `gone` is set.
    fn step(&mut self, bound: &Bound, next: u64, end: u64) -> Result<Walk, PageTablesError> {
        let ask = Walk {
            next,
            end,
            ..self.question()
        };
        self.run(bound, ask)
    }

    fn question(&self) -> Walk {
        let mut ask = Walk {
            base: self.base,
            levels5: u64::from(self.levels5),
            ranges: self.frames.len() as u64,
            // The thread may be gone so that the program does not run at all.
            gone: 1,
            ..Walk::default()
        };
        ask.range[..self.frames.len()].copy_from_slice(&self.frames);
        ask
    }

    fn run(&mut self, bound: &Bound, ask: Walk) -> Result<Walk, PageTablesError> {
        self.walks.set(0, ask);
        let ran = iterator::start(bound.link.as_fd())?.read(&mut [0; 8]);
        ran.map_err(PageTablesError::Run)?;
        Ok(self.walks.get(0))
    }

    /// By the kernel's word, or by trying.
    fn find_base(&mut self) -> Result<(), PageTablesError> {
        let own = OwnPage::new()?;
        let bound = self.bind(Pid(own.thread))?;
        if let Some(said) = direct_map::said() {
            self.base = said;
            return if self.sees(&bound, &own)? {
                Ok(())
            } else {
                Err(PageTablesError::NoDirectMap)
            };
        }
        self.searched = true;
        let top = self.step(&bound, own.start, own.start + CHUNK_BYTES)?.pgd & !(GIB - 1);
        for step in 0..BASE_TRIES {
            self.base = top.wrapping_sub(step * GIB);
            if self.sees(&bound, &own)? {
                return Ok(());
            }
        }
        Err(PageTablesError::NoDirectMap)
    }

    fn sees(&mut self, bound: &Bound, own: &OwnPage) -> Result<bool, PageTablesError> {
        let done = self.step(bound, own.start, own.start + CHUNK_BYTES)?;
        let chunk = self.chunks.get(0);
        Ok(done.chunks == 1 && chunk.present[0] & 1 == 1 && chunk.first_frame == own.frame)
    }
}

/// A page of this process whose frame is known.
struct OwnPage {
    _memory: Mapped<u8>,
    thread: u32,
    start: u64,
    frame: u64,
}

impl OwnPage {
    fn new() -> Result<Self, PageTablesError> {
        let mut memory = Mapped::base_pages(2 << 21)?;
        let start = memory.address().next_multiple_of(CHUNK_BYTES);
        memory.set(usize::try_from(start - memory.address()).unwrap_or(0), 1);
        let mut entry = [0; 8];
        File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, start / 4096 * 8)?;
        let frame = u64::from_ne_bytes(entry) & ((1 << 55) - 1);
        if frame == 0 {
            return Err(PageTablesError::Frames);
        }
        Ok(Self {
            _memory: memory,
            thread: rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
            start,
            frame,
        })
    }
}

fn five_levels() -> std::io::Result<bool> {
    let text = std::fs::read_to_string("/proc/cpuinfo")?;
    let flags = text.lines().find(|line| line.starts_with("flags"));
    Ok(flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "la57")))
}

fn map<T: Copy>(
    object: &Object,
    name: &'static str,
    count: usize,
) -> Result<Mapped<T>, PageTablesError> {
    let map = object
        .maps()
        .find(|map| map.name() == name)
        .ok_or(PageTablesError::NoPart(name))?;
    Ok(Mapped::map(map.as_fd(), count)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever a chunk holds, asking it gives what it holds, and nothing of ranges that there are not.
        #[test]
        fn fuzz_chunks(
            start in any::<u64>(),
            huge in 0_u64..3,
            bits in any::<[[u64; 8]; 3]>(),
            range in 0_usize..2 * FRAME_RANGES,
        ) {
            let [present, accessed, some] = bits;
            let mut within = [[0; 8]; FRAME_RANGES];
            within[range % FRAME_RANGES] = some;
            let chunk = RawChunk { start, huge, first_frame: start, words: 0, present, accessed, within };
            prop_assert_eq!(chunk.start(), Addr(start));
            prop_assert_eq!(chunk.huge(), huge != 0);
            prop_assert_eq!(chunk.present(), PageBits(present));
            prop_assert_eq!(chunk.accessed(), PageBits(accessed));
            let expected = if range < FRAME_RANGES { PageBits(some) } else { PageBits::NONE };
            prop_assert_eq!(chunk.within(range), expected);
        }
    }
}
