// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that is watched: one workload of `terrace-bench`, whose accesses are known.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use anyhow::ensure;
use terrace_bench::fill;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_sys::clock;
use terrace_sys::lab_marker;
use terrace_sys::procmaps::MapsFile;
use terrace_workload::PAGE_BYTES;
use terrace_workload::Program;
use terrace_workload::Sizes;
use terrace_workload::Workload;

/// What to run.
#[derive(Debug, Clone)]
pub struct Load {
    /// The program `terrace-bench`.
    pub bench: PathBuf,
    /// Name of the workload.
    pub workload: String,
    /// Parameters of it, each `NAME=VALUE`.
    pub settings: Vec<String>,
    /// What its sizes are made from, bytes.
    pub fast_free: u64,
    /// Of everything random.
    pub seed: u64,
    /// Where its memory is, as `terrace-bench` takes it.
    pub place: &'static str,
}

/// The program once it runs; killed when dropped.
#[derive(Debug)]
pub struct Target {
    child: Child,
    program: Program,
    seed: u64,
    began: Nanos,
    /// Its memory.
    pub range: Range,
}

impl Load {
    /// The one program of the workload.
    ///
    /// # Errors
    ///
    /// Where there is no such workload, or it has several.
    pub fn program(&self) -> anyhow::Result<Program> {
        let sizes = Sizes::fast_free(self.fast_free);
        let sizes = (self.settings.iter()).try_fold(sizes, |sizes, one| sizes.with(one))?;
        let mut workload = Workload::named(&self.workload, &sizes)?;
        ensure!(
            workload.programs.len() == 1,
            "{} has {} programs; trackers are held against one",
            self.workload,
            workload.programs.len()
        );
        Ok(workload.programs.remove(0))
    }

    /// Fills its memory and lets it go.
    ///
    /// # Errors
    ///
    /// Where it cannot be run.
    pub fn start(&self) -> anyhow::Result<Target> {
        let program = self.program()?;
        let mut child = Command::new(&self.bench)
            .arg(&self.workload)
            .args(&self.settings)
            .args(["--hold", "--seconds=1h", "--place", self.place])
            .arg(format!("--fast-free={}", self.fast_free))
            .arg(format!("--seed={}", self.seed))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("Cannot run {}", self.bench.display()))?;
        let mut stdin = child.stdin.take().context("No pipe to terrace-bench")?;
        let stdout = child.stdout.take().context("No pipe from terrace-bench")?;
        let mut target = Target {
            child,
            seed: self.seed,
            began: Nanos::ZERO,
            range: Range {
                start: Addr(0),
                end: Addr(0),
            },
            program,
        };
        let mut lines = BufReader::new(stdout).lines();
        lines
            .next()
            .context("terrace-bench ended before its memory was filled")??;
        // It says something each second.
        std::thread::spawn(move || lines.count());
        target.range = target.arena()?;
        stdin
            .write_all(b"go\n")
            .context("Cannot start the workload")?;
        target.began = clock::now();
        Ok(target)
    }
}

impl Target {
    /// Whose memory it is.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Visits to each page between these times, as shares of all.
    #[must_use]
    pub fn truth(&self, from: Nanos, to: Nanos) -> Vec<f64> {
        let (from, to) = (from.since(self.began), to.since(self.began));
        let shares = fill::mean_shares_between(&self.program, self.seed, from, to);
        shares.into_iter().map(f64::from).collect()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn arena(&self) -> anyhow::Result<Range> {
        let bytes = u64::from(self.program.pages) * PAGE_BYTES;
        let mappings = MapsFile::of(self.child.id())?.all()?;
        let arena = mappings
            .iter()
            .find(|one| one.is_plain_anonymous() && one.range.bytes() == bytes);
        Ok(arena
            .with_context(|| format!("terrace-bench has no mapping of {bytes} bytes"))?
            .range)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // It would have stopped the memory model at its end.
        lab_marker::stop();
    }
}
