// SPDX-License-Identifier: MIT OR Apache-2.0
//! What presets are compared with, as policies: the kernel's ways and the papers' points of
//! comparison. `oracle` and `memory-mode` are placements, not policies: see [`crate::drive`].

mod kernel;
mod kswapd;
mod numa_scan;
pub(crate) mod random;

use terrace_core::Tiers;
use terrace_policy::Policy;

use crate::SimError;
use crate::space::Space;
use crate::system::Params;
use kernel::Kernel;
use kernel::Mode;

/// One of the kernel's ways by name.
pub(crate) fn make(
    name: &str,
    params: &mut Params,
    tiers: &Tiers,
    space: &Space,
    threads: u32,
) -> Result<Box<dyn Policy>, SimError> {
    let mode = match name {
        "autonuma" => Mode::AutoNuma,
        "kernel-tiering" => Mode::Tiering,
        "tpp" => Mode::Tpp,
        other => return Err(SimError::System(other.to_owned())),
    };
    Ok(Box::new(Kernel::new(mode, params, tiers, space, threads)?))
}
