// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the running kernel and this process can do.

pub mod btf;
pub mod namespace;
