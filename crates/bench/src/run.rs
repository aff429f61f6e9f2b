// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of a workload: fill, hold, visit for a time, check.
//!
//! The visits are the hot loop: nothing in it allocates, asks the clock or writes a line; the clock
//! is read once a batch. Every word read is compared with what it may hold, so that a page in the
//! wrong place stops the run at once. Updates are counted in the words and summed up at the end;
//! only if the sum is wrong are the visits replayed to find the words.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

use terrace_core::NodeId;
use terrace_workload::PAGE_BYTES;
use terrace_workload::Spec;
use terrace_workload::Start;
use terrace_workload::Stream;
use terrace_workload::WORDS_PER_PAGE;
use terrace_workload::content;
use terrace_workload::report::Check;
use terrace_workload::report::Line;
use terrace_workload::report::Ready;
use terrace_workload::report::Second;
use terrace_workload::report::Total;
use terrace_workload::report::WrongWord;
use thiserror::Error;

use crate::arena::Arena;
use crate::placement;
use crate::placement::PlacementError;
use crate::placement::Preferred;

/// Visits between two looks at the clock: 1 to 10 ms in the emulated machine.
const BATCH: u32 = 512;
/// Wrong words that a check lists.
const WRONG_MAX: usize = 8;
/// What the oracle leaves free on the fast node above the kernel's high watermark.
const ORACLE_RESERVE_BYTES: u64 = 4 << 20;

/// Why a run could not be made.
#[derive(Debug, Error)]
pub enum RunError {
    /// No memory.
    #[error("Cannot map {bytes} bytes")]
    Map {
        /// How much was asked for.
        bytes: u64,
        /// Why not.
        #[source]
        source: rustix::io::Errno,
    },
    /// Pages could not be placed or found.
    #[error("Cannot place the workload's pages")]
    Placement(#[from] PlacementError),
    /// The slow node could not take what belongs there.
    #[error("{found} of {wanted} pages are on node {node}; it has too little memory free")]
    Elsewhere {
        /// Pages found there.
        found: u64,
        /// Pages that should be.
        wanted: u64,
        /// The node.
        node: NodeId,
    },
}

/// Where the pages start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// As the workload says.
    Workload,
    /// All on the slow node.
    Slow,
    /// In the order of addresses by the kernel's own choice: the local node until it is full.
    FirstTouch,
    /// The most visited first on the fast node until it is full.
    Oracle,
}

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of the visits and of the contents.
    pub seed: u64,
    /// Where the pages start.
    pub place: Place,
    /// The node that is fast.
    pub fast: NodeId,
    /// The node that is slow.
    pub slow: NodeId,
    /// How long to run.
    pub time: Duration,
    /// Ask for transparent huge pages instead of refusing them.
    pub huge: bool,
}

/// A workload with its memory filled, ready to run.
#[derive(Debug)]
pub struct Run<'a> {
    spec: &'a Spec,
    options: &'a Options,
    arena: Arena,
    shares: Vec<f64>,
}

/// What the visits did.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    ops: u64,
    updates: u64,
}

impl<'a> Run<'a> {
    /// Maps and fills the memory.
    ///
    /// # Errors
    ///
    /// Where there is too little memory, or not where it should be.
    pub fn prepare(spec: &'a Spec, options: &'a Options) -> Result<Self, RunError> {
        let arena = Arena::map(spec.pages, options.huge).map_err(|source| RunError::Map {
            bytes: spec.bytes(),
            source,
        })?;
        let run = Self {
            shares: spec.shares(options.seed),
            spec,
            options,
            arena,
        };
        run.fill()?;
        Ok(run)
    }

    /// The memory as it is now.
    ///
    /// # Errors
    ///
    /// Where the kernel does not tell where pages are.
    pub fn ready(&self) -> Result<Ready, RunError> {
        let (pages_by_node, share_by_node) = self.by_node()?;
        Ok(Ready {
            workload: self.spec.name.clone(),
            bytes: self.spec.bytes(),
            active_bytes: self.spec.active.len() as u64 * PAGE_BYTES,
            pages_by_node,
            share_by_node,
        })
    }

