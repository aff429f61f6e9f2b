// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that policies share, each once.
//!
//! * [`pages`]: what is kept of pages, by 2 MiB; [`free_memory`]: the nodes', between its samples.
//! * [`random`]: a generator with a fixed seed, for policies that choose at random.
//! * [`rate`]: bytes a second, and the bucket that keeps migrations to a rate.
//! * [`two_lists`]: a node's active and inactive lists, made from accessed bits; [`residents`]: pages and lists together;
//!   [`links`]: what lists are made of.
//!
//! What looks alike and is not stays with its preset, as its paper has it: Chrono's octaves of captured idle time (Table
//! 2), MTM's buckets of equal width (6.1), eighths of an octave of access rate (`adaptive`); `HeMem`'s rings, which take 4
//! bytes a page instead of 8; and the kernel's own rate limit, which counts candidates in windows.

pub mod free_memory;
pub mod links;
pub mod pages;
pub mod random;
pub mod rate;
pub mod residents;
pub mod two_lists;

pub use free_memory::FreeMemory;
pub use pages::Pages;
pub use random::Random;
pub use rate::TokenBucket;
pub use residents::Residents;
pub use two_lists::TwoLists;
