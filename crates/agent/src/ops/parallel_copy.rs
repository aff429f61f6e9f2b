// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several threads on one huge page: copy it, or compare it, in parts.
//!
//! A worker cuts its page into [`PART`]s, takes parts itself and lets the helpers take others until
//! all are done (HeMem 3.4 copies with four threads). Without helpers it does all of them. A helper
//! takes no lock but the queue's and touches no page but the part's, so a worker may wait for it
//! with the state lock held.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use rustix::thread::futex;
use terrace_sys::self_memory;
use terrace_sys::self_memory::Piece;

use crate::ops::memory;
use crate::state::lock::Lock;

/// Bytes of a part.
const PART: u64 = 128 << 10;

/// What is to be done with two ranges.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Copy from the program's memory, which may vanish.
    CopyIn,
    /// Copy between frames of ours, past the caches.
    Stream,
    /// Compare two frames of ours.
    Compare,
}

#[derive(Debug)]
struct Progress {
    left: AtomicU32,
    well: AtomicBool,
}

#[derive(Debug)]
struct Part {
    work: Work,
    piece: Piece,
    progress: Arc<Progress>,
}

/// The parts that nobody has taken.
#[derive(Debug)]
pub(crate) struct ParallelCopy {
    parts: Lock<VecDeque<Part>>,
    /// Changes when there are new ones.
    bell: AtomicU32,
    helpers: AtomicU32,
}

impl Default for ParallelCopy {
    fn default() -> Self {
        Self {
            parts: Lock::new(VecDeque::new()),
            bell: AtomicU32::new(0),
            helpers: AtomicU32::new(0),
        }
    }
}

impl ParallelCopy {
    /// Does the work on `len` bytes; whether it was done in full, or for a comparison whether all
    /// bytes are the same.
    ///
    /// # Safety
    ///
    /// As for [`self_memory::copy_in`], [`memory::stream`] or [`memory::same`], whichever is the
    /// work: frames must be present, the caller's alone, and stay so until this returns.
    pub(crate) unsafe fn run(&self, work: Work, from: u64, to: u64, len: u64) -> bool {
        let piece = |at: u64| Piece {
            from: from + at,
            to: to + at,
            len: PART.min(len - at),
        };
        let count = u32::try_from(len.div_ceil(PART)).unwrap_or(u32::MAX);
        if self.helpers.load(Ordering::Acquire) == 0 || count < 2 {
            // SAFETY: the caller's word.
            return (0..u64::from(count)).all(|n| unsafe { carry_out(work, piece(n * PART)) });
        }
        let progress = Arc::new(Progress {
            left: AtomicU32::new(count),
            well: AtomicBool::new(true),
        });
        self.parts
            .lock()
            .extend((0..u64::from(count)).map(|n| Part {
                work,
                piece: piece(n * PART),
                progress: Arc::clone(&progress),
            }));
        self.bell.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.bell, futex::Flags::PRIVATE, i32::MAX.unsigned_abs());
        // Its own parts only: the lock it may hold is one that another's part may wait for, as that copies
        // from the program's memory, and who reads that may have to wait for this very page.
        while self.do_one_of(|part| Arc::ptr_eq(&part.progress, &progress)) {}
        loop {
            let left = progress.left.load(Ordering::Acquire);
            if left == 0 {
                return progress.well.load(Ordering::Acquire);
            }
            let _ = futex::wait(&progress.left, futex::Flags::PRIVATE, left, None);
        }
    }

    /// Takes the first part that is one of those and does it; `false` where there is none.
    fn do_one_of(&self, those: impl Fn(&Part) -> bool) -> bool {
        let taken = {
            let mut parts = self.parts.lock();
            let at = parts.iter().position(those);
            at.and_then(|at| parts.remove(at))
        };
        let Some(part) = taken else {
            return false;
        };
        let progress = part.progress;
        // After a failure the rest is of no use.
        let well = progress.well.load(Ordering::Relaxed)
            // SAFETY: who queued the part waits for it in `run`, whose caller answers for it.
            && unsafe { carry_out(part.work, part.piece) };
        if !well {
            progress.well.store(false, Ordering::Release);
        }
        if progress.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = futex::wake(&progress.left, futex::Flags::PRIVATE, 1);
        }
        true
    }

    /// Helps until `stopping`.
    pub(crate) fn help(&self, stopping: &AtomicBool) {
        self.helpers.fetch_add(1, Ordering::AcqRel);
        loop {
            // Looked at before the rest: what comes later changes it, and ends the sleep.
            let seen = self.bell.load(Ordering::Acquire);
            if stopping.load(Ordering::Acquire) {
                break;
            }
            if !self.do_one_of(|_| true) {
                let _ = futex::wait(&self.bell, futex::Flags::PRIVATE, seen, None);
            }
        }
        self.helpers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Wakes the helpers, so that they see the agent end. `stopping` must say so by now.
    pub(crate) fn dismiss(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.bell, futex::Flags::PRIVATE, i32::MAX.unsigned_abs());
    }
}

