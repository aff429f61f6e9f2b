// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated two-tier machine that the tests share: it is booted once and does one job after the other.
//!
//! A shell in it takes the jobs from a directory that host and guest share, and between two of them makes the
//! machine as it was: processes, kernel settings, /tmp, caches. It ends by itself when nothing comes for a
//! while; after a job that failed the next one gets a fresh machine. What changes the machine for good, or needs
//! options of its own, boots one for itself ([`guest_with`]).

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use tempfile::TempDir;

/// A job that takes longer hangs: many times as long as each takes, as hosts differ.
const LIMIT: Duration = Duration::from_secs(1_500);
const PAUSE: Duration = Duration::from_millis(50);

/// The guest's side. Ends after a minute without a job.
const SERVER: &str = r#"cd "$1" || exit 1
files="/proc/sys/kernel/numa_balancing /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps
  /sys/kernel/mm/numa/demotion_enabled $(echo /sys/kernel/debug/sched/numa_balancing/*)"
declare -A was; for file in $files; do was[$file]=$(cat $file); done
declare -A known; for pid in $(pgrep .); do known[$pid]=1; done
idle=0
while [ $idle -lt 600 ]; do
  [ -e job ] || { sleep 0.1; idle=$((idle + 1)); continue; }
  mv job running
  bash running > out 2> err < /dev/null; code=$?
  terrace-lab mark stop
  for pid in $(pgrep .); do
    [ -n "${known[$pid]:-}" ] || [ $pid = $$ ] || [ ! -e /proc/$pid/exe ] || kill -KILL $pid
  done 2> /dev/null
  for file in $files; do echo ${was[$file]} > $file; done
  rm -rf /tmp/* /run/terrace
  echo 3 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory
  rm running; echo $code > code.new; mv code.new code
  idle=0
done
"#;

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn good(self) -> String {
        assert_eq!(
            self.code,
            Some(0),
            "stdout:\n{}\nstderr:\n{}",
            self.out,
            self.err
        );
        self.out
    }
}

/// Where the programs under test are.
pub(crate) fn bin() -> PathBuf {
    let lab = Path::new(env!("CARGO_BIN_EXE_terrace-lab"));
    lab.parent().expect("a file is in a directory").to_owned()
}

/// The machine file of nearly all tests.
const TWO_TIERS: &str = "cxl-2tier.toml";

fn lab(machine: &str, options: &[&str]) -> Command {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let machine = machines.join(machine);
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-lab"));
    command.arg("run").args(options).arg("--machine");
    command.arg(machine).args(["--", "bash", "-c"]);
    command
}

fn with_path(script: &str) -> String {
    format!("set -u; export PATH={}:$PATH\n{script}", bin().display())
}

/// In a machine of its own.
pub(crate) fn guest_with(options: &[&str], script: &str) -> Ran {
    guest_on(TWO_TIERS, options, script)
}

/// In a machine of its own, of that file.
pub(crate) fn guest_on(machine: &str, options: &[&str], script: &str) -> Ran {
    let limit = format!("{}s", LIMIT.as_secs());
    let output = lab(machine, &[options, &["--timeout", &limit]].concat())
        .arg(with_path(script))
        .output()
        .expect("terrace-lab was built for this test");
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// In the shared machine, all of its memory equally fast.
pub(crate) fn guest(script: &str) -> Ran {
    shared(&with_path(script))
}

/// In the shared machine, with the delays of the slow node: the default moves nothing between nodes that are
/// equally fast.
pub(crate) fn slowed(script: &str) -> Ran {
    shared(&with_path(&format!(
        "terrace-lab mark start || exit 99\n(\n{script}\n)"
    )))
}

/// A machine that waits for jobs.
struct Shared {
    lab: Child,
    dir: TempDir,
}

fn shared(job: &str) -> Ran {
    static MACHINE: Mutex<Option<Shared>> = Mutex::new(None);
    let mut machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ready = machine
        .take()
        .and_then(Shared::running)
        .unwrap_or_else(Shared::boot);
    let begun = Instant::now();
    let ran = ready.run(job);
    println!("{:.0} s in the machine", begun.elapsed().as_secs_f64());
    if ran.code == Some(0) {
        *machine = Some(ready);
    }
    ran
}

impl Shared {
    fn boot() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let path = dir.path().to_str().expect("a plain path");
        let lab = lab(
            TWO_TIERS,
            &["--delays", "mark", "--timeout", "60m", "--share", path],
        )
        .args([&with_path(SERVER), "server", path])
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("terrace-lab was built for this test");
        Self { lab, dir }
    }

    /// Itself, unless it has ended.
    fn running(mut self) -> Option<Self> {
        matches!(self.lab.try_wait(), Ok(None)).then_some(self)
    }

    fn run(&mut self, job: &str) -> Ran {
        let path = |name: &str| self.dir.path().join(name);
        std::fs::write(path("job.new"), job).expect("a job");
        std::fs::rename(path("job.new"), path("job")).expect("it is given");
        let begun = Instant::now();
        while !path("code").exists() {
            let ended = self.lab.try_wait().expect("a child");
            assert!(ended.is_none(), "the machine is gone: {ended:?}");
            assert!(begun.elapsed() < LIMIT, "no end: {job}");
            std::thread::sleep(PAUSE);
        }
        let take = |name: &str| {
            let bytes = std::fs::read(path(name)).expect("the guest wrote it");
            std::fs::remove_file(path(name)).expect("it is ours");
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ran {
            code: take("code").trim().parse().ok(),
            out: take("out"),
            err: take("err"),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The emulator, too.
        let group = format!("-{}", self.lab.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).output();
        let _ = self.lab.wait();
    }
}
