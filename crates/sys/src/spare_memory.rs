// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that this process may take without making anybody give up some: what is free on the nodes that it may use, and
//! below the limits of its cgroups.
//!
//! Kernel contract: where a cgroup is at its limit (`memory.max`, cgroup v2) and has nothing to reclaim, whoever takes a page there has the OOM killer end the
//! largest of its processes, whatever the call (`mem_cgroup_oom` in Linux 6.12): `MADV_POPULATE_WRITE` reports nothing by then. The same goes
//! for a full node that is the only one of a cpuset.

use std::fs;
use std::path::Path;

use crate::cgroup;
use crate::mempolicy;
use crate::topology;

/// Bytes of it.
#[must_use]
pub fn bytes(root: &Path) -> u64 {
    let system = rustix::system::sysinfo();
    let free = system.freeram.saturating_mul(u64::from(system.mem_unit));
    let nodes = mempolicy::allowed_nodes().unwrap_or_default();
    let nodes: Option<Vec<u64>> = nodes
        .iter()
        .map(|node| topology::free_bytes(root, *node))
        .collect();
    let allowed = nodes.filter(|nodes| !nodes.is_empty());
    let allowed = allowed.map_or(u64::MAX, |nodes| nodes.iter().sum());
    free.min(allowed).min(below_limits(root))
}

/// What the cgroups of this process have left, by the one that has least.
fn below_limits(root: &Path) -> u64 {
    let all = cgroup::own(root);
    let left = all.iter().filter_map(|directory| left(directory)).min();
    left.unwrap_or(u64::MAX)
}

/// What one has left; nothing where it has no limit.
fn left(directory: &Path) -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        text.trim().parse().ok()
    };
    // Above `memory.high` all of it are made to wait.
    let limits = [read("memory.max"), read("memory.high")];
    let limit = limits.into_iter().flatten().min()?;
    Some(limit.saturating_sub(read("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::put;

    #[test]
    fn the_least_that_any_cgroup_above_has_left_counts() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| put(&root.path().join(path), text);
        assert_eq!(below_limits(root.path()), u64::MAX);
        write("proc/self/cgroup", "0::/pod/app");
        write("sys/fs/cgroup/pod/app/memory.max", "max");
        write("sys/fs/cgroup/pod/app/memory.current", "100");
        assert_eq!(below_limits(root.path()), u64::MAX);
        write("sys/fs/cgroup/pod/memory.max", "1000");
        write("sys/fs/cgroup/pod/memory.current", "400");
        assert_eq!(below_limits(root.path()), 600);
        write("sys/fs/cgroup/pod/app/memory.high", "300");
        assert_eq!(below_limits(root.path()), 200);
        write("sys/fs/cgroup/pod/app/memory.current", "500");
        assert_eq!(below_limits(root.path()), 0);
    }

    #[test]
    fn there_is_no_more_than_is_free() {
        let system = rustix::system::sysinfo();
        let all = system.totalram.saturating_mul(u64::from(system.mem_unit));
        let spare = bytes(Path::new("/"));
        assert!(spare < all, "{spare} of {all}");
    }
}
