// SPDX-License-Identifier: MIT OR Apache-2.0
//! HeMem's parameters: the paper's first, then those that user space on a stock kernel adds.
//!
//! `docs/papers/hemem.md` has the reasons, one by one.

use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_core::parse_bytes;

use super::table::COUNT_MAX;
use crate::settings;
use crate::settings::SettingError;
use crate::settings::Settings;

/// The paper's share of the fast tier for amounts it gives in bytes: 1 GB of 192 GB (3.3, 5).
const SHARE_OF_FAST: u64 = 192;
const GIB: u64 = 1 << 30;

/// Everything that can be tuned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// Sampled loads that make a page hot (3.1: 8).
    pub hot_read_threshold: u8,
    /// Sampled stores that make a page hot and write-heavy (3.1: 4).
    pub hot_write_threshold: u8,
    /// Sampled loads, or sampled stores, of any page that advance the cooling clock (3.1: 18).
    pub cooling_threshold: u8,
    /// How often the policy acts (3.2: 10 ms).
    pub policy_interval: Nanos,
    /// Free memory that the fast tier is to have, bytes beyond the kernel's high watermark (3.3: 1 GB
    /// of 192). If not given, that share of the fast tier.
    pub free_reserve: Option<u64>,
    /// Bytes moved a second at most, both ways together (3.2: 10 GB).
    pub max_migration_rate: u64,
    /// Mappings of at least so many bytes are managed (3.3: 1 GB of 192). If not given, that share of
    /// the fast tier, 1 GiB at most.
    pub managed_threshold: Option<u64>,
    /// What counts as a page: 2 MiB (3.1) or 4 KiB.
    pub page_size: PageSize,
    /// Accesses for one sample (3.1: 5,000). The tracker's; the policy does not look at it.
    pub sample_period: u64,
    /// Threads that copy a page (3.2: 4). The mover's; the policy does not look at it.
    pub copy_threads: u32,

    /// Whether anything is migrated. Without, what sampling alone costs can be measured (5.1).
    pub migrate: bool,
    /// A hot slow page takes the place of a cold fast one only where it was sampled so many times as
    /// often since, by stores where it is write-heavy, else by loads and stores. 0: of any (3.3).
    pub swap_ratio: u8,
    /// Pages whose stale counts are cooled at each tick although they were not sampled, of each hot
    /// list (5.1 speaks of a cooling thread; 3.1 does not). 0: only when sampled.
    pub cooling_pages: usize,
    /// Migrations under way at most.
    pub inflight_pages: usize,
    /// Bytes of migrations under way at most.
    pub inflight_bytes: u64,
    /// Shortest time between two inventories of the fast tier; doubles up to 16 times that while they
    /// bring nothing new.
    pub inventory_interval: Nanos,
    /// Time from one page-table scan to the next, where those stand in for samples: the published code sleeps 10 ms
    /// between two. None: samples.
    pub scan_interval: Option<Nanos>,
}

/// As the published code.
const SCAN_INTERVAL: Nanos = Nanos::from_millis(10);

/// A parameter and what it does.
type Help = (&'static str, &'static str);

/// Of both presets.
const COMMON: [Help; 13] = [
    (
        "hot_read_threshold",
        "Sampled loads that make a page hot (3.1).",
    ),
    (
        "cooling_threshold",
        "Samples of any page that advance the cooling clock (3.1).",
    ),
    ("policy_interval", "How often the policy acts (3.2)."),
    (
        "free_reserve",
        "Free memory that the fast tier is to have (3.3).",
    ),
    (
        "max_migration_rate",
        "Bytes moved a second at most, both ways together (3.2).",
    ),
    (
        "managed_threshold",
        "Smaller mappings stay in the fast tier (3.3).",
    ),
    ("page_size", "What counts as a page (3.1)."),
    (
        "copy_threads",
        "Threads that copy a page, under terrace run 8 at most (3.2).",
    ),
    (
        "migrate",
        "Whether anything is migrated; without, what sampling costs can be measured (5.1).",
    ),
    (
        "swap_ratio",
        "A cold fast page makes way only for one sampled so many times as often; 0: for any hot one (3.3).",
    ),
    (
        "cooling_pages",
        "Pages of each hot list that are cooled at a tick without being sampled.",
    ),
    ("inflight_pages", "Migrations under way at most."),
    ("inflight_bytes", "Bytes of migrations under way at most."),
];

/// What each does.
pub(super) const HELP: &[Help] = &concat::<13, 3, 16>(
    COMMON,
    [
        (
            "hot_write_threshold",
            "Sampled stores that make a page hot and write-heavy (3.1).",
        ),
        ("sample_period", "Accesses for one sample (3.1)."),
        (
            "inventory_interval",
            "Shortest time between two inventories of the fast tier.",
        ),
    ],
);

/// Likewise, with page-table scans.
pub(super) const PAGE_TABLE_HELP: &[Help] = &concat::<13, 1, 14>(
    COMMON,
    [(
        "scan_interval",
        "Time from one page-table scan to the next (published code: 10 ms).",
    )],
);

