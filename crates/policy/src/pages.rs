// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dense page metadata: 8 bytes a page of whatever size, and about 1 % for finding it.
//!
//! Processes are sorted by their id; a process is a few runs of spans of 1 GiB, each indexed by
//! address ([`span`]). So finding a page is some comparisons and three loads, everything is walked
//! in the order of process and address, and nothing depends on the order of a hash.
//!
//! Where a page is and how cold it is may only change inside [`Pages::update`] and
//! [`Pages::change`], which keep bounds of coldness for each chunk and node; `nomad/victims` finds the coldest pages of a terabyte by
//! them without walking it. Everything else may change through [`Pages::get_mut`], too.

mod meta;
mod span;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;

pub use meta::Meta;
pub use meta::State;
pub use meta::class_idle;
pub use meta::idle_class;
pub(crate) use span::Armed;
use span::CHUNK_SHIFT;
use span::FAN;
pub(crate) use span::Rank;
use span::SPAN_SHIFT;
use span::Span;

/// Spans one after the other, without a gap.
#[derive(Debug)]
struct Run {
    first: u64,
    // Boxed, because a run that grows downwards moves them.
    spans: Vec<Box<Span>>,
}

impl Run {
    const fn end(&self) -> u64 {
        self.first + self.spans.len() as u64
    }

    /// The spans that a range overlaps: number, offsets in the span that are of the range, span.
    fn overlapping(
        &mut self,
        range: Range,
    ) -> impl Iterator<Item = (u64, std::ops::Range<u64>, &mut Span)> {
        let first = (range.start.0 >> SPAN_SHIFT).clamp(self.first, self.end());
        let end = (((range.end.0 - 1) >> SPAN_SHIFT) + 1).clamp(first, self.end());
        let index = |number| usize::try_from(number - self.first).expect("an index of the run");
        let indices = index(first)..index(end);
        let spans = (first..).zip(&mut self.spans[indices]);
        spans.map(move |(number, span)| {
            let start = number << SPAN_SHIFT;
            let from = range.start.0.max(start) - start;
            let to = range.end.0.min(start + (1 << SPAN_SHIFT)) - start;
            (number, from..to, span.as_mut())
        })
    }

    /// The runs that are left when spans for which `gone` holds are taken out.
    fn without(self, gone: impl Fn(u64) -> bool) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for (number, span) in (self.first..).zip(self.spans) {
            if gone(number) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end() == number => run.spans.push(span),
                _ => runs.push(Self {
                    first: number,
                    spans: vec![span],
                }),
            }
        }
        runs
    }
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    runs: Vec<Run>,
}

impl Process {
    fn find(&self, number: u64) -> Option<(usize, usize)> {
        let run = self
            .runs
            .partition_point(|run| run.first <= number)
            .checked_sub(1)?;
        let at = usize::try_from(number - self.runs[run].first).ok()?;
        (at < self.runs[run].spans.len()).then_some((run, at))
    }

    #[inline]
    fn find_or_make(&mut self, number: u64) -> (usize, usize) {
        match self.find(number) {
            Some(found) => found,
            None => self.make(number),
        }
    }

    #[cold]
    fn make(&mut self, number: u64) -> (usize, usize) {
        let next = self.runs.partition_point(|run| run.first <= number);
        if next > 0 && self.runs[next - 1].end() == number {
            self.runs[next - 1].spans.push(Span::new());
            if self
                .runs
                .get(next)
                .is_some_and(|run| run.first == number + 1)
            {
                let mut behind = self.runs.remove(next);
                self.runs[next - 1].spans.append(&mut behind.spans);
            }
        } else if self
            .runs
            .get(next)
            .is_some_and(|run| run.first == number + 1)
        {
            self.runs[next].first = number;
            self.runs[next].spans.insert(0, Span::new());
        } else {
            let run = Run {
                first: number,
                spans: vec![Span::new()],
            };
            self.runs.insert(next, run);
        }
        self.find(number).expect("it was just made")
    }

    fn armed(&mut self, range: Range, unit: u32) {
        let last = (range.end.0 - 1) >> SPAN_SHIFT;
        let first = range.start.0 >> SPAN_SHIFT;
        let at = self.runs.partition_point(|run| run.end() <= first);
        for run in self.runs[at..]
            .iter_mut()
            .take_while(|run| run.first <= last)
        {
            for (_, part, span) in run.overlapping(range) {
                span.arm(part, unit);
            }
        }
    }

