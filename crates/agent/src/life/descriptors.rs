// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's own descriptor table, and what is done when the program's limit leaves no room in it.
//!
//! A fork waits until its event is read, which needs a descriptor for the child's context. `fork()` has the agent
//! leave first where there may be none ([`crate::life::door::before_fork`]); a raw clone(2) does not, and then this is all
//! there is to do: give up a spare one, raise the limit for a moment as far as the program may itself, try for
//! about a second, and let go of everything. What is out of place at that moment is lost; the program lives.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::process::Resource;
use rustix::process::Rlimit;
use terrace_sys::uffd::Uffd;

/// Reads in a row that found no descriptor before everything is let go.
const TRIES: u32 = 1_000;
/// Between two of them, ns.
const PAUSE_NS: i64 = 1_000_000;
/// More than the agent has.
const ENOUGH: u64 = 256;

static TRIED: AtomicU32 = AtomicU32::new(0);
static STANDS: AtomicBool = AtomicBool::new(false);

/// Whether a thread of ours stands still: it may hold whatever others wait for.
pub(crate) fn stands_still() -> bool {
    STANDS.load(Ordering::Acquire)
}

/// Empties the calling thread's descriptor table, a copy of its maker's, but for /dev/null as standard
/// streams. `false` where the kernel refuses.
///
/// The program can then close all its descriptors without closing ours, its forks do not inherit
/// them, and we hold none of its pipes open.
///
/// # Safety
///
/// The thread must have a table of its own.
pub(crate) unsafe fn empty() -> bool {
    // SAFETY: what is closed is this thread's own copy.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) != 0 {
            return false;
        }
        for _ in 0..3 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        }
    }
    true
}

/// Reads events although there is no descriptor left; how many. Sleeps where that fails.
pub(crate) fn read_all_the_same(uffd: &Uffd, buffer: &mut [u8]) -> usize {
    // SAFETY: descriptor 0 of this table was opened by `empty`, and nothing holds it; what takes its
    // number later is closed by the same thread before this can run again.
    unsafe { libc::close(0) };
    let mut read = uffd.read(buffer);
    if read == Err(Errno::MFILE) {
        read = with_a_higher_limit(|| uffd.read(buffer));
    }
    if read != Err(Errno::MFILE) {
        TRIED.store(0, Ordering::Relaxed);
        return read.unwrap_or(0);
    }
    if TRIED.fetch_add(1, Ordering::Relaxed) >= TRIES {
        // SAFETY: only threads of ours read events.
        unsafe { stand_still() };
    }
    let pause = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: PAUSE_NS,
    };
    let _ = rustix::thread::clock_nanosleep_relative(rustix::time::ClockId::Monotonic, &pause);
    0
}

fn with_a_higher_limit<T>(body: impl FnOnce() -> T) -> T {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let most = before.maximum.unwrap_or(ENOUGH);
    let raised = Rlimit {
        current: Some(most.min(ENOUGH)),
        maximum: before.maximum,
    };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    let result = body();
    // Not where the program has set another one meanwhile.
    if rustix::process::getrlimit(Resource::Nofile) == raised {
        let _ = rustix::process::setrlimit(Resource::Nofile, before);
    }
    result
}

/// Closes all descriptors, the userfaultfd with them, so that nobody waits for us or finds a page protected;
/// then does nothing for ever.
///
/// # Safety
///
/// The descriptors must be the agent's.
pub(crate) unsafe fn stand_still() -> ! {
    STANDS.store(true, Ordering::Release);
    crate::life::door::close();
    // SAFETY: the caller's word; nothing runs on this thread any more that could use one.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
    loop {
        // SAFETY: a plain call.
        unsafe { libc::pause() };
    }
}
