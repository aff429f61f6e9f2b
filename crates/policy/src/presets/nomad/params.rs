// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nomad's parameters: the paper's first, then those that user space forces on us.
//!
//! `docs/papers/nomad.md` has the reasons and the measured differences, one by one.

use terrace_core::Nanos;

use crate::settings::SettingError;
use crate::settings::Settings;

/// Everything that can be tuned.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Shadows freed upon an allocation failure, as a multiple of the request (3.2: 10).
    pub shadow_reclaim_factor: u64,
    /// Whether a promoted page keeps its old frame as shadow (3.2: always).
    pub shadowing: bool,
    /// How often an aborted transaction is tried again before the page must prove itself hot
    /// anew (3.1: "retried at a later time"; the published kernel: 10).
    pub max_retries: u8,
    /// Pause before the first retry; doubles with each.
    pub retry_delay: Nanos,

    /// The promotion candidate queue's bound, bytes of its entries.
    pub pcq_bytes: usize,
    /// The migration pending queue's bound, bytes of its entries.
    pub mpq_bytes: usize,
    /// The second reference must come within so many scan passes of the first.
    pub reference_passes: u64,
    /// While the fast tier has room, a first reference counts as two if the page was idle for
    /// less than that before it (0: never). The kernel's own tiering promotes by the same mark.
    pub eager_idle: Nanos,
    /// Keep no shadow for a page whose hint fault was a write: the next write would drop it, for
    /// the price of a write-protection fault in user space.
    pub shadow_written: bool,

    /// Migrations under way at most.
    pub inflight_pages: usize,
    /// Keep free on a fast node beyond the kernel's high watermark, in 1/1024 of its memory.
    pub headroom_1024: u64,
    /// Once the fast node is full, a page is promoted only if it is so many times hotter than the
    /// one that must go for it.
    pub hysteresis: u64,
    /// Once the fast node is full, a page is promoted only if it was idle for less than that each time
    /// before it was referenced: what a colder page saves doesn't pay for two migrations. The kernel's
    /// own tiering has the same mark (1 s).
    pub contended_idle: Nanos,
    /// The same where a pass over the memory takes longer than [`Self::contended_idle`]: less than the shortest
    /// pass and than that. In much memory each page is touched rarely, and many such pages use up slow
    /// memory's bandwidth.
    pub contended_idle_max: Nanos,
    /// And for less than so many times what fast pages are idle by the mean of their rates: pages far colder than
    /// that add next to nothing to the fast accesses.
    pub contended_times: u64,
    /// Once the fast node is full, and where a pass over the memory takes longer than [`Self::contended_idle`], a
    /// single idle time counts, taken for so many times as long; more than 1 for the doubt that chance made
    /// it short. 0: a page is to be referenced twice.
    pub single_doubt: u64,
    /// Migrated bytes a second at most while the fast node is full, as 1/1024 of its memory. The
    /// governor halves it when migrations prove futile and doubles it back.
    pub contended_rate_1024: u64,

    /// Shortest scan pass.
    pub scan_period_min: Nanos,
    /// Longest scan pass.
    pub scan_period_max: Nanos,
    /// Bytes a second that the tracker arms at most, which makes a pass over much memory longer than
    /// asked for. The kernel: 256 MiB (`scan_size_mb`) every 100 ms.
    pub scan_rate_max: u64,
    /// How often the policy looks after its queues.
    pub tick: Nanos,
}