/// # Safety
///
/// As [`ParallelCopy::run`].
unsafe fn carry_out(work: Work, piece: Piece) -> bool {
    let Piece { from, to, len } = piece;
    match work {
        // SAFETY: the caller's word, in all three.
        Work::CopyIn => Ok(len) == unsafe { self_memory::copy_in(&[piece]) },
        Work::Stream => {
            // SAFETY: as above.
            unsafe { memory::stream(from, to, len) };
            true
        }
        // SAFETY: as above.
        Work::Compare => unsafe { memory::same(from, to, len) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 2 << 20;

    fn numbers(start: u64) -> Vec<u64> {
        (start..).take(LEN / 8).collect()
    }

    /// 64-byte aligned storage in front of which nothing is touched.
    fn aligned(words: &mut Vec<u64>) -> u64 {
        words.resize(LEN / 8 + 8, 0);
        (words.as_mut_ptr().expose_provenance() as u64).next_multiple_of(64)
    }

    #[test]
    fn parts_make_the_whole_with_and_without_helpers() {
        let parallel_copy = ParallelCopy::default();
        let stopping = AtomicBool::new(false);
        let source = numbers(7);
        let from = source.as_ptr().expose_provenance() as u64;
        std::thread::scope(|scope| {
            for helpers in [0, 3] {
                for _ in 0..helpers {
                    scope.spawn(|| parallel_copy.help(&stopping));
                }
                while parallel_copy.helpers.load(Ordering::Acquire) < helpers {
                    std::thread::yield_now();
                }
                let mut copy = Vec::new();
                let to = aligned(&mut copy);
                for work in [Work::CopyIn, Work::Stream] {
                    // SAFETY: both buffers are this test's and of that length.
                    assert!(unsafe { parallel_copy.run(work, from, to, LEN as u64) });
                    // SAFETY: as above.
                    assert!(unsafe { parallel_copy.run(Work::Compare, from, to, LEN as u64) });
                    // SAFETY: within the copy.
                    unsafe { *memory::pointer::<u64>(to + LEN as u64 - 8) += 1 };
                    // SAFETY: as above.
                    assert!(!unsafe { parallel_copy.run(Work::Compare, from, to, LEN as u64) });
                }
            }
            stopping.store(true, Ordering::Release);
            parallel_copy.dismiss();
        });
    }

    #[test]
    fn a_worker_takes_its_own_parts_only() {
        let parallel_copy = ParallelCopy::default();
        // A helper there is only by count: nobody takes the other worker's part.
        parallel_copy.helpers.store(1, Ordering::Release);
        let others = Arc::new(Progress {
            left: AtomicU32::new(1),
            well: AtomicBool::new(true),
        });
        let (mut from, mut to) = (Vec::new(), Vec::new());
        let (from, to) = (aligned(&mut from), aligned(&mut to));
        let (work, len) = (Work::CopyIn, 4096);
        let piece = Piece { from, to, len };
        let progress = Arc::clone(&others);
        let part = Part {
            work,
            piece,
            progress,
        };
        parallel_copy.parts.lock().push_back(part);
        // SAFETY: both buffers are this test's and of that length.
        assert!(unsafe { parallel_copy.run(Work::CopyIn, from, to, LEN as u64) });
        assert_eq!(others.left.load(Ordering::Acquire), 1, "another's part");
        assert_eq!(parallel_copy.parts.lock().len(), 1);
    }

    #[test]
    fn a_part_that_cannot_be_read_fails_the_whole() {
        let parallel_copy = ParallelCopy::default();
        let mut copy = Vec::new();
        let to = aligned(&mut copy);
        // SAFETY: the kernel refuses the source; the destination is this test's.
        assert!(!unsafe { parallel_copy.run(Work::CopyIn, 0x1000, to, LEN as u64) });
    }
}
