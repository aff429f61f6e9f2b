// SPDX-License-Identifier: MIT OR Apache-2.0
//! What our threads may do: less than the program, from before the first order on.
//!
//! A userfaultfd and a few files of `/proc` want privileges when they are opened, never after. So then each of our
//! threads gives up every capability, and can gain none by executing: who takes over a program that dropped its
//! privileges finds none here. The user stays, as another one would change how the whole process may be dumped
//! and who may signal it. Where the program changes its own user later, our threads do not follow, being none
//! of the C library's: they end ([`Owner::has_changed`]).

use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use rustix::thread::CapabilitySets;

/// Gives up every capability of the calling thread and of those that it starts.
///
/// # Errors
///
/// Where the kernel refuses, as under a filter; the thread should end then.
pub(crate) fn give_up() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}

/// Who the program runs as.
#[derive(Debug)]
pub(crate) struct Owner {
    process: OwnedFd,
    user: u32,
    group: u32,
}

impl Owner {
    /// As it is now.
    ///
    /// # Errors
    ///
    /// Where `/proc` is not mounted.
    pub(crate) fn now() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = rustix::fs::open("/proc/self", flags, Mode::empty())?;
        let (user, group) = owner_of(&process)?;
        Ok(Self {
            process,
            user,
            group,
        })
    }

    /// Whether the program runs as somebody else by now: the kernel shows a process's directory as its
    /// effective user's (proc(5)).
    pub(crate) fn has_changed(&self) -> bool {
        owner_of(&self.process) != Ok((self.user, self.group))
    }
}

fn owner_of(process: &OwnedFd) -> Result<(u32, u32), Errno> {
    let stat = rustix::fs::fstat(process)?;
    Ok((stat.st_uid, stat.st_gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_capabilities_has_none_and_its_process_keeps_its_own() {
        let ours = || {
            rustix::thread::capabilities(None)
                .expect("our own")
                .permitted
        };
        let before = ours();
        let after = std::thread::spawn(move || {
            give_up().expect("always permitted");
            ours()
        });
        assert_eq!(after.join().expect("no panic"), CapabilitySet::empty());
        assert_eq!(ours(), before);
        assert!(!Owner::now().expect("/proc is mounted").has_changed());
    }
}
