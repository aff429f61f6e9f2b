// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells the agent that the program is done with it: it has become another user's, or its own threads have all
//! ended and only ours keep the process there.
//!
//! The C library ends a process with the last thread that it counts. A thread that ends by a bare exit(2) of its
//! own is never uncounted; alone, such a program ends because no thread is left. So where the main thread has ended and no
//! other is there but ours, they end, too: the process ends as its main thread did.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use terrace_sys::process::Stat;

use crate::life::privileges::Owner;

/// Bytes of the line at most: some fifty numbers, and a name of 15 bytes.
const LINE: usize = 2048;

/// The process, as the kernel shows it.
#[derive(Debug)]
pub(crate) struct Program {
    owner: Owner,
    stat: File,
}

impl Program {
    /// Opened once: a sandboxed program may not open files later.
    ///
    /// # Errors
    ///
    /// Where `/proc` is not mounted.
    pub(crate) fn new() -> Result<Self, Errno> {
        let stat = File::open("/proc/self/stat").map_err(|_| Errno::NOENT)?;
        Ok(Self {
            owner: Owner::now()?,
            stat,
        })
    }

    /// Whether it runs as somebody else by now.
    pub(crate) fn has_changed_user(&self) -> bool {
        self.owner.has_changed()
    }

    /// Whether no thread is left but `ours`. The main thread counts until the process ends.
    pub(crate) fn has_ended(&self, ours: u64) -> bool {
        let mut line = [0; LINE];
        let read = self.stat.read_at(&mut line, 0).unwrap_or(0);
        let line = String::from_utf8_lossy(&line[..read]);
        Stat::parse(&line)
            .is_some_and(|stat| stat.state == 'Z' && u64::from(stat.threads) <= ours + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_main_thread_lives_has_not_ended() {
        let program = Program::new().expect("/proc is mounted");
        assert!(!program.has_ended(1_000));
    }
}
