// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs cells in the lab and keeps what came of each ([`Kept`]): a call that was ended goes on where it was.

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use anyhow::bail;
use serde::Deserialize;
use serde::Serialize;
use terrace_experiment::Kept;
use terrace_experiment::Key;
use terrace_experiment::hash_of_bytes;
use terrace_machine_spec::Machine;

use crate::boot;
use crate::compare::case::Case;
use crate::compare::matrix;
use crate::compare::record::RunRecord;
use crate::compare::record::System;
use crate::job::Delays;
use crate::job::Job;
use crate::kernel::Kernel;
use crate::plugin::Pmu;

/// One pair of runs to be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The workload, and where its pages start.
    pub case: Case,
    /// Size of the emulated machine's fast node, bytes.
    pub fast_bytes: u64,
    /// The system.
    pub system: System,
}

impl Cell {
    fn name(&self) -> String {
        let (size, system) = (self.fast_bytes >> 20, self.system.name());
        format!("{}-{size}MiB-{system}", self.case)
    }
}

/// What all cells have in common; a kept run of other settings is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The machine's name.
    pub machine: String,
    /// A hash of what its file says.
    pub machine_hash: String,
    /// The kernel's image, by name and a hash of its bytes ([`kernel_hash`]).
    pub kernel: String,
    /// A hash of the programs that run in the guest ([`programs_hash`]).
    pub programs: String,
    /// Threads of a workload.
    pub threads: u32,
    /// Free fast memory that the workloads are sized for, bytes.
    pub sized_for: u64,
    /// Measured seconds.
    pub seconds: u64,
    /// Of the workloads.
    pub seed: u64,
}

/// A cell's run in the lab, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellRun {
    /// What it was run with.
    pub settings: Settings,
    /// Which it is.
    pub cell: Cell,
    /// What came of it.
    pub record: RunRecord,
}

/// Everything a cell needs.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The machine; its fast node's size is the cell's.
    pub machine: &'a Machine,
    /// Where it was read from.
    pub machine_file: &'a Path,
    /// The guest's kernel.
    pub kernel: &'a Kernel,
    /// The program `terrace-lab`.
    pub program: PathBuf,
    /// Where `terrace` and `terrace-bench` are.
    pub tools: PathBuf,
    /// What all cells have in common.
    pub settings: Settings,
    /// Where runs are kept.
    pub kept: Kept,
}

/// A hash of what the guest runs beside this program: the command with its supervisor, its agent and the benchmarks.
/// This program's own sources are in every key; those may have been built from others.
///
/// # Errors
///
/// Where one of them cannot be read.
pub fn programs_hash(tools: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    for name in ["terrace", "libterrace.so", "terrace-bench"] {
        let path = tools.join(name);
        let program = std::fs::read(&path)
            .with_context(|| format!("Cannot read {}; build it with make build", path.display()))?;
        bytes.extend_from_slice(&program);
    }
    Ok(hash_of_bytes(&bytes))
}

/// The name of a kernel's image and a hash of its bytes.
///
/// # Errors
///
/// Where it cannot be read.
pub fn kernel_hash(kernel: &Kernel) -> anyhow::Result<String> {
    let image = &kernel.image;
    let bytes = std::fs::read(image).with_context(|| format!("Cannot read {}", image.display()))?;
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!("{name} {}", hash_of_bytes(&bytes)))
}

/// All cells, by case and size.
#[must_use]
pub fn all(cases: &[Case], fast: &[u64], systems: &[System]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for case in cases {
        for &fast_bytes in fast {
            for &system in systems {
                let case = case.clone();
                cells.push(Cell {
                    case,
                    fast_bytes,
                    system,
                });
            }
        }
    }
    cells
}

/// The machine with a fast node of that size in the lab.
#[must_use]
pub fn resized(machine: &Machine, fast_bytes: u64) -> Machine {
    let mut machine = machine.clone();
    let fast = machine.ranking(0)[0];
    machine.nodes[fast].lab_bytes = Some(fast_bytes);
    machine
}

