// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the program's threads tell the agent to make way, and wait until it has.
//!
//! They cannot write to an eventfd of the agent's, whose descriptors are in a table of its own. The bell is a page
//! in the agent's address space, registered with its userfaultfd: who drops it raises an event. The
//! agent's first thread reads events anyway, and looks here after it has. One request at a time; who asks waits on a
//! futex, for a few seconds at most.
//!
//! Nothing here allocates, and a forked child finds the door closed.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use rustix::event::Timespec;
use rustix::thread::futex;

use crate::life::thread;
use crate::ops::memory;
use crate::state::lock::Lock;

const PAGE: usize = 4096;
/// Who waits looks again this often, ns, in case the bell was not heard.
const LOOK_NS: i64 = 100_000_000;
/// So many times.
const LOOKS: u32 = 100;
/// What the agent and the children's contexts take at most.
const DESCRIPTORS: u64 = 64;
/// Ranges that are left to the program for good.
const KEPT: usize = 64;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERED: u32 = 2;

/// What the program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// The agent ends, and all that it has mapped is gone.
    Leave,
    /// The agent keeps out of a range from now on: the program watches it by a userfaultfd of its own.
    KeepOut {
        /// First byte.
        start: u64,
        /// First byte behind.
        end: u64,
    },
}

/// One asks at a time.
static ASKING: Lock<()> = Lock::new(());
static STATE: AtomicU32 = AtomicU32::new(IDLE);
/// The range asked for; empty for [`Request::Leave`].
static RANGE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The page to drop; 0 while nobody is in.
static BELL: AtomicU64 = AtomicU64::new(0);
/// The process whose agent is in: a child made by a raw clone(2) has none.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// What was asked to keep out of, as pairs.
static OUT_OF: [[AtomicU64; 2]; KEPT] = [const { [const { AtomicU64::new(0) }; 2] }; KEPT];
static OUT_OF_COUNT: AtomicU32 = AtomicU32::new(0);

/// From here on requests are heard, at a page that is registered with the agent's userfaultfd.
pub(crate) fn open(bell: u64) {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    BELL.store(bell, Ordering::Release);
}

/// Nobody is in any more; who waits goes on.
pub(crate) fn close() {
    BELL.store(0, Ordering::Release);
    answer();
}

/// In a forked child.
pub(crate) fn reset() {
    BELL.store(0, Ordering::Relaxed);
    STATE.store(IDLE, Ordering::Relaxed);
    ASKING.reset();
}

fn is_open() -> bool {
    BELL.load(Ordering::Acquire) != 0 && PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Asks on a thread of the program's, and waits until the agent has done it or is gone.
pub(crate) fn ask(request: Request) {
    if is_open() {
        // A handler that ran meanwhile could touch a page for which the answer is needed.
        thread::without_signals(|| ask_alone(request));
    }
}

fn ask_alone(request: Request) {
    let _one = ASKING.lock();
    if !is_open() {
        return;
    }
    let (start, end) = match request {
        Request::Leave => (0, 0),
        Request::KeepOut { start, end } => (start, end),
    };
    RANGE[0].store(start, Ordering::Relaxed);
    RANGE[1].store(end, Ordering::Relaxed);
    STATE.store(ASKED, Ordering::Release);
    // The agent may end at this moment; then it has looked, or closes the door.
    let bell = memory::pointer(BELL.load(Ordering::Acquire));
    // SAFETY: the page holds nothing. Where it is gone the kernel says so.
    unsafe { libc::madvise(bell, PAGE, libc::MADV_DONTNEED) };
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK_NS,
    };
    for _ in 0..LOOKS {
        if STATE.load(Ordering::Acquire) != ASKED || !is_open() {
            break;
        }
        let _ = futex::wait(&STATE, futex::Flags::PRIVATE, ASKED, Some(&moment));
    }
    STATE.store(IDLE, Ordering::Release);
}

/// Before a fork, on the thread that forks: its event needs a descriptor in the agent's table. Where the program
/// leaves it none, the fork would wait for ever.
pub(crate) fn before_fork() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current.is_some_and(|limit| limit < DESCRIPTORS) {
        ask(Request::Leave);
    }
}

/// What is asked, for the agent's first thread.
pub(crate) fn asked() -> Option<Request> {
    if STATE.load(Ordering::Acquire) != ASKED {
        return None;
    }
    let [start, end] = [&RANGE[0], &RANGE[1]].map(|word| word.load(Ordering::Relaxed));
    Some(if end == 0 {
        Request::Leave
    } else {
        Request::KeepOut { start, end }
    })
}

/// It is done.
pub(crate) fn answer() {
    if STATE
        .compare_exchange(ASKED, ANSWERED, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        let _ = futex::wake(&STATE, futex::Flags::PRIVATE, 1);
    }
}

/// Remembers a range to keep out of; `false` where there are too many. Only on the agent's first thread.
pub(crate) fn keep_out(start: u64, end: u64) -> bool {
    let count = OUT_OF_COUNT.load(Ordering::Relaxed);
    let at = usize::try_from(count).unwrap_or(KEPT);
    if any_kept(|first, last| first <= start && end <= last) {
        return true;
    }
    let Some([first, last]) = OUT_OF.get(at) else {
        return false;
    };
    first.store(start, Ordering::Relaxed);
    last.store(end, Ordering::Relaxed);
    OUT_OF_COUNT.store(count + 1, Ordering::Release);
    true
}

/// Whether part of the range was asked for by the program.
pub(crate) fn keeps_out_of(start: u64, end: u64) -> bool {
    any_kept(|first, last| first < end && start < last)
}

fn any_kept(test: impl Fn(u64, u64) -> bool) -> bool {
    let count = usize::try_from(OUT_OF_COUNT.load(Ordering::Acquire)).unwrap_or(KEPT);
    OUT_OF
        .iter()
        .take(count)
        .any(|[first, last]| test(first.load(Ordering::Relaxed), last.load(Ordering::Relaxed)))
}
