// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload `redis`: Debian's server, unmodified; its data set, load, progress and check.
//!
//! The data set is 1.75 times what is free on the fast node: values of 200 bytes, some 310 bytes of
//! resident memory a key, made by `DEBUG POPULATE`. All of the server's pages are then pushed to the
//! slow node (where it starts from a full fast node, none: they are on the fast node as far as they fit), and the load
//! starts. It comes from the host, over the network, as a real server's comes from other machines:
//! the generator takes no processor and no memory of the machine under test. The oracle's pages are placed under the
//! load, before the time that counts begins.
//!
//! [`data`]: keys and values, how they are made and checked. [`oracle`]: which pages are hottest, and their placement.

mod data;
mod oracle;

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::bail;
use anyhow::ensure;
use terrace_core::Pid;
use terrace_workload::report::Line;
use terrace_workload::report::Second;

use super::case::Start;
use super::record::GuestLine;
use super::record::System;
use super::resp::Client;
use super::scenario::Setting;
use super::scenario::free_bytes;
use super::scenario::say;
use super::system_control::Steering;
use crate::lab_marker;

use data::LETTERS;

const SOCKET: &str = "/run/terrace-redis.sock";
const SERVER: &str = "/usr/bin/redis-server";
/// The server's port, as in `eval/lab/scenarios/redis.conf`.
pub(super) const PORT: u16 = 7777;
/// By when a load must have started, or have ended.
const PATIENCE: Duration = Duration::from_secs(60);
/// Commands after which the load is there.
const UNDER_LOAD: u64 = 1000;

/// A child that does not outlive the run.
#[derive(Debug)]
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the workload in the guest, from an empty machine to the check of the data set.
///
/// # Errors
///
/// Where anything on the way does not work, and where a value is wrong.
pub(super) fn run(setting: &Setting, steering: &Steering) -> anyhow::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "1").context("Cannot drop the page cache")?;
    let fast_free = match setting.fast_free {
        Some(bytes) => bytes,
        None => free_bytes(setting.fast_node)?,
    };
    say(&GuestLine::Sized(fast_free));
    let keys = data::keys_for(fast_free);
    let mut server = start_server(steering)?;
    let mut client = connect(&mut server)?;
    data::preload(&mut client, keys)?;
    note(format!("{keys} keys made"));
    let pid = server_pid(&mut client)?;
    if setting.system != System::Oracle && setting.case.start != Some(Start::Full) {
        push(pid, setting)?;
    }
    steering.point_out_terrace(std::iter::once(Pid(pid)));
    say(&GuestLine::Load(super::record::Load {
        keys,
        letters: LETTERS,
        seconds: (setting.time + PATIENCE * 2).as_secs(),
    }));
    wait_until(
        &mut client,
        "stats",
        "total_commands_processed:",
        |commands| commands > UNDER_LOAD,
    )?;
    // Memory is as slow as it is said to be before anybody measures it.
    lab_marker::start();
    if setting.system == System::Oracle {
        oracle::place(pid, setting)?;
    }
    steering.go()?;
    let before = processor_time(pid);
    watch(&mut client, setting.time)?;
    lab_marker::stop();
    let busy = processor_time(pid).saturating_sub(before);
    note(format!(
        "server busy {} % of the time",
        busy * 1000 / setting.time.as_millis().max(1)
    ));
    say(&GuestLine::EndLoad);
    wait_until(&mut client, "clients", "connected_clients:", |clients| {
        clients == 1
    })?;
    note("checking all values".to_owned());
    data::check(&mut client, keys)?;
    // The server closes the connection instead of answering.
    let _ = client.ask(&[b"SHUTDOWN", b"NOSAVE"]);
    let status = server.0.wait().context("Cannot wait for redis-server")?;
    ensure!(status.success(), "redis-server ended with {status}");
    Ok(())
}

