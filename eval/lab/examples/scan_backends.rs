// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two readers of accessed bits on a program whose pages are known: ours, which looks at pages by name, and the kernel's
//! DAMON, which looks at one page of each region at a time. Prints what each found of each region, as JSON;
//! `eval/lab/tests/guest/both.rs` judges it.
//!
//! The program is this one again, with an argument: it uses some pages of its memory, round after round, and says so of each
//! round. One reader after the other, as each clears the bits that the other wants to see.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::process::Child;
use std::process::ChildStdout;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::bail;
use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use terrace_core::Addr;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_lab::trackers::damon::Damon;
use terrace_lab::trackers::damon::SAMPLES;
use terrace_lab::trackers::translations;
use terrace_sys::zones;
use terrace_track::AccessedBits;
use terrace_track::AccessedBitsConfig;
use terrace_track::Tracker;
use terrace_track::accessed_bits::Told;

const REGION: u64 = 2 << 20;
const PAGES: u64 = 512;
const REGIONS: u32 = 16;
/// How many eighths of a region's pages are used, in turn.
const EIGHTHS: [u64; 4] = [8, 4, 1, 0];
/// Every so many pages one is looked at by name.
const EVERY: u64 = 4;
const LOOKS: u64 = 3;
const SAMPLE: Duration = Duration::from_millis(100);
const AGGREGATIONS: u32 = 6;
/// A program that stands still for longer between two rounds tells nothing of a sample.
const STILL: Duration = Duration::from_millis(50);
const TRIES: usize = 6;
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the program uses a page, by its place in the memory.
fn used(page: u64) -> bool {
    let turn = usize::try_from(page / PAGES).map_or(0, |region| region % EIGHTHS.len());
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 < EIGHTHS[turn]
}

