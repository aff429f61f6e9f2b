// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the supervisor orders: batches of pages, from the command to the report.

pub(crate) mod arm;
pub(crate) mod clock;
pub(crate) mod commit;
pub(crate) mod demote;
pub(crate) mod exchange;
pub(crate) mod finish;
pub(crate) mod item;
pub(crate) mod memory;
pub(crate) mod migrate;
pub(crate) mod mover;
pub(crate) mod parallel_copy;
pub(crate) mod relocate;
pub(crate) mod report;
pub(crate) mod scratch;
pub(crate) mod split_huge;
pub(crate) mod stage;
pub(crate) mod staging;
pub(crate) mod transaction;
pub(crate) mod worker;
