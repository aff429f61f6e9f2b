// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload `redis`: Debian's server, unmodified; its data set, load, progress and check.
//!
//! The data set is 1.75 times what is free on the fast node when the load generator is up: values of
//! 1,000 bytes, some 1,150 bytes of resident memory a key, made by `DEBUG POPULATE`. All of the
//! server's pages are then pushed to the slow node (for the oracle, none: they are on the fast node
//! as far as they fit, less a reserve for everybody else), and the load starts.
//!
//! Every value can be recognised: those of the start say their key's number and are zero else, those
//! of the load are their key and six digits, repeated. At the end every key must hold one of its
//! own, in one piece.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
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
use terrace_workload::report::Line;
use terrace_workload::report::Second;

use super::record::GuestLine;
use super::record::System;
use super::resp::Client;
use super::resp::Reply;
use super::scenario::Setting;
use super::scenario::free_bytes;
use super::scenario::say;
use super::steering::Steering;
use crate::mark;

const SOCKET: &str = "/run/terrace-redis.sock";
const SERVER: &str = "/usr/bin/redis-server";
const PYTHON: &str = "/usr/bin/python3";
/// Bytes of a value.
const VALUE_BYTES: usize = 1000;
/// Resident bytes of a key with its value, measured: jemalloc's size classes and the hash table.
const BYTES_PER_KEY: u64 = 1150;
/// Commands in one go when checking.
const PIPELINE: u32 = 128;
/// What the oracle leaves free on the fast node for the load generator.
const ORACLE_RESERVE_BYTES: usize = 16 << 20;
/// The data set in hundredths of the free fast memory.
const HUNDREDTHS_OF_FREE: u64 = 175;

/// A child that does not outlive the run.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Keys for that much free fast memory.
#[must_use]
fn keys_for(fast_free: u64) -> u32 {
    u32::try_from(fast_free / 100 * HUNDREDTHS_OF_FREE / BYTES_PER_KEY).unwrap_or(u32::MAX)
}

fn key(index: u32) -> String {
    format!("key:{index}")
}

/// What `DEBUG POPULATE` gives key `index`.
fn first_value(index: u32) -> Vec<u8> {
    let mut value = format!("value:{index}").into_bytes();
    value.resize(VALUE_BYTES, 0);
    value
}

/// What the load writes: the token, repeated. The digits are its own.
fn loaded_value(index: u32, digits: &str) -> Vec<u8> {
    let token = format!("{}:{digits};", key(index)).into_bytes();
    token.into_iter().cycle().take(VALUE_BYTES).collect()
}

/// Whether that is a value of key `index`: the first one, or one of the load with any six digits.
fn is_value_of(index: u32, found: &[u8]) -> bool {
    let at = key(index).len() + 1;
    found == first_value(index)
        || found
            .get(at..at + 6)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .is_some_and(|digits| found == loaded_value(index, digits))
}

/// Runs the workload in the guest, from an empty machine to the check of the data set.
///
/// # Errors
///
/// Where anything on the way does not work, and where a value is wrong.
pub(super) fn run(setting: &Setting, steering: &Steering) -> anyhow::Result<()> {
    let (mut load, mut load_says) = start_load(setting)?;
    fs::write("/proc/sys/vm/drop_caches", "1").context("Cannot drop the page cache")?;
    let fast_free = match setting.fast_free {
        Some(bytes) => bytes,
        None => free_bytes(setting.fast_node)?,
    };
    say(&GuestLine::Sized(fast_free));
    let keys = keys_for(fast_free);
    note("load generator ready".to_owned());

    let reserve = (setting.system == System::Oracle).then(|| vec![1u8; ORACLE_RESERVE_BYTES]);
    let mut server = start_server(steering)?;
    let mut client = connect(&mut server)?;
    preload(&mut client, keys)?;
    note(format!("{keys} keys made"));
    let pid = server_pid(&mut client)?;
    match reserve {
        Some(reserve) => drop(std::hint::black_box(reserve)),
        None => push(pid, setting)?,
    }
    steering.go()?;
    let seconds = setting.time.as_secs();
    mark::start();
    writeln!(load_says, "{keys} {}", seconds + 60).context("Cannot start the load")?;
    let progress = watch(&mut client, setting.time, &mut load);
    mark::stop();
    drop(load);
    progress?;
    note("checking all values".to_owned());
    check(&mut client, keys)?;
    // The server closes the connection instead of answering.
    let _ = client.ask(&[b"SHUTDOWN", b"NOSAVE"]);
    let status = server.0.wait().context("Cannot wait for redis-server")?;
    ensure!(status.success(), "redis-server ended with {status}");
    Ok(())
}

