// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting the program with the agent preloaded, and how it ended.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;

use terrace_sys::inherited;
use thiserror::Error;

use crate::preload;

/// File name of the agent.
pub const AGENT_FILE: &str = "libterrace.so";

/// Why a program did not start.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// No such program.
    #[error("Program '{0}' not found; check the name or give its path")]
    NotFound(String),
    /// It is there and cannot be executed.
    #[error("Program '{name}' cannot be executed")]
    NotExecutable {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The agent is not where it should be.
    #[error("Agent {} not found; build it (make build) or run with --mover move-pages", .0.display())]
    NoAgent(PathBuf),
}

impl ProgramError {
    /// As env(1) and timeout(1): 127 not found, 126 not executable, 125 what is ours.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable { .. } => 126,
            Self::NoAgent(_) => 125,
        }
    }
}

/// Finds the agent: where it was named, else beside this program, else in `../lib/terrace`.
///
/// # Errors
///
/// Where it is in none of these places.
pub fn find_agent(named: Option<&Path>) -> Result<PathBuf, ProgramError> {
    if let Some(path) = named {
        return if path.is_file() {
            Ok(path.to_owned())
        } else {
            Err(ProgramError::NoAgent(path.to_owned()))
        };
    }
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_owned))
        .unwrap_or_default();
    let places = [
        beside.join(AGENT_FILE),
        beside.join("../lib/terrace").join(AGENT_FILE),
    ];
    let found = places.iter().find(|p| p.is_file()).cloned();
    found.ok_or_else(|| ProgramError::NoAgent(places[0].clone()))
}

/// Starts the program; `agent` is the library and the supervisor's socket.
///
/// # Errors
///
/// Where the program cannot be started.
pub fn start(argv: &[OsString], agent: Option<(&Path, &Path)>) -> Result<Child, ProgramError> {
    let (name, args) = argv
        .split_first()
        .expect("the command line requires a program");
    let mut command = Command::new(name);
    command.args(args);
    if let Some((library, socket)) = agent
        && let Some(preload) = preload_for(name, library, socket)
    {
        command.env("LD_PRELOAD", preload);
        command.env(terrace_proto::SOCKET_ENV, socket);
    }
    inherited::give_back(&mut command);
    command.spawn().map_err(|source| {
        let name = name.to_string_lossy().into_owned();
        match source.kind() {
            io::ErrorKind::NotFound => ProgramError::NotFound(name),
            _ => ProgramError::NotExecutable { name, source },
        }
    })
}

/// What the program preloads: the agent, where both fit.
fn preload_for(program: &OsStr, library: &Path, socket: &Path) -> Option<OsString> {
    let shown = program.to_string_lossy();
    if let Some(unfit) = preload::unfit(program) {
        tracing::warn!(
            "Program '{shown}' {}: no agent, pages go by move_pages",
            unfit.reason()
        );
        return None;
    }
    let dir = socket.parent().unwrap_or(Path::new("/tmp"));
    let library = preload::loadable(library, dir);
    if library.is_none() {
        tracing::warn!("The loader cannot read the agent's path: no agent, pages go by move_pages");
    }
    library.map(|library| preload::value(&library))
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Code(u8),
    /// By a signal.
    Signal(i32),
}

impl End {
    /// What wait(2) says.
    #[must_use]
    pub fn of(status: ExitStatus) -> Self {
        match (status.signal(), status.code()) {
            (Some(signal), _) => Self::Signal(signal),
            (None, code) => Self::Code(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        }
    }

    /// Ends this process likewise, as strace(1) does: who started it sees what became of the program. Gives the
    /// code to end with where the program ended by itself.
    #[must_use]
    pub fn follow(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => {
                // One memory image is enough, and it is the program's.
                let _ = rustix::process::set_dumpable_behavior(
                    rustix::process::DumpableBehavior::NotDumpable,
                );
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                u8::try_from(128 + signal).unwrap_or(u8::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str]) -> Result<End, ProgramError> {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let mut child = start(&argv, None)?;
        Ok(End::of(child.wait().expect("our own child")))
    }

    #[test]
    fn ends_are_the_programs() {
        assert_eq!(run(&["true"]).expect("true is there"), End::Code(0));
        assert_eq!(run(&["sh", "-c", "exit 7"]).expect("sh"), End::Code(7));
        assert_eq!(
            run(&["sh", "-c", "kill -9 $$"]).expect("sh"),
            End::Signal(9)
        );
        assert_eq!(End::Code(7).follow(), 7);
        assert_eq!(
            run(&["no-such-program-here"])
                .expect_err("must fail")
                .exit_code(),
            127
        );
        assert_eq!(
            run(&["/etc/passwd"]).expect_err("must fail").exit_code(),
            126
        );
    }
}
