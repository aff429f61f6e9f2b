// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's first thread: answers faults, watches the supervisor's socket, and ends it all.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_proto::Notice;
use terrace_sys::unix_channel::Channel;

use crate::life::descriptors;
use crate::life::door;
use crate::life::door::Request;
use crate::ops::clock;
use crate::state::agent::Agent;
use crate::state::agent::Answer;
use crate::state::agent::State;

const TICK_NS: i64 = 100_000_000;
/// How often some shadows are looked at, ns.
const REVIEW_EVERY: u64 = 100_000_000;
/// How often a range is looked at again that must be let go of while transactions run in it.
const PATIENCE: u32 = 100_000;
/// How often pooled frames are trimmed, ns.
const TRIM_EVERY: u64 = 1_000_000_000;
/// How often the agent asks whether it may stay, ns.
const LOOK_EVERY: u64 = 100_000_000;

/// Base pages of each node that stay pooled.
const KEEP: usize = 64;

/// Runs until the supervisor is gone, a worker has failed, or `must_go` says so.
pub(crate) fn run(agent: &Agent, socket: &Channel, must_go: impl Fn(Option<u64>) -> bool) {
    let mut told = (0, 0, 0);
    let (mut next_trim, mut next_look) = (clock::now() + TRIM_EVERY, 0);
    let mut next_review = clock::now() + REVIEW_EVERY;
    let mut reviewed = 0;
    while !agent.is_stopping() && !wait(agent, socket) {
        agent.kick.silence();
        let left = {
            let mut state = agent.state.lock_urgent();
            agent.drain(&mut state);
            agent.answer_pending(&mut state)
        };
        if clock::now() >= next_review {
            next_review = clock::now() + REVIEW_EVERY;
            reviewed = agent.review_shadows(&mut agent.state.lock(), reviewed);
        }
        if left {
            agent.kick.ring();
            rustix::thread::sched_yield();
        }
        if !serve_door(agent) {
            return;
        }
        let now = clock::now();
        if now >= next_look {
            next_look = now + LOOK_EVERY;
            // To look through a process's threads takes the kernel the longer the more there are.
            let ours = (now >= next_trim).then(|| 1 + agent.busy_workers.load(Ordering::Acquire));
            if must_go(ours) {
                return;
            }
        }
        if now >= next_trim {
            next_trim = now + TRIM_EVERY;
            let mut state = agent.state.lock();
            state.frames.trim(KEEP);
            told = tell_faults(agent, &state, told);
        }
    }
}

/// Does what the program asks for; `false` where the agent is to leave, which is the answer then.
fn serve_door(agent: &Agent) -> bool {
    match door::asked() {
        None => true,
        Some(Request::KeepOut { start, end }) if door::keep_out(start, end) => {
            agent.let_go(start, end);
            door::answer();
            true
        }
        Some(_) => false,
    }
}

impl Agent {
    /// Lets go of a range that is the program's own to watch: its shadows, its transactions, its registration.
    /// Afterwards no call of ours is for a page of it: the kernel would take our protection for the program's.
    fn let_go(&self, start: u64, end: u64) {
        for _ in 0..PATIENCE {
            let mut state = self.state.lock_urgent();
            self.drain(&mut state);
            // Nothing is begun in the range from here on; what was begun is aborted, and ends.
            state.ranges.unmap(start, end);
            state.pages.disturb(start, end);
            if state.pages.entry_over(start, end).is_none() {
                self.drop_shadows(&mut state, start, end);
                // This lifts the protection and wakes who waits, so nothing is left to be answered.
                self.unregister(&mut state, start, end);
                state.pending.retain(|answer| {
                    let (at, len) = match *answer {
                        Answer::Fill(addr) => (addr, 1),
                        Answer::Unprotect(addr, len) => (addr, len),
                    };
                    at >= end || at.saturating_add(len) <= start
                });
                return;
            }
            drop(state);
            rustix::thread::sched_yield();
        }
    }
}

/// Waits for something to do; whether the supervisor is gone.
fn wait(agent: &Agent, socket: &Channel) -> bool {
    let mut fds = [
        PollFd::from_borrowed_fd(agent.uffd.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(agent.kick.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN | PollFlags::RDHUP),
    ];
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK_NS,
    };
    if rustix::event::poll(&mut fds, Some(&tick)).is_err() {
        return false;
    }
    // The socket says one thing only; whatever it says, the conversation is over.
    !fds[2].revents().is_empty()
}

fn tell_faults(agent: &Agent, state: &State, told: (u64, u32, u32)) -> (u64, u32, u32) {
    let now = (
        state.write_protect_faults,
        state.missing_faults,
        state.writes_waited,
    );
    if now != told {
        agent.reports.notice(Notice::Faults {
            write_protect: now.0 - told.0,
            missing: now.1.wrapping_sub(told.1),
            writes_waited: now.2.wrapping_sub(told.2),
        });
        agent.reports.ring();
    }
    now
}

/// After the workers were told to stop: answers faults until the last of them has ended.
pub(crate) fn see_workers_off(agent: &Agent) {
    while agent.busy_workers.load(Ordering::Acquire) > 0 {
        if descriptors::stands_still() {
            // SAFETY: this is a thread of ours.
            unsafe { descriptors::stand_still() };
        }
        {
            let mut state = agent.state.lock_urgent();
            agent.drain(&mut state);
            agent.answer_pending(&mut state);
        }
        rustix::thread::sched_yield();
    }
    let mut state = agent.state.lock_urgent();
    // Only a worker that failed leaves a page out. Its bytes are still where the entry says.
    let left: Vec<_> = state.pages.all_out().collect();
    for (id, content) in left {
        agent.put_back(&mut state, id, content);
        for piece in state.pages.pieces(id) {
            agent.uffd.wake(piece.addr, piece.len);
        }
    }
}
