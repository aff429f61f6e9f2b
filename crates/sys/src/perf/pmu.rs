// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says of its PMUs and of who may use them.
//!
//! Contract: `Documentation/ABI/testing/sysfs-bus-event_source-devices-*`: a directory for each PMU
//! with its number (`type`) and the fields of its configuration (`format/`), and
//! `Documentation/admin-guide/sysctl/kernel.rst` (`perf_event_paranoid`). All of it is readable by
//! everyone. `root` is `/` but in tests.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// One PMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pmu {
    /// Its number, for [`super::EventSpec::kind`].
    pub kind: u32,
    directory: PathBuf,
}

impl Pmu {
    /// The PMU of that name, if the kernel has it.
    #[must_use]
    pub fn find(root: &Path, name: &str) -> Option<Self> {
        // A name from a configuration must not lead out of the directory.
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return None;
        }
        let directory = root.join("sys/bus/event_source/devices").join(name);
        let kind = fs::read_to_string(directory.join("type")).ok()?;
        Some(Self {
            kind: kind.trim().parse().ok()?,
            directory,
        })
    }

    /// Whether its configuration has a field of that name.
    #[must_use]
    pub fn has_format(&self, name: &str) -> bool {
        !name.contains('/') && self.directory.join("format").join(name).exists()
    }
}

/// Names of the PMUs that are there, sorted.
#[must_use]
pub fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("sys/bus/event_source/devices"));
    let mut names: Vec<String> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// `kernel.perf_event_paranoid`; `None` where the kernel has no perf events.
#[must_use]
pub fn paranoid(root: &Path) -> Option<i32> {
    let text = fs::read_to_string(root.join("proc/sys/kernel/perf_event_paranoid")).ok()?;
    text.trim().parse().ok()
}

/// The processors that are online, ascending.
#[must_use]
pub fn online_cpus(root: &Path) -> Vec<u32> {
    let text = fs::read_to_string(root.join("sys/devices/system/cpu/online"));
    parse_list(text.unwrap_or_default().trim()).unwrap_or_default()
}

/// A list as the kernel prints sets: "0-3,8".
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // No kernel has more.
        if last > 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse_list("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        assert_eq!(parse_list(""), Some(vec![]));
        assert_eq!(parse_list("0-x"), None);
        assert_eq!(parse_list("0-4000000000"), None);
        assert!(!online_cpus(Path::new("/")).is_empty());
    }

    #[test]
    fn pmus_come_from_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("sys/bus/event_source/devices/ibs_op");
        fs::create_dir_all(device.join("format")).unwrap();
        fs::write(device.join("type"), "9\n").unwrap();
        fs::write(device.join("format/swfilt"), "config2:0\n").unwrap();
        let pmu = Pmu::find(root.path(), "ibs_op").unwrap();
        assert_eq!(pmu.kind, 9);
        assert!(pmu.has_format("swfilt") && !pmu.has_format("l3missonly"));
        assert!(!pmu.has_format("../type"));
        assert_eq!(names(root.path()), ["ibs_op"]);
        for other in ["cpu", "", "../devices/ibs_op", "."] {
            assert_eq!(Pmu::find(root.path(), other), None);
        }
        assert_eq!(paranoid(root.path()), None);
        assert_eq!(online_cpus(root.path()), []);
    }
}
