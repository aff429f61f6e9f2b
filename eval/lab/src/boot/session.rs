// SPDX-License-Identifier: MIT OR Apache-2.0
//! One emulator, from its start to the guest's power-off, and what it says.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

use super::BootError;
use super::Outcome;
use super::io_error;
use super::ports::Message;
use super::processors;
use crate::job::GOODBYE;
use crate::job::Report;
use crate::qemu;
use crate::series::Series;

/// A running emulator; killed when dropped.
pub(super) struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const EMULATOR: &str = "qemu-system-x86_64";

/// The emulator and its version, as it says itself.
///
/// # Errors
///
/// Where it cannot be started.
pub fn emulator() -> Result<String, BootError> {
    let said = Command::new(EMULATOR).arg("--version").output();
    let said = said.map_err(io_error("ask qemu-system-x86_64 for its version"))?;
    let text = String::from_utf8_lossy(&said.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Starts the emulator; its own words go to a file in `dir`.
pub(super) fn start(arguments: &[String], dir: &Path) -> Result<Emulator, BootError> {
    let log = fs::File::create(dir.join("qemu.log")).map_err(io_error("write QEMU's log"))?;
    let mut command = Command::new(EMULATOR);
    command.args(arguments).stdin(Stdio::null());
    command
        .stdout(log.try_clone().map_err(io_error("write QEMU's log"))?)
        .stderr(log);
    // SAFETY: the closure makes two system calls and allocates nothing, which is all that is
    // allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // A session of its own is a scheduling group of its own, whose priority can be set.
            rustix::process::setsid()?;
            let signal = Some(rustix::process::Signal::KILL);
            rustix::process::set_parent_process_death_signal(signal).map_err(Into::into)
        });
    }
    let child = command.spawn().map_err(BootError::NoQemu)?;
    processors::favour(child.id());
    Ok(Emulator(child))
}

/// One emulator and what it says.
pub(super) struct Session<'a> {
    pub dir: &'a Path,
    pub receive: mpsc::Receiver<Message>,
    pub emulator: Emulator,
    pub started: Instant,
    /// For all of it.
    pub timeout: Duration,
    /// Until the guest is ready for its command.
    pub boot_timeout: Duration,
    pub interrupted: Arc<AtomicBool>,
}

/// What has been heard so far.
#[derive(Default)]
struct Heard {
    ready: Option<(Report, Duration)>,
    /// Code, expected bytes of both outputs, when.
    exit: Option<(i32, [u64; 2], Duration)>,
    bytes: [u64; 2],
    answerer: Option<UnixStream>,
}

impl Session<'_> {
    /// Waits for the end; the series is not read yet.
    pub(super) fn run(mut self) -> Result<Outcome, BootError> {
        let mut heard = Heard::default();
        loop {
            match self.receive.recv_timeout(Duration::from_millis(50)) {
                Ok(message) => self.hear(message, &mut heard)?,
                Err(_) => self.check_alive()?,
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(BootError::Interrupted);
            }
            if self.started.elapsed() > self.timeout {
                return Err(BootError::Timeout {
                    after: self.timeout,
                    console: self.console(),
                });
            }
            if heard.ready.is_none() && self.started.elapsed() > self.boot_timeout {
                return Err(BootError::NoBoot {
                    after: self.boot_timeout,
                    console: self.console(),
                });
            }
            if let Some((code, expected, ended)) = heard.exit
                && heard.bytes == expected
            {
                self.say_goodbye(heard.answerer.as_ref())?;
                return Ok(outcome(code, heard.ready, ended));
            }
        }
    }

    fn hear(&self, message: Message, heard: &mut Heard) -> Result<(), BootError> {
        match message {
            Message::Answerer(stream) => heard.answerer = Some(stream),
            Message::Bytes(port, total) => heard.bytes[port - 1] = total,
            Message::Report(Report::Failed { what }) => return Err(BootError::Setup(what)),
            Message::Report(ready @ Report::Ready { .. }) => {
                processors::emulator(self.emulator.0.id());
                heard.ready = Some((ready, self.started.elapsed()));
            }
            Message::Report(Report::Exit {
                code,
                stdout_bytes,
                stderr_bytes,
            }) => {
                heard.exit = Some((code, [stdout_bytes, stderr_bytes], self.started.elapsed()));
            }
        }
        Ok(())
    }

    fn check_alive(&mut self) -> Result<(), BootError> {
        match self
            .emulator
            .0
            .try_wait()
            .map_err(io_error("wait for QEMU"))?
        {
            None => Ok(()),
            Some(status) => Err(BootError::Died {
                status: status.to_string(),
                console: self.console(),
            }),
        }
    }

    /// Lets the guest power off, so that the memory model writes its totals.
    fn say_goodbye(&mut self, answerer: Option<&UnixStream>) -> Result<(), BootError> {
        if let Some(mut stream) = answerer {
            stream
                .write_all(GOODBYE)
                .map_err(io_error("answer the guest"))?;
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if self
                .emulator
                .0
                .try_wait()
                .map_err(io_error("wait for QEMU"))?
                .is_some()
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // All results are here; a guest that cannot power off is no reason to lose them.
        Ok(())
    }

    /// The last lines of the console and of QEMU's own log.
    fn console(&self) -> String {
        let read = |name: &str| {
            let bytes = fs::read(self.dir.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        last_lines(&(read("qemu.log") + &read(qemu::CONSOLE)), 45)
    }
}

/// The last lines of a console's log, without what only a terminal understands.
fn last_lines(text: &str, count: usize) -> String {
    let clean: String = text
        .chars()
        .filter(|&c| c == '\n' || c == '\t' || !c.is_control())
        .collect();
    let lines: Vec<&str> = clean
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn outcome(code: i32, ready: Option<(Report, Duration)>, ended: Duration) -> Outcome {
    let mut outcome = Outcome {
        code,
        kernel: String::new(),
        uptime_s: 0.0,
        nodes: Vec::new(),
        boot_s: 0.0,
        run_s: 0.0,
        series: Series::default(),
        series_text: String::new(),
    };
    if let Some((
        Report::Ready {
            uptime_s,
            kernel,
            nodes,
        },
        at,
    )) = ready
    {
        outcome.boot_s = at.as_secs_f64();
        outcome.run_s = ended.saturating_sub(at).as_secs_f64();
        (outcome.uptime_s, outcome.kernel, outcome.nodes) = (uptime_s, kernel, nodes);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_clean() {
        assert_eq!(last_lines("a\n\n\u{1b}[2Jb\r\nc\n", 2), "[2Jb\nc");
        assert_eq!(last_lines("", 5), "");
    }
}