/// The program: says where its memory is, then a byte for each round.
fn program() -> anyhow::Result<()> {
    let len = usize::try_from((u64::from(REGIONS) + 1) * REGION)?;
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, and advice on it.
    let at = unsafe {
        let at = rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, flags, MapFlags::PRIVATE)?;
        rustix::mm::madvise(at, len, Advice::LinuxNoHugepage)?;
        at.expose_provenance() as u64
    };
    let start = at.next_multiple_of(REGION);
    let touch = |page: u64| {
        let at = usize::try_from(start + page * 4096).expect("64 bit");
        let at = std::ptr::with_exposed_provenance_mut::<u8>(at);
        // SAFETY: a page of the mapping.
        unsafe { at.write_volatile(1) }
    };
    let all = u64::from(REGIONS) * PAGES;
    (0..all).for_each(touch);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{start}")?;
    loop {
        (0..all).filter(|page| used(*page)).for_each(touch);
        out.write_all(b".")?;
        out.flush()?;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The program under way, and its rounds.
struct Target {
    child: Child,
    start: u64,
    rounds: Arc<AtomicU64>,
    /// The longest time between two of them since it was last asked for, us.
    longest: Arc<AtomicU64>,
}

impl Target {
    fn begin() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("use").stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("No output")?;
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line)?;
        let start = line.trim().parse().context("The program's memory")?;
        let (rounds, longest) = (Arc::default(), Arc::default());
        let notes = (Arc::clone(&rounds), Arc::clone(&longest));
        std::thread::spawn(move || count(out, &notes.0, &notes.1));
        Ok(Self {
            child,
            start,
            rounds,
            longest,
        })
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Until it has used all of its pages.
    fn round(&self) -> anyhow::Result<()> {
        // The one under way may have passed a page already.
        let until = self.rounds.load(Relaxed) + 2;
        let begin = Instant::now();
        while self.rounds.load(Relaxed) < until {
            if begin.elapsed() > PATIENCE {
                bail!("The program does not go on");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn count(mut out: BufReader<ChildStdout>, rounds: &AtomicU64, longest: &AtomicU64) {
    let mut last = Instant::now();
    let mut byte = [0];
    while out.read_exact(&mut byte).is_ok() {
        let took = u64::try_from(last.elapsed().as_micros()).unwrap_or(u64::MAX);
        longest.fetch_max(took, Relaxed);
        last = Instant::now();
        rounds.fetch_add(1, Relaxed);
    }
}

/// What was found of a region.
#[derive(Debug, Clone, Default)]
struct Found {
    /// Pages that were looked at by name, again and again.
    named: u64,
    /// Of those, found accessed, and not as the program uses them.
    accessed: u64,
    wrong: u64,
    /// DAMON's samples, and those that found a page accessed.
    samples: f64,
    hits: f64,
}

fn look(bits: &mut AccessedBits, pages: &[PageRef]) -> anyhow::Result<Vec<(u64, bool)>> {
    bits.look(pages.to_vec());
    let (mut answer, begin) = (None, Instant::now());
    while answer.is_none() {
        if begin.elapsed() > PATIENCE {
            bail!("No answer to a look");
        }
        std::thread::sleep(Duration::from_millis(2));
        bits.poll(Duration::ZERO, &mut |_| ())?;
        bits.told(|told| {
            if let Told::Looked { looked, .. } = told {
                let seen = looked.iter().map(|one| (one.page.addr.0, one.accessed));
                answer = Some(seen.collect());
            }
        });
    }
    answer.context("No answer to a look")
}

/// By name: what a look after a round finds of what the look before has cleared.
fn by_name(target: &Target, found: &mut [Found]) -> anyhow::Result<()> {
    let mut bits = AccessedBits::open(AccessedBitsConfig {
        zones: zones::read(std::path::Path::new("/")),
        ..AccessedBitsConfig::default()
    })?;
    bits.add(target.pid(), false)?;
    let page = |page: u64| PageRef {
        pid: target.pid(),
        addr: Addr(target.start + page * 4096),
        size: PageSize::Base4K,
    };
    let named = (1..u64::from(REGIONS) * PAGES).step_by(usize::try_from(EVERY)?);
    let pages: Vec<PageRef> = named.map(page).collect();
    for _ in 0..LOOKS {
        look(&mut bits, &pages)?;
        target.round()?;
        for (addr, accessed) in look(&mut bits, &pages)? {
            let page = (addr - target.start) / 4096;
            let of = &mut found[usize::try_from(page / PAGES)?];
            of.named += 1;
            of.accessed += u64::from(accessed);
            of.wrong += u64::from(accessed != used(page));
        }
    }
    Ok(())
}

/// By DAMON, while the program goes on round after round.
fn by_damon(target: &Target, found: &mut [Found]) -> anyhow::Result<()> {
    let range = Range {
        start: Addr(target.start),
        end: Addr(target.start + u64::from(REGIONS) * REGION),
    };
    let mut damon = Damon::fixed(target.pid(), range, REGIONS, SAMPLE)?;
    damon.told()?;
    let aggregation = SAMPLE * u32::try_from(SAMPLES)?;
    for _ in 0..TRIES {
        target.longest.store(0, Relaxed);
        std::thread::sleep(aggregation * AGGREGATIONS);
        let told = damon.told()?;
        if Duration::from_micros(target.longest.load(Relaxed)) > STILL {
            continue;
        }
        for (region, hits) in told {
            if region.bytes() != REGION {
                bail!("DAMON told of {region:?}, which is none of its regions");
            }
            let of = &mut found[usize::try_from((region.start.0 - target.start) / REGION)?];
            of.samples += SAMPLES as f64;
            of.hits += hits;
        }
        return Ok(());
    }
    bail!("The program stood still for more than {STILL:?} in each of {TRIES} tries");
}

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).is_some() {
        return program();
    }
    translations::start();
    let target = Target::begin()?;
    let mut found = vec![Found::default(); usize::try_from(REGIONS)?];
    by_name(&target, &mut found)?;
    by_damon(&target, &mut found)?;
    for (region, found) in found.iter().enumerate() {
        let first = region as u64 * PAGES;
        let uses = (first..first + PAGES).filter(|page| used(*page)).count();
        println!(
            "{{\"uses\": {uses}, \"named\": {}, \"accessed\": {}, \"wrong\": {}, \"samples\": {:.0}, \"hits\": {:.0}}}",
            found.named, found.accessed, found.wrong, found.samples, found.hits
        );
    }
    Ok(())
}
