// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy workers: take commands from the ring in batches of one kind and run them.
//!
//! The workers share the ring's reading end behind a lock. Commands of one batch may run in any
//! order; two commands for one page that two workers hold at once end with `Busy` for the later.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::io::Errno;
use std::os::fd::AsFd;
use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_proto::Command;
use terrace_proto::Op;
use terrace_proto::Outcome;
use terrace_proto::Report;
use terrace_proto::ring::Ring;
use terrace_sys::eventfd::EventFd;

use crate::ops::item::End;
use crate::ops::item::Item;
use crate::ops::item::Order;
use crate::ops::item::Wish;
use crate::ops::scratch::Scratch;
use crate::state::agent::Agent;
use crate::state::lock::Lock;

/// Shadows dropped in one lock section.
const RECLAIM_STEP: u64 = 32;

/// The reading end of the command ring.
#[derive(Debug)]
pub(crate) struct Intake {
    inner: Lock<Reader>,
    bell: EventFd,
    /// Rung once, when the workers shall end.
    pub(crate) stop: EventFd,
    running: AtomicU64,
}

#[derive(Debug)]
struct Reader {
    ring: Ring<'static>,
    /// Taken from the ring, of another kind than the batch before it.
    ahead: Option<Command>,
}

/// Commands that run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Promote(PageSize),
    Demote(PageSize),
    Exchange,
    Arm,
    Other,
}

fn kind(command: &Command) -> Kind {
    match command.op {
        Op::Promote { .. } => Kind::Promote(command.size),
        Op::Demote { .. } => Kind::Demote(command.size),
        Op::Exchange { .. } => Kind::Exchange,
        Op::Arm => Kind::Arm,
        Op::DropShadow | Op::ReclaimShadows { .. } | Op::Ping => Kind::Other,
    }
}

impl Reader {
    /// The next command that makes sense; one that does not is answered at once.
    fn next(&mut self, agent: &Agent) -> Option<Command> {
        if let Some(command) = self.ahead.take() {
            return Some(command);
        }
        loop {
            let words = self.ring.pop()?;
            if let Ok(command) = Command::decode(&words) {
                return Some(command);
            }
            agent.answer(End::from(Errno::INVAL).report(words[1], words[2]));
        }
    }
}

impl Intake {
    pub(crate) fn new(words: &'static [AtomicU64], bell: EventFd) -> Result<Self, Errno> {
        let ring = Ring::new(words).ok_or(Errno::INVAL)?;
        Ok(Self {
            inner: Lock::new(Reader { ring, ahead: None }),
            bell,
            stop: EventFd::new()?,
            running: AtomicU64::new(0),
        })
    }