impl Bench<'_> {
    fn key(&self, cell: &Cell, round: u32) -> Key {
        Key::of_machine(cell.name(), &(&self.settings, cell, round))
    }

    /// The kept run of a cell in that round, if this build made one with these settings.
    #[must_use]
    pub fn kept(&self, cell: &Cell, round: u32) -> Option<CellRun> {
        self.kept.find(&self.key(cell, round))
    }

    /// What the guest's kernel keeps free with a fast node of that size (`vm.min_free_kbytes`), in
    /// bytes; a boot of its own, kept like a cell.
    ///
    /// # Errors
    ///
    /// Where the guest does not say, or the answer cannot be kept.
    pub fn min_free(&self, fast_bytes: u64) -> anyhow::Result<u64> {
        let name = format!("min-free-{}MiB", fast_bytes >> 20);
        let key = Key::of_machine(name, &(&self.settings, fast_bytes));
        if let Some(bytes) = self.kept.find(&key) {
            return Ok(bytes);
        }
        let machine = resized(self.machine, fast_bytes);
        let command = ["cat", "/proc/sys/vm/min_free_kbytes"];
        let job = Job::here(&machine, command.map(str::to_owned).into(), Delays::Off);
        let spec = boot::Spec {
            machine: &machine,
            kernel: self.kernel,
            job: job.context("Cannot tell the current directory")?,
            pmu: Pmu::default(),
            timeout: boot::BOOT_TIMEOUT,
            boot_timeout: boot::BOOT_TIMEOUT,
            program: self.program.clone(),
            forward: None,
        };
        let (_, [said, _]) = boot::said(&spec)?;
        let text = String::from_utf8_lossy(&said).into_owned();
        let kib: u64 = text
            .trim()
            .parse()
            .with_context(|| format!("The guest's min_free_kbytes is '{text}'"))?;
        let bytes = kib << 10;
        self.kept.keep(&key, &bytes).context("Cannot keep it")?;
        Ok(bytes)
    }

    /// Runs a cell in the lab and keeps what came of it as that round's.
    ///
    /// # Errors
    ///
    /// Where the run failed or cannot be kept.
    pub fn run(&self, cell: &Cell, round: u32, tell: fn(&str)) -> anyhow::Result<CellRun> {
        let machine = resized(self.machine, cell.fast_bytes);
        let plan = matrix::Plan {
            machine: &machine,
            machine_file: self.machine_file,
            kernel: self.kernel,
            program: self.program.clone(),
            tools: self.tools.clone(),
            // No load generator runs, but the guest's side wants to be told of one.
            python_path: PathBuf::from("/nonexistent"),
            cases: vec![cell.case.clone()],
            threads: self.settings.threads,
            systems: vec![cell.system],
            time: Duration::from_secs(self.settings.seconds),
            rounds: 1,
            within: None,
            seed: self.settings.seed,
            fast_free: Some(self.settings.sized_for),
            huge: false,
            bind: false,
            terrace_options: Vec::new(),
            json: None,
            html: None,
        };
        let record = matrix::run(&plan, tell)?
            .pop()
            .context("No run came back")?;
        if let Some(why) = &record.failed {
            bail!("{} under {} failed: {why}", cell.case, cell.system.name());
        }
        let kept = CellRun {
            settings: self.settings.clone(),
            cell: cell.clone(),
            record,
        };
        let keep = self.kept.keep(&self.key(cell, round), &kept);
        keep.with_context(|| format!("Cannot keep {}", cell.name()))?;
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_runs_of_the_same_settings_are_taken_again() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
        let machine = Machine::load(&path).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let kernel = Kernel {
            image: PathBuf::new(),
            modules: PathBuf::new(),
        };
        let mut bench = Bench {
            machine: &machine,
            machine_file: &path,
            kernel: &kernel,
            program: PathBuf::new(),
            tools: PathBuf::new(),
            settings: Settings {
                machine: machine.name.clone(),
                machine_hash: String::new(),
                kernel: String::new(),
                programs: "one build".to_owned(),
                threads: 2,
                sized_for: 1 << 26,
                seconds: 10,
                seed: 1,
            },
            kept: Kept::new(directory.path().to_owned()),
        };
        let cell = all(
            &["gups:full".parse().unwrap()],
            &[1 << 28],
            &[System::Preset("nomad")],
        )
        .remove(0);
        assert_eq!(bench.kept(&cell, 1), None);
        let record = RunRecord::failed("gups", System::Preset("nomad"), String::new());
        let kept = CellRun {
            settings: bench.settings.clone(),
            cell: cell.clone(),
            record,
        };
        bench.kept.keep(&bench.key(&cell, 2), &kept).unwrap();
        assert_eq!(bench.kept(&cell, 1), None);
        assert_eq!(bench.kept(&cell, 2), Some(kept));
        for change in [
            |settings: &mut Settings| settings.seconds = 20,
            |settings: &mut Settings| settings.threads = 1,
            |settings: &mut Settings| settings.kernel = "another kernel".to_owned(),
            |settings: &mut Settings| settings.programs = "another build".to_owned(),
            |settings: &mut Settings| settings.machine_hash = "another file".to_owned(),
        ] {
            let before = bench.settings.clone();
            change(&mut bench.settings);
            assert_eq!(bench.kept(&cell, 2), None, "{:?}", bench.settings);
            bench.settings = before;
        }
        let slow = all(&["gups:slow".parse().unwrap()], &[1 << 28], &[cell.system]).remove(0);
        assert_eq!(bench.kept(&slow, 2), None);
        assert!(bench.kept(&cell, 2).is_some());
    }

    #[test]
    fn another_build_of_any_program_has_another_hash() {
        let tools = tempfile::tempdir().unwrap();
        assert!(programs_hash(tools.path()).is_err());
        let write = |name: &str, text: &str| std::fs::write(tools.path().join(name), text).unwrap();
        for name in ["terrace", "libterrace.so", "terrace-bench"] {
            write(name, "a");
        }
        let before = programs_hash(tools.path()).unwrap();
        assert_eq!(programs_hash(tools.path()).unwrap(), before);
        for name in ["terrace", "libterrace.so", "terrace-bench"] {
            write(name, "b");
            assert_ne!(programs_hash(tools.path()).unwrap(), before, "{name}");
            write(name, "a");
        }
    }

    #[test]
    fn the_fast_node_gets_the_size_asked_for() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
        let machine = resized(&Machine::load(&path).unwrap(), 7 << 20);
        assert_eq!(machine.nodes[0].lab_bytes, Some(7 << 20));
        assert_ne!(machine.nodes[1].lab_bytes, Some(7 << 20));
    }
}
