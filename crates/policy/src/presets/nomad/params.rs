// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nomad's parameters: the paper's and its published kernel's first, then what user space needs besides.

use terrace_core::Nanos;

use crate::settings::SettingError;
use crate::settings::Settings;

/// Everything that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// How often an aborted transaction is tried again (3.1: "retried at a later time"; the published kernel: 10).
    pub max_retries: u8,
    /// Shadows freed upon an allocation failure, as a multiple of the request (3.2: 10).
    pub shadow_reclaim_factor: u64,
    /// Demotion keeps so much free above the high watermark, in 1/10,000 of the node (`vm.demote_scale_factor`,
    /// which the published scripts set to 1,000).
    pub demote_scale_factor: u64,
    /// A pass of the hint-fault scanner (`numa_balancing_scan_period_min_ms`).
    pub scan_period: Nanos,
    /// The shortest pass over the accessed bits: how long a candidate's is looked for.
    pub accessed_pass: Nanos,
    /// Bytes a second that such a pass covers at most: the scanner's own pace, 256 MiB
    /// (`numa_balancing_scan_size_mb`) every 100 ms.
    pub accessed_rate: u64,
    /// Bytes that the promotion candidate queue may take.
    pub pcq_bytes: usize,
    /// Bytes that the migration pending queue may take.
    pub mpq_bytes: usize,
    /// Migrations under way at most.
    pub inflight_pages: usize,
    /// How often `kpromote` and `kswapd` run.
    pub tick: Nanos,
}

/// What each does.
pub(super) const HELP: &[(&str, &str)] = &[
    (
        "max_retries",
        "How often an aborted transaction is tried again (3.1).",
    ),
    (
        "shadow_reclaim_factor",
        "Shadows freed when an allocation fails, as a multiple of the request (3.2).",
    ),
    (
        "demote_scale_factor",
        "What demotion keeps free above the high watermark, in 1/10,000 of the node.",
    ),
    (
        "scan_period",
        "A pass of the hint-fault scanner (numa_balancing_scan_period_min_ms).",
    ),
    (
        "accessed_pass",
        "Shortest pass over the accessed bits: how long a candidate's is looked for.",
    ),
    (
        "accessed_rate",
        "Bytes a second that such a pass covers at most, as the scanner's.",
    ),
    (
        "pcq_bytes",
        "Bytes that the promotion candidate queue may take.",
    ),
    (
        "mpq_bytes",
        "Bytes that the migration pending queue may take.",
    ),
    ("inflight_pages", "Migrations under way at most."),
    ("tick", "How often promotion and demotion run."),
];

impl Default for Params {
    fn default() -> Self {
        Self {
            max_retries: 10,
            shadow_reclaim_factor: 10,
            demote_scale_factor: 1_000,
            scan_period: Nanos::from_secs(1),
            accessed_pass: Nanos::from_secs(1),
            accessed_rate: 2560 << 20,
            pcq_bytes: 32 << 20,
            mpq_bytes: 32 << 20,
            inflight_pages: 512,
            tick: Nanos::from_millis(50),
        }
    }
}

impl Params {
    /// As written; what is not given has its default.
    ///
    /// # Errors
    ///
    /// Where a value cannot be.
    pub fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        let d = Self::default();
        let least = Nanos::from_millis(10);
        let max_retries = settings.number("max_retries", d.max_retries, 0..=u8::MAX)?;
        Ok(Self {
            max_retries,
            shadow_reclaim_factor: settings.number(
                "shadow_reclaim_factor",
                d.shadow_reclaim_factor,
                0..=1 << 20,
            )?,
            demote_scale_factor: settings.number(
                "demote_scale_factor",
                d.demote_scale_factor,
                0..=10_000,
            )?,
            scan_period: settings.time("scan_period", d.scan_period)?,
            accessed_pass: settings.time("accessed_pass", d.accessed_pass)?.max(least),
            accessed_rate: settings.number("accessed_rate", d.accessed_rate, 1..=u64::MAX)?,
            pcq_bytes: settings.number("pcq_bytes", d.pcq_bytes, 0..=1 << 40)?,
            mpq_bytes: settings.number("mpq_bytes", d.mpq_bytes, 0..=1 << 40)?,
            inflight_pages: settings.number("inflight_pages", d.inflight_pages, 1..=1 << 20)?,
            tick: settings.time("tick", d.tick)?,
        })
    }
}
