// SPDX-License-Identifier: MIT OR Apache-2.0
//! fork(2): no page of ours may be missing in the child.
//!
//! Two ways. Where the kernel reports forks to the fault handler, it fills what is out
//! ([`crate::life::fork_child`]), and these handlers do nothing: a worker that has pages out may wait for
//! the event of this very fork to be read. Elsewhere the gate ([`Agent::gate`]) is held over the fork,
//! so no page is out; the state lock is free, so a fault of the forking thread is answered. A raw clone(2)
//! does not run these handlers and is covered by the first way only.
//!
//! The child's agent is off: it has none of our threads, and our arenas were left out of it. A
//! child that executes a program gets its own agent.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use crate::state::agent::Agent;
use crate::state::lock::Lock;

/// The agent whose gate a fork must hold; null where there is none or the kernel reports forks.
static QUIESCE: AtomicPtr<Agent> = AtomicPtr::new(std::ptr::null_mut());
/// Keeps the agent from going away while a fork holds its gate.
static STAY: Lock<()> = Lock::new(());

/// Registers the handlers. Once a process.
pub(crate) fn install() {
    // SAFETY: the handlers are functions of this library, which is never unloaded: preloaded
    // libraries stay.
    unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
}

/// Makes forks wait for `agent`, which must live until [`withdraw`].
pub(crate) fn announce(agent: &'static Agent) {
    QUIESCE.store(std::ptr::from_ref(agent).cast_mut(), Ordering::Release);
}

/// From here on forks take no notice of the agent. A fork under way may have to wait for an answer of the
/// caller's, who gives it in `meanwhile`.
pub(crate) fn withdraw(mut meanwhile: impl FnMut()) {
    while !STAY.try_acquire() {
        meanwhile();
        rustix::thread::sched_yield();
    }
    QUIESCE.store(std::ptr::null_mut(), Ordering::Release);
    STAY.release();
}

fn quiesced() -> Option<&'static Agent> {
    // SAFETY: set from a reference that lives until `withdraw`, which waits for the gate that
    // every user of this function holds.
    unsafe { QUIESCE.load(Ordering::Acquire).as_ref() }
}

/// The thread that holds both over its fork; 0 for none.
static HOLDER: AtomicU32 = AtomicU32::new(0);

fn own_thread() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

/// Where the kernel reports forks nothing is held: the fork waits for the fault handler to read its
/// event, and the handler's end for [`STAY`].
extern "C" fn before() {
    crate::life::door::before_fork();
    STAY.acquire();
    match quiesced() {
        Some(agent) => {
            agent.gate.acquire();
            HOLDER.store(own_thread(), Ordering::Relaxed);
        }
        None => STAY.release(),
    }
}

extern "C" fn after_in_parent() {
    if HOLDER.load(Ordering::Relaxed) != own_thread() {
        return;
    }
    HOLDER.store(0, Ordering::Relaxed);
    if let Some(agent) = quiesced() {
        agent.gate.release();
    }
    STAY.release();
}

extern "C" fn after_in_child() {
    QUIESCE.store(std::ptr::null_mut(), Ordering::Relaxed);
    HOLDER.store(0, Ordering::Relaxed);
    STAY.reset();
    crate::life::door::reset();
}