/// What each does.
pub(super) const HELP: &[(&str, &str)] = &[
    (
        "shadow_reclaim_factor",
        "Shadows freed when an allocation fails, as a multiple of the request (3.2).",
    ),
    (
        "shadowing",
        "Whether a promoted page keeps its old frame as shadow (3.2).",
    ),
    (
        "max_retries",
        "How often an aborted transaction is tried again.",
    ),
    (
        "retry_delay",
        "Pause before the first retry; it doubles with each.",
    ),
    (
        "pcq_bytes",
        "Bytes that the promotion candidate queue may take.",
    ),
    (
        "mpq_bytes",
        "Bytes that the migration pending queue may take.",
    ),
    (
        "reference_passes",
        "The second reference must come within so many scan passes of the first.",
    ),
    (
        "eager_idle",
        "With room on the fast node, a page idle for less needs one reference only.",
    ),
    (
        "contended_idle",
        "On a full fast node, only pages idle for less are promoted.",
    ),
    (
        "contended_idle_max",
        "The same where a pass takes longer than contended_idle.",
    ),
    (
        "contended_times",
        "And idle for less than so many times what fast pages are.",
    ),
    (
        "single_doubt",
        "Where passes are long, a single idle time counts so many times as long; 0 asks for two references.",
    ),
    (
        "shadow_written",
        "Keep a shadow also where the hint fault was a write.",
    ),
    ("inflight_pages", "Migrations under way at most."),
    (
        "headroom_1024",
        "Free memory beyond the high watermark, in 1/1024 of the node.",
    ),
    (
        "hysteresis",
        "On a full fast node, so many times hotter than the page that goes for it.",
    ),
    (
        "contended_rate_1024",
        "Bytes a second moved on a full fast node, in 1/1024 of the node.",
    ),
    ("scan_period_min", "Shortest scan pass."),
    ("scan_period_max", "Longest scan pass."),
    ("scan_rate_max", "Bytes a second that are armed at most."),
    ("tick", "How often the policy looks after its queues."),
];

impl Default for Params {
    fn default() -> Self {
        Self {
            shadow_reclaim_factor: 10,
            shadowing: true,
            max_retries: 10,
            retry_delay: Nanos::from_millis(20),
            pcq_bytes: 32 << 20,
            mpq_bytes: 32 << 20,
            reference_passes: 3,
            eager_idle: Nanos::from_millis(2_000),
            shadow_written: false,
            inflight_pages: 512,
            headroom_1024: 16,
            hysteresis: 4,
            contended_idle: Nanos::from_millis(1_000),
            contended_idle_max: Nanos::from_secs(20),
            contended_times: 16,
            single_doubt: 1,
            contended_rate_1024: 32,
            scan_period_min: Nanos::from_millis(1_000),
            scan_period_max: Nanos::from_secs(60),
            scan_rate_max: 2560 << 20,
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
        let most = 1 << 20;
        Ok(Self {
            shadow_reclaim_factor: settings.number(
                "shadow_reclaim_factor",
                d.shadow_reclaim_factor,
                0..=most,
            )?,
            shadowing: settings.switch("shadowing", d.shadowing)?,
            max_retries: settings.number("max_retries", d.max_retries, 0..=15)?,
            retry_delay: settings.time("retry_delay", d.retry_delay)?,
            pcq_bytes: settings.number("pcq_bytes", d.pcq_bytes, 0..=1 << 40)?,
            mpq_bytes: settings.number("mpq_bytes", d.mpq_bytes, 0..=1 << 40)?,
            reference_passes: settings.number("reference_passes", d.reference_passes, 0..=most)?,
            eager_idle: settings.time("eager_idle", d.eager_idle)?,
            contended_idle: settings.time("contended_idle", d.contended_idle)?,
            contended_idle_max: settings.time("contended_idle_max", d.contended_idle_max)?,
            contended_times: settings.number("contended_times", d.contended_times, 1..=1 << 40)?,
            single_doubt: settings.number("single_doubt", d.single_doubt, 0..=1_000)?,
            shadow_written: settings.switch("shadow_written", d.shadow_written)?,
            inflight_pages: settings.number("inflight_pages", d.inflight_pages, 0..=1 << 40)?,
            headroom_1024: settings.number("headroom_1024", d.headroom_1024, 0..=1024)?,
            hysteresis: settings.number("hysteresis", d.hysteresis, 0..=most)?,
            contended_rate_1024: settings.number(
                "contended_rate_1024",
                d.contended_rate_1024,
                0..=most,
            )?,
            scan_period_min: settings.time("scan_period_min", d.scan_period_min)?,
            scan_period_max: settings.time("scan_period_max", d.scan_period_max)?,
            scan_rate_max: settings.number("scan_rate_max", d.scan_rate_max, 0..=u64::MAX)?,
            tick: settings.time("tick", d.tick)?,
        })
    }
}
