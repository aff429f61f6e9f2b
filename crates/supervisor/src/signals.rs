// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that come to the supervisor, and which of them are for the program.
//!
//! What the terminal sends (Ctrl-C, Ctrl-\, its end) reaches the program itself, as both are of one process
//! group; what the program sends to its group it knows of. What somebody else sends to the supervisor is meant
//! for the program and goes on to it as it is. What was ignored at the start stays so, for both (`nohup`).
//!
//! What stops a job of a shell (Ctrl-Z) stops the program alone, and the supervisor follows when it has: a shell
//! takes the terminal back once the supervisor has stopped, and the program must not read it from then on. `fg`
//! continues both.

use std::ffi::c_int;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use signal_hook::consts::SIGCHLD;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGQUIT;
use signal_hook::consts::SIGTERM;
use signal_hook::consts::SIGTSTP;
use signal_hook::consts::SIGUSR1;
use signal_hook::consts::SIGUSR2;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use terrace_core::Pid;
use terrace_sys::inherited;
use terrace_sys::process::PidFd;
use terrace_sys::process::Signal;

/// Those that end a process that does not expect them.
const WATCHED: [c_int; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Stops a job of a shell: Ctrl-Z. SIGTTIN and SIGTTOU do too and are left to the kernel: the shell has the terminal
/// already when they come, and a write that SIGTTOU forbids would be tried for ever by who handles that.
pub(crate) const STOP: c_int = SIGTSTP;

/// One that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) signal: c_int,
    /// Who sent it; nobody where it was the kernel.
    pub(crate) sender: Option<Pid>,
}

impl Came {
    /// Sends the same to the program.
    pub(crate) fn pass_on(self, program: &PidFd) {
        if let Some(signal) = Signal::from_named_raw(self.signal) {
            let _ = program.signal(signal);
        }
    }
}

/// Signals as a readable descriptor.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

impl Signals {
    /// Watches what is not ignored, and the end of children. Who has started no `program` is stopped as by default.
    pub(crate) fn register(program: bool) -> std::io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let heeded = WATCHED.into_iter().chain(program.then_some(STOP));
        let heeded = heeded.filter(|s| !inherited::is_ignored(*s));
        // If that was ignored, nobody would learn how the program ended.
        let heeded = heeded.chain([SIGCHLD]);
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), heeded)?;
        Ok(Self { delivery })
    }

    /// Those that came since, but for the ends of children.
    pub(crate) fn take(&mut self) -> Vec<Came> {
        let pending = self.delivery.pending();
        let came = pending.filter(|origin| origin.signal != SIGCHLD);
        let came = came.map(|origin| {
            let sent = matches!(origin.cause, Cause::Sent(_));
            let sender = origin.process.filter(|_| sent).map(|process| process.pid);
            Came {
                signal: origin.signal,
                sender: sender.and_then(|pid| u32::try_from(pid).ok()).map(Pid),
            }
        });
        came.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sent_a_signal_is_known() {
        let mut signals = Signals::register(true).expect("signals");
        let me = Pid(std::process::id());
        let handle = PidFd::open(me).expect("myself");
        handle.signal(Signal::USR1).expect("sent");
        let mut fds = [rustix::event::PollFd::new(
            &signals,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, None).expect("it comes");
        let came = Came {
            signal: SIGUSR1,
            sender: Some(me),
        };
        assert_eq!(signals.take(), [came]);
        assert!(signals.take().is_empty());
    }
}
