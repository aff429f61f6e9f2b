// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine file says of each path, in ticks of a counter and multiplied by the dilation.

use terrace_machine_spec::Machine;
use terrace_machine_spec::machine::Lab;

/// What one kind of access (reading or writing) takes between a socket and a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Price {
    pub(crate) latency: u64,
    pub(crate) line: u64,
    pub(crate) stream: u64,
}

/// A line at a bandwidth, ns. The plugin is told four decimals.
fn line_ns(line: u32, bandwidth: u64) -> f64 {
    let bandwidth = f64::from(u32::try_from(bandwidth / 1000).unwrap()) * 1e3;
    (f64::from(line) * 1e9 / bandwidth * 1e4).round() / 1e4
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole ticks, as the plugin counts them"
)]
const fn ticks(ns: f64, ticks_per_ns: f64) -> u64 {
    (ns * ticks_per_ns) as u64
}

/// `[socket][node][load, store]`.
pub(crate) fn prices(machine: &Machine, lab: &Lab, ticks_per_ns: f64) -> Vec<Vec<[Price; 2]>> {
    let scale = lab.dilation * ticks_per_ns;
    let price = |latency, bandwidth, stream| Price {
        latency: ticks(latency, scale),
        line: ticks(line_ns(lab.llc.line, bandwidth), scale),
        stream: ticks(line_ns(lab.llc.line, stream), scale),
    };
    let view = |socket, node| {
        let view = machine.path(socket, node);
        [
            price(view.read_ns, view.read_bandwidth, view.stream_bandwidth),
            price(view.write_ns, view.write_bandwidth, view.stream_bandwidth),
        ]
    };
    let nodes = |socket| (0..machine.nodes.len()).map(move |node| view(socket, node));
    let sockets = 0..machine.sockets.len();
    sockets.map(|socket| nodes(socket).collect()).collect()
}
