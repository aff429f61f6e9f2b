// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that policies share, each once.
//!
//! * [`two_lists`]: a node's active and inactive lists, made from accessed bits.

pub mod two_lists;

pub use two_lists::TwoLists;
