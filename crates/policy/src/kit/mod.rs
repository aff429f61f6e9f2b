// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that policies share, each once.
//!
//! * [`pages`]: what is kept of pages, by 2 MiB; [`free_memory`]: the nodes' between its samples.
//! * [`random`]: a generator with a fixed seed, for policies that choose at random.
//! * [`two_lists`]: a node's active and inactive lists, made from accessed bits; [`residents`]: pages and lists together.

pub mod free_memory;
pub mod pages;
pub mod random;
pub mod residents;
pub mod two_lists;

pub use free_memory::FreeMemory;
pub use pages::Pages;
pub use random::Random;
pub use residents::Residents;
pub use two_lists::TwoLists;
