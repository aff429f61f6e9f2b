// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the program's that the agent must know of before the kernel does.
//!
//! Preloaded, the library comes before the C library, so these functions are found in its place. Each does what is
//! to be done ([`crate::life::door`]) and calls the one behind it, which may be another preloaded library's. A call that
//! goes to the kernel by itself is not seen; what happens then is said at each.
//!
//! * `ioctl(UFFDIO_REGISTER)`: memory has one userfaultfd. Ours makes way, or the program's gets `EBUSY`.
//! * `mlockall`: the kernel counts all that is mapped against `RLIMIT_MEMLOCK`, ours too; and locked pages do
//!   not move. The agent leaves first.
//! * `syscall(SYS_seccomp)` for all threads: the filter is made for what the program does, and would kill
//!   it for what our threads do. The agent leaves first.

use std::ffi::CStr;
use std::ffi::c_int;
use std::ffi::c_long;
use std::ffi::c_ulong;
use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering;

use crate::life::door;
use crate::life::door::Request;

/// `_IOWR(0xAA, 0, struct uffdio_register)`.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;
type Mlockall = unsafe extern "C" fn(c_int) -> c_int;
type Syscall =
    unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// A function that comes behind ours.
struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn named(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: looked up by name, among the libraries loaded after this one.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

static IOCTL: Next = Next::named(c"ioctl");
static MLOCKALL: Next = Next::named(c"mlockall");
static SYSCALL: Next = Next::named(c"syscall");

/// Looks all of them up on the program's thread: ours must not call the loader.
pub(crate) fn look_up() {
    for next in [&IOCTL, &MLOCKALL, &SYSCALL] {
        next.get();
    }
}

fn no_such_call() -> c_int {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// ioctl(2).
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == UFFDIO_REGISTER && !argument.is_null() {
        // SAFETY: the program passes a uffdio_register, which begins with the range's start and length.
        let [start, len] = unsafe { argument.cast::<[u64; 2]>().read_unaligned() };
        let end = start.saturating_add(len);
        if end > start {
            door::ask(Request::KeepOut { start, end });
        }
    }
    let next = IOCTL.get();
    if next.is_null() {
        return no_such_call();
    }
    // SAFETY: the function of that name; the arguments are the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Ioctl>(next)(fd, request, argument) }
}

/// mlockall(2).
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    door::ask(Request::Leave);
    let next = MLOCKALL.get();
    if next.is_null() {
        return no_such_call();
    }
    // SAFETY: the function of that name; the argument is the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Mlockall>(next)(flags) }
}

/// syscall(2). Takes what the C library's takes: those that a call does not have are passed on unread.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    const SET_FILTER: c_long = libc::SECCOMP_SET_MODE_FILTER as c_long;
    let for_all = b & c_long::try_from(libc::SECCOMP_FILTER_FLAG_TSYNC).unwrap_or(1) != 0;
    if number == libc::SYS_seccomp && a == SET_FILTER && for_all {
        door::ask(Request::Leave);
    }
    let next = SYSCALL.get();
    if next.is_null() {
        return no_such_call().into();
    }
    // SAFETY: the function of that name; the arguments are the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Syscall>(next)(number, a, b, c, d, e, f) }
}