const fn concat<const A: usize, const B: usize, const ALL: usize>(
    first: [Help; A],
    second: [Help; B],
) -> [Help; ALL] {
    assert!(A + B == ALL, "as long as both together");
    let mut all = [("", ""); ALL];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < A { first[at] } else { second[at - A] };
        at += 1;
    }
    all
}

/// A tick and the bytes a second are the machine's; what counts accesses, pages or shares is not.
pub(super) fn dilated(by: f64) -> Vec<(&'static str, String)> {
    let d = Params::default();
    vec![
        ("policy_interval", settings::dilated(d.policy_interval, by)),
        (
            "max_migration_rate",
            settings::slowed(d.max_migration_rate, by),
        ),
    ]
}

/// Scans follow the ticks.
pub(super) fn page_table_dilated(by: f64) -> Vec<(&'static str, String)> {
    let scans = ("scan_interval", settings::dilated(SCAN_INTERVAL, by));
    dilated(by).into_iter().chain([scans]).collect()
}

impl Default for Params {
    fn default() -> Self {
        Self {
            hot_read_threshold: 8,
            hot_write_threshold: 4,
            cooling_threshold: 18,
            policy_interval: Nanos::from_millis(10),
            free_reserve: None,
            max_migration_rate: 10_000_000_000,
            managed_threshold: None,
            page_size: PageSize::Huge2M,
            sample_period: 5_000,
            copy_threads: 4,
            migrate: true,
            swap_ratio: 4,
            cooling_pages: 8_192,
            inflight_pages: 4_096,
            inflight_bytes: 128 << 20,
            inventory_interval: Nanos::from_millis(1_000),
            scan_interval: None,
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
        let d = Self::read_common(settings)?;
        Ok(Self {
            hot_write_threshold: settings.number(
                "hot_write_threshold",
                d.hot_write_threshold,
                1..=COUNT_MAX,
            )?,
            sample_period: settings.number("sample_period", d.sample_period, 1..=1 << 40)?,
            inventory_interval: settings.time("inventory_interval", d.inventory_interval)?,
            ..d
        })
    }

    /// Likewise, with page-table scans in place of samples: a bit does not tell loads from stores, and readings tell
    /// where pages are.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_page_table(settings: &mut Settings) -> Result<Self, SettingError> {
        let d = Self::read_common(settings)?;
        let interval = settings.time("scan_interval", SCAN_INTERVAL)?;
        Ok(Self {
            scan_interval: Some(interval.max(Nanos(1_000_000))),
            ..d
        })
    }

    fn read_common(settings: &mut Settings) -> Result<Self, SettingError> {
        let d = Self::default();
        let bytes = |text: &str| parse_bytes(text).ok().map(Some);
        let size = "a size such as 512MiB";
        let share = "1/192 of the fast tier";
        Ok(Self {
            hot_read_threshold: settings.number(
                "hot_read_threshold",
                d.hot_read_threshold,
                1..=COUNT_MAX,
            )?,
            cooling_threshold: settings.number(
                "cooling_threshold",
                d.cooling_threshold,
                1..=COUNT_MAX,
            )?,
            policy_interval: settings
                .time("policy_interval", d.policy_interval)?
                .max(Nanos(100_000)),
            free_reserve: settings.value("free_reserve", (d.free_reserve, share), size, bytes)?,
            max_migration_rate: settings.rate("max_migration_rate", d.max_migration_rate)?,
            managed_threshold: settings.value(
                "managed_threshold",
                (d.managed_threshold, share),
                size,
                bytes,
            )?,
            page_size: settings.value(
                "page_size",
                (d.page_size, "2MiB"),
                "4KiB or 2MiB",
                |text| match parse_bytes(text).ok()? {
                    0x1000 => Some(PageSize::Base4K),
                    0x20_0000 => Some(PageSize::Huge2M),
                    _ => None,
                },
            )?,
            copy_threads: settings.number("copy_threads", d.copy_threads, 1..=64)?,
            migrate: settings.switch("migrate", d.migrate)?,
            swap_ratio: settings.number("swap_ratio", d.swap_ratio, 0..=COUNT_MAX)?,
            cooling_pages: settings.number("cooling_pages", d.cooling_pages, 0..=1 << 30)?,
            inflight_pages: settings.number("inflight_pages", d.inflight_pages, 1..=1 << 20)?,
            inflight_bytes: settings.number(
                "inflight_bytes",
                d.inflight_bytes,
                1 << 21..=1 << 40,
            )?,
            ..d
        })
    }

    /// Free bytes the fast tier is to have, for a tier of that size.
    #[must_use]
    pub fn reserve(&self, fast_bytes: u64) -> u64 {
        let share = (fast_bytes / SHARE_OF_FAST).max(self.page_size.bytes());
        self.free_reserve.unwrap_or(share)
    }

    /// Size from which a mapping is managed, for a fast tier of that size.
    #[must_use]
    pub fn threshold(&self, fast_bytes: u64) -> u64 {
        let share = (fast_bytes / SHARE_OF_FAST).clamp(self.page_size.bytes(), GIB);
        self.managed_threshold.unwrap_or(share)
    }
}
