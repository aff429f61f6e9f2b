// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory model's options (`lab/plugin/options.c` reads them) for a machine.

use std::path::Path;

use terrace_config::Machine;
use terrace_config::machine::Lab;

use crate::qemu::node_bytes;

/// The plugin, built by `build.rs`.
pub const LIBRARY: &str = env!("TERRACE_LAB_PLUGIN");

/// Nanoseconds that one line takes at a bandwidth.
fn line_ns(line: u32, bandwidth: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "no bandwidth needs more than 52 bits"
    )]
    let rate = bandwidth as f64;
    f64::from(line) * 1e9 / rate
}

/// Options for `machine`, whose lab settings are `lab`; the time series goes to `series`.
#[must_use]
pub fn options(machine: &Machine, lab: &Lab, series: &Path) -> Vec<String> {
    let mut options = vec![
        format!("series={}", series.display()),
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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../machines/cxl-2tier.toml");
        let machine = Machine::load(&path).unwrap();
        let options = options(&machine, &machine.lab.unwrap(), Path::new("/s"));
        let fast = machine.nodes[0].lab_bytes.unwrap();
        let all = fast + machine.nodes[1].lab_bytes.unwrap();
        for expected in [
            "series=/s".to_owned(),
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
    }
}
