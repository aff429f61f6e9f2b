// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads with a stack in the agent's own address space and all signals blocked.
//!
//! Not `std::thread`: its stacks lie next to the program's mappings and could become part of a
//! managed one. The C library's own internal signals stay open, as its setuid(2) needs them.

use std::ffi::CStr;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::layout::Layout;
use crate::layout::STACK_BYTES;
use crate::layout::STACKS;
use crate::memory;

static NEXT_STACK: AtomicU64 = AtomicU64::new(0);

/// Left free below a stack: a page that is never touched would not tell an overflow, but the
/// stacks are far larger than what runs on them.
const MARGIN: u64 = 4096;

struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a thread; `false` where that failed. A panic ends the thread and nothing else.
pub(crate) fn spawn(
    layout: &Layout,
    name: &'static CStr,
    body: impl FnOnce() + Send + 'static,
) -> bool {
    let index = NEXT_STACK.fetch_add(1, Ordering::Relaxed);
    if index >= STACKS {
        return false;
    }
    let stack = layout.stacks.start + index * STACK_BYTES + MARGIN;
    let start = Box::into_raw(Box::new(Start {
        name,
        body: Box::new(body),
    }));
    // SAFETY: plain C calls on local structures; the stack is committed memory of our own that
    // no other thread gets, as the index is taken once; `start` is handed over to `enter`, or
    // taken back below.
    let started = unsafe {
        let mut attr = MaybeUninit::<libc::pthread_attr_t>::uninit();
        if libc::pthread_attr_init(attr.as_mut_ptr()) != 0 {
            drop(Box::from_raw(start));
            return false;
        }
        let bytes = usize::try_from(STACK_BYTES - MARGIN).unwrap_or(0);
        libc::pthread_attr_setstack(attr.as_mut_ptr(), memory::pointer(stack), bytes);
        libc::pthread_attr_setdetachstate(attr.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        let result = libc::pthread_create(
            thread.as_mut_ptr(),
            attr.as_ptr(),
            enter,
            start.cast::<c_void>(),
        );
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        result == 0
    };
    if !started {
        // SAFETY: nobody took it over.
        drop(unsafe { Box::from_raw(start) });
    }
    started
}

extern "C" fn enter(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` gave this thread the box it made.
    let start = unsafe { Box::from_raw(argument.cast::<Start>()) };
    // SAFETY: PR_SET_NAME copies at most 16 bytes of the string.
    unsafe { libc::prctl(libc::PR_SET_NAME, start.name.as_ptr()) };
    let body = start.body;
    let _ = catch_unwind(AssertUnwindSafe(body));
    std::ptr::null_mut()
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
/// that.
pub(crate) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: plain C calls on local structures, each initialised before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = body();
    // SAFETY: the call above filled `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

/// Gives the calling thread, and those it starts, a descriptor table of their own with nothing in
/// it but /dev/null as standard streams. `false` where the kernel refuses.
///
/// The program can then close all its descriptors without closing ours, its forks do not inherit
/// them, and we hold none of its pipes open.
pub(crate) fn own_descriptors() -> bool {
    // SAFETY: from here on this thread shares no descriptor table; what is closed is its own copy.
    unsafe {
        if libc::unshare(libc::CLONE_FILES) != 0 {
            return false;
        }
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) != 0 {
            return false;
        }
        for _ in 0..3 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        }
    }
    true
}

/// Closes standard input of the agent's own table, which is /dev/null and used by nothing.
pub(crate) fn spare_descriptor() {
    // SAFETY: descriptor 0 of this table was opened by `own_descriptors`, and nothing holds it;
    // what takes its number later is closed by the same thread before this can run again.
    unsafe { libc::close(0) };
}
