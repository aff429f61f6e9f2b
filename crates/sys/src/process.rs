// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: when they started, whether they live, what they cost, and their end.
//!
//! Contract: proc_pid_stat(5); `pidfd_open(2)` (Linux 5.3), whose descriptor is readable once the
//! process has ended. A process id can be used again, so who wants to name a process later keeps
//! its start time too ([`Identity`]).

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::process::PidfdFlags;
pub use rustix::process::Signal;
use terrace_core::Nanos;
use terrace_core::Pid;
use thiserror::Error;

/// Why a process cannot be looked at.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// There is none with that id.
    #[error("There is no process {0}")]
    Gone(Pid),
    /// A file of it cannot be read.
    #[error("Cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of it is not what proc(5) says.
    #[error("{} has an unexpected form", .0.display())]
    Form(PathBuf),
    /// A call failed.
    #[error("Cannot {call} process {pid}")]
    Call {
        /// What was tried.
        call: &'static str,
        /// On whom.
        pid: Pid,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The program's name, at most 15 bytes.
    pub comm: String,
    /// `R`, `S`, `D`, `Z` and so on.
    pub state: char,
    /// The parent.
    pub parent: Pid,
    /// Processor time in user mode, clock ticks.
    pub user_ticks: u64,
    /// Processor time in the kernel, clock ticks.
    pub system_ticks: u64,
    /// Threads.
    pub threads: u32,
    /// When it started, clock ticks since boot.
    pub start_ticks: u64,
}

impl Stat {
    /// Reads a process.
    ///
    /// # Errors
    ///
    /// Where there is none with that id.
    pub fn read(pid: Pid) -> Result<Self, ProcessError> {
        let path = PathBuf::from(format!("/proc/{pid}/stat"));
        match fs::read(&path) {
            // The name is bytes of the program's choice.
            Ok(bytes) => {
                Self::parse(&String::from_utf8_lossy(&bytes)).ok_or(ProcessError::Form(path))
            }
            Err(e) if is_gone(&e) => Err(ProcessError::Gone(pid)),
            Err(source) => Err(ProcessError::Read { path, source }),
        }
    }

    /// Reads the line. The name stands in parentheses and may hold any byte, these included.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once('(')?;
        let (comm, rest) = rest.rsplit_once(')')?;
        // From here on field 3 of proc_pid_stat(5) has index 0.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            comm: comm.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: Pid(u32::try_from(number(1)?).ok()?),
            user_ticks: number(11)?,
            system_ticks: number(12)?,
            threads: u32::try_from(number(17)?).ok()?,
            start_ticks: number(19)?,
        })
    }

    /// Processor time so far, ended threads included.
    #[must_use]
    pub fn cpu_time(&self) -> Nanos {
        let ticks = self.user_ticks.saturating_add(self.system_ticks);
        Nanos(ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
    }
}

/// A process that no later process can be mistaken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its id.
    pub pid: Pid,
    /// When it started, clock ticks since boot.
    pub start_ticks: u64,
}

impl Identity {
    /// Who has that id now.
    ///
    /// # Errors
    ///
    /// Where nobody has.
    pub fn of(pid: Pid) -> Result<Self, ProcessError> {
        Ok(Self {
            pid,
            start_ticks: Stat::read(pid)?.start_ticks,
        })
    }

    /// This process.
    ///
    /// # Errors
    ///
    /// Where /proc is not mounted.
    pub fn own() -> Result<Self, ProcessError> {
        Self::of(Pid(std::process::id()))
    }

    /// Whether it still runs; a zombie does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid)
            .is_ok_and(|s| s.start_ticks == self.start_ticks && !matches!(s.state, 'Z' | 'X'))
    }
}

/// The children of a process, living ones and zombies.
///
/// # Errors
///
/// Where the process is gone or the kernel has no `/proc/PID/task/TID/children`
/// (`CONFIG_PROC_CHILDREN`).
pub fn children(pid: Pid) -> Result<Vec<Pid>, ProcessError> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let mut found = Vec::new();
    for task in read_dir(&tasks, pid)? {
        let path = task.join("children");
        match fs::read_to_string(&path) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(parse_pid)),
            // The thread ended meanwhile.
            Err(e) if is_gone(&e) && !task.exists() => {}
            Err(source) => return Err(ProcessError::Read { path, source }),
        }
    }
    Ok(found)
}

/// The children, their children and so on, parents first. A snapshot: who forks meanwhile can be
/// missed.
///
/// # Errors
///
/// As [`children`], for `pid` itself; a descendant that ends meanwhile is left out.
pub fn descendants(pid: Pid) -> Result<Vec<Pid>, ProcessError> {
    let mut found = children(pid)?;
    let mut next = 0;
    while let Some(child) = found.get(next).copied() {
        found.extend(children(child).unwrap_or_default());
        next += 1;
    }
    Ok(found)
}

