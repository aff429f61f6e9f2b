// SPDX-License-Identifier: MIT OR Apache-2.0
//! What presets are compared with, as policies: the kernel's ways and the papers' points of
//! comparison. `oracle` and `memory-mode` are placements, not policies: see [`crate::drive`].

pub(crate) mod random;
