// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this process was started with and Rust's runtime changes before `main`, for a program that it starts.
//!
//! The runtime ignores SIGPIPE and sets it to its default in every child, whatever it was; and it opens
//! `/dev/null` for those of descriptors 0 to 2 that are closed. A program that is started for somebody else
//! wants both as they were: services of systemd, for one, are started with SIGPIPE ignored.
//! SIGCHLD may have been ignored, and has to be handled by who wants to know how a program ended.
//! The signal mask, and what else is ignored, children inherit as it is. signal(7), execve(2).

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CHILD_IGNORED: AtomicBool = AtomicBool::new(false);
/// A bit for each descriptor.
static CLOSED: AtomicU8 = AtomicU8::new(0);
const STANDARD: std::ops::Range<u8> = 0..3;

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

/// Before the runtime.
extern "C" fn at_start() {
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    CHILD_IGNORED.store(is_ignored(libc::SIGCHLD), Ordering::Relaxed);
    for fd in STANDARD {
        // SAFETY: asks about a descriptor, whether it is one or not.
        if unsafe { libc::fcntl(i32::from(fd), libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

/// Whether a signal is ignored at present: `nohup` starts a program with SIGHUP so.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeroes is a sigaction.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and `now` may be written.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// The program will be started with these as they were.
pub fn give_back(command: &mut Command) {
    let ignored = [
        (libc::SIGPIPE, &PIPE_IGNORED),
        (libc::SIGCHLD, &CHILD_IGNORED),
    ];
    let ignored = ignored.map(|(signal, was)| was.load(Ordering::Relaxed).then_some(signal));
    let closed = CLOSED.load(Ordering::Relaxed);
    if ignored == [None, None] && closed == 0 {
        return;
    }
    let put_back = move || {
        for signal in ignored.into_iter().flatten() {
            // SAFETY: async-signal-safe, and SIG_IGN is no function.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        for fd in STANDARD.filter(|fd| closed & (1 << fd) != 0) {
            // SAFETY: async-signal-safe; it is the runtime's /dev/null, in the child.
            unsafe { libc::close(i32::from(fd)) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec it calls signal(2) and close(2) only.
    unsafe { command.pre_exec(put_back) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_ignores_what_tests_were_not_started_with_ignored() {
        assert!(is_ignored(libc::SIGPIPE), "Rust's runtime does");
        assert!(!is_ignored(libc::SIGKILL) && !is_ignored(0));
    }
}
