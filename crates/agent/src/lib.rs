// SPDX-License-Identifier: MIT OR Apache-2.0
//! libterrace.so: page transactions inside the managed program.
//!
//! Preloaded, it connects to the supervisor named by `TERRACE_SOCKET`, does with pages what it is
//! told, and says how it went. It decides nothing. Without that variable, without permission for
//! userfaultfd, or once the supervisor is gone, it does nothing.
//!
//! It is a guest. It never prints, never unwinds into the program, never calls the program's
//! malloc, keeps its threads' signals blocked and
//! its descriptors in a table of its own, has no capability while it works, and its threads do not count
//! as the program's. Its heap, stacks and frames lie in one piece of address space ([`state::layout`]) that no command
//! can name.
//!
//! * [`life`]: start and end, threads that are not the program's, forks, and calls of the program's that concern the agent;
//! * [`state`]: pages, ranges, frames and the kernel's events about them, under one lock;
//! * [`ops`]: what the supervisor orders: [`ops::worker`] takes a batch, [`ops::migrate`], [`ops::transaction`], [`ops::demote`] and
//!   [`ops::exchange`] carry it out on [`ops::stage`], [`ops::commit`] and [`ops::finish`].

mod life;
mod ops;
mod state;

#[global_allocator]
static HEAP: life::heap::Heap = life::heap::Heap::new();
