// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots the guest, runs one command in it and brings everything back.
//!
//! The command's standard output and error come over two virtio ports, byte for byte and while it
//! runs; a third port carries reports ([`crate::job::Report`]). The guest powers off only when the
//! host has all the output. A guest that says nothing before the time-out, or that dies, is an
//! error which carries the console's last lines.

use std::fs;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

use terrace_config::Machine;

use crate::initramfs;
use crate::job::GOODBYE;
use crate::job::GuestNode;
use crate::job::JOB_FILE;
use crate::job::Job;
use crate::job::Report;
use crate::kernel::Kernel;
use crate::kernel::KernelError;
use crate::plugin;
use crate::plugin::Pmu;
use crate::qemu;
use crate::qemu::Forward;
use crate::qemu::QemuError;
use crate::series::Series;
use crate::series::SeriesError;

/// Priority of the emulator among the host's processes.
const NICENESS: i32 = -10;

/// Takes the command's output as it comes.
pub type Sink = Box<dyn FnMut(&[u8]) + Send>;

/// One boot.
#[derive(Debug)]
pub struct Spec<'a> {
    pub machine: &'a Machine,
    pub kernel: &'a Kernel,
    pub job: Job,
    pub pmu: Pmu,
    pub timeout: Duration,
    /// The `terrace-lab` program, which is also process 1 of the guest.
    pub program: PathBuf,
    /// A port of the guest to reach from here; wants [`Job::network`].
    pub forward: Option<Forward>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Exit code of the command; 128 + n if signal n killed it, 127 if it was not found.
    pub code: i32,
    /// The guest just before the command: kernel, seconds since its boot, free memory.
    pub kernel: String,
    pub uptime_s: f64,
    pub nodes: Vec<GuestNode>,
    /// Host seconds from the emulator's start to the command's.
    pub boot_s: f64,
    /// Host seconds of the command.
    pub run_s: f64,
    pub series: Series,
    /// The series as it was written.
    pub series_text: String,
}

