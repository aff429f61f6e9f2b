// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the plugin into `harness.c`, which has a clock of its own, and runs a trace through it.

use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use terrace_lab::plugin;
use terrace_lab::plugin::Paths;
use terrace_lab::plugin::Pmu;
use terrace_lab::series::Line;
use terrace_lab::series::Series;
use terrace_machine_spec::Machine;
use terrace_machine_spec::machine::Lab;

use crate::reference::Outcome;
use crate::trace::Access;

/// The plugin's files; the harness includes `delay.c`, for its clock.
const SOURCES: [&str; 5] = ["options.c", "llc.c", "hook.c", "pmu.c", "report.c"];

/// The built program, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Harness {
    directory: TempDir,
    program: PathBuf,
}

impl Harness {
    /// With the compiler and the flags of `build.rs`, but that a warning is none of this test's business.
    pub(crate) fn build() -> Self {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("harness");
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler
            .args(["-O2", "-std=gnu11", "-Wall", "-Wextra"])
            .args(["-flto", "-fvisibility=hidden", "-pthread", "-o"])
            .arg(&program)
            .arg(lab.join("tests/plugin_model/harness.c"))
            .args(SOURCES.map(|source| lab.join("plugin").join(source)));
        let status = compiler.status().expect("a C compiler built the plugin");
        assert!(status.success(), "{compiler:?}: {status}");
        Self { directory, program }
    }

    /// What the plugin made of each access, and the last line of its series.
    pub(crate) fn run(
        &self,
        machine: &Machine,
        lab: &Lab,
        ticks_per_8ns: u32,
        trace: &[Access],
    ) -> (Vec<Outcome>, Line) {
        let paths = Paths::in_directory(self.directory.path());
        let pmu = File::create(&paths.pmu).unwrap();
        pmu.set_len(Pmu::bytes(machine, lab)).unwrap();
        let accesses = self.directory.path().join("trace");
        let text: String = trace.iter().map(Access::line).collect();
        std::fs::write(&accesses, text).unwrap();
        let output = Command::new(&self.program)
            .arg(ticks_per_8ns.to_string())
            .args(plugin::options(machine, lab, &Pmu::default(), &paths))
            .stdin(File::open(&accesses).unwrap())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "The harness ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let outcomes = String::from_utf8(output.stdout).unwrap();
        let series = std::fs::read_to_string(&paths.series).unwrap();
        let series = Series::parse(&series).unwrap();
        let outcomes = outcomes.lines().map(outcome).collect();
        (outcomes, series.totals().unwrap().clone())
    }
}

/// A line of the harness: two nodes or -1, and a tick.
fn outcome(line: &str) -> Outcome {
    let fields: Vec<&str> = line.split(' ').collect();
    let [served, written, until] = fields[..] else {
        panic!("The harness printed '{line}'");
    };
    Outcome {
        served: served.parse().ok(),
        written: written.parse().ok(),
        until: until.parse().unwrap(),
    }
}