    /// Visits until the time is over, with a line a second, and checks the memory.
    ///
    /// `line` gets every line but the first. A word found wrong ends the run early.
    ///
    /// # Errors
    ///
    /// Where the kernel does not tell where pages are.
    pub fn visit_and_check(&self, mut line: impl FnMut(&Line)) -> Result<Check, RunError> {
        let mut stream = Stream::new(self.spec, self.options.seed);
        let mut progress = Progress::default();
        let begin = Instant::now();
        let mut next = Duration::from_secs(1);
        let mut wrong = None;
        let elapsed = loop {
            if let Err(word) = self.visits(&mut stream, &mut progress) {
                wrong = Some(word);
                break begin.elapsed();
            }
            let now = begin.elapsed();
            if now >= next {
                line(&Line::Second(Second {
                    t: now.as_secs_f64(),
                    ops: progress.ops,
                }));
                next = Duration::from_secs(now.as_secs() + 1);
            }
            if now >= self.options.time {
                break now;
            }
        };
        line(&Line::Total(self.total(elapsed, progress.ops)?));
        let mut check = self.check(progress);
        check.wrong.extend(wrong);
        line(&Line::Check(check.clone()));
        Ok(check)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate to print, exact to 2^53 operations"
    )]
    fn total(&self, elapsed: Duration, ops: u64) -> Result<Total, RunError> {
        let (pages_by_node, share_by_node) = self.by_node()?;
        Ok(Total {
            t: elapsed.as_secs_f64(),
            ops,
            ops_per_s: ops as f64 / elapsed.as_secs_f64().max(1e-9),
            pages_by_node,
            share_by_node,
        })
    }

    /// One batch. The error is the first word that held what it cannot hold.
    fn visits(&self, stream: &mut Stream, progress: &mut Progress) -> Result<(), WrongWord> {
        let words = self.arena.words();
        for _ in 0..BATCH {
            let visit = stream.visit();
            for index in visit.words() {
                let word = &words[usize_of(index)];
                let found = word.load(Relaxed);
                if content::updates(self.options.seed, index, found).is_none() {
                    return Err(self.wrong(index, found, 0));
                }
                if visit.write {
                    word.store(found + 1, Relaxed);
                    progress.updates += 1;
                }
            }
            progress.ops += 1;
        }
        Ok(())
    }

    /// Reads all of memory.
    fn check(&self, progress: Progress) -> Check {
        let mut check = Check {
            words: 0,
            updates_made: progress.updates,
            updates_found: 0,
            wrong: Vec::new(),
        };
        for (index, word) in (0u64..).zip(self.arena.words()) {
            check.words += 1;
            let found = word.load(Relaxed);
            match content::updates(self.options.seed, index, found) {
                Some(updates) => check.updates_found += u64::from(updates),
                None if check.wrong.len() < WRONG_MAX => {
                    check.wrong.push(self.wrong(index, found, 0));
                }
                None => {}
            }
        }
        if check.wrong.is_empty() && check.updates_found != check.updates_made {
            check.wrong = self.replay(progress.ops);
        }
        check
    }

    /// Goes through the same visits again to find words with too few or too many updates.
    fn replay(&self, ops: u64) -> Vec<WrongWord> {
        let mut expected = vec![0u32; self.arena.words().len()];
        let mut stream = Stream::new(self.spec, self.options.seed);
        for _ in 0..ops {
            let visit = stream.visit();
            for index in visit.words().filter(|_| visit.write) {
                expected[usize_of(index)] += 1;
            }
        }
        (0u64..)
            .zip(self.arena.words())
            .zip(expected)
            .filter_map(|((index, word), expected)| {
                let found = word.load(Relaxed);
                let good = content::updates(self.options.seed, index, found) == Some(expected);
                (!good).then(|| self.wrong(index, found, expected))
            })
            .take(WRONG_MAX)
            .collect()
    }

    fn wrong(&self, index: u64, found: u64, updates: u32) -> WrongWord {
        WrongWord {
            address: self.arena.address(index),
            expected: content::word(self.options.seed, index, updates),
            found,
        }
    }

    /// Touches every page on the node where it belongs.
    fn fill(&self) -> Result<(), RunError> {
        let place = match (self.options.place, self.spec.start) {
            (Place::Workload, Start::Slow) => Place::Slow,
            (Place::Workload, Start::FirstTouch) => Place::FirstTouch,
            (place, _) => place,
        };
        match place {
            Place::Workload | Place::FirstTouch => self.fill_pages(0..self.spec.pages),
            Place::Slow => {
                let _slow = Preferred::node(self.options.slow)?;
                self.fill_pages(0..self.spec.pages);
                self.expect_on(self.options.slow, u64::from(self.spec.pages))?;
            }
            Place::Oracle => {
                let order = self.spec.by_popularity(self.options.seed);
                let budget = self.oracle_pages()?.min(order.len());
                let (hot, cold) = order.split_at(budget);
                {
                    let _fast = Preferred::node(self.options.fast)?;
                    self.fill_pages(hot.iter().copied());
                }
                let _slow = Preferred::node(self.options.slow)?;
                self.fill_pages(cold.iter().copied());
            }
        }
        Ok(())
    }

    /// How many pages fit on the fast node without waking the kernel's reclaim.
    fn oracle_pages(&self) -> Result<usize, RunError> {
        let free = placement::free_bytes(self.options.fast)?;
        let keep = placement::high_watermark_bytes(self.options.fast)? + ORACLE_RESERVE_BYTES;
        Ok(usize_of(free.saturating_sub(keep) / PAGE_BYTES))
    }

    fn fill_pages(&self, pages: impl Iterator<Item = u32>) {
        let words = self.arena.words();
        for page in pages {
            let first = u64::from(page) * WORDS_PER_PAGE;
            for index in first..first + WORDS_PER_PAGE {
                words[usize_of(index)].store(content::word(self.options.seed, index, 0), Relaxed);
            }
        }
    }

    /// At least 99 % of the pages that belong to a node must be there.
    fn expect_on(&self, node: NodeId, wanted: u64) -> Result<(), RunError> {
        let nodes = placement::nodes_of(&self.arena)?;
        let found = nodes.iter().filter(|&&n| n == Some(node)).count() as u64;
        if found * 100 >= wanted * 99 {
            Ok(())
        } else {
            Err(RunError::Elsewhere {
                found,
                wanted,
                node,
            })
        }
    }

    /// Pages on each node, and the share of the visits that go there.
    fn by_node(&self) -> Result<(Vec<u64>, Vec<f64>), RunError> {
        let (mut pages, mut shares) = (Vec::new(), Vec::new());
        for (node, share) in placement::nodes_of(&self.arena)?.iter().zip(&self.shares) {
            let Some(NodeId(node)) = *node else { continue };
            let node = usize::from(node);
            if pages.len() <= node {
                pages.resize(node + 1, 0);
                shares.resize(node + 1, 0.0);
            }
            pages[node] += 1;
            shares[node] += share;
        }
        Ok((pages, shares))
    }
}

