// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-stress storm`: moves the pages of any program about while it runs, in the supervisor's place.
//!
//! Works on one node too, where a promotion is a move from a page to itself by way of the agent's frames:
//! all that can go wrong for the program goes wrong there as well. Every process that the program
//! starts with the agent in it takes part. The exit code is the program's.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command as Program;
use std::process::ExitCode;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use serde::Serialize;
use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_proto::Command;
use terrace_proto::Commit;
use terrace_proto::Op;
use terrace_proto::Outcome;
use terrace_proto::Report;
use terrace_proto::Welcome;
use terrace_sys::mempolicy;
use terrace_sys::procmaps::MapsFile;
use terrace_sys::unix_channel::Listener;

use crate::driver::Random;
use crate::driver::WINDOW;
use crate::link::Link;
use crate::made_with;
use crate::options::StormOptions;

/// Between two looks at a process's pages.
const LOOK: Duration = Duration::from_millis(200);
/// Mappings above this are left out: reservations, mostly.
const LARGEST: u64 = 256 << 20;

/// What was ordered and what came of it.
#[derive(Debug, Default, Serialize)]
struct Counts {
    /// Processes whose agent carried out orders.
    agents: u64,
    /// Processes whose agent stepped aside.
    refused: u64,
    ordered: u64,
    moved: u64,
    onto_shadow: u64,
    aborted: u64,
    busy: u64,
    gone: u64,
    not_moved: u64,
}

/// A process under orders.
struct Victim {
    link: Link,
    /// Its pages at the last look, and those of them that are still to be ordered.
    known: Vec<u64>,
    pages: Vec<u64>,
    looked: Instant,
    waiting: BTreeSet<u64>,
}

struct Storm<'a> {
    options: &'a StormOptions,
    fast: NodeId,
    slow: NodeId,
    random: Random,
    next_seq: u64,
    counts: Counts,
}

