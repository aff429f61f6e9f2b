// SPDX-License-Identifier: MIT OR Apache-2.0
//! The side of who asks: `terrace status`, `terrace why`, and what changes a run.

use std::fs;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;

use terrace_api::Answer;
use terrace_api::Request;
use terrace_api::Status;
use terrace_api::Why;
use terrace_api::WhyQuestion;

use super::ControlError;
use super::PATIENCE;

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

/// Asks one supervisor for its status, or to change it. `None`, and the socket is removed, where it is gone.
///
/// # Errors
///
/// Where it is there and does not answer.
pub fn ask(path: &Path, request: Request) -> Result<Option<Status>, ControlError> {
    match answer_to(path, request)? {
        Some(Answer::Status(status)) => Ok(Some(*status)),
        Some(other) => Err(unexpected(path, &other)),
        None => Ok(None),
    }
}

/// Asks one supervisor what its policy believes of a process. `None` where it is gone.
///
/// # Errors
///
/// As [`ask`].
pub fn why(path: &Path, question: WhyQuestion) -> Result<Option<Why>, ControlError> {
    match answer_to(path, Request::Why(question))? {
        Some(Answer::Why(why)) => Ok(Some(*why)),
        Some(other) => Err(unexpected(path, &other)),
        None => Ok(None),
    }
}

fn unexpected(path: &Path, answer: &Answer) -> ControlError {
    ControlError::Refused {
        path: path.to_owned(),
        why: match answer {
            Answer::Error(why) => why.clone(),
            Answer::Status(_) | Answer::Why(_) => "it answers something else".to_owned(),
        },
    }
}

/// A connection to the supervisor behind a socket. `None`, and the socket is removed, where it is gone.
pub(super) fn live(path: &Path) -> io::Result<Option<UnixStream>> {
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = fs::remove_file(path);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn answer_to(path: &Path, request: Request) -> Result<Option<Answer>, ControlError> {
    let fail = |source| ControlError::Socket {
        path: path.to_owned(),
        source,
    };
    let Some(mut stream) = live(path).map_err(fail)? else {
        return Ok(None);
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    stream.write_all(request.line().as_bytes()).map_err(fail)?;
    let mut answer = String::new();
    BufReader::new(&stream)
        .read_line(&mut answer)
        .map_err(fail)?;
    let answer = Answer::read(&answer).map_err(|source| ControlError::Answer {
        path: path.to_owned(),
        source,
    })?;
    Ok(Some(answer))
}