    fn forget(&mut self, range: Range) {
        let last = (range.end.0 - 1) >> SPAN_SHIFT;
        let first = range.start.0 >> SPAN_SHIFT;
        let mut at = self.runs.partition_point(|run| run.end() <= first);
        while at < self.runs.len() && self.runs[at].first <= last {
            let run = &mut self.runs[at];
            let mut empty = Vec::new();
            for (number, part, span) in run.overlapping(range) {
                if span.forget(part) {
                    empty.push(number);
                }
            }
            if empty.is_empty() {
                at += 1;
                continue;
            }
            let left = self
                .runs
                .remove(at)
                .without(|number| empty.binary_search(&number).is_ok());
            let parts = left.len();
            self.runs.splice(at..at, left);
            at += parts;
        }
    }
}

/// Where a chunk is, until pages come or go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    process: u32,
    run: u32,
    span: u32,
    chunk: u32,
}

/// Metadata of all pages seen.
#[derive(Debug, Default)]
pub struct Pages {
    processes: Vec<Process>,
    recent: usize,
}

const fn span_of(addr: Addr) -> u64 {
    addr.0 >> SPAN_SHIFT
}

impl Pages {
    /// Changes the page's entry, made where there was none; pages of another size that overlap it
    /// are forgotten.
    #[inline]
    pub fn update<R>(&mut self, page: PageRef, change: impl FnOnce(&mut Meta) -> R) -> R {
        let process = self.process_or_make(page.pid);
        let (run, span) = process.find_or_make(span_of(page.addr));
        process.runs[run].spans[span].update(page, change)
    }

    /// Changes the entry that [`Pages::get`] gives, if there is one.
    pub fn change<R>(&mut self, page: PageRef, change: impl FnOnce(&mut Meta) -> R) -> Option<R> {
        let at = self.find(page.pid).ok()?;
        let process = &mut self.processes[at];
        let (run, span) = process.find(span_of(page.addr))?;
        process.runs[run].spans[span].change(page, change)
    }

    fn find(&self, pid: Pid) -> Result<usize, usize> {
        match self.processes.get(self.recent) {
            Some(process) if process.pid == pid => Ok(self.recent),
            _ => self.processes.binary_search_by_key(&pid, |p| p.pid),
        }
    }

    #[inline]
    fn process_or_make(&mut self, pid: Pid) -> &mut Process {
        self.recent = self.find(pid).unwrap_or_else(|at| {
            let runs = Vec::new();
            self.processes.insert(at, Process { pid, runs });
            at
        });
        &mut self.processes[self.recent]
    }

    /// The page's entry, if it was ever seen, to change anything but its node and its class of idle
    /// time; or that of a larger page around it.
    pub fn get_mut(&mut self, page: PageRef) -> Option<&mut Meta> {
        let at = self.find(page.pid).ok()?;
        let process = &mut self.processes[at];
        let (run, span) = process.find(span_of(page.addr))?;
        process.runs[run].spans[span].get_mut(page)
    }

    /// The page's entry, if it was ever seen, or that of a larger page around it.
    #[must_use]
    pub fn get(&self, page: PageRef) -> Option<&Meta> {
        let process = &self.processes[self.find(page.pid).ok()?];
        let (run, span) = process.find(span_of(page.addr))?;
        process.runs[run].spans[span].get(page)
    }

    fn spans(&self) -> impl Iterator<Item = (Pid, u64, &Span)> {
        self.processes.iter().flat_map(|process| {
            process.runs.iter().flat_map(move |run| {
                (run.first..)
                    .zip(&run.spans)
                    .map(move |(number, span)| (process.pid, number, span.as_ref()))
            })
        })
    }

    /// All pages seen, by process and address.
    pub fn iter(&self) -> impl Iterator<Item = (PageRef, &Meta)> {
        self.spans().flat_map(|(pid, number, span)| {
            (0..FAN).flat_map(move |chunk| {
                span.known(chunk).map(move |(offset, size, meta)| {
                    let addr = Addr((number << SPAN_SHIFT) + offset);
                    (PageRef { pid, addr, size }, meta)
                })
            })
        })
    }

