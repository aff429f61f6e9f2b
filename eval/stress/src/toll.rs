// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-stress toll`: what a manager costs a program that starts threads, forks and touches new memory.
//!
//! Three processes that do the same works, two alone and one behind a prefix (`terrace run --`, a storm), take
//! turns of some milliseconds, so that whatever else the machine does meets both. Compared are the means of the
//! cheaper half of the turns, as others who use the processors make turns dearer and never cheaper; what a manager
//! does to fewer than half of the turns shows in the means of all, which are told as well. Turns begin when the
//! programs have run long enough to be looked at. What the second is dearer than the first is what the figures are
//! worth on a machine that others use.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::ChildStdin;
use std::process::ChildStdout;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::bail;
use serde::Serialize;

use crate::made_with;
use crate::options::TollOptions;

const WORKS: [&str; 4] = ["threads", "touch", "fork", "fork-huge"];
const HELD_BYTES: usize = 200 << 20;
const NEW_BYTES: usize = 64 << 20;
const PAGE: usize = 4096;
/// Threads of one go, and what each uses of its stack.
const THREADS: usize = 4;
const STACK_BYTES: usize = 32 << 10;
/// Who manages programs leaves young ones alone.
const YOUNG: Duration = Duration::from_millis(1500);

/// What a go of a work cost alone and managed, and the ratio; `control` is that of another one alone.
#[derive(Debug, Serialize)]
struct Toll {
    plain_ns: f64,
    managed_ns: f64,
    ratio: f64,
    control: f64,
    /// Of all turns, with what others did to them.
    ratio_of_means: f64,
}

/// A started process that does works when asked.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Has both do all works in turn and prints the table.
pub(crate) fn run(options: &TollOptions) -> anyhow::Result<()> {
    let mut workers = [
        Worker::start(&[])?,
        Worker::start(&[])?,
        Worker::start(&options.command)?,
    ];
    let mut tolls = BTreeMap::new();
    for work in WORKS {
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for turn in 0..options.turns as usize {
            // Who is first changes: what the first leaves behind in the machine meets all.
            for who in [turn, turn + 1, turn + 2].map(|who| who % 3) {
                times[who].push(workers[who].turn(work, options.milliseconds)?);
            }
        }
        let [plain, control, managed] = &mut times;
        let ratio_of_means = mean(managed) / mean(plain);
        let (plain_ns, managed_ns) = (cheaper_half(plain), cheaper_half(managed));
        let ratio = managed_ns / plain_ns;
        let control = cheaper_half(control) / plain_ns;
        tolls.insert(
            work,
            Toll {
                plain_ns,
                managed_ns,
                ratio,
                control,
                ratio_of_means,
            },
        );
    }
    for worker in workers {
        worker.end()?;
    }
    if options.json {
        let works = BTreeMap::from([("works", tolls)]);
        println!("{}", made_with::json(&works, None)?);
        return Ok(());
    }
    println!("work            plain us   managed us   ratio   of all turns   control");
    for (name, toll) in tolls {
        let (plain, managed) = (toll.plain_ns / 1e3, toll.managed_ns / 1e3);
        let (ratio, of_means) = (toll.ratio, toll.ratio_of_means);
        println!(
            "{name:<12} {plain:>11.1} {managed:>12.1}   {ratio:.3}   {of_means:>12.3}   {:>7.3}",
            toll.control
        );
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a mean for comparing")]
fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn cheaper_half(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    mean(&times[..times.len().div_ceil(2)])
}

impl Worker {
    fn start(prefix: &[OsString]) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?.into_os_string();
        let mut words = prefix.iter().cloned().chain([own, "works".into()]);
        let mut child = Command::new(words.next().context("no program")?)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("Cannot start the works")?;
        let input = child.stdin.take().context("no pipe")?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self {
            child,
            input,
            output,
        })
    }

    /// Mean time of a go, ns, over so many milliseconds.
    fn turn(&mut self, work: &str, milliseconds: u64) -> anyhow::Result<f64> {
        let mut line = String::new();
        let asked = writeln!(self.input, "{work} {milliseconds}");
        if asked.is_err() || self.output.read_line(&mut line)? == 0 {
            bail!("The works ended with {}", self.child.wait()?);
        }
        line.trim()
            .parse()
            .with_context(|| format!("Not a time: '{line}'"))
    }

    fn end(self) -> anyhow::Result<()> {
        let Self {
            mut child,
            input,
            output,
        } = self;
        drop((input, output));
        let status = child.wait()?;
        if !status.success() {
            bail!("The works ended with {status}");
        }
        Ok(())
    }
}

/// Does works as asked on standard input, and prints the mean time of a go, ns.
pub(crate) fn work() -> anyhow::Result<()> {
    let mut held = Area::new(HELD_BYTES, libc::MADV_NOHUGEPAGE);
    held.touch();
    let begun = Instant::now();
    while begun.elapsed() < YOUNG {
        held.touch();
        threads();
    }
    let mut huge = false;
    for line in std::io::stdin().lines() {
        let line = line?;
        let (work, milliseconds) = line.split_once(' ').context("WORK MILLISECONDS")?;
        let time = Duration::from_millis(milliseconds.parse()?);
        if !huge && work == "fork-huge" {
            huge = true;
            held = Area::new(HELD_BYTES, libc::MADV_HUGEPAGE);
            held.touch();
        }
        let ns = match work {
            "threads" => goes(time, threads),
            "touch" => goes(time, || Area::new(NEW_BYTES, libc::MADV_HUGEPAGE).touch()),
            "fork" | "fork-huge" => goes(time, fork),
            _ => bail!("No work '{work}'"),
        };
        println!("{ns}");
    }
    drop(held);
    Ok(())
}

/// Mean time of a go, ns.
#[expect(clippy::cast_precision_loss, reason = "a mean for comparing")]
fn goes(time: Duration, mut go: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let mut goes = 0_u64;
    while begun.elapsed() < time || goes == 0 {
        go();
        goes += 1;
    }
    begun.elapsed().as_nanos() as f64 / goes as f64
}

fn threads() {
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                std::hint::black_box([1_u8; STACK_BYTES]);
                std::hint::black_box(vec![1_u8; STACK_BYTES]);
            });
        }
    });
}

fn fork() {
    // SAFETY: the child does nothing but end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child; a failed fork leaves no child to wait for.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(child > 0 && waited == child && status == 0, "a fork failed");
}

/// New memory, aligned to 2 MiB, and given back at the end.
struct Area {
    start: *mut u8,
    mapped: *mut libc::c_void,
    len: usize,
}

const HUGE: usize = 2 << 20;

impl Area {
    fn new(len: usize, advice: i32) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel has room.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), len + HUGE, access, flags, -1, 0) };
        assert!(mapped != libc::MAP_FAILED, "no memory");
        let start = mapped.cast::<u8>();
        // SAFETY: the mapping is 2 MiB longer than what is used of it.
        let start = unsafe { start.add(start.align_offset(HUGE)) };
        // SAFETY: advice on the mapping just made.
        unsafe { libc::madvise(start.cast(), len, advice) };
        Self { start, mapped, len }
    }

    fn touch(&self) {
        for at in (0..self.len).step_by(PAGE) {
            // SAFETY: inside of the area, which is this thread's alone.
            unsafe { self.start.add(at).write_volatile(1) };
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; nobody refers to it any more.
        unsafe { libc::munmap(self.mapped, self.len + HUGE) };
    }
}
