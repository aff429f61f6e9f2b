// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes' memory, sampled for the policy, and the cap that `--fast` puts on the fast tier.
//!
//! With a cap the policy is told of a fast tier of that size: what the managed processes have on it
//! counts as used, the rest of the cap as free (never more than is really free).

use std::fs;

use terrace_core::NodeMemory;
use terrace_core::Pid;

/// Bytes of a process on a node, from numa_maps (numa(7)). Zero where it is gone.
#[must_use]
pub fn resident(pid: Pid, node: terrace_core::NodeId) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default();
    text.lines().map(|line| resident_of(line, node.0)).sum()
}

/// Bytes of the largest of these processes.
#[must_use]
pub fn largest(pids: impl Iterator<Item = Pid>) -> u64 {
    pids.map(resident_anywhere).max().unwrap_or(0)
}

/// Bytes that a process has in memory, from statm (proc_pid_statm(5)). Zero where it is gone.
fn resident_anywhere(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1);
    let pages: u64 = pages.and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn resident_of(line: &str, node: u16) -> u64 {
    let key = format!("N{node}=");
    let mut pages = 0;
    let mut page_bytes = 4096;
    for word in line.split_ascii_whitespace() {
        if let Some(n) = word.strip_prefix(&key) {
            pages = n.parse().unwrap_or(0);
        } else if let Some(kb) = word.strip_prefix("kernelpagesize_kB=") {
            page_bytes = kb.parse().unwrap_or(4) * 1024;
        }
    }
    pages * page_bytes
}

/// What the policy is told of a fast node of which at most `cap` bytes may be used, `used` are.
#[must_use]
pub fn capped(real: NodeMemory, cap: u64, used: u64) -> NodeMemory {
    let total = cap.min(real.total_bytes);
    // The kernel's watermarks guard the real node; within the cap nothing needs to stay free but
    // what the real node lacks.
    let spare = real.free_bytes.saturating_sub(real.high_bytes);
    NodeMemory {
        free_bytes: total.saturating_sub(used).min(spare),
        low_bytes: 0,
        high_bytes: 0,
        total_bytes: total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_one_that_is_gone_has_none() {
        assert!(resident_anywhere(Pid(std::process::id())) > 1 << 20);
        assert_eq!(resident_anywhere(Pid(0)), 0);
    }

    #[test]
    fn numa_maps_lines_count_by_node_and_page_size() {
        let line = "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4";
        assert_eq!(resident_of(line, 0), 4096);
        assert_eq!(resident_of(line, 1), 8192);
        assert_eq!(resident_of(line, 2), 0);
        assert_eq!(
            resident_of("7f00 default huge anon=1 N0=1 kernelpagesize_kB=2048", 0),
            2 << 20
        );
    }

    #[test]
    fn a_cap_leaves_what_is_not_used_and_never_more_than_is_free() {
        let real = NodeMemory {
            free_bytes: 100,
            low_bytes: 10,
            high_bytes: 20,
            total_bytes: 1000,
        };
        assert_eq!(capped(real, 50, 20).free_bytes, 30);
        assert_eq!(capped(real, 500, 20).free_bytes, 80);
        assert_eq!(capped(real, 50, 60).free_bytes, 0);
    }
}