#[inline]
fn usize_of(index: u64) -> usize {
    usize::try_from(index).expect("64-bit machines only; the arena was mapped")
}

#[cfg(test)]
mod tests {
    use terrace_workload::Scale;

    use super::*;

    fn options(time: Duration) -> Options {
        Options {
            seed: 11,
            place: Place::FirstTouch,
            fast: NodeId(0),
            slow: NodeId(0),
            time,
            huge: false,
        }
    }

    fn gups() -> Spec {
        Spec::named("gups", Scale::FastFree(4 << 20)).expect("known")
    }

    #[test]
    fn every_update_is_found_again() {
        let (spec, options) = (gups(), options(Duration::from_millis(50)));
        let run = Run::prepare(&spec, &options).expect("small");
        assert_eq!(run.ready().expect("placed").pages_by_node, [2764]);
        let mut lines = Vec::new();
        let check = run
            .visit_and_check(|line| lines.push(line.clone()))
            .expect("ran");
        assert!(check.passed(), "{check:?}");
        assert!(check.updates_made > 1000);
        assert!(
            matches!(lines[..], [Line::Total(_), Line::Check(_)]),
            "{lines:?}"
        );
    }

    #[test]
    fn a_lost_update_is_named() {
        let (spec, options) = (gups(), options(Duration::ZERO));
        let run = Run::prepare(&spec, &options).expect("small");
        let mut progress = Progress::default();
        let mut stream = Stream::new(&spec, options.seed);
        run.visits(&mut stream, &mut progress).expect("all is well");
        assert!(run.check(progress).passed());
        // Take one update back, as a stale shadow would.
        let index = stream_first_word(&spec, options.seed);
        let word = &run.arena.words()[usize_of(index)];
        word.store(content::word(options.seed, index, 0), Relaxed);
        let check = run.check(progress);
        assert!(!check.passed());
        assert_eq!(check.wrong[0].address, run.arena.address(index));
        assert_eq!(check.wrong[0].found, content::word(options.seed, index, 0));
    }

    fn stream_first_word(spec: &Spec, seed: u64) -> u64 {
        Stream::new(spec, seed).visit().words().next().expect("one")
    }

    #[test]
    fn a_zero_page_stops_the_run() {
        let (spec, options) = (gups(), options(Duration::from_secs(60)));
        let run = Run::prepare(&spec, &options).expect("small");
        for word in run.arena.words() {
            word.store(0, Relaxed);
        }
        let check = run.visit_and_check(|_| {}).expect("ran");
        assert!(!check.passed());
        assert_eq!(check.wrong[0].found, 0);
    }

    #[test]
    fn the_oracle_fills_the_fast_node_first() {
        let (spec, mut options) = (gups(), options(Duration::ZERO));
        options.place = Place::Oracle;
        let run = Run::prepare(&spec, &options).expect("small");
        let ready = run.ready().expect("placed");
        assert!((ready.share_by_node[0] - 1.0).abs() < 1e-9, "{ready:?}");
    }
}
