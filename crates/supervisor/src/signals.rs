// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that come to the supervisor, and which of them are for the program.
//!
//! What the terminal sends (Ctrl-C, Ctrl-\, its end) reaches the program itself, as both are of one process
//! group; what the program sends to its group it knows of. What somebody else sends to the supervisor is meant
//! for the program and goes on to it as it is. What was ignored at the start stays so, for both (`nohup`).
//! Stopping and continuing (Ctrl-Z, `fg`) are the kernel's: they reach both.

use std::ffi::c_int;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGQUIT;
use signal_hook::consts::SIGTERM;
use signal_hook::consts::SIGUSR1;
use signal_hook::consts::SIGUSR2;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use terrace_core::Pid;
use terrace_sys::inherited;
use terrace_sys::process::PidFd;
use terrace_sys::process::Signal;
use terrace_sys::process::lineage;

/// Those that end a process that does not expect them.
const WATCHED: [c_int; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// One that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Came {
    signal: c_int,
    /// Who sent it; nobody where it was the kernel.
    sender: Option<Pid>,
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
    /// Watches what is not ignored.
    pub(crate) fn register() -> std::io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let heeded = WATCHED.into_iter().filter(|s| !inherited::is_ignored(*s));
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), heeded)?;
        Ok(Self { delivery })
    }

    /// Those that came since.
    pub(crate) fn take(&mut self) -> Vec<Came> {
        let came = self.delivery.pending().map(|origin| {
            let sent = matches!(origin.cause, Cause::Sent(_));
            let sender = origin.process.filter(|_| sent).map(|process| process.pid);
            Came {
                signal: origin.signal,
                sender: sender.and_then(|pid| u32::try_from(pid).ok()).map(Pid),
            }
        });
        came.collect()
    }

    /// Passes on to the program what came for it.
    pub(crate) fn pass_on(&mut self, program: &PidFd) {
        for came in self.take() {
            if let Some(sender) = came.sender
                && !descends(sender, program.pid())
                && let Some(signal) = Signal::from_named_raw(came.signal)
            {
                let _ = program.signal(signal);
            }
        }
    }
}

/// Whether it is the program or a descendant of it. One that has ended is taken for a stranger.
fn descends(pid: Pid, program: Pid) -> bool {
    lineage(pid).any(|pid| pid == program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sent_a_signal_is_known() {
        let mut signals = Signals::register().expect("signals");
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
        assert!(descends(me, me) && !descends(Pid(1), me));
    }
}
