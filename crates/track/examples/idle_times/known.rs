// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that uses pages with known periods: a child of the example, which is this example itself.
//!
//! A child, as the thread that uses the pages does what the kernel's scanner does, too, and has to wait for it: the less memory it
//! has the shorter.
//!
//! A clock that is looked at by chance shows of a page that is used once a period an idle time that is as likely
//! to be any up to that: the pages of a group are used one after the other, evenly over the period, so that one look has all of them.

use std::error::Error;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::ChildStdin;
use std::process::ChildStdout;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::clock;
use terrace_sys::uffd::Protected;
use terrace_sys::uffd::RwpUffd;

use crate::both;
use crate::both::CHUNK;

pub(crate) const PAGE: usize = 4096;
/// How often the pages of each group are used. Half of it is between two readings, which come after powers of two of a millisecond.
pub(crate) const PERIODS: [Duration; 7] = [
    Duration::from_millis(2),
    Duration::from_millis(12),
    Duration::from_millis(48),
    Duration::from_millis(192),
    Duration::from_millis(768),
    Duration::from_millis(3_072),
    Duration::from_secs(10),
];
/// Of a group, the first ones of a chunk. What arms them makes each fault once, and what the first ones take the others wait for.
pub(crate) const PAGES: usize = 8;
/// The program ends by itself if nobody ends it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// The word by which it is told to be the program.
pub(crate) const TOUCH: &str = "touch";
/// The word by which it is asked for its waits.
const WAITS: &str = "waits";

/// Since when a page is armed that was not used since; 0 for none.
static ARMED: [[AtomicU64; PAGES]; PERIODS.len()] =
    [const { [const { AtomicU64::new(0) }; PAGES] }; PERIODS.len()];
/// Groups, and how long it was from the arming of one of their pages to its use.
static TRUTH: Mutex<Vec<(usize, Nanos)>> = Mutex::new(Vec::new());

/// The program, and where its pages are.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    start: usize,
}

impl Program {
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(TOUCH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut output = BufReader::new(output.ok_or("no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(Self {
            child,
            input: input.ok_or("no input")?,
            output,
            start: line.trim().parse()?,
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// The address of a page of a group.
    pub(crate) const fn page(&self, group: usize, page: usize) -> u64 {
        address(self.start, group, page) as u64
    }

    /// The group of an address.
    pub(crate) fn group(&self, addr: u64) -> Option<usize> {
        let group = usize::try_from(addr).ok()?.checked_sub(self.start)? / CHUNK;
        (group < PERIODS.len()).then_some(group)
    }

    /// Has it arm a page of a group; since when that is.
    pub(crate) fn arm(&mut self, group: usize, page: usize) -> Result<Nanos, Box<dyn Error>> {
        Ok(Nanos(self.ask(&format!("{group} {page}"))?.parse()?))
    }

    /// How long it was itself until it used pages that it had armed, by group.
    pub(crate) fn waits(&mut self) -> Result<Vec<Vec<Nanos>>, Box<dyn Error>> {
        let mut waits = vec![Vec::new(); PERIODS.len()];
        let told = self.ask(WAITS)?;
        let mut told = told.split(' ');
        while let (Some(group), Some(wait)) = (told.next(), told.next()) {
            waits[group.parse::<usize>()?].push(Nanos(wait.parse()?));
        }
        Ok(waits)
    }

    fn ask(&mut self, what: &str) -> Result<String, Box<dyn Error>> {
        writeln!(self.input, "{what}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const fn address(start: usize, group: usize, page: usize) -> usize {
    start + group * CHUNK + page * PAGE
}

/// Chunks of which the first pages are there, never given back.
fn memory() -> Result<usize, Box<dyn Error>> {
    let start = both::chunks(PERIODS.len())?.expose_provenance();
    for group in 0..PERIODS.len() {
        (0..PAGES).for_each(|page| word(start, group, page).store(1, Relaxed));
    }
    Ok(start)
}

fn word(start: usize, group: usize, page: usize) -> &'static AtomicU64 {
    let at = std::ptr::with_exposed_provenance_mut(address(start, group, page));
    // SAFETY: a word of the mapping, which lives for ever and is used by this only.
    unsafe { AtomicU64::from_ptr(at) }
}

/// Uses the groups' pages and never rests: the kernel scans in the time that a thread runs, and what has one thread only it leaves alone where
/// that runs. The other one arms pages, if it is told to.
pub(crate) fn touch() -> Result<(), Box<dyn Error>> {
    let start = memory()?;
    println!("{start}");
    std::thread::spawn(move || {
        if let Err(error) = arm_as_told(start) {
            eprintln!("{error}");
            std::process::exit(1);
        }
        std::thread::park();
    });
    let (begin, mut done) = (Instant::now(), PERIODS.map(|_| 0));
    while begin.elapsed() < 2 * PATIENCE {
        for (group, (period, done)) in PERIODS.iter().zip(&mut done).enumerate() {
            let due = begin.elapsed().as_nanos() * PAGES as u128 / period.as_nanos();
            let due = usize::try_from(due)?;
            // Who comes late uses each once.
            for page in (*done).max(due.saturating_sub(PAGES))..due {
                use_page(start, group, page % PAGES);
            }
            *done = due;
        }
    }
    Ok(())
}

/// Uses a page, and notes how long that was after it was armed.
fn use_page(start: usize, group: usize, page: usize) {
    let armed = ARMED[group][page].swap(0, Relaxed);
    if armed != 0 {
        let wait = clock::now().since(Nanos(armed));
        let mut truth = TRUTH.lock().unwrap_or_else(PoisonError::into_inner);
        truth.push((group, wait));
    }
    word(start, group, page).fetch_add(1, Relaxed);
}

/// Arms the page of each line, as the agent would, and says since when.
fn arm_as_told(start: usize) -> Result<(), Box<dyn Error>> {
    let mut uffd = None;
    for line in std::io::stdin().lines() {
        let line = line?;
        let Some((group, page)) = line.split_once(' ') else {
            let truth = TRUTH.lock().unwrap_or_else(PoisonError::into_inner);
            let truth = truth
                .iter()
                .map(|(group, wait)| format!("{group} {}", wait.0));
            println!("{}", truth.collect::<Vec<_>>().join(" "));
            continue;
        };
        let (group, page): (usize, usize) = (group.parse()?, page.parse()?);
        if uffd.is_none() {
            let new = RwpUffd::open()?;
            new.register(start as u64, (PERIODS.len() * CHUNK) as u64)?;
            uffd = Some(new);
        }
        let uffd = uffd.as_ref().ok_or("no userfaultfd")?;
        let addr = address(start, group, page) as u64;
        let since = clock::now();
        if uffd.rw_protect(addr, PAGE as u64, true)? != Protected::Done {
            return Err(format!("page {addr:#x} was not armed").into());
        }
        ARMED[group][page].store(since.0, Relaxed);
        println!("{}", since.0);
    }
    Ok(())
}
