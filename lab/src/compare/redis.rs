// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload `redis`: Debian's server, unmodified; its data set, load, progress and check.
//!
//! The data set is 1.75 times what is free on the fast node beside the load generator: values of
//! 200 bytes, some 310 bytes of resident memory a key, made by `DEBUG POPULATE`. All of the
//! server's pages are then pushed to the slow node (for the oracle, none: they are on the fast node
//! as far as they fit, less a reserve for everybody else), and the load starts.
//!
//! * [`data`]: keys and values, how they are made and checked.
//! * [`load`]: the load generator, which stands for another machine.

mod data;
mod load;

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
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

use super::record::GuestLine;
use super::record::System;
use super::resp::Client;
use super::scenario::Setting;
use super::scenario::free_bytes;
use super::scenario::say;
use super::steering::Steering;
use crate::mark;

use data::LETTERS;
use load::Load;
use load::Owned;
use load::processor_time;

const SOCKET: &str = "/run/terrace-redis.sock";
const SERVER: &str = "/usr/bin/redis-server";
/// Runs the workload in the guest, from an empty machine to the check of the data set.
///
/// # Errors
///
/// Where anything on the way does not work, and where a value is wrong.
pub(super) fn run(setting: &Setting, steering: &Steering) -> anyhow::Result<()> {
    let mut load = Load::start(&setting.python_path)?;
    fs::write("/proc/sys/vm/drop_caches", "1").context("Cannot drop the page cache")?;
    let fast_free = match setting.fast_free {
        Some(bytes) => bytes,
        None => free_bytes(setting.fast_node)?.saturating_sub(load::GROWS_BY_BYTES),
    };
    say(&GuestLine::Sized(fast_free));
    let keys = data::keys_for(fast_free);
    note("load generator ready".to_owned());

    let reserve = (setting.system == System::Oracle).then(oracle_reserve);
    let mut server = start_server(steering)?;
    let mut client = connect(&mut server)?;
    data::preload(&mut client, keys)?;
    note(format!("{keys} keys made"));
    let pid = server_pid(&mut client)?;
    match reserve {
        Some(reserve) => drop(std::hint::black_box(reserve)),
        None => push(pid, setting)?,
    }
    steering.point_out_the_agent(std::iter::once(Pid(pid)));
    steering.go()?;
    note(format!(
        "{} bytes of the load generator's code are left out of the memory model",
        load.stand_apart(pid)?
    ));
    mark::start();
    load.go(keys, LETTERS, setting.time + Duration::from_secs(60))?;
    let before = (processor_time(pid), processor_time(load.pid()));
    let progress = watch(&mut client, setting.time, &mut load);
    mark::stop();
    let share =
        |now: u128, before| now.saturating_sub(before) * 1000 / setting.time.as_millis().max(1);
    note(format!(
        "server busy {} % of the time, load generator {} %",
        share(processor_time(pid), before.0),
        share(processor_time(load.pid()), before.1)
    ));
    drop(load);
    progress?;
    note("checking all values".to_owned());
    data::check(&mut client, keys)?;
    // The server closes the connection instead of answering.
    let _ = client.ask(&[b"SHUTDOWN", b"NOSAVE"]);
    let status = server.0.wait().context("Cannot wait for redis-server")?;
    ensure!(status.success(), "redis-server ended with {status}");
    Ok(())
}

/// Memory that keeps free, while the server fills the fast node, what the load generator will take.
fn oracle_reserve() -> Vec<u8> {
    vec![1; usize::try_from(load::GROWS_BY_BYTES).expect("40 MiB")]
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
fn watch(client: &mut Client<UnixStream>, time: Duration, load: &mut Load) -> anyhow::Result<()> {
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
        mark::mark(&serde_json::to_string(&line).expect("plain numbers"));
        say(&GuestLine::Workload(line));
    };
    tell(0.0, 0);
    for second in 1..=time.as_secs() {
        let next = Duration::from_secs(second);
        std::thread::sleep(next.saturating_sub(begin.elapsed()));
        let now = commands(client)?;
        tell(begin.elapsed().as_secs_f64(), now - first);
        load.is_up()?;
    }
    Ok(())
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
}
