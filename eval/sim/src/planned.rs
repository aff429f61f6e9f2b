// SPDX-License-Identifier: MIT OR Apache-2.0
//! What claims may name although it cannot be simulated yet.

/// Systems of the papers that are not built yet, and some that are: whoever asks looks at
/// [`crate::systems`] first.
pub const PLANNED: [&str; 2] = ["thermostat", "damon"];