    /// Bounds of coldness of all chunks that may have pages on the node, by process and address.
    pub(crate) fn ranks(&self, node: NodeId) -> impl Iterator<Item = (Place, &Rank)> {
        let node = meta::node_byte(node);
        (0_u32..)
            .zip(&self.processes)
            .flat_map(|(process, p)| {
                let runs = (0_u32..).zip(&p.runs);
                runs.flat_map(move |(run, r)| {
                    let spans = (0_u32..).zip(&r.spans);
                    spans.map(move |(span, s)| (process, run, span, s))
                })
            })
            .filter_map(move |(process, run, span, s)| Some((process, run, span, s.ranks(node)?)))
            .flat_map(|(process, run, span, ranks)| {
                (0_u32..).zip(ranks).map(move |(chunk, rank)| {
                    let place = Place {
                        process,
                        run,
                        span,
                        chunk,
                    };
                    (place, rank)
                })
            })
            .filter(|(_, rank)| rank.any)
    }

    /// Shows every page of a chunk that is on the node; its bound is exact afterwards.
    pub(crate) fn look(&mut self, place: Place, node: NodeId, see: impl FnMut(&Meta)) -> Rank {
        let run = &mut self.processes[place.process as usize].runs[place.run as usize];
        run.spans[place.span as usize].look(place.chunk as usize, meta::node_byte(node), see)
    }

    /// The known pages of a chunk.
    pub(crate) fn chunk(&self, place: Place) -> impl Iterator<Item = (PageRef, &Meta)> {
        let process = &self.processes[place.process as usize];
        let run = &process.runs[place.run as usize];
        let start = (run.first + u64::from(place.span)) << SPAN_SHIFT;
        let pid = process.pid;
        run.spans[place.span as usize]
            .known(place.chunk as usize)
            .map(move |(offset, size, meta)| {
                let addr = Addr(start + offset);
                (PageRef { pid, addr, size }, meta)
            })
    }

    /// The tracker armed a range of a process, its pages on fast nodes too. Where no page is known
    /// nothing is noted.
    pub fn armed(&mut self, pid: Pid, range: Range, now: Nanos) {
        if range.bytes() == 0 {
            return;
        }
        if let Ok(at) = self.find(pid) {
            self.processes[at].armed(range, meta::unit_of(now));
        }
    }

    /// When a chunk was armed.
    pub(crate) fn armed_at(&self, place: Place) -> Armed {
        let run = &self.processes[place.process as usize].runs[place.run as usize];
        run.spans[place.span as usize].armed(place.chunk as usize)
    }

    /// When the chunk of a page was armed.
    pub(crate) fn armed_of(&self, page: PageRef) -> Armed {
        let found = self.find(page.pid).ok().and_then(|at| {
            let process = &self.processes[at];
            let (run, span) = process.find(span_of(page.addr))?;
            Some(process.runs[run].spans[span].armed_of(page))
        });
        found.unwrap_or_default()
    }

    /// Forgets a range: every page that overlaps it.
    pub fn forget(&mut self, pid: Pid, range: Range) {
        if range.bytes() == 0 {
            return;
        }
        if let Ok(at) = self.find(pid) {
            self.processes[at].forget(range);
        }
    }

    /// Forgets a process.
    pub fn forget_process(&mut self, pid: Pid) {
        if let Ok(at) = self.find(pid) {
            self.processes.remove(at);
        }
    }

    /// Bytes the metadata takes, without what the allocator adds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let spans: usize = self.spans().map(|(_, _, span)| span.bytes()).sum();
        spans as u64
    }
}

impl Rank {
    /// Not before that was any page last referenced.
    pub(crate) const fn oldest(&self) -> Nanos {
        meta::unit_start(self.oldest)
    }

    /// No page of known idle time has a colder class.
    pub(crate) const fn coldest(&self) -> u8 {
        self.coldest
    }

    /// Whether the idle time of some page may be unknown.
    pub(crate) const fn unknown(&self) -> bool {
        self.unknown
    }

    /// Whether some page may have a shadow.
    pub(crate) const fn shadow(&self) -> bool {
        self.shadow
    }
}

impl Armed {
    /// The last arming at least so long ago that what was touched since then is known; time 0 if
    /// there was none.
    pub(crate) fn settled(self, now: Nanos, hold: Nanos) -> Nanos {
        let last = meta::unit_start(self.last);
        if now.since(last) >= hold {
            last
        } else {
            meta::unit_start(self.before)
        }
    }
}

const _: () = assert!(CHUNK_SHIFT == 21 && FAN == 1 << (SPAN_SHIFT - CHUNK_SHIFT));

#[cfg(test)]
mod tests;
