// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stopping as a job of a shell does. signal(7), credentials(7).

use std::io;

/// Stops this process as that signal does to one that does not handle it (SIGTSTP, SIGTTIN, SIGTTOU), and comes
/// back when it is continued. The kernel leaves one running that no shell could continue, of an orphaned process
/// group.
///
/// # Errors
///
/// What sigaction(2) says: for what is no signal.
pub fn stop_by(signal: i32) -> io::Result<()> {
    // SAFETY: all zeroes is a sigaction, SIG_DFL without flags.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut handled = default;
    // SAFETY: both may be read and written; SIG_DFL is no function.
    if unsafe { libc::sigaction(signal, &raw const default, &raw mut handled) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no memory is touched.
    unsafe { libc::raise(signal) };
    // SAFETY: as it was.
    unsafe { libc::sigaction(signal, &raw const handled, std::ptr::null_mut()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_signal_is_refused() {
        let error = stop_by(1000).expect_err("no such signal");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
