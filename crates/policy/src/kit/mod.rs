// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that policies share, each once.
//!
//! * [`free_memory`]: what migrations may still take of a node, between two samples of its memory.
//! * [`random`]: a generator with a fixed seed, for policies that choose at random.
//! * [`two_lists`]: a node's active and inactive lists, made from accessed bits.

pub mod free_memory;
pub mod random;
pub mod two_lists;

pub use free_memory::FreeMemory;
pub use random::Random;
pub use two_lists::TwoLists;
