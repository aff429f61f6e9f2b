// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bits of a page's state: the node it is on, and what happens to it.

/// The node's number; all ones if the page has no memory.
pub(crate) const NODE: u16 = 0xf;
/// The next access is a hint fault.
pub(crate) const ARMED: u16 = 1 << 4;
/// Protected against writes while a transaction copies it.
pub(crate) const COPYING: u16 = 1 << 5;
/// Inaccessible.
pub(crate) const BLOCKED: u16 = 1 << 6;
/// Its old frame is kept and it is protected against writes.
pub(crate) const SHADOW: u16 = 1 << 7;
/// An order for it is with a mover.
pub(crate) const ORDERED: u16 = 1 << 8;
/// Its accessed bit was cleared and it was not accessed since.
pub(crate) const CLEARED: u16 = 1 << 9;
/// Written while a transaction copied it.
pub(crate) const DIRTIED: u16 = 1 << 10;
/// The rate engine has an event for its hint fault.
pub(crate) const FAULT_DUE: u16 = 1 << 11;
/// The rate engine has an event for the write that drops its shadow.
pub(crate) const WRITE_DUE: u16 = 1 << 12;
/// The rate engine: its accessed bit is known to be set, by its hint fault or before it was armed.
pub(crate) const ACCESSED: u16 = 1 << 13;
/// What a read runs into.
pub(crate) const TRAP_READ: u16 = ARMED | BLOCKED | CLEARED;
/// What a write runs into.
pub(crate) const TRAP_WRITE: u16 = TRAP_READ | COPYING | SHADOW;
