// SPDX-License-Identifier: MIT OR Apache-2.0
//! libterrace.so: page transactions inside the managed program.
//!
//! Preloaded, it connects to the supervisor named by `TERRACE_SOCKET`, does with pages what it is
//! told, and says how it went. It decides nothing. Without that variable, without permission for
//! userfaultfd, or once the supervisor is gone, it does nothing.
//!
//! It is a guest. It never prints, never unwinds into the program, never calls the program's
//! malloc (but for the C library's own start of a thread), keeps its threads' signals blocked and
//! its descriptors in a table of its own. Its heap, stacks and frames lie in one reservation
//! ([`layout`]) that no command can name.
//!
//! * who is who: [`agent`]; the lock: [`lock`]; what is known of pages: [`pages`], [`ranges`],
//!   [`doomed`];
//! * what the kernel tells: [`events`], [`fork_child`]; what the program does: [`fork`];
//! * what the supervisor wants: [`worker`], then [`whole`], [`transaction`], [`base`], [`demote`],
//!   [`exchange`], all on [`commit`], [`mover`], [`staging`], [`frames`], [`team`];
//! * start and end: [`entry`], [`handler`], [`thread`].

mod agent;
mod base;
mod clock;
mod commit;
mod demote;
mod doomed;
mod entry;
mod events;
mod exchange;
mod extents;
mod fork;
mod fork_child;
mod frames;
mod handler;
mod heap;
mod item;
mod layout;
mod lock;
mod memory;
mod mover;
mod pages;
mod ranges;
mod relocate;
mod report;
mod scratch;
mod staging;
mod switches;
mod team;
mod thread;
mod transaction;
mod whole;
mod worker;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();