/// Descendants whose parent ends become children of this process, until it ends (`PR_SET_CHILD_SUBREAPER`,
/// Linux 3.4). Its children do not inherit that.
///
/// # Errors
///
/// What prctl(2) says.
pub fn adopt_orphans() -> Result<(), ProcessError> {
    let me = rustix::process::getpid();
    // Any but 0 switches it on.
    rustix::process::set_child_subreaper(Some(me))
        .map_err(|errno| call("adopt the orphans of", Pid(std::process::id()), errno))
}

/// The process, its parent, the parent's parent: as far as they live, 64 at most.
pub fn lineage(pid: Pid) -> impl Iterator<Item = Pid> {
    let parent = |pid: &Pid| Stat::read(*pid).ok().map(|stat| stat.parent);
    std::iter::successors(Some(pid), parent).take(64)
}

/// Processes with that name (`/proc/PID/stat`, at most 15 bytes).
#[must_use]
pub fn named(name: &str) -> Vec<Pid> {
    let pids = read_dir(Path::new("/proc"), Pid(0)).unwrap_or_default();
    let pids = pids
        .iter()
        .filter_map(|p| parse_pid(p.file_name()?.to_str()?));
    pids.filter(|pid| Stat::read(*pid).is_ok_and(|s| s.comm == name))
        .collect()
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().map(Pid)
}

fn read_dir(path: &Path, pid: Pid) -> Result<Vec<PathBuf>, ProcessError> {
    match fs::read_dir(path) {
        Ok(entries) => Ok(entries.filter_map(|e| Some(e.ok()?.path())).collect()),
        Err(e) if is_gone(&e) => Err(ProcessError::Gone(pid)),
        Err(source) => Err(ProcessError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// ENOENT where the directory is gone, ESRCH where it went while the file was open.
fn is_gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound
        || e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// A handle on a process that survives its end, so that signals never reach another one.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: Pid,
}

impl PidFd {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// Where there is none with that id.
    pub fn open(pid: Pid) -> Result<Self, ProcessError> {
        let raw = i32::try_from(pid.0)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .ok_or(ProcessError::Gone(pid))?;
        match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Ok(Self { fd, pid }),
            Err(rustix::io::Errno::SRCH) => Err(ProcessError::Gone(pid)),
            Err(e) => Err(call("open", pid, e)),
        }
    }

    /// Its id.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// Where it has ended or is not ours to signal.
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        match rustix::process::pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::SRCH) => Err(ProcessError::Gone(self.pid)),
            Err(e) => Err(call("signal", self.pid, e)),
        }
    }

    /// Waits for its end; says whether it has ended.
    ///
    /// # Errors
    ///
    /// Where waiting fails.
    pub fn wait(&self, timeout: Duration) -> Result<bool, ProcessError> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(call("wait for", self.pid, e)),
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn call(call: &'static str, pid: Pid, errno: rustix::io::Errno) -> ProcessError {
    ProcessError::Call {
        call,
        pid,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn own_process_has_an_identity() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        let later = Identity {
            start_ticks: own.start_ticks + 1,
            ..own
        };
        assert!(!later.is_alive(), "another start time is another process");
        let stat = Stat::read(own.pid).unwrap();
        assert_eq!(stat.parent, Pid(std::os::unix::process::parent_id()));
        assert!(stat.threads >= 1);
    }

    #[test]
    fn child_is_found_signalled_and_waited_for() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid(child.id());
        let identity = Identity::of(pid).unwrap();
        assert!(children(Pid(std::process::id())).unwrap().contains(&pid));
        assert!(descendants(Pid(std::process::id())).unwrap().contains(&pid));
        let handle = PidFd::open(pid).unwrap();
        assert!(!handle.wait(Duration::ZERO).unwrap());
        handle.signal(Signal::TERM).unwrap();
        assert!(handle.wait(Duration::from_secs(10)).unwrap());
        assert!(!identity.is_alive(), "a zombie does not live");
        child.wait().unwrap();
        assert!(matches!(
            handle.signal(Signal::TERM),
            Err(ProcessError::Gone(p)) if p == pid
        ));
        assert!(matches!(Stat::read(pid), Err(ProcessError::Gone(_))));
    }

    #[test]
    fn impossible_process_is_gone() {
        assert!(matches!(PidFd::open(Pid(0)), Err(ProcessError::Gone(_))));
        assert!(matches!(
            PidFd::open(Pid(u32::MAX)),
            Err(ProcessError::Gone(_))
        ));
        assert!(matches!(
            children(Pid(u32::MAX)),
            Err(ProcessError::Gone(_))
        ));
    }

    #[test]
    fn names_with_parentheses_are_read() {
        let line = "77 (a) R 1 (b) S 42 77 77 0 -1 4194560 1 0 0 0 11 12 0 0 20 0 3 0 9876 1 2";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat.comm, "a) R 1 (b");
        assert_eq!(stat.parent, Pid(42));
        assert_eq!((stat.user_ticks, stat.system_ticks), (11, 12));
        assert_eq!((stat.threads, stat.start_ticks), (3, 9876));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in ".{0,200}") {
            let _ = Stat::parse(&line);
        }
    }
}
