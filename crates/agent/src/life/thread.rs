// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that the C library knows nothing of, with a stack of ours and all signals blocked.
//!
//! Started by clone(2), neither by `std::thread` nor by pthread_create(3): the C library ends a process when
//! the last thread that it counts ends, and runs the exit handlers there. That thread must be the program's, so
//! ours must not count. Nor are they in its lists: a fork has nothing to clean up after them, and no
//! signal of its own goes to them, hence they do not follow setuid(2); [`crate::life::privileges`] is why they need not.
//! What runs on them must not use the C library beyond its thin covers of system calls: no locks, no stdio,
//! no malloc.

use std::ffi::CStr;
use std::ffi::c_int;
use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::ops::memory;
use crate::state::layout::Layout;
use crate::state::layout::STACKS;

static NEXT_STACK: AtomicU64 = AtomicU64::new(0);

/// Whose descriptors a new thread has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptors {
    /// A copy of its maker's.
    Copied,
    /// Its maker's.
    Shared,
}

struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a thread; `false` where that failed. A panic ends the thread and nothing else.
pub(crate) fn spawn(
    layout: &Layout,
    name: &'static CStr,
    descriptors: Descriptors,
    body: impl FnOnce() + Send + 'static,
) -> bool {
    let index = NEXT_STACK.fetch_add(1, Ordering::Relaxed);
    if index >= STACKS {
        return false;
    }
    let Ok(stack) = layout.stack(index) else {
        return false;
    };
    let start = Box::into_raw(Box::new(Start {
        name,
        body: Box::new(body),
    }));
    let together = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS;
    let files = match descriptors {
        Descriptors::Copied => 0,
        Descriptors::Shared => libc::CLONE_FILES,
    };
    let (number, told) = match stack.number {
        Some(at) => (libc::CLONE_PARENT_SETTID, memory::pointer::<c_int>(at)),
        None => (0, std::ptr::null_mut()),
    };
    // SAFETY: the stack and the thread block are memory of our own that no other thread gets, as the index is
    // taken once; the number goes into that block; `start` is handed over to `enter`, or taken back below.
    let thread = unsafe {
        libc::clone(
            enter,
            memory::pointer(stack.top),
            together | files | number,
            start.cast::<c_void>(),
            told,
            memory::pointer::<c_void>(stack.pointer),
            std::ptr::null_mut::<c_int>(),
        )
    };
    if thread < 0 {
        // SAFETY: nobody took it over.
        drop(unsafe { Box::from_raw(start) });
    }
    thread >= 0
}

extern "C" fn enter(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` gave this thread the box it made.
    let start = unsafe { Box::from_raw(argument.cast::<Start>()) };
    // SAFETY: PR_SET_NAME copies at most 16 bytes of the string.
    unsafe { libc::prctl(libc::PR_SET_NAME, start.name.as_ptr()) };
    let body = start.body;
    let _ = catch_unwind(AssertUnwindSafe(body));
    0
}

/// How urgent a thread of ours is, as a nice value.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(crate) enum Urgency {
    /// Threads of the program wait for its answers.
    Answers = -19,
    /// Holds pages out of place, for which threads of the program may wait.
    Moves = -15,
}

/// Puts the calling thread before the program's, where that is permitted (`CAP_SYS_NICE`, or
/// `RLIMIT_NICE`). What a worker has moved out must not wait for a processor.
pub(crate) fn hurry(urgency: Urgency) {
    // SAFETY: a plain call; 0 stands for the calling thread, not for its process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, urgency as i32) };
}

/// Blocks all signals for the calling thread while `body` runs; threads started by it inherit
/// that. The C library's own too, which pthread_sigmask(3) would leave open: ours never get them.
pub(crate) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let all = u64::MAX;
    let mut before = 0_u64;
    let change = |to: *const u64, was: *mut u64| {
        // SAFETY: the kernel's set of signals has 64 bits; both pointers are null or to one.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                to,
                was,
                8_usize,
            )
        }
    };
    if change(&raw const all, &raw mut before) != 0 {
        return body();
    }
    let result = body();
    change(&raw const before, std::ptr::null_mut());
    result
}
