// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processor this is, for choosing its events: the first one of `/proc/cpuinfo`, whose lines
//! are "name : value". Other architectures name none of these; then nothing is known.

use std::fmt;
use std::fs;
use std::path::Path;

/// A processor's vendor, family, model and stepping, as CPUID has them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuModel {
    /// For example "GenuineIntel".
    pub vendor: String,
    /// Family, extended part included.
    pub family: u32,
    /// Model, extended part included.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// What it calls itself.
    pub name: String,
}

impl CpuModel {
    /// Reads it; `root` is `/` but in tests.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(root.join("proc/cpuinfo")).ok()?)
    }

    /// From the text of `/proc/cpuinfo`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut cpu = Self::default();
        // An empty line ends the first processor.
        for line in text.lines().take_while(|line| !line.trim().is_empty()) {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match name.trim() {
                "vendor_id" => value.clone_into(&mut cpu.vendor),
                "cpu family" => cpu.family = value.parse().ok()?,
                "model" => cpu.model = value.parse().ok()?,
                "model name" => value.clone_into(&mut cpu.name),
                "stepping" => cpu.stepping = value.parse().ok()?,
                _ => {}
            }
        }
        (!cpu.vendor.is_empty()).then_some(cpu)
    }
}

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            vendor,
            family,
            model,
            stepping,
            name,
        } = self;
        write!(
            f,
            "{name} ({vendor}, family {family:#x}, model {model:#x}, stepping {stepping})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_processor_counts() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
                    model name\t: Some Xeon: a test\nstepping\t: 7\nflags\t\t: fpu\n\n\
                    processor\t: 1\nvendor_id\t: Other\n";
        let cpu = CpuModel::parse(text).unwrap();
        assert_eq!((cpu.family, cpu.model, cpu.stepping), (6, 0x55, 7));
        assert_eq!(
            cpu.to_string(),
            "Some Xeon: a test (GenuineIntel, family 0x6, model 0x55, stepping 7)"
        );
        assert_eq!(CpuModel::parse("processor : 0\nBogoMIPS : 50.00\n"), None);
        assert_eq!(CpuModel::parse(""), None);
    }
}
