// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cgroups (version 2) of a process, and what they let it have.
//!
//! Kernel contract: `/proc/PID/cgroup` has a line `0::/PATH`, below the mount at `/sys/fs/cgroup` and as the reader's namespace sees it;
//! each directory's `cpu.max` is `QUOTA PERIOD` in microseconds, or `max PERIOD`, and holds for all below it.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use terrace_core::Pid;

/// Directories of this process's cgroup and of those above it, the innermost first.
pub(crate) fn own(root: &Path) -> Vec<PathBuf> {
    let own = path(root, "self").unwrap_or_default();
    let mount = root.join("sys/fs/cgroup");
    let directory = mount.join(own);
    let all = directory.ancestors();
    all.take_while(|directory| directory.starts_with(&mount))
        .map(Path::to_owned)
        .collect()
}

fn path(root: &Path, process: &str) -> Option<String> {
    let text = fs::read_to_string(root.join("proc").join(process).join("cgroup")).ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    own.map(str::to_owned)
}

/// How many processors this process may have at most, together with others of its cgroups; nothing where there is no limit.
#[must_use]
pub fn processors(root: &Path) -> Option<f64> {
    let limit = |directory: PathBuf| -> Option<f64> {
        let text = fs::read_to_string(directory.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
        Some(quota / period)
    };
    own(root).into_iter().filter_map(limit).reduce(f64::min)
}

/// Whether another process has the cgroup that this one has, as far as can be told.
#[must_use]
pub fn has_same(root: &Path, pid: Pid) -> bool {
    path(root, "self") == path(root, &pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::put;

    #[test]
    fn the_least_of_all_limits_above_holds() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| put(&root.path().join(path), text);
        assert_eq!(processors(root.path()), None);
        write("proc/self/cgroup", "1:name=systemd:/x\n0::/pod/app");
        write("proc/12/cgroup", "0::/pod/app");
        write("proc/13/cgroup", "0::/pod");
        write("sys/fs/cgroup/pod/app/cpu.max", "max 100000");
        assert_eq!(processors(root.path()), None);
        write("sys/fs/cgroup/pod/cpu.max", "50000 100000");
        assert_eq!(processors(root.path()), Some(0.5));
        write("sys/fs/cgroup/pod/app/cpu.max", "200000 100000");
        assert_eq!(processors(root.path()), Some(0.5));
        let same = |pid| has_same(root.path(), Pid(pid));
        assert_eq!([12, 13, 14].map(same), [true, false, false]);
    }
}
