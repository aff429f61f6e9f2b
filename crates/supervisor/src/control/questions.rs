// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that hears what is asked: who connects has time to say it, and holds up nobody meanwhile.

use std::collections::VecDeque;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use std::time::Instant;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_api::Answer;
use terrace_api::Request;
use terrace_sys::eventfd::EventFd;

use super::PATIENCE;

/// Connections that have not asked yet; a further one takes the place of the oldest.
const CONNECTIONS: usize = 64;
/// Accepted before those that are there are heard again.
const ACCEPTED_AT_ONCE: usize = 16;
/// Bytes of a question at most.
const LONGEST: u64 = 4096;

/// Somebody asks and waits.
#[derive(Debug)]
pub struct Question {
    /// What.
    pub request: Request,
    stream: UnixStream,
}

impl Question {
    /// Answers. A client that has gone is no error.
    pub fn answer(mut self, answer: &Answer) {
        let _ = self.stream.write_all(answer.line().as_bytes());
    }
}

/// Who has connected and not asked yet.
struct Connection {
    stream: UnixStream,
    said: Vec<u8>,
    /// On a busy machine it may have to wait for a processor before it asks.
    until: Instant,
}

/// What a look at a connection finds.
enum Heard {
    /// Not all yet.
    Part(Connection),
    Question(Question),
    /// It has gone, or made no sense and was told so.
    Nothing,
}

impl Connection {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            said: Vec::new(),
            until: Instant::now() + PATIENCE,
        })
    }

    fn hear(mut self) -> Heard {
        let room = LONGEST - self.said.len() as u64;
        match (&self.stream).take(room).read_to_end(&mut self.said) {
            // It said all it wants to, or as much as it may.
            Ok(_) => self.asks(),
            Err(error) if !waits(&error) => Heard::Nothing,
            Err(_) if self.said.contains(&b'\n') => self.asks(),
            Err(_) => Heard::Part(self),
        }
    }

    fn asks(self) -> Heard {
        let line = self.said.split(|&byte| byte == b'\n').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default());
        // Answers are written at once, or not.
        let _ = self.stream.set_nonblocking(false);
        let moment = Some(Duration::from_millis(50));
        let _ = self.stream.set_write_timeout(moment);
        match Request::read(&line) {
            Ok(request) => Heard::Question(Question {
                request,
                stream: self.stream,
            }),
            Err(error) => {
                let reply = Answer::Error(error.to_string()).line();
                let _ = (&self.stream).write_all(reply.as_bytes());
                Heard::Nothing
            }
        }
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Until the socket, which does not block, is shut down.
pub(super) fn listen(listener: &UnixListener, tell: &SyncSender<Question>, bell: &EventFd) {
    let mut connections = VecDeque::new();
    while let Some(ready) = ready(listener, &connections) {
        let now = Instant::now();
        for (connection, ready) in std::mem::take(&mut connections).into_iter().zip(ready) {
            if !ready {
                if connection.until > now {
                    connections.push_back(connection);
                }
                continue;
            }
            match connection.hear() {
                Heard::Part(connection) => connections.push_back(connection),
                Heard::Question(question) => {
                    if tell.send(question).is_ok() {
                        bell.ring();
                    }
                }
                Heard::Nothing => {}
            }
        }
        accept(listener, &mut connections);
    }
}

/// Waits until somebody connects, says something or has said nothing for too long; which connections say something.
/// `None` when the socket is shut down.
fn ready(listener: &UnixListener, connections: &VecDeque<Connection>) -> Option<Vec<bool>> {
    // They are in the order in which they came.
    let first = connections.front().map(|connection| connection.until);
    let wait = first.map(|first| first.saturating_duration_since(Instant::now()));
    let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
    let said = connections
        .iter()
        .map(|connection| PollFd::new(&connection.stream, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = said.chain([PollFd::new(listener, PollFlags::IN)]).collect();
    let _ = rustix::event::poll(&mut fds, wait.as_ref());
    let door = fds.pop()?;
    if door.revents().contains(PollFlags::HUP) {
        return None;
    }
    Some(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Takes who has connected.
fn accept(listener: &UnixListener, connections: &mut VecDeque<Connection>) {
    for _ in 0..ACCEPTED_AT_ONCE {
        match listener.accept() {
            Ok((stream, _)) => {
                if connections.len() == CONNECTIONS {
                    connections.pop_front();
                }
                connections.extend(Connection::new(stream));
            }
            Err(error) if waits(&error) => return,
            // No descriptor is left, for one; it would be told at once again.
            Err(_) => return std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
