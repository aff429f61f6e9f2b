// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policies, each in a folder of its own.

pub mod adaptive;
pub mod autotiering;
pub mod chrono;
pub mod hemem;
pub mod kernel_tiering;
pub mod linux_nb;
pub mod mtm;
pub mod nomad;
pub mod none;
pub mod tpp;