/// Waits until a number in INFO is as it should be.
fn wait_until(
    client: &mut Client<UnixStream>,
    section: &str,
    name: &str,
    is_right: impl Fn(u64) -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let info = client.ask(&[b"INFO", section.as_bytes()])?;
        let found = number(&info, name).with_context(|| format!("INFO has no {name}"))?;
        if is_right(found) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "The load from the host did not start or end in time: {name}{found} after {} s",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn note(text: String) {
    say(&GuestLine::Note(text));
}

fn start_server(steering: &Steering) -> anyhow::Result<Owned> {
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/redis.conf");
    let _ = fs::remove_file(SOCKET);
    steering
        .command(Path::new(SERVER))
        .arg(conf)
        .args(["--dir", "/tmp"])
        .stdin(Stdio::null())
        // Standard output is the scenario's own.
        .stdout(std::io::stderr())
        .spawn()
        .map(Owned)
        .with_context(|| format!("Cannot run {SERVER}"))
}

fn connect(server: &mut Owned) -> anyhow::Result<Client<UnixStream>> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match UnixStream::connect(SOCKET) {
            Ok(stream) => return Ok(Client::new(stream)),
            Err(error) if Instant::now() > deadline => {
                return Err(error).context("Cannot reach redis-server");
            }
            Err(_) => {}
        }
        if let Some(status) = server.0.try_wait()? {
            bail!("redis-server ended with {status} before it listened");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn server_pid(client: &mut Client<UnixStream>) -> anyhow::Result<u32> {
    let info = client.ask(&[b"INFO", b"server"])?;
    number(&info, "process_id:")
        .and_then(|pid| u32::try_from(pid).ok())
        .context("INFO names no process")
}

/// The number behind a name in INFO.
fn number(info: &str, name: &str) -> Option<u64> {
    info.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|value| value.trim().parse().ok())
}

/// Moves all pages of the server to the slow node, and makes sure that they are there.
fn push(pid: u32, setting: &Setting) -> anyhow::Result<()> {
    let (fast, slow) = (setting.fast_node, setting.slow_node);
    let status = Command::new("migratepages")
        .args([pid.to_string(), fast.to_string(), slow.to_string()])
        .status()
        .context("Cannot run migratepages; install numactl")?;
    ensure!(status.success(), "migratepages ended with {status}");
    let path = format!("/proc/{pid}/numa_maps");
    let maps = fs::read_to_string(&path).with_context(|| format!("Cannot read {path}"))?;
    let (left, moved) = (anonymous_on(&maps, fast), anonymous_on(&maps, slow));
    note(format!(
        "{left} of the server's pages on node {fast}, {moved} on node {slow}"
    ));
    ensure!(
        left * 50 < moved,
        "{left} of the server's pages stayed on node {fast}, {moved} are on node {slow}"
    );
    Ok(())
}

/// Anonymous pages on a node, from `numa_maps`.
fn anonymous_on(maps: &str, node: usize) -> u64 {
    let key = format!("N{node}=");
    maps.lines()
        .filter(|line| line.contains(" anon="))
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.strip_prefix(&key)?.parse::<u64>().ok())
        .sum()
}

/// Says once a second how many commands the server has done, without its own questions.
fn watch(client: &mut Client<UnixStream>, time: Duration) -> anyhow::Result<()> {
    let mut asked = 0;
    let mut commands = |client: &mut Client<UnixStream>| -> anyhow::Result<u64> {
        let info = client.ask(&[b"INFO", b"stats"])?;
        let all = number(&info, "total_commands_processed:").context("INFO counts nothing")?;
        asked += 1;
        Ok(all - asked)
    };
    let first = commands(client)?;
    let begin = Instant::now();
    let tell = |t: f64, ops: u64| {
        let line = Line::Second(Second { t, ops });
        lab_marker::mark(&serde_json::to_string(&line).expect("plain numbers"));
        say(&GuestLine::Workload(line));
    };
    tell(0.0, 0);
    for second in 1..=time.as_secs() {
        let next = Duration::from_secs(second);
        std::thread::sleep(next.saturating_sub(begin.elapsed()));
        let now = commands(client)?;
        tell(begin.elapsed().as_secs_f64(), now - first);
    }
    Ok(())
}

/// Processor time that a process has used, in clock ticks of 10 ms; 0 where it is gone.
fn processor_time(pid: u32) -> u128 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold blanks; user and system time are fields 14 and 15.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u128>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_from_the_kernel_and_the_server() {
        let maps = "00400000 default file=/usr/bin/x mapped=3 N0=3\n\
                    7f00 default anon=10 dirty=10 N0=4 N1=6 kernelpagesize_kB=4\n\
                    7f10 default heap anon=2 dirty=2 N1=2 kernelpagesize_kB=4\n";
        assert_eq!((anonymous_on(maps, 0), anonymous_on(maps, 1)), (4, 8));
        assert_eq!(number("a:1\r\ntotal:42\r\n", "total:"), Some(42));
        assert_eq!(number("a:1\r\n", "total:"), None);
    }

    #[test]
    fn this_process_has_used_processor_time() {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {}
        assert!(processor_time(std::process::id()) > 0);
        assert_eq!(processor_time(0), 0);
    }
}
