// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's three virtio ports as sockets: reports, and the command's two outputs.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::thread;

use super::Sink;
use crate::job::Report;
use crate::qemu;

/// What the port threads tell the one that waits.
pub(super) enum Message {
    Report(Report),
    /// One of the output ports (index into [`qemu::PORTS`]) delivered that many bytes in all.
    Bytes(usize, u64),
    Answerer(UnixStream),
}

/// A sink that outlives one boot: a guest that never came up has said nothing.
pub(super) type SharedSink = Arc<Mutex<Sink>>;

/// Opens the three ports and starts a thread for each; the messages end with the emulator.
pub(super) fn listen(
    dir: &Path,
    stdout: &SharedSink,
    stderr: &SharedSink,
) -> io::Result<mpsc::Receiver<Message>> {
    let (send, receive) = mpsc::channel();
    let control = UnixListener::bind(dir.join(qemu::PORTS[0]))?;
    let sender = send.clone();
    thread::spawn(move || {
        // An error means that the emulator is gone, which the waiting thread sees by itself.
        let _ = read_reports(&control, &sender);
    });
    for (port, sink) in [(1, Arc::clone(stdout)), (2, Arc::clone(stderr))] {
        let listener = UnixListener::bind(dir.join(qemu::PORTS[port]))?;
        let sender = send.clone();
        thread::spawn(move || {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let mut buffer = vec![0; 64 << 10];
            let mut total = 0;
            while let Ok(got @ 1..) = stream.read(&mut buffer) {
                sink.lock().unwrap_or_else(PoisonError::into_inner)(&buffer[..got]);
                total += got as u64;
                if sender.send(Message::Bytes(port, total)).is_err() {
                    return;
                }
            }
        });
    }
    Ok(receive)
}

fn read_reports(listener: &UnixListener, send: &mpsc::Sender<Message>) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    if send.send(Message::Answerer(stream.try_clone()?)).is_err() {
        return Ok(());
    }
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let report = serde_json::from_str(&line).unwrap_or_else(|_| Report::Failed {
            what: format!("it reported '{line}'"),
        });
        if send.send(Message::Report(report)).is_err() {
            break;
        }
    }
    Ok(())
}
