// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrono as its paper's sentences have it, slow and plain: two nodes, base pages by their numbers. What sets threshold and
//! limit, and idle times from accessed bits, are in [`statistics`].

#[path = "statistics.rs"]
mod statistics;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use terrace_core::Nanos;
use terrace_policy::Verdict;
use terrace_policy::presets::chrono::Params;
use terrace_policy::presets::chrono::params::TuningKind;
use terrace_policy::presets::chrono::queue::ENTRY_BYTES;

use statistics::Statistics;

use super::machine::FAST_PAGES;
use super::machine::HIGH;
use super::machine::PAGE;
use super::machine::Told;

/// A page on the inactive list.
#[derive(Debug, Clone, Copy)]
struct Inactive {
    n: u64,
    referenced: bool,
    /// What was read since it was looked at.
    bit: Option<bool>,
}

/// See the module. Lists have their tails first.
#[derive(Debug)]
pub(crate) struct Reference {
    params: Params,
    pub(crate) threshold: Nanos,
    /// Rounds below the threshold, the longest of them.
    candidates: BTreeMap<u64, (u8, Nanos)>,
    /// When, or when the first idle time since was measured.
    demoted: BTreeMap<u64, (Nanos, bool)>,
    queue: Vec<(u64, Nanos)>,
    pub(crate) dropped: u64,
    /// The limit but for thrashing, bytes a second.
    rate: u64,
    halved: u32,
    period: Option<Nanos>,
    /// Pages of this period: enqueued, promoted, thrashed.
    counts: [u64; 3],
    /// Bytes times 10^9 that may be promoted, and when.
    allowance: (i128, Nanos),
    demoting: bool,
    active: Vec<u64>,
    inactive: Vec<Inactive>,
    /// Under way: whether up, the idle time it went with.
    flying: BTreeMap<u64, (bool, Nanos)>,
    fast: BTreeSet<u64>,
    /// Pages that were heard of.
    known: BTreeSet<u64>,
    /// When the Ticking-scan began to take 2 MiB last.
    ticked: BTreeMap<u64, Nanos>,
    pub(crate) statistics: Statistics,
}

