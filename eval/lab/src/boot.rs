// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots the guest, runs one command in it and brings everything back.
//!
//! The command's standard output and error come over two virtio ports, byte for byte and while it
//! runs; a third port carries reports ([`crate::job::Report`]). The guest powers off only when the
//! host has all the output. A guest that says nothing before the time-out, or that dies, is an
//! error which carries the console's last lines.
//!
//! The emulator sometimes loses a timer interrupt while the kernel boots, once in some hundred boots,
//! and a processor of the guest then sleeps for good. Nothing of the job has run by then: such a guest
//! is booted again, and the caller's standard error is told.

mod ports;
pub(crate) mod processors;
mod session;

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::time::Instant;

use terrace_machine_spec::Machine;

use self::ports::SharedSink;
use self::session::Session;
pub use self::session::emulator;
use crate::initramfs;
use crate::job::GuestNode;
use crate::job::JOB_FILE;
use crate::job::Job;
use crate::kernel::Kernel;
use crate::kernel::KernelError;
use crate::plugin;
use crate::plugin::Pmu;
use crate::qemu;
use crate::qemu::Forward;
use crate::qemu::QemuError;
use crate::series::Series;
use crate::series::SeriesError;

/// A guest is ready within some 10 s, on a busy host within 60. One that takes longer has hung.
pub const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// Boots in all, when none gets the guest ready.
const BOOTS: usize = 3;

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
    /// Until the guest is ready for its command; [`BOOT_TIMEOUT`] unless asked otherwise.
    pub boot_timeout: Duration,
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
    #[error("The guest was not up within {}; its console said last:\n{console}", humantime::format_duration(*.after))]
    NoBoot { after: Duration, console: String },
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

/// Boots the machine and runs the job. `stdout` and `stderr` take its output as it comes.
///
/// # Errors
///
/// [`BootError`]; a command that fails is not one, see [`Outcome::code`].
pub fn run(spec: &Spec<'_>, stdout: Sink, stderr: Sink) -> Result<Outcome, BootError> {
    let (stdout, stderr) = (Arc::new(Mutex::new(stdout)), Arc::new(Mutex::new(stderr)));
    let mut boots = 1;
    loop {
        match boot(spec, &stdout, &stderr) {
            Err(error @ BootError::NoBoot { .. }) if boots < BOOTS => {
                boots += 1;
                eprintln!("{error}\nBooting it again.");
            }
            result => return result,
        }
    }
}

/// As [`run`], and all that the command said on its standard output and its standard error.
///
/// # Errors
///
/// As [`run`].
pub fn said(spec: &Spec<'_>) -> Result<(Outcome, [Vec<u8>; 2]), BootError> {
    let said = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    let sink = |which: usize| -> Sink {
        let said = Arc::clone(&said);
        Box::new(move |bytes| {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            said[which].extend_from_slice(bytes);
        })
    };
    let outcome = run(spec, sink(0), sink(1))?;
    let said = std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((outcome, said))
}

/// One boot, in a directory of its own.
fn boot(spec: &Spec<'_>, stdout: &SharedSink, stderr: &SharedSink) -> Result<Outcome, BootError> {
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

    let receive = ports::listen(dir, stdout, stderr).map_err(io_error("listen for the guest"))?;
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
    let session = Session {
        dir,
        receive,
        emulator: session::start(&qemu::arguments(spec.machine, &files)?, dir)?,
        started,
        timeout: spec.timeout,
        boot_timeout: spec.boot_timeout,
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
