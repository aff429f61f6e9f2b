// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trackers against the truth, at the same price: how many of the hottest pages each finds.
//!
//! One boot of the emulated machine. In it `terrace-bench` runs a workload, whose visits to each page are known
//! ([`target`]), and one tracker after the other watches it, each for as long, at the same share of a processor. Nothing is
//! moved. What each saw comes to a rate of accesses for each page in the same way ([`heat`]), and that is
//! held against the truth ([`score`]).
//!
//! * [`guest`]: the guest's side. `watch`, `damon`: the trackers. [`record`]: what is told. [`table`], [`plot`]: how it is shown.

pub mod damon;
pub mod guest;
pub mod heat;
pub mod plot;
pub mod record;
pub mod score;
pub mod table;
pub mod target;
pub mod translations;
pub mod watch;
