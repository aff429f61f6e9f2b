// SPDX-License-Identifier: MIT OR Apache-2.0
//! What presets are compared with, as policies: the kernel's ways and the papers' points of
//! comparison. `oracle` and `memory-mode` are placements, not policies: see [`crate::drive`].

mod kernel;
mod kswapd;
mod mglru;
mod numa_scan;
pub(crate) mod random;

use terrace_core::Tiers;
use terrace_policy::Policy;

use crate::Setup;
use crate::SimError;
use crate::scanner::Pace;
use crate::space::Space;
use crate::system::Params;
use kernel::Kernel;
use kernel::Mode;

/// The kernel's way that the set-up names, and its scanner's pace.
pub(crate) fn make(
    setup: &Setup,
    params: &mut Params,
    tiers: &Tiers,
    space: &Space,
) -> Result<(Box<dyn Policy>, Pace), SimError> {
    let mode = match setup.system.as_str() {
        "autonuma" => Mode::AutoNuma,
        "kernel-tiering" => Mode::Tiering,
        "tpp" => Mode::Tpp,
        other => return Err(SimError::System(other.to_owned())),
    };
    let kernel = Kernel::new(mode, setup, params, tiers, space)?;
    let pace = kernel.pace();
    Ok((Box::new(kernel), pace))
}