    /// Takes commands of one kind. A ping waits until every other batch has ended, and keeps
    /// other workers from taking more meanwhile.
    fn take(&self, agent: &Agent) -> Vec<Command> {
        self.bell.silence();
        let mut reader = self.inner.lock();
        let mut batch: Vec<Command> = Vec::new();
        while batch.len() < agent.options.batch_pages {
            let Some(command) = reader.next(agent) else {
                break;
            };
            if batch
                .first()
                .is_some_and(|first| kind(first) != kind(&command))
            {
                reader.ahead = Some(command);
                break;
            }
            let alone = kind(&command) == Kind::Other;
            batch.push(command);
            if alone {
                break;
            }
        }
        if batch.first().is_some_and(|first| first.op == Op::Ping) {
            while self.running.load(Ordering::Acquire) > 0 && !agent.is_stopping() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        if !batch.is_empty() {
            self.running.fetch_add(1, Ordering::AcqRel);
            // Another worker may sleep while there is more.
            if reader.ahead.is_some() || !reader.ring.is_empty() {
                self.bell.ring();
            }
        }
        batch
    }

    fn wait(&self, stopping: &AtomicBool) {
        let mut fds = [
            PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        ];
        let limit = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        if !stopping.load(Ordering::Acquire) {
            let _ = rustix::event::poll(&mut fds, Some(&limit));
        }
    }
}

/// What is asked of a page that is to move.
fn order(command: &Command) -> Option<Order> {
    let (node, wish) = match command.op {
        Op::Promote { node, keep_shadow } if keep_shadow => (node, Wish::KeepShadow),
        Op::Demote { node, copy } if !copy => (node, Wish::OntoShadow),
        Op::Promote { node, .. } | Op::Demote { node, .. } => (node, Wish::Move),
        _ => return None,
    };
    Some(Order {
        seq: command.seq,
        addr: command.addr.0,
        size: command.size,
        node,
        wish,
    })
}

/// Runs until the agent stops.
pub(crate) fn run(agent: &Agent, intake: &Intake) {
    let mut scratch = Scratch::new();
    while !agent.is_stopping() && !crate::life::heap::is_short() {
        let batch = intake.take(agent);
        if batch.is_empty() {
            intake.wait(&agent.stopping);
            continue;
        }
        agent.execute(&batch, &mut scratch);
        intake.running.fetch_sub(1, Ordering::AcqRel);
        agent.reports.ring();
    }
}

/// Answers every command with `Unavailable`, for an agent that could not be.
pub(crate) fn refuse(words: &'static [AtomicU64], reports: &crate::ops::report::Reports) {
    let Some(ring) = Ring::new(words) else { return };
    while let Some(record) = ring.pop() {
        let end = End::from(Outcome::Unavailable);
        reports.ended(end.report(record[1], record[2]), || true);
    }
    reports.ring();
}

impl Agent {
    fn execute(&self, batch: &[Command], scratch: &mut Scratch) {
        match batch.first().map(kind) {
            Some(Kind::Promote(_) | Kind::Demote(_)) => self.execute_moves(batch, scratch),
            Some(Kind::Exchange) => {
                for command in batch {
                    self.execute_exchange(command, scratch);
                }
            }
            Some(Kind::Arm) => {
                let reports = batch.iter().map(|command| self.arm(command));
                reports.for_each(|report| self.answer(report));
            }
            Some(Kind::Other) => batch.iter().for_each(|command| self.execute_other(command)),
            None => {}
        }
    }

    fn answer(&self, report: Report) {
        self.reports.ended(report, || self.is_stopping());
    }

    fn execute_moves(&self, batch: &[Command], scratch: &mut Scratch) {
        let mut items: Vec<Item> = batch.iter().filter_map(order).map(Item::new).collect();
        let demote = matches!(batch.first().map(kind), Some(Kind::Demote(_)));
        self.move_in_pieces(&mut items, demote, scratch);
        if demote {
            self.demote(&mut items, scratch);
        } else {
            self.migrate(&mut items, scratch);
        }
        items.iter().for_each(|item| self.answer(item.report()));
    }

    fn execute_exchange(&self, command: &Command, scratch: &mut Scratch) {
        let Op::Exchange { with } = command.op else {
            return;
        };
        let item = |addr: Addr| {
            Item::new(Order {
                seq: command.seq,
                addr: addr.0,
                size: command.size,
                node: NodeId(0),
                wish: Wish::Move,
            })
        };
        let mut pair = [item(command.addr), item(with)];
        self.exchange(&mut pair, scratch);
        self.answer(pair[0].report());
    }

    fn execute_other(&self, command: &Command) {
        let start = command.addr.0;
        match command.op {
            Op::DropShadow => {
                let mut state = self.state.lock();
                let behind = start.saturating_add(command.size.bytes());
                self.drop_shadows(&mut state, start, behind);
            }
            Op::ReclaimShadows { count } => {
                let (seq, shadows) = (command.seq, self.reclaim(count));
                return self.answer(Report::Reclaimed { seq, shadows });
            }
            _ => {}
        }
        self.answer(End::from(Outcome::Done).report(command.seq, start));
    }

    /// Drops shadows, oldest first, and gives their memory back at once; how many.
    fn reclaim(&self, count: u64) -> u64 {
        let mut dropped = 0;
        while dropped < count {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            for _ in 0..RECLAIM_STEP.min(count - dropped) {
                let Some((_, shadow)) = state.shadows.take_oldest() else {
                    state.frames.trim(0);
                    return dropped;
                };
                state.frames.release(PageSize::Base4K, shadow.frame);
                dropped += 1;
            }
        }
        self.state.lock().frames.trim(0);
        dropped
    }
}