/// Runs the program under a storm of orders.
pub(crate) fn run(options: &StormOptions) -> anyhow::Result<ExitCode> {
    let dir = tempfile::tempdir().context("Cannot make a directory for the socket")?;
    let socket = dir.path().join("agents");
    let listener = Listener::bind(&socket).context("Cannot listen for agents")?;
    let agent = crate::judge::find_agent(options.agent.as_deref())?;
    let nodes = mempolicy::allowed_nodes()?;
    let (Some(fast), Some(slow)) = (nodes.first().copied(), nodes.last().copied()) else {
        anyhow::bail!("No memory node to use");
    };
    let mut storm = Storm {
        options,
        fast,
        slow,
        random: Random::seeded(3),
        next_seq: 1,
        counts: Counts::default(),
    };
    let status = storm.last(&listener, program(&options.command, &agent, &socket))?;
    let counts = made_with::json(&storm.counts, None)?;
    match &options.report {
        Some(file) => std::fs::write(file, counts)
            .with_context(|| format!("Cannot write the report {}", file.display()))?,
        None => eprintln!("{counts}"),
    }
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn program(command: &[OsString], agent: &Path, socket: &Path) -> Program {
    let mut program = Program::new(&command[0]);
    program
        .args(&command[1..])
        .env("LD_PRELOAD", agent)
        .env("TERRACE_SOCKET", socket);
    program
}

impl Storm<'_> {
    /// Orders until the program has ended.
    fn last(
        &mut self,
        listener: &Listener,
        mut program: Program,
    ) -> anyhow::Result<std::process::ExitStatus> {
        let mut child = program.spawn().context("Cannot start the program")?;
        let mut victims: Vec<Victim> = Vec::new();
        let mut at = Instant::now();
        let mut credit = 0.0;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if waits_at(listener)? {
                self.greet(listener, &mut victims);
            }
            let most = self.options.rate / 4.0;
            credit = (credit + at.elapsed().as_secs_f64() * self.options.rate).min(most);
            at = Instant::now();
            victims.retain_mut(|victim| self.serve(victim, &mut credit).unwrap_or(false));
        }
    }

    fn greet(&mut self, listener: &Listener, victims: &mut Vec<Victim>) {
        let huge = self.options.page_size.size() != PageSize::Base4K;
        let waits = self.options.commit == Commit::Wait;
        let welcome = Welcome {
            ring_bytes: 0,
            copy_workers: 1,
            batch_pages: 32,
            commit: self.options.commit,
            copy_threads: if huge && waits { 4 } else { 1 },
            streaming: waits,
        };
        // One that ends meanwhile, or says nothing, is the program's business.
        let Ok(link) = Link::accept(listener, welcome) else {
            return;
        };
        if !link.can_transact() {
            self.counts.refused += 1;
        } else {
            self.counts.agents += 1;
        }
        victims.push(Victim {
            link,
            known: Vec::new(),
            pages: Vec::new(),
            looked: Instant::now(),
            waiting: BTreeSet::new(),
        });
    }

    /// Takes in a process's answers and gives it orders; `false` where it is gone.
    fn serve(&mut self, victim: &mut Victim, credit: &mut f64) -> anyhow::Result<bool> {
        if !victim.link.is_there()? {
            return Ok(false);
        }
        while let Some(report) = victim.link.report()? {
            if let Report::Ended { seq, outcome, .. } = report
                && victim.waiting.remove(&seq)
            {
                self.count(outcome);
            }
        }
        if !victim.link.can_transact() {
            return Ok(true);
        }
        if victim.pages.is_empty() && victim.looked.elapsed() > LOOK {
            victim.looked = Instant::now();
            let found = pages(victim.link.hello.pid, self.options.page_size.size());
            // Of a process whose main thread has ended /proc shows none.
            if !found.is_empty() {
                victim.known = found;
            }
            victim.pages.clone_from(&victim.known);
            self.shuffle(&mut victim.pages);
        }
        let mut any = false;
        while *credit >= 1.0
            && victim.waiting.len() < WINDOW
            && let Some(page) = victim.pages.pop()
        {
            if !self.order(victim, page) {
                break;
            }
            *credit -= 1.0;
            any = true;
        }
        if any {
            victim.link.ring_bell();
        }
        Ok(true)
    }

    fn order(&mut self, victim: &mut Victim, page: u64) -> bool {
        let demote = (self.random.below(1_000) as f64) < self.options.demote * 1_000.0;
        let op = if demote {
            Op::Demote {
                node: self.slow,
                copy: true,
            }
        } else {
            Op::Promote {
                node: self.fast,
                keep_shadow: true,
            }
        };
        let command = Command {
            seq: self.next_seq,
            op,
            addr: Addr(page),
            size: self.options.page_size.size(),
        };
        let sent = victim.link.send(&command);
        if sent {
            victim.waiting.insert(self.next_seq);
            self.next_seq += 1;
            self.counts.ordered += 1;
        }
        sent
    }

    fn count(&mut self, outcome: Outcome) {
        let counts = &mut self.counts;
        *match outcome {
            Outcome::Done | Outcome::DoneShadowStale => &mut counts.moved,
            Outcome::ShadowHit => &mut counts.onto_shadow,
            Outcome::Dirtied => &mut counts.aborted,
            Outcome::Busy => &mut counts.busy,
            Outcome::Gone => &mut counts.gone,
            _ => &mut counts.not_moved,
        } += 1;
    }

    fn shuffle(&mut self, pages: &mut [u64]) {
        for at in (1..pages.len()).rev() {
            let other = self.random.below(at as u64 + 1);
            pages.swap(at, usize::try_from(other).unwrap_or(at));
        }
    }
}

/// Whether an agent wants to connect; waits 5 ms.
fn waits_at(listener: &Listener) -> anyhow::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    Ok(rustix::event::poll(&mut fds, Some(&moment))? > 0)
}

/// The pages of a process that are in memory, of its private anonymous mappings.
fn pages(pid: u32, size: PageSize) -> Vec<u64> {
    let maps = MapsFile::of(pid).and_then(|mut maps| maps.all());
    let Ok(pagemap) = File::open(format!("/proc/{pid}/pagemap")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for mapping in maps.unwrap_or_default() {
        let (start, end) = (mapping.range.start.0, mapping.range.end.0);
        let ours = mapping.name.starts_with("[anon:terrace");
        if ours || !mapping.is_plain_anonymous() || end - start > LARGEST {
            continue;
        }
        let first = start.next_multiple_of(size.bytes());
        let count = end.saturating_sub(first) / size.bytes();
        let every = (0..count).map(|n| first + n * size.bytes());
        found.extend(every.filter(|addr| in_memory(&pagemap, *addr)));
    }
    found
}

/// Bit 63 of a page's entry (proc(5), pagemap).
fn in_memory(pagemap: &File, addr: u64) -> bool {
    let mut raw = [0; 8];
    let read = pagemap.read_exact_at(&mut raw, addr >> 12 << 3);
    read.is_ok() && u64::from_ne_bytes(raw) >> 63 == 1
}
