// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether pages may hold access times where the kernel else keeps who accessed them ([`wishes`](super::wishes)).
//!
//! Kernel contract: `NUMA_BALANCING_MEMORY_TIERING`, bit 1 of `kernel.numa_balancing`, stores one when it marks a page of a
//! slow tier (`change_pte_range` in Linux 6.12), and `numa_pte_updates` of `/proc/vmstat` counts what was marked since
//! the machine was started, in whatever mode and for whom. Nothing says in which mode that was.

use std::fs;
use std::path::Path;

use super::Setting;
use crate::topology;

/// Whether some may, by all that anybody has done since the machine was started.
pub(super) fn may_be_stored(root: &Path) -> bool {
    // Without a slow tier none is.
    topology::kernel_tiers(root) != Some(1) && (stores_now(root) || has_marked(root))
}

fn stores_now(root: &Path) -> bool {
    let mode = Setting::NumaBalancing.read(root).ok().flatten();
    let mode = mode.and_then(|mode| mode.parse::<u32>().ok());
    mode.is_some_and(|mode| mode & 2 != 0)
}

fn has_marked(root: &Path) -> bool {
    let vmstat = fs::read_to_string(root.join("proc/vmstat")).unwrap_or_default();
    topology::counter(&vmstat, "numa_pte_updates").is_some_and(|marked| marked > 0)
}
