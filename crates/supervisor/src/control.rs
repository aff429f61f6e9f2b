// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket: one JSON object a line, asked and answered.
//!
//! Each supervisor has a socket `<pid>.sock` in the run directory ([`run_dir`]); `terrace status`
//! asks all it finds there. A socket whose supervisor is gone refuses the connection and is removed.

use std::fs;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use thiserror::Error;

use crate::report::Status;

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Its figures.
    Status,
    /// Stop acting.
    Pause,
    /// Act again.
    Resume,
    /// Manage a program of the group.
    Join(Join),
}

/// A member of a group says who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The `terrace run` that runs the program. What descends from it belongs to the group.
    pub member: u32,
    /// 0 is no priority.
    pub priority: u32,
    /// The program, once it runs.
    pub program: Option<u32>,
}

/// Why a supervisor could not be asked.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The socket or the directory.
    #[error("Control socket {}", .path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The answer made no sense.
    #[error("Control socket {} gave an answer this version does not know", .path.display())]
    Answer {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Where sockets and records of this user's supervisors are: `/run/terrace` for root, else
/// `$XDG_RUNTIME_DIR/terrace`, else `/tmp/terrace-<uid>`.
#[must_use]
pub fn run_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("TERRACE_RUN_DIR") {
        return dir.into();
    }
    let uid = rustix::process::getuid().as_raw();
    if uid == 0 {
        return PathBuf::from("/run/terrace");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => Path::new(&dir).join("terrace"),
        None => PathBuf::from(format!("/tmp/terrace-{uid}")),
    }
}

/// A listening control socket; removed when dropped.
#[derive(Debug)]
pub struct Control {
    /// Waits for questions.
    pub listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Opens the socket of this process.
    ///
    /// # Errors
    ///
    /// Where the run directory cannot be made or written.
    pub fn open(dir: &Path) -> Result<Self, ControlError> {
        let path = dir.join(format!("{}.sock", std::process::id()));
        let fail = |source| ControlError::Socket {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(dir).map_err(fail)?;
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        Ok(Self { listener, path })
    }

    /// The next one that asks, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<Question> {
        loop {
            let (stream, _) = self.listener.accept().ok()?;
            // A client that does not ask at once does not hold up the run.
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).is_err() {
                continue;
            }
            match serde_json::from_str(&line) {
                Ok(request) => return Some(Question { request, stream }),
                Err(error) => {
                    let reply = serde_json::json!({ "error": error.to_string() });
                    let _ = (&stream).write_all(format!("{reply}\n").as_bytes());
                }
            }
        }
    }
}

/// Somebody asks and waits.
#[derive(Debug)]
pub struct Question {
    /// What.
    pub request: Request,
    stream: UnixStream,
}

impl Question {
    /// Answers. A client that has gone is no error.
    pub fn answer(mut self, status: &Status) {
        let reply = serde_json::to_string(status).unwrap_or_default();
        let _ = self.stream.write_all(format!("{reply}\n").as_bytes());
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The supervisors that have a socket, by process id.
#[must_use]
pub fn sockets(dir: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let pid = path
                .file_name()?
                .to_str()?
                .strip_suffix(".sock")?
                .parse()
                .ok()?;
            Some((pid, path))
        })
        .collect();
    found.sort();
    found
}

/// Asks one supervisor. `None`, and the socket is removed, where it is gone.
///
/// # Errors
///
/// Where it is there and does not answer.
pub fn ask(path: &Path, request: Request) -> Result<Option<Status>, ControlError> {
    let fail = |source| ControlError::Socket {
        path: path.to_owned(),
        source,
    };
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = fs::remove_file(path);
            return Ok(None);
        }
        Err(error) => return Err(fail(error)),
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .map_err(fail)?;
    let line = serde_json::to_string(&request).expect("a request has no map with odd keys");
    stream
        .write_all(format!("{line}\n").as_bytes())
        .map_err(fail)?;
    let mut answer = String::new();
    BufReader::new(&stream)
        .read_line(&mut answer)
        .map_err(fail)?;
    serde_json::from_str(&answer)
        .map(Some)
        .map_err(|source| ControlError::Answer {
            path: path.to_owned(),
            source,
        })
}
