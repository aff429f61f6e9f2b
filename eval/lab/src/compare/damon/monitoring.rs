// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is watched, and how often. Pure.

use terrace_core::NodeId;
use terrace_sys::zones::Zone;

use super::Mode;
use super::Rate;
use super::scheme::List;
use super::scheme::Tiers;
use super::scheme::Way;
use crate::kdamond::SAMPLES;
use crate::kdamond::UPDATE_US;

/// Bytes of a page frame.
const FRAME: u64 = 4096;
/// Regions of each thread: DAMON's default.
const REGIONS: (u64, u64) = (10, 1_000);

/// What one thread watches.
pub(super) fn watch(list: &mut List, mode: Mode, way: Way, tiers: Tiers, zones: &[Zone]) {
    let thread = way.thread();
    let at = |path: &str| format!("{thread}/contexts/{path}");
    list.add(at("nr_contexts"), 1, "DAMON's sysfs interface");
    list.add(
        at("0/operations"),
        "paddr",
        "DAMON of physical addresses (CONFIG_DAMON_PADDR)",
    );
    let attributes = |path: &str| at(&format!("0/monitoring_attrs/{path}"));
    list.add(attributes("nr_regions/max"), REGIONS.1, "DAMON's regions");
    list.add(attributes("nr_regions/min"), REGIONS.0, "DAMON's regions");
    let rate = match mode {
        Mode::At(rate) => rate,
        // Where the kernel's tuning begins.
        Mode::Auto | Mode::Best => Rate { sample_ms: 5 },
    };
    let sample_us = rate.sample_ms * 1000;
    let intervals = |path: &str| attributes(&format!("intervals/{path}"));
    list.add(intervals("update_us"), UPDATE_US, "DAMON's intervals");
    list.add(
        intervals("aggr_us"),
        sample_us * SAMPLES,
        "DAMON's intervals",
    );
    list.add(intervals("sample_us"), sample_us, "DAMON's intervals");
    if mode == Mode::Auto {
        // 4 % of the samples that could be positive are, over three aggregations.
        let tuning = "tuning of DAMON's intervals (Linux 6.15)";
        for (path, value) in [
            ("access_bp", 400),
            ("aggrs", 3),
            ("min_sample_us", 5_000),
            ("max_sample_us", 10_000_000),
        ] {
            list.add(intervals(&format!("intervals_goal/{path}")), value, tuning);
        }
    }
    let node = match way {
        Way::Down => tiers.fast,
        Way::Up => tiers.slow,
    };
    let spans: Vec<&Zone> = zones.iter().filter(|zone| is(zone.node, node)).collect();
    let target = |path: &str| at(&format!("0/targets/{path}"));
    list.add(target("nr_targets"), 1, "DAMON's targets");
    list.add(
        target("0/regions/nr_regions"),
        spans.len(),
        "DAMON's regions",
    );
    for (index, zone) in spans.iter().enumerate() {
        let (start, end) = (zone.first * FRAME, (zone.first + zone.count) * FRAME);
        list.add(
            target(&format!("0/regions/{index}/start")),
            start,
            "DAMON's regions",
        );
        list.add(
            target(&format!("0/regions/{index}/end")),
            end,
            "DAMON's regions",
        );
    }
}

fn is(node: NodeId, number: usize) -> bool {
    usize::from(node.0) == number
}
