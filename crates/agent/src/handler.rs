// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's first thread: answers faults, watches the supervisor's socket, and ends it all.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_proto::Notice;
use terrace_sys::unix_channel::Channel;

use crate::agent::Agent;
use crate::agent::State;
use crate::clock;

const TICK_NS: i64 = 100_000_000;
/// How often pooled frames are trimmed, ns.
const TRIM_EVERY: u64 = 1_000_000_000;

/// Base pages of each node that stay pooled.
const KEEP: usize = 64;

/// Runs until the supervisor is gone or a worker has failed.
pub(crate) fn run(agent: &Agent, socket: &Channel) {
    let mut told = (0, 0, 0);
    let mut next_trim = clock::now() + TRIM_EVERY;
    while !agent.is_stopping() && !wait(agent, socket) {
        agent.kick.silence();
        let left = {
            let mut state = agent.state.lock_urgent();
            agent.drain(&mut state);
            agent.answer_pending(&mut state)
        };
        if left {
            agent.kick.ring();
            rustix::thread::sched_yield();
        }
        if clock::now() >= next_trim {
            next_trim = clock::now() + TRIM_EVERY;
            let mut state = agent.state.lock();
            state.frames.trim(&agent.uffd, KEEP);
            told = tell_faults(agent, &state, told);
            drop(state);
            end_with_the_program(agent);
        }
    }
}

/// A program may end its main thread and live on in others; when the last of them ends, so does
/// the process. Our threads are not meant to keep it alive: then this does what the C library
/// would have done.
fn end_with_the_program(agent: &Agent) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in parentheses: state, then the number of threads as the 18th field.
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return;
    };
    let mut fields = fields.split(' ');
    let main_has_ended = fields.next() == Some("Z");
    let threads = fields.nth(16).and_then(|count| count.parse::<u64>().ok());
    // The main thread counts until the process ends.
    let ours = 2 + agent.busy_workers.load(Ordering::Acquire);
    if main_has_ended && threads == Some(ours) {
        // SAFETY: no thread but ours is left, so nothing runs that exit handlers could disturb.
        unsafe { libc::exit(0) };
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
        {
            let mut state = agent.state.lock_urgent();
            agent.drain(&mut state);
            agent.answer_pending(&mut state);
        }
        rustix::thread::sched_yield();
    }
    let mut state = agent.state.lock_urgent();
    // Only a worker that failed leaves a page out. Its bytes are still where the entry says.
    let left: Vec<_> = state.pages.out().collect();
    for (addr, len, content) in left {
        // SAFETY: the content is a present frame or buffer of ours; the page's address is empty.
        while let Ok(filled) = unsafe { agent.uffd.copy(addr, content, len, false) } {
            if filled.stop != Some(terrace_sys::uffd::Stop::Again) || filled.bytes > 0 {
                break;
            }
            agent.drain_and_yield(&mut state);
        }
    }
}