impl Reference {
    pub(crate) fn new(params: Params, fast: u64) -> Self {
        Self {
            params,
            threshold: params.cit_threshold,
            candidates: BTreeMap::new(),
            demoted: BTreeMap::new(),
            queue: Vec::new(),
            dropped: 0,
            rate: params.rate_limit,
            halved: 0,
            period: None,
            counts: [0; 3],
            allowance: (0, Nanos::ZERO),
            demoting: false,
            active: Vec::new(),
            inactive: Vec::new(),
            flying: BTreeMap::new(),
            fast: (0..fast).collect(),
            known: BTreeSet::new(),
            ticked: BTreeMap::new(),
            statistics: Statistics::default(),
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.rate / 2_u64.pow(self.halved.min(60))
    }

    /// "Pages with CIT values below the threshold are selected as candidates [...]. During the next scan cycle, these
    /// candidates undergo a second evaluation. If a page's CIT remains below the threshold, it is marked for promotion
    /// and added to the promotion queue."
    pub(crate) fn fault(&mut self, now: Nanos, n: u64, cit: Nanos) {
        if self.fast.contains(&n) {
            return;
        }
        let recent = |at: Nanos| now.since(at) <= self.params.scan_period;
        if let Some((at, measured)) = self.demoted.get_mut(&n)
            && recent(*at)
            && !*measured
        {
            (*at, *measured) = (now, true);
        }
        if cit >= self.threshold {
            self.lost(n);
            return;
        }
        let waits = self.queue.iter().any(|(page, _)| *page == n);
        if waits || self.flying.contains_key(&n) {
            return;
        }
        let (rounds, longest) = self.candidates.remove(&n).unwrap_or_default();
        let (rounds, longest) = (rounds + 1, longest.max(cit));
        if rounds < self.params.rounds {
            self.candidates.insert(n, (rounds, longest));
        } else {
            self.counts[0] += 1;
            // "A thrashing event is recorded if a demoted page is marked as promotion candidate again within a scan
            // period."
            if self.demoted.remove(&n).is_some_and(|(at, _)| recent(at)) {
                self.counts[2] += 1;
            }
            self.enqueue(n, longest);
        }
    }

    /// Not below the threshold in a round.
    fn lost(&mut self, n: u64) {
        self.candidates.remove(&n);
        self.queue.retain(|(page, _)| *page != n);
    }

    fn enqueue(&mut self, n: u64, cit: Nanos) {
        self.queue.push((n, cit));
        if self.queue.len() > self.params.queue_bytes / ENTRY_BYTES {
            self.dropped += 1;
            let longest = self.queue.iter().map(|(_, cit)| *cit).max();
            let out = self
                .queue
                .iter()
                .rposition(|(_, cit)| Some(*cit) == longest);
            self.queue.remove(out.expect("there is one"));
        }
    }

    /// Bits that a pass has told, at its end. "Pages in the fast-tier inactive list are selected based on an LRU
    /// algorithm".
    pub(crate) fn read(&mut self, told: &Told) {
        for n in &told.pages {
            let listed = self.active.contains(n) || self.inactive.iter().any(|page| page.n == *n);
            if self.fast.contains(n) && !listed && !self.flying.contains_key(n) {
                self.inactivate(*n);
            }
        }
        for page in self.inactive.iter_mut().filter(|_| told.last) {
            if told.pages.contains(&page.n) {
                page.bit = Some(page.bit.unwrap_or(false) || told.accessed.contains(&page.n));
            }
        }
    }

    fn inactivate(&mut self, n: u64) {
        self.inactive.push(Inactive {
            n,
            referenced: false,
            bit: None,
        });
    }

    fn tail(&mut self) -> Option<u64> {
        loop {
            while self.inactive.len() < self.active.len() {
                let oldest = self.active.remove(0);
                self.inactivate(oldest);
            }
            let page = *self.inactive.first()?;
            let accessed = page.bit?;
            self.inactive.remove(0);
            if !accessed {
                return Some(page.n);
            } else if page.referenced {
                self.active.push(page.n);
            } else {
                self.inactive.push(Inactive {
                    referenced: true,
                    bit: None,
                    ..page
                });
            }
        }
    }

    /// "TH_{i+1} = (1 - delta + delta * r_i) TH_i", r the rate limit by the enqueue rate. "If the thrashing ratio exceeds
    /// a preset threshold (e.g. 20%), Chrono responds by halving the promotion rate limit for the next scan period".
    fn period(&mut self, now: Nanos) {
        let began = *self.period.get_or_insert(now);
        let seconds = now.since(began).as_secs_f64();
        if now.since(began) < self.params.scan_period {
            return;
        }
        let [enqueued, promoted, thrashed] = std::mem::take(&mut self.counts).map(|n| n as f64);
        self.period = Some(now);
        if self.params.tuning == TuningKind::SemiAuto {
            let delta = self.params.delta_step;
            let rate = enqueued * PAGE as f64 / seconds;
            let r = self.limit() as f64 / rate;
            // Twice as long at most, with the default.
            self.adapt((1.0 - delta + delta * r).min(1.0 / (1.0 - delta)));
        }
        let thrashes = thrashed > self.params.thrash_threshold * promoted;
        self.halved = if thrashes { self.halved + 1 } else { 0 };
    }

    fn adapt(&mut self, factor: f64) {
        let threshold = whole((self.threshold.0 as f64 * factor).round());
        self.threshold = Nanos(threshold.clamp(1_000_000, (1 << 27) * 1_000_000));
    }

    /// What is ordered, promotions true. "When fast-tier memory availability falls below the high watermark, demotion is
    /// triggered to free space until the amount of available memory reaches the pro watermark. The gap between the high
    /// and pro watermarks is [...] twice the default scan interval multiplied by the promotion rate limit."
    pub(crate) fn tick(&mut self, now: Nanos, free: u64) -> Vec<(u64, bool)> {
        self.period(now);
        if self.params.tuning == TuningKind::Dcsc {
            self.look(now, free);
        }
        let limit = i128::from(self.limit());
        let (had, at) = self.allowance;
        let more = limit * i128::from(now.since(at).0);
        self.allowance = ((had + more).min(limit * 1_000_000_000), now);
        let mut orders = Vec::new();
        let mut starved = false;
        while self.flying.len() < self.params.inflight_pages && self.allowance.0 > 0 {
            let coming = self.flying.values().filter(|(up, _)| *up).count() as u64;
            let Some(&(n, cit)) = self.queue.first() else {
                break;
            };
            if free < coming + HIGH + 1 {
                starved = true;
                break;
            }
            self.queue.remove(0);
            self.allowance.0 -= i128::from(PAGE) * 1_000_000_000;
            self.flying.insert(n, (true, cit));
            orders.push((n, true));
        }
        self.demote(free, starved, &mut orders);
        orders
    }

    /// From the high to the pro watermark, bytes: a tenth of the node at most.
    fn gap(&self) -> u64 {
        let gap = u128::from(2 * self.params.scan_period.0) * u128::from(self.limit());
        let gap = u64::try_from(gap / 1_000_000_000).unwrap_or(u64::MAX);
        gap.min(FAST_PAGES * PAGE / 10)
    }

    fn demote(&mut self, free: u64, starved: bool, orders: &mut Vec<(u64, bool)>) {
        let going = |flying: &BTreeMap<u64, (bool, Nanos)>| {
            flying.values().filter(|(up, _)| !up).count() as u64
        };
        let short = |mark: u64, going: u64| mark.saturating_sub((free + going) * PAGE);
        self.demoting |= starved || short(HIGH * PAGE, going(&self.flying)) > 0;
        let pro = HIGH * PAGE + self.gap();
        while self.demoting {
            if short(pro, going(&self.flying)) == 0 {
                self.demoting = false;
            } else if self.flying.len() < self.params.inflight_pages
                && let Some(n) = self.tail()
            {
                self.flying.insert(n, (false, Nanos::ZERO));
                orders.push((n, false));
            } else {
                return;
            }
        }
    }

    /// "The demotion timestamp is stored".
    pub(crate) fn ended(&mut self, now: Nanos, n: u64, verdict: Verdict) {
        let (up, cit) = self.flying.remove(&n).expect("it was ordered");
        match verdict {
            Verdict::Moved { .. } if up => {
                self.moved(now, n);
                self.fast.insert(n);
                self.active.push(n);
                self.counts[1] += 1;
            }
            Verdict::Moved { .. } => {
                self.moved(now, n);
                self.fast.remove(&n);
                self.demoted.insert(n, (now, false));
                self.arm_demoted(n);
            }
            Verdict::Lost => {
                self.fast.remove(&n);
                self.forget(n);
            }
            _ => {
                if up && verdict == Verdict::NoMemory {
                    self.enqueue(n, cit);
                }
                if !up {
                    self.inactivate(n);
                }
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and saturates"
)]
const fn whole(value: f64) -> u64 {
    value as u64
}
