// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the preset tells of itself.

terrace_core::figures! {
    pub(super) struct Figures {
        /// Profiling intervals that ended.
        intervals: u64 as Count,
        /// Memory regions.
        regions: u64 as Count,
        /// Pairs of regions that became one.
        regions_merged: u64 as Count,
        /// Regions that became two.
        regions_split: u64 as Count,
        /// Page samples that fit into the overhead, num_ps (5.3).
        num_ps: u64 as Count,
        /// Page samples of all regions.
        page_samples: u64 as Count,
        /// Pages that were scanned in the last interval.
        pages_scanned: u64 as Count,
        /// Scans of a page, all of them.
        scans: u64 as Count,
        /// What one scan takes, one_scan_overhead (5.3).
        one_scan_ns: u64 as Nanoseconds,
        /// Time that profiling took.
        profiling_us: u64 as Microseconds,
        /// The largest part of an interval that profiling took, in 1/10,000.
        profiling_worst: u64 as Count,
        /// From scan to scan of a page.
        scan_spacing_us: u64 as Microseconds,
        /// The merging threshold tau_m as it is, in thousandths of a scan.
        tau_m_milli: u64 as Count,
        /// Samples of accesses that guided scans of the slowest tier (5.5).
        samples_captured: u64 as Count,
        /// Hint faults that told whose accesses they are (6.2).
        accessors_told: u64 as Count,
        /// Ranges that were to be promoted, as planned.
        promotions_planned: u64 as Count,
        /// Ranges that were to make room, as planned.
        demotions_planned: u64 as Count,
        /// Bytes promoted.
        promoted_bytes: u64 as Bytes,
        /// Bytes demoted.
        demoted_bytes: u64 as Bytes,
        /// Orders that did not move their page.
        orders_failed: u64 as Count,
        /// Ranges under way.
        moving: u64 as Count,
        /// Memory that the policy takes for what it knows of regions and pages.
        metadata_bytes: u64 as Bytes,
    }
}
