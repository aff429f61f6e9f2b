// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities of this process.
//!
//! Contract: capabilities(7); the effective set is `CapEff` in `/proc/self/status`.

/// A capability, by the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// See and change the memory of other processes.
    SysPtrace = 19,
    /// Change kernel settings; load BPF programs before Linux 5.8.
    SysAdmin = 21,
    /// Move pages that several processes map.
    SysNice = 23,
    /// Watch kernel functions.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
}

/// Whether this process has it; `None` where /proc does not say.
#[must_use]
pub fn has(capability: Capability) -> Option<bool> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(effective(&status)? & (1 << capability as u32) != 0)
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_set_is_read() {
        let status = "CapPrm:\t0000000000000000\nCapEff:\t000000c000080000\n";
        assert_eq!(effective(status), Some(0xc0_0008_0000));
        assert_eq!(effective("Name: x"), None);
        assert!(has(Capability::Bpf).is_some());
    }
}
