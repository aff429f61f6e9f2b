// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory model's options (`eval/lab/plugin/options.c` reads them) for a machine.

use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use terrace_machine_spec::Machine;
use terrace_machine_spec::machine::Lab;

use crate::qemu::node_bytes;

/// The plugin, built by `build.rs`.
pub const LIBRARY: &str = env!("TERRACE_LAB_PLUGIN");

/// The emulated PMU as it is when the guest starts; the guest can change all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Pmu {
    /// The emulated PMU samples one in so many last-level misses
    #[arg(long = "pmu-period", value_name = "N", default_value_t = PERIOD, value_parser = clap::value_parser!(u64).range(1..))]
    pub period: u64,
    /// At most so many samples a second of a processor; 0 for no limit
    #[arg(long = "pmu-rate", value_name = "N", default_value_t = 0)]
    pub rate: u64,
    /// What a sample costs its processor, ns of the machine's time
    #[arg(long = "pmu-charge", value_name = "NS", default_value_t = CHARGE_NS, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub charge_ns: u64,
    /// Unread samples that are kept for each processor; 0 for all there is room for
    #[arg(long = "pmu-room", value_name = "N", default_value_t = 0)]
    pub room: u64,
}

/// Some thousand samples a second at the miss rates of the emulated machine.
const PERIOD: u64 = 97;
/// Of the order of what a processor's microcode takes to write a sample.
const CHARGE_NS: u64 = 200;
/// Sizes in `eval/lab/plugin/pmu.h`.
const HEADER_BYTES: u64 = 4096;
const RING_BYTES: u64 = 4096 + 16384 * 48;

impl Default for Pmu {
    fn default() -> Self {
        Self {
            period: PERIOD,
            rate: 0,
            charge_ns: CHARGE_NS,
            room: 0,
        }
    }
}

impl Pmu {
    /// Size of the memory shared with the guest: a power of two, as a PCI device wants it.
    #[must_use]
    pub fn bytes(machine: &Machine, lab: &Lab) -> u64 {
        let rings = u64::from(lab.cpus) * machine.sockets.len() as u64;
        (HEADER_BYTES + rings * RING_BYTES).next_power_of_two()
    }
}

/// Where the plugin writes and what the guest shares with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The time series.
    pub series: PathBuf,
    /// The PMU's memory.
    pub pmu: PathBuf,
}

impl Paths {
    /// In the directory of a run.
    #[must_use]
    pub fn in_directory(dir: &Path) -> Self {
        Self {
            series: dir.join("series.jsonl"),
            pmu: dir.join("pmu"),
        }
    }
}

/// Nanoseconds that one line takes at a bandwidth.
fn line_ns(line: u32, bandwidth: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "no bandwidth needs more than 52 bits"
    )]
    let rate = bandwidth as f64;
    f64::from(line) * 1e9 / rate
}

/// Options for `machine`, whose lab settings are `lab`.
#[must_use]
pub fn options(machine: &Machine, lab: &Lab, pmu: &Pmu, paths: &Paths) -> Vec<String> {
    let mut options = vec![
        format!("series={}", paths.series.display()),
        format!(
            "pmu={}:{}:{}:{}:{}",
            pmu.period,
            pmu.rate,
            pmu.charge_ns,
            pmu.room,
            paths.pmu.display()
        ),
        format!("llc={}", lab.llc.bytes),
        format!("ways={}", lab.llc.ways),
        format!("line={}", lab.llc.line),
        format!("dilation={}", lab.dilation),
        format!("below4g={}", lab.below_4g),
    ];
    let mut end = 0;
    for (id, bytes) in node_bytes(machine).into_iter().enumerate() {
        end += bytes;
        options.push(format!("node={id}:{end}"));
    }
    for socket in 0..machine.sockets.len() {
        let cpus = usize::try_from(lab.cpus).unwrap_or(1);
        for cpu in socket * cpus..(socket + 1) * cpus {
            options.push(format!("vcpu={cpu}:{socket}"));
        }
        for node in 0..machine.nodes.len() {
            let path = machine.path(socket, node);
            let stream = line_ns(lab.llc.line, path.stream_bandwidth);
            options.push(format!(
                "path={socket}:{node}:{}:{}:{:.4}:{:.4}:{stream:.4}:{stream:.4}",
                path.read_ns,
                path.write_ns,
                line_ns(lab.llc.line, path.read_bandwidth),
                line_ns(lab.llc.line, path.write_bandwidth),
            ));
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_the_machine_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
        let machine = Machine::load(&path).unwrap();
        let lab = machine.lab.unwrap();
        let paths = Paths::in_directory(Path::new("/d"));
        let options = options(&machine, &lab, &Pmu::default(), &paths);
        let fast = machine.nodes[0].lab_bytes.unwrap();
        let all = fast + machine.nodes[1].lab_bytes.unwrap();
        for expected in [
            "series=/d/series.jsonl".to_owned(),
            "pmu=97:0:200:0:/d/pmu".to_owned(),
            format!("node=0:{fast}"),
            format!("node=1:{all}"),
            "vcpu=1:0".to_owned(),
            "path=0:1:250:250:2.6667:3.2000:8.0000:8.0000".to_owned(),
        ] {
            assert!(
                options.contains(&expected),
                "no '{expected}' in {options:?}"
            );
        }
        assert_eq!(Pmu::bytes(&machine, &lab), 2 << 20, "two rings of 772 KiB");
    }
}