fn note(text: String) {
    say(&GuestLine::Note(text));
}

/// Starts the generator and waits until it has loaded its libraries.
fn start_load(setting: &Setting) -> anyhow::Result<(Owned, std::process::ChildStdin)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/redis-load.py");
    let last_cpu = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let mut child = Command::new(PYTHON)
        .arg(&script)
        .arg(last_cpu.to_string())
        .env("PYTHONPATH", &setting.python_path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Owned)
        .with_context(|| format!("Cannot run {PYTHON}"))?;
    let stdin = child.0.stdin.take().context("No pipe to the load")?;
    let stdout = child.0.stdout.take().context("No pipe from the load")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    ensure!(
        line.trim() == "ready",
        "The load generator did not start; is resp-benchmark in {}?",
        setting.python_path.display()
    );
    Ok((child, stdin))
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

fn preload(client: &mut Client<UnixStream>, keys: u32) -> anyhow::Result<()> {
    let (keys, bytes) = (keys.to_string(), VALUE_BYTES.to_string());
    let command = ["DEBUG", "POPULATE", &keys, "key", &bytes];
    client
        .ask(&command.map(str::as_bytes))
        .context("redis cannot make the data set")?;
    Ok(())
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
fn watch(client: &mut Client<UnixStream>, time: Duration, load: &mut Owned) -> anyhow::Result<()> {
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
        if let Some(status) = load.0.try_wait()? {
            bail!("The load generator ended with {status}");
        }
    }
    Ok(())
}

/// Reads every key, and the digest twice: nothing may be lost, mixed up, or change by itself.
fn check(client: &mut Client<UnixStream>, keys: u32) -> anyhow::Result<()> {
    let size = client.ask(&[b"DBSIZE"])?;
    ensure!(size == keys.to_string(), "{size} keys instead of {keys}");
    let digest = client.ask(&[b"DEBUG", b"DIGEST"])?;
    let all: Vec<u32> = (0..keys).collect();
    for batch in all.chunks(PIPELINE as usize) {
        for &index in batch {
            client.queue(&[b"GET", key(index).as_bytes()]);
        }
        client.send()?;
        for &index in batch {
            match client.reply()? {
                Reply::Text(found) if is_value_of(index, &found) => {}
                Reply::Text(found) => bail!(
                    "Memory is wrong: {} holds '{}'",
                    key(index),
                    String::from_utf8_lossy(&found[..found.len().min(80)])
                ),
                other => bail!("Memory is wrong: {} holds {other:?}", key(index)),
            }
        }
    }
    let again = client.ask(&[b"DEBUG", b"DIGEST"])?;
    ensure!(
        digest == again,
        "Memory is wrong: the digest was {digest} and is {again} without a write between"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_its_key_and_is_in_one_piece() {
        assert!(is_value_of(7, &first_value(7)));
        assert!(!is_value_of(8, &first_value(7)), "another key's");
        let mut good = loaded_value(7, "123456");
        assert_eq!(
            (good.len(), &good[..13]),
            (VALUE_BYTES, &b"key:7:123456;"[..])
        );
        assert!(is_value_of(7, &good));
        assert!(!is_value_of(8, &good), "another key's");
        assert!(!is_value_of(7, &good[..999]), "cut off");
        assert!(!is_value_of(7, &[0; VALUE_BYTES]), "a zero page");
        good[500..].copy_from_slice(&loaded_value(7, "654321")[500..]);
        assert!(!is_value_of(7, &good), "two halves");
    }

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
    fn the_data_set_is_between_one_and_a_half_and_two_times_what_is_free() {
        let free = 100 << 20;
        let bytes = u64::from(keys_for(free)) * BYTES_PER_KEY;
        assert!(bytes > free * 3 / 2 && bytes < free * 2);
    }
}
