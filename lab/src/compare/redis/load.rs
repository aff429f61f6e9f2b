// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load generator of the workload `redis`: it stands for another machine.
//!
//! It runs in the guest, because that is the only machine there is, but its own code is left out of
//! the memory model: a client elsewhere would not use this machine's memory, and a generator slowed
//! by it would be what the run measures. It runs on copies of the C library, because the emulator
//! translates a page of code once for all processes that share it.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use anyhow::bail;
use anyhow::ensure;
use terrace_sys::procmaps::Mapping;
use terrace_sys::procmaps::MapsFile;

use crate::mark;

const PYTHON: &str = "/usr/bin/python3";
const LOADER: &str = "ld-linux-x86-64.so.2";
/// Memory that it takes once it runs, measured: buffers, and what its commands leave to its collector.
pub(super) const GROWS_BY_BYTES: u64 = 40 << 20;
/// What the generator and the server would share.
const LIBRARIES: [&str; 3] = [LOADER, "libc.so.6", "libm.so.6"];
const LIBRARIES_FROM: &str = "/lib/x86_64-linux-gnu";
const LIBRARIES_TO: &str = "/run/terrace-client-lib";

/// A child that does not outlive the run.
#[derive(Debug)]
pub(super) struct Owned(pub(super) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The running generator.
#[derive(Debug)]
pub(super) struct Load {
    child: Owned,
    says: ChildStdin,
}

impl Load {
    /// Starts it and waits until it has loaded its libraries.
    pub(super) fn start(python_path: &Path) -> anyhow::Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/redis-load.py");
        let last_cpu = std::thread::available_parallelism().map_or(1, usize::from) - 1;
        let libraries = copy_libraries().context("Cannot copy the C library for the load")?;
        let mut child = Command::new(libraries.join(LOADER))
            .arg("--library-path")
            .arg(libraries)
            .arg(PYTHON)
            .arg(&script)
            .arg(last_cpu.to_string())
            .env("PYTHONPATH", python_path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map(Owned)
            .with_context(|| format!("Cannot run {PYTHON}"))?;
        let says = child.0.stdin.take().context("No pipe to the load")?;
        let stdout = child.0.stdout.take().context("No pipe from the load")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(
            line.trim() == "ready",
            "The load generator did not start; is resp-benchmark in {}?",
            python_path.display()
        );
        Ok(Self { child, says })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Leaves its code out of the memory model.
    ///
    /// Gives the bytes of code that are left out.
    pub(super) fn stand_apart(&self, server: u32) -> anyhow::Result<u64> {
        let maps = |pid| {
            MapsFile::of(pid)
                .and_then(|mut file| file.all())
                .with_context(|| format!("Cannot read /proc/{pid}/maps"))
        };
        let (own, other) = (maps(self.pid())?, maps(server)?);
        let mut bytes = 0;
        for code in own_code(&own, &other)? {
            mark::leave_alone(code.range.start.0..code.range.end.0);
            bytes += code.range.end.0 - code.range.start.0;
        }
        Ok(bytes)
    }

    /// Starts the load.
    pub(super) fn go(&mut self, keys: u32, letters: usize, time: Duration) -> anyhow::Result<()> {
        writeln!(self.says, "{keys} {} {letters}", time.as_secs()).context("Cannot start the load")
    }

    /// Fails where it has ended.
    pub(super) fn is_up(&mut self) -> anyhow::Result<()> {
        match self.child.0.try_wait()? {
            Some(status) => bail!("The load generator ended with {status}"),
            None => Ok(()),
        }
    }
}

fn copy_libraries() -> std::io::Result<&'static Path> {
    let to = Path::new(LIBRARIES_TO);
    fs::create_dir_all(to)?;
    for name in LIBRARIES {
        fs::copy(Path::new(LIBRARIES_FROM).join(name), to.join(name))?;
    }
    Ok(to)
}

/// The code that only the client has. No code of the server may lie at the same addresses.
fn own_code<'a>(client: &'a [Mapping], server: &[Mapping]) -> anyhow::Result<Vec<&'a Mapping>> {
    let in_server = |mapping: &Mapping| {
        let same_file = |other: &Mapping| mapping.inode != 0 && mapping.inode == other.inode;
        server.iter().any(same_file)
    };
    let own: Vec<&Mapping> = client
        .iter()
        .filter(|mapping| mapping.executable && mapping.inode != 0 && !in_server(mapping))
        .collect();
    let overlaps =
        |a: &Mapping, b: &Mapping| a.range.start < b.range.end && b.range.start < a.range.end;
    for theirs in server.iter().filter(|mapping| mapping.executable) {
        ensure!(
            !own.iter().any(|mapping| overlaps(mapping, theirs)),
            "The server and its load have code at the same addresses; run it again"
        );
    }
    Ok(own)
}

/// Processor time that a process has used, in clock ticks of 10 ms; 0 where it is gone.
pub(super) fn processor_time(pid: u32) -> u128 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold blanks; user and system time are fields 14 and 15.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u128>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use terrace_core::Addr;
    use terrace_core::Range;

    use super::*;

    fn code(start: u64, inode: u64) -> Mapping {
        Mapping {
            range: Range {
                start: Addr(start),
                end: Addr(start + 0x2000),
            },
            readable: true,
            writable: false,
            executable: true,
            shared: false,
            offset: 0,
            inode,
            name: format!("/lib/{inode}"),
        }
    }

    #[test]
    fn shared_code_stays_in_the_model() {
        let client = [code(0x1000, 1), code(0x9000, 2)];
        let found = own_code(&client, &[code(0x5000, 2)]).unwrap();
        assert_eq!(found, [&client[0]]);
        assert!(own_code(&client, &[code(0x2000, 3)]).is_err(), "overlap");
    }

    #[test]
    fn this_process_has_used_processor_time() {
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {}
        assert!(processor_time(std::process::id()) > 0);
        assert_eq!(processor_time(0), 0);
    }
}
