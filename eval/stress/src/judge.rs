// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts victim and driver, and says how it went.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::ChildStdin;
use std::process::ChildStdout;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use anyhow::bail;
use terrace_proto::SOCKET_ENV;

use crate::driver::Counts;
use crate::made_with;
use crate::options::Chaos;
use crate::options::Options;

/// A started process with its pipes; killed if dropped while it runs.
struct Role {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Role {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("no pipe")?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self {
            child,
            input,
            output,
        })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn say(&mut self, what: &str) {
        // A process that is gone tells so by its exit status.
        let _ = writeln!(self.input, "{what}");
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the scenario.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("socket");
    let own = std::env::current_exe()?;
    let agent = find_agent(options.agent.as_deref())?;
    let mut driver = Role::start(&mut drive_command(&own, options, &socket))?;
    expect(&mut driver, "LISTENING")?;
    let mut victim = Role::start(&mut victim_command(&own, options, &socket, &agent))?;
    expect(&mut victim, "READY")?;
    expect(&mut driver, "CONNECTED").context("The agent did not come up in the victim")?;
    driver.say("go");
    let half = Duration::from_secs_f64(options.seconds / 2.0);
    let counts = if options.kill_supervisor {
        std::thread::sleep(half);
        // SIGKILL, in the middle of everything.
        driver.child.kill()?;
        driver.child.wait()?;
        std::thread::sleep(half);
        None
    } else {
        driver_counts(&mut driver, &mut victim)?
    };
    victim.say("stop");
    let verdict = victim.line()?;
    let status = victim.child.wait()?;
    if !verdict.starts_with("OK") || !status.success() {
        bail!("{}", describe(&verdict, status));
    }
    report(options, counts.as_ref(), &verdict)
}

/// Waits for the driver's end; a victim that finds a wrong word ends first.
fn driver_counts(driver: &mut Role, victim: &mut Role) -> anyhow::Result<Option<Counts>> {
    loop {
        if let Some(status) = victim.child.try_wait()? {
            let verdict = victim.line()?;
            bail!("{}", describe(&verdict, status));
        }
        if let Some(status) = driver.child.try_wait()? {
            // The two may end together, and then the victim has the reason.
            std::thread::sleep(Duration::from_millis(200));
            if let Some(status) = victim.child.try_wait()? {
                let verdict = victim.line()?;
                bail!("{}", describe(&verdict, status));
            }
            if !status.success() {
                bail!("The driver failed: {status}");
            }
            return Ok(Some(serde_json::from_str(&driver.line()?)?));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn describe(verdict: &str, status: std::process::ExitStatus) -> String {
    if verdict.starts_with("LOST") {
        verdict.to_owned()
    } else {
        format!("The victim ended with {status} '{verdict}'")
    }
}

fn expect(role: &mut Role, what: &str) -> anyhow::Result<()> {
    let line = role.line()?;
    if !line.starts_with(what) {
        bail!("Expected {what}, got '{line}'");
    }
    Ok(())
}

/// The library: where it was named, else beside this program.
pub(crate) fn find_agent(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    if let Some(path) = named {
        return path
            .canonicalize()
            .with_context(|| format!("No agent library at {}", path.display()));
    }
    let dir = own.parent().context("no directory")?;
    // `cargo build` puts it beside this program, `cargo test` into deps: the newer one is meant.
    let newest = ["libterrace.so", "deps/libterrace.so"]
        .iter()
        .map(|name| dir.join(name))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max();
    newest.map(|(_, path)| path).with_context(|| {
        format!(
            "No libterrace.so beside {}: build terrace-agent, or name it with --agent",
            own.display()
        )
    })
}

fn drive_command(own: &Path, options: &Options, socket: &Path) -> Command {
    let mut command = Command::new(own);
    command
        .arg("drive")
        .arg("--socket")
        .arg(socket)
        .args(["--seconds", &options.seconds.to_string()])
        .args(["--page-size", options.page_size.name()])
        .args(["--pages", &options.page_count().to_string()])
        .args(["--workers", &options.workers.to_string()])
        .args(["--batch", &options.batch.to_string()])
        .args(["--copy-threads", &options.copy_threads.to_string()])
        .args(options.streaming.then_some("--streaming"))
        .args(options.arm.then_some("--arm"))
        .args(options.exchanges.then_some("--exchanges"))
        .args(["--commit", options.commit.name()]);
    if !options.chaos.is_empty() {
        command.args(["--chaos", &names(&options.chaos)]);
    }
    if options.everywhere {
        command.arg("--everywhere");
    }
    // What a forked child shares is copied by the kernel, to wherever it likes.
    if options.chaos.is_empty() && !options.everywhere && !options.arm {
        command.arg("--placement");
    }
    if options.cost {
        command.arg("--cost");
    }
    if options.latency {
        command.arg("--latency");
    }
    if options.scattered {
        command.arg("--scattered");
    }
    command
}

/// As the command line has them.
fn names(chaos: &[Chaos]) -> String {
    let names = chaos.iter().map(|kind| format!("{kind:?}").to_lowercase());
    names.collect::<Vec<_>>().join(",")
}

fn victim_command(own: &Path, options: &Options, socket: &Path, agent: &Path) -> Command {
    let idle = options.cost || options.latency;
    let threads = if idle { 0 } else { options.threads };
    let mut command = Command::new(own);
    command
        .arg("victim")
        .args(["--page-size", options.page_size.name()])
        .args(["--pages", &options.page_count().to_string()])
        .args(["--threads", &threads.to_string()])
        .args(["--spinners", &options.spinners.to_string()])
        .args(options.split.then_some("--split"))
        .env(SOCKET_ENV, socket)
        .env("LD_PRELOAD", agent);
    if !options.chaos.is_empty() {
        command.args(["--chaos", &names(&options.chaos)]);
    }
    if options.skip_verify {
        command.env("TERRACE_TEST_SKIP_VERIFY", "1");
    }
    if options.no_fork_events {
        command.env("TERRACE_TEST_NO_FORK_EVENTS", "1");
    }
    command
}

fn report(options: &Options, counts: Option<&Counts>, verdict: &str) -> anyhow::Result<()> {
    let Some(counts) = counts else {
        println!("{verdict} (supervisor killed half-way)");
        return Ok(());
    };
    if options.json {
        println!("{}", made_with::json(counts, Some(options.seconds))?);
        return Ok(());
    }
    println!("{verdict}");
    for cost in &counts.costs {
        println!("{cost}");
    }
    for latency in &counts.latencies {
        println!("{latency}");
    }
    if options.cost || options.latency {
        return Ok(());
    }
    println!(
        "{:.0} s: committed {} taken out {} aborted {} shadow hits {} exchanged {} stale caught {} busy {}",
        counts.seconds,
        counts.committed,
        counts.taken_out,
        counts.aborted,
        counts.shadow_hits,
        counts.exchanged,
        counts.stale_caught,
        counts.busy
    );
    println!(
        "gone {} not managed {} no shadow {} no memory {} failed {} shadows dropped {} reclaimed {}",
        counts.gone,
        counts.not_managed,
        counts.no_shadow,
        counts.no_memory,
        counts.failed,
        counts.shadows_dropped,
        counts.reclaimed
    );
    println!(
        "wp faults {} missing faults {} writes waited {} unmapped {} remapped {} arenas moved {}",
        counts.wp_faults,
        counts.missing_faults,
        counts.writes_waited,
        counts.unmapped,
        counts.remapped,
        counts.arenas_moved
    );
    println!(
        "armed {} moved beside {}",
        counts.armed, counts.moved_beside
    );
    println!(
        "inaccessible us: p50 {} p99 {} max {}; placed {} misplaced {}",
        counts.inaccessible_ns_p50 / 1000,
        counts.inaccessible_ns_p99 / 1000,
        counts.inaccessible_ns_max / 1000,
        counts.placed,
        counts.misplaced
    );
    Ok(())
}
