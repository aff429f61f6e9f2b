// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting the program with the agent preloaded, and how it ended.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;

use thiserror::Error;

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
    /// The exit code a shell would give: 127 not found, 126 not executable.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable { .. } => 126,
            Self::NoAgent(_) => 1,
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
    if let Some((library, socket)) = agent {
        command.env("LD_PRELOAD", preload(library));
        command.env(terrace_proto::SOCKET_ENV, socket);
    }
    command.spawn().map_err(|source| {
        let name = name.to_string_lossy().into_owned();
        match source.kind() {
            io::ErrorKind::NotFound => ProgramError::NotFound(name),
            _ => ProgramError::NotExecutable { name, source },
        }
    })
}

/// Ours first, then what the user preloads anyway.
fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

/// The code a shell would give: the program's own, or 128 + n where signal n killed it.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|n| 128 + n))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str]) -> Result<u8, ProgramError> {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        Ok(exit_code(
            start(&argv, None)?
                .wait()
                .expect("our own child can be waited for"),
        ))
    }

    #[test]
    fn codes_are_the_shells() {
        assert_eq!(run(&["true"]).expect("true is there"), 0);
        assert_eq!(run(&["sh", "-c", "exit 7"]).expect("sh is there"), 7);
        assert_eq!(run(&["sh", "-c", "kill -9 $$"]).expect("sh is there"), 137);
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
