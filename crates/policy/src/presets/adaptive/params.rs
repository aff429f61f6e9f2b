// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters: times, budgets and priors. None of them says how hot a page must be.

use terrace_core::Nanos;

use crate::settings;
use crate::settings::SettingError;
use crate::settings::Settings;

/// What can be set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// The first pass, and the shortest.
    pub pass_min: Nanos,
    /// The longest pass.
    pub pass_max: Nanos,
    /// Shortest wait of a pass at first; no pass waits less than a tenth of it.
    pub shortest: Nanos,
    /// How far ahead a page's place is worth something: a saving so far away counts 1/e. How long a class lasts is
    /// in the transitions; this is how long the program does.
    pub horizon: Nanos,
    /// Of what was counted, what a pass forgets, percent.
    pub forget_percent: u32,
    /// Pages that may be moving at a time.
    pub inflight_pages: usize,
    /// Pages that a pass may plan to move, at most.
    pub plan_pages: usize,
    /// Bytes of each tier but the slowest that are kept free above its high watermark; 1/1024 of it if not given.
    pub reserve: Option<u64>,
    /// Accesses for one sample, where samples are taken: with a hundred million misses a second, and a microsecond for each
    /// interrupt (docs/pmu.md), a 5,000th of a processor.
    pub sample_period: u64,
    /// Whether pages go up within a pass while there is room.
    pub early: bool,
    /// Whether passes change their length.
    pub pace: bool,
    /// Whether a sample is read where plans move nothing.
    pub sentinel: bool,
    /// Whether a program's time is what it runs, or else ours.
    pub own_time: bool,
    /// Whether what a visit takes is learnt from how a program's time answers to moves.
    pub response: bool,
    /// Whether hint faults tell which socket accesses a chunk.
    pub accessors: bool,
    /// Whether a place is worth what it is until it can be changed again.
    pub later: bool,
    /// Whether no more accesses change sides at once than what is loaded serves as soon.
    pub balance: bool,
    /// Whether huge pages are split that are worth more in parts.
    pub split: bool,
    /// Whether moves take no more than a little and what they have brought.
    pub ledger: bool,
}

/// What each does.
pub(super) const HELP: &[(&str, &str)] = &[
    ("pass_min", "Shortest pass over all pages, and the first."),
    ("pass_max", "Longest pass."),
    ("shortest", "First reading of the first pass."),
    (
        "horizon",
        "How far ahead a saving counts; it fades with 1/e.",
    ),
    (
        "forget_percent",
        "Of what was counted, what a pass forgets, percent.",
    ),
    ("inflight_pages", "Migrations under way at most."),
    ("plan_pages", "Pages that a pass may plan to promote."),
    (
        "reserve",
        "Free memory above the high watermark that promotions leave.",
    ),
    ("sample_period", "Accesses for one sample."),
    ("early", "Promote within a pass while there is room."),
    ("pace", "Change the length of passes by what they bring."),
    ("sentinel", "Read a sample where plans move nothing."),
    ("own_time", "Tell a program's time by what it runs."),
    (
        "response",
        "Learn what a visit takes by how a program's time answers to moves.",
    ),
    (
        "accessors",
        "Learn by hint faults which socket accesses what.",
    ),
    ("later", "Count that a place can be changed later."),
    ("balance", "Let loaded tiers take as long as each other."),
    ("split", "Split huge pages that are worth more in parts."),
    (
        "ledger",
        "Let moves take no more than a little and what they have brought.",
    ),
];

/// Where all times are so many times as long, a sample in as long is of so many fewer accesses.
pub(super) fn dilated(by: f64) -> Vec<(&'static str, String)> {
    let period = Params::default().sample_period;
    vec![("sample_period", settings::slowed(period, by))]
}

impl Default for Params {
    fn default() -> Self {
        Self {
            pass_min: Nanos::from_millis(1_000),
            pass_max: Nanos::from_millis(60_000),
            shortest: Nanos::from_millis(1),
            horizon: Nanos::from_secs(600),
            forget_percent: 10,
            inflight_pages: 512,
            plan_pages: 1 << 20,
            reserve: None,
            sample_period: 500_000,
            early: true,
            pace: true,
            sentinel: true,
            own_time: true,
            response: true,
            accessors: true,
            later: true,
            balance: true,
            split: true,
            ledger: true,
        }
    }
}

impl Params {
    /// What a pass leaves of what was counted before it.
    pub(super) fn keep(&self) -> f64 {
        1.0 - f64::from(self.forget_percent) / 100.0
    }

    /// As written; what is not given has its default.
    ///
    /// # Errors
    ///
    /// Where a value cannot be.
    pub fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        let d = Self::default();
        let least = Nanos::from_millis(10);
        let pass_min = settings.time("pass_min", d.pass_min)?.max(least);
        Ok(Self {
            pass_min,
            pass_max: settings.time("pass_max", d.pass_max)?.max(pass_min),
            shortest: settings.time("shortest", d.shortest)?.max(Nanos(10_000)),
            horizon: settings.time("horizon", d.horizon)?.max(least),
            forget_percent: settings.number("forget_percent", d.forget_percent, 0..=99)?,
            inflight_pages: settings.number("inflight_pages", d.inflight_pages, 1..=1 << 20)?,
            plan_pages: settings.number("plan_pages", d.plan_pages, 1..=1 << 24)?,
            reserve: settings.value(
                "reserve",
                (d.reserve, "1/1024 of the tier"),
                "a size such as 4MiB",
                |text| terrace_core::parse_bytes(text).ok().map(Some),
            )?,
            sample_period: settings.number("sample_period", d.sample_period, 1..=1 << 40)?,
            early: settings.switch("early", d.early)?,
            pace: settings.switch("pace", d.pace)?,
            sentinel: settings.switch("sentinel", d.sentinel)?,
            own_time: settings.switch("own_time", d.own_time)?,
            response: settings.switch("response", d.response)?,
            accessors: settings.switch("accessors", d.accessors)?,
            later: settings.switch("later", d.later)?,
            balance: settings.switch("balance", d.balance)?,
            split: settings.switch("split", d.split)?,
            ledger: settings.switch("ledger", d.ledger)?,
        })
    }
}
