// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket: one JSON object a line, asked and answered (`terrace_api` has the words).
//!
//! Each supervisor has a socket `<pid>.sock` in the run directory ([`run_dir`]); `terrace status`
//! asks all it finds there. A socket whose supervisor is gone refuses the connection and is removed.
//! A thread waits for what is asked (`questions`), so that who connects and says nothing holds up nobody.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use terrace_sys::eventfd::EventFd;
use thiserror::Error;

pub use client::ask;
pub use client::sockets;
pub use client::why;
pub use questions::Question;

mod client;
mod questions;

/// Questions that wait at most.
const WAITING: usize = 64;
/// So long a question may take to come, and its answer.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// The run directory could be somebody else's.
    #[error(
        "{} is not a directory that only this user can write to; remove it, or name another with TERRACE_RUN_DIR",
        .0.display()
    )]
    Directory(PathBuf),
    /// The supervisor does not know the request.
    #[error("Control socket {} refuses the request: {why}", .path.display())]
    Refused {
        /// Which.
        path: PathBuf,
        /// What it said.
        why: String,
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

/// Makes the run directory, or takes the one that is there if it is this user's and nobody else can write to it.
/// Others may pass through: agents of programs that change their user connect to a socket in it.
///
/// # Errors
///
/// Where there is none and none can be made, or it is not safe.
pub fn own_directory(dir: &Path) -> Result<(), ControlError> {
    let fail = |source| ControlError::Socket {
        path: dir.to_owned(),
        source,
    };
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    match fs::DirBuilder::new().mode(0o711).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(dir).map_err(fail)?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && own && found.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(ControlError::Directory(dir.to_owned()))
    }
}

/// A listening control socket; removed when dropped. Readable when somebody asks.
#[derive(Debug)]
pub struct Control {
    questions: Receiver<Question>,
    bell: Arc<EventFd>,
    listener: Arc<UnixListener>,
    path: PathBuf,
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
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
        own_directory(dir)?;
        let listener = listen_at(&path).map_err(fail)?;
        let bell = EventFd::new().map_err(|errno| fail(errno.into()))?;
        let (bell, listener) = (Arc::new(bell), Arc::new(listener));
        let (tell, questions) = mpsc::sync_channel(WAITING);
        let (ring, heard) = (Arc::clone(&bell), Arc::clone(&listener));
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || questions::listen(&heard, &tell, &ring))
            .map_err(fail)?;
        Ok(Self {
            questions,
            bell,
            listener,
            path,
        })
    }

    /// The next one that asks, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<Question> {
        self.bell.silence();
        self.questions.try_recv().ok()
    }
}

/// A socket at a path that has its name only when it listens: who asks takes one that refuses for a dead one.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let unnamed = path.with_extension("new");
    let _ = fs::remove_file(&unnamed);
    let listener = UnixListener::bind(&unnamed)?;
    fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    fs::rename(&unnamed, path)?;
    Ok(listener)
}

impl Drop for Control {
    fn drop(&mut self) {
        // The thread ends of it, however many wait to be heard.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::io::BufReader;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::time::Instant;

    use terrace_api::Answer;
    use terrace_api::Request;

    use super::client::live;
    use super::*;

    fn own(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("terrace-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn who_says_nothing_holds_up_nobody() {
        let dir = own("control");
        let control = Control::open(&dir).expect("a socket");
        let path = sockets(&dir)[0].1.clone();
        let silent: Vec<UnixStream> = (0..100)
            .map(|_| UnixStream::connect(&path).expect("connects"))
            .collect();
        let begun = Instant::now();
        assert!(control.next().is_none());
        let mut client = UnixStream::connect(&path).expect("connects");
        assert_eq!(
            asked(&control, &mut client, &["\"pause\"\n"]),
            Request::Pause
        );
        assert!(begun.elapsed() < PATIENCE, "nobody waits for who is silent");
        drop(silent);
        drop(control);
        assert!(sockets(&dir).is_empty());
        let _ = fs::remove_dir_all(&dir);
    }

    /// What is heard when a client says that, with pauses.
    fn asked(control: &Control, client: &mut UnixStream, parts: &[&str]) -> Request {
        for part in parts {
            std::thread::sleep(Duration::from_millis(100));
            client.write_all(part.as_bytes()).expect("is heard");
        }
        let mut fds = [rustix::event::PollFd::new(
            control,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, None).expect("it comes");
        control.next().expect("a question").request
    }

    /// On a busy machine who asks may not run for a while.
    #[test]
    fn who_hesitates_is_heard_and_a_word_too_long_refused() {
        let dir = own("hesitant");
        let control = Control::open(&dir).expect("a socket");
        let path = sockets(&dir)[0].1.clone();
        let mut client = UnixStream::connect(&path).expect("connects");
        let said = ["\"pau", "se\"\n"];
        assert_eq!(asked(&control, &mut client, &said), Request::Pause);
        let mut babbler = UnixStream::connect(&path).expect("connects");
        babbler.write_all(&[b' '; 4096]).expect("is heard");
        let mut reply = String::new();
        BufReader::new(babbler)
            .read_line(&mut reply)
            .expect("is told");
        assert!(matches!(Answer::read(&reply), Ok(Answer::Error(_))));
        drop(control);
        let _ = fs::remove_dir_all(&dir);
    }

    /// As `terrace status` does while a supervisor starts.
    #[test]
    fn who_asks_while_it_opens_takes_nothing_away() {
        let dir = own("opening");
        own_directory(&dir).expect("made");
        // One that ends while somebody asks may be taken away.
        let ends = Mutex::new(());
        let asked = || {
            for (_, path) in sockets(&dir) {
                let _alive = ends.lock();
                // Not a question, which nobody here would answer.
                let _ = live(&path);
            }
        };
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| {
                for _ in 0..5_000 {
                    let control = Control::open(&dir).expect("nobody takes it away");
                    let _nobody_asks = ends.lock();
                    assert!(control.path.exists());
                    drop(control);
                }
            });
            while !opener.is_finished() {
                asked();
            }
        });
        let _ = fs::remove_dir_all(&dir);
    }

    #[test]
    fn a_directory_that_others_could_write_to_is_not_taken() {
        let dir = own("directory");
        own_directory(&dir).expect("made");
        own_directory(&dir).expect("taken again");
        let link = dir.join("link");
        std::os::unix::fs::symlink(&dir, &link).expect("a link");
        let refused = |dir: &Path| matches!(own_directory(dir), Err(ControlError::Directory(_)));
        assert!(refused(&link), "it may lead anywhere");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(refused(&dir));
        let _ = fs::remove_dir_all(&dir);
    }
}