/// Why a boot failed.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Qemu(#[from] QemuError),
    #[error(transparent)]
    Series(#[from] SeriesError),
    #[error("Cannot {what}")]
    Io { what: String, source: io::Error },
    #[error("Cannot start qemu-system-x86_64; install the package qemu-system-x86")]
    NoQemu(#[source] io::Error),
    #[error("The guest could not be set up: {0}")]
    Setup(String),
    #[error("The guest ended without a word ({status}); its console said last:\n{console}")]
    Died { status: String, console: String },
    #[error("Interrupted; the guest is gone")]
    Interrupted,
    #[error("The guest did not finish within {}; its console said last:\n{console}", humantime::format_duration(*.after))]
    Timeout { after: Duration, console: String },
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> BootError {
    move |source| BootError::Io {
        what: what.into(),
        source,
    }
}

/// What the port threads tell the one that waits.
enum Message {
    Report(Report),
    /// One of the output ports (index into [`qemu::PORTS`]) delivered that many bytes in all.
    Bytes(usize, u64),
    Answerer(UnixStream),
}

/// A running emulator; killed when dropped.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots the machine and runs the job. `stdout` and `stderr` take its output as it comes.
///
/// # Errors
///
/// [`BootError`]; a command that fails is not one, see [`Outcome::code`].
pub fn run(spec: &Spec<'_>, stdout: Sink, stderr: Sink) -> Result<Outcome, BootError> {
    let lab = qemu::lab_of(spec.machine)?;
    let scratch = tempfile::Builder::new().prefix("terrace-lab-").tempdir();
    let scratch = scratch.map_err(io_error("make a directory for the run"))?;
    let dir = scratch.path();
    let paths = plugin::Paths::in_directory(dir);
    let pmu_bytes = Pmu::bytes(spec.machine, &lab);
    prepare(spec, dir)?;
    fs::File::create(&paths.pmu)
        .and_then(|file| file.set_len(pmu_bytes))
        .map_err(io_error("make the PMU's memory"))?;

    let (send, receive) = mpsc::channel();
    listen(dir, &send, stdout, stderr).map_err(io_error("listen for the guest"))?;
    let files = qemu::Files {
        kernel: spec.kernel.image.clone(),
        initramfs: dir.join("initramfs"),
        plugin: PathBuf::from(plugin::LIBRARY),
        plugin_options: plugin::options(spec.machine, &lab, &spec.pmu, &paths),
        pmu: (paths.pmu.clone(), pmu_bytes),
        directory: dir.to_owned(),
        shares: spec
            .job
            .shares
            .iter()
            .map(|(tag, at)| (tag.clone(), at.into()))
            .collect(),
        forward: spec.forward,
    };
    let started = Instant::now();
    let emulator = start(&qemu::arguments(spec.machine, &files)?, dir)?;
    let session = Session {
        dir,
        receive,
        emulator,
        started,
        timeout: spec.timeout,
        interrupted: interrupts().map_err(io_error("watch for signals"))?,
    };
    let mut outcome = session.run()?;
    outcome.series_text =
        fs::read_to_string(&paths.series).map_err(io_error("read the lab's time series"))?;
    outcome.series = Series::parse(&outcome.series_text)?;
    Ok(outcome)
}

/// A flag that SIGINT and SIGTERM raise, in place of ending the process: the guest and the
/// run's directory must go first. Watched from the first boot on; once raised it stays so.
fn interrupts() -> io::Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::clone(FLAG.get_or_init(Arc::default));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Writes what the guest reads: initramfs, job, and its process 1.
fn prepare(spec: &Spec<'_>, dir: &Path) -> Result<(), BootError> {
    let modules = spec.kernel.load_modules(spec.job.network)?;
    let archive = initramfs::pack(&modules, spec.job.lab_node).map_err(io_error(format!(
        "read {}; install busybox-static",
        initramfs::BUSYBOX
    )))?;
    fs::write(dir.join("initramfs"), archive).map_err(io_error("write the initramfs"))?;
    let job = serde_json::to_string(&spec.job).expect("a job is plain data");
    fs::write(dir.join(JOB_FILE), job).map_err(io_error("write the job"))?;
    // A copy, because a build may replace the program while the guest runs it.
    fs::copy(&spec.program, dir.join("terrace-lab"))
        .map_err(io_error(format!("copy {}", spec.program.display())))?;
    fs::copy(initramfs::BUSYBOX, dir.join("busybox")).map_err(io_error("copy busybox"))?;
    Ok(())
}

fn start(arguments: &[String], dir: &Path) -> Result<Emulator, BootError> {
    let log = fs::File::create(dir.join("qemu.log")).map_err(io_error("write QEMU's log"))?;
    let mut command = Command::new("qemu-system-x86_64");
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
    favour(child.id());
    Ok(Emulator(child))
}

/// Puts a process before the host's others: the guest's delays are real time, and what else runs
/// should disturb them little. Without the privilege the run is only noisier.
pub(crate) fn favour(pid: u32) {
    let raw = i32::try_from(pid).ok();
    let process = raw.and_then(rustix::process::Pid::from_raw);
    let _ = rustix::process::setpriority_process(process, NICENESS);
    let _ = fs::write(format!("/proc/{pid}/autogroup"), NICENESS.to_string());
}

/// Opens the three ports and starts a thread for each.
fn listen(dir: &Path, send: &mpsc::Sender<Message>, stdout: Sink, stderr: Sink) -> io::Result<()> {
    let control = UnixListener::bind(dir.join(qemu::PORTS[0]))?;
    let sender = send.clone();
    std::thread::spawn(move || {
        // An error means that the emulator is gone, which the waiting thread sees by itself.
        let _ = read_reports(&control, &sender);
    });
    for (port, mut sink) in [(1, stdout), (2, stderr)] {
        let listener = UnixListener::bind(dir.join(qemu::PORTS[port]))?;
        let sender = send.clone();
        std::thread::spawn(move || {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let mut buffer = vec![0; 64 << 10];
            let mut total = 0;
            while let Ok(got @ 1..) = stream.read(&mut buffer) {
                sink(&buffer[..got]);
                total += got as u64;
                if sender.send(Message::Bytes(port, total)).is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
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

/// One emulator and what it says.
struct Session<'a> {
    dir: &'a Path,
    receive: mpsc::Receiver<Message>,
    emulator: Emulator,
    started: Instant,
    timeout: Duration,
    interrupted: Arc<AtomicBool>,
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
    fn run(mut self) -> Result<Outcome, BootError> {
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
