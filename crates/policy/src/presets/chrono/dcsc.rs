// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dynamic CIT statistic collection (3.2.2): victims drawn at random, their captured idle times of as many rounds as
//! the filter has, and from these the heat maps.
//!
//! * A draw takes `p_victim` of each tier's pages, at least [`LEAST`]: a small memory has too few pages for
//!   a share of 0.003 %.
//! * A victim's round begins when it is armed or its accessed bit is cleared, and ends with its next access. It counts
//!   with the longest of its rounds; one whose rounds are not over with its wait so far, if that is longer.
//! * A huge page is one victim that stands for 512 pages.
//! * A draw is looked at when hardly any victim with rounds to go could still come to lie on the other side of the
//!   cut, or when it is as old as its rounds of scan periods. Then the next one is drawn.

use std::collections::BTreeMap;

use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::Pid;
use terrace_core::Range;

use super::heat::HeatMap;
use super::heat::Overlap;
use super::heat::as_base;
use super::heat::overlap;
use super::marks::Marks;
use super::params::Params;
use super::params::Source;
use crate::kit::Pages;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;

/// Victims of a tier at least: the paper's 0.003 % of 256 GB are 8 MB, 2,048 pages of both tiers.
const LEAST: u64 = 1_024;

/// Of so many victims that could still change sides one does not matter.
const UNDECIDED: usize = 100;

#[derive(Debug, Clone, Copy)]
struct Victim {
    rounds: u8,
    /// Of its rounds.
    longest: Nanos,
    /// The round under way began.
    since: Option<Nanos>,
    /// A round begins no sooner.
    after: Nanos,
    /// So long no reading of accessed bits has shown it in this round.
    unseen: Nanos,
    /// Pages or huge pages that it stands for.
    weight: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Dcsc {
    victims: BTreeMap<Key, Vec<(usize, Victim)>>,
    drawn: Option<Nanos>,
    state: u64,
    params: Params,
    /// How many draws were looked at.
    pub(super) looks: u64,
    /// The heat maps of the last, of the fast and the slow nodes.
    pub(super) maps: Option<[HeatMap; 2]>,
}

impl Dcsc {
    pub(super) const fn new(params: Params) -> Self {
        Self {
            victims: BTreeMap::new(),
            drawn: None,
            state: 1,
            params,
            looks: 0,
            maps: None,
        }
    }

    /// Victims there are.
    pub(super) fn len(&self) -> u64 {
        self.victims.values().map(|of| of.len() as u64).sum()
    }

    /// Draws anew.
    pub(super) fn draw(
        &mut self,
        now: Nanos,
        pages: &Pages<Marks>,
        is_top: impl Fn(NodeId) -> bool,
    ) {
        self.victims.clear();
        let fast_of = |nodes: &[(NodeId, PageBits)], fast: bool| {
            let of = nodes.iter().filter(|(id, _)| is_top(*id) == fast);
            of.fold(PageBits::NONE, |all, (_, on)| all.or(on))
        };
        for fast in [true, false] {
            let sets = || pages.all().map(|(key, c)| (key, fast_of(c.nodes(), fast)));
            let all: u64 = sets().map(|(_, on)| u64::from(on.count())).sum();
            let share = self
                .params
                .p_victim
                .max(real(LEAST) / real(all.max(1)))
                .min(1.0);
            let mut skip = self.skip(share);
            for (key, on) in sets() {
                let count = u64::from(on.count());
                while skip < count {
                    let page = nth(&on, skip);
                    let victim = Victim {
                        rounds: 0,
                        longest: Nanos::ZERO,
                        since: None,
                        after: now,
                        unseen: Nanos::ZERO,
                        weight: 1.0 / share,
                    };
                    self.victims.entry(key).or_default().push((page, victim));
                    skip = skip.saturating_add(1).saturating_add(self.skip(share));
                }
                skip -= count;
            }
        }
        self.drawn = (!self.victims.is_empty()).then_some(now);
    }

    /// Pages that are left out before the next victim, of those that are taken with that share.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and saturates"
    )]
    fn skip(&mut self, share: f64) -> u64 {
        if share >= 1.0 {
            return 0;
        }
        let uniform = (real(self.random() >> 11) + 1.0) / real(1 << 53);
        (uniform.ln() / (-share).ln_1p()) as u64
    }

    /// `SplitMix64`.
    const fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The scanner armed a range: rounds of the victims in it begin.
    pub(super) fn armed(&mut self, now: Nanos, pid: Pid, range: Range) {
        if range.bytes() == 0 {
            return;
        }
        let (first, last) = (range.start.0 / CHUNK_BYTES, (range.end.0 - 1) / CHUNK_BYTES);
        for (key, victims) in self.victims.range_mut((pid, first)..=(pid, last)) {
            let idle = |victim: &Victim| victim.since.is_none() && victim.after <= now;
            for (page, victim) in victims.iter_mut().filter(|(_, v)| idle(v)) {
                let page = page_of(*key, *page, terrace_core::PageSize::Base4K);
                if range.contains(page.addr) {
                    victim.since = Some(now);
                }
            }
        }
    }

    /// A victim's hint fault.
    pub(super) fn faulted(&mut self, now: Nanos, key: Key, page: usize, idle: Nanos) {
        let rounds = self.params.rounds;
        let Some(victims) = self.victims.get_mut(&key) else {
            return;
        };
        let found = victims.iter_mut().find(|(of, _)| *of == page);
        if let Some((_, victim)) = found.filter(|(_, victim)| victim.since.is_some()) {
            victim.ended(now, idle, rounds);
        }
    }

    /// A reading of accessed bits.
    pub(super) fn read(&mut self, now: Nanos, key: Key, reading: &ChunkReading<'_>) {
        let rounds = self.params.rounds;
        let Some(victims) = self.victims.get_mut(&key) else {
            return;
        };
        let cleared = Nanos(now.0.saturating_sub(reading.until.0));
        for (page, victim) in victims {
            if victim.since.is_none() && cleared >= victim.after {
                victim.since = Some(cleared);
            }
            if let Some(since) = victim.since {
                if reading.fresh.get(*page) {
                    let idle = cleared.since(since) + middle(reading);
                    victim.ended(now, idle, rounds);
                } else {
                    victim.unseen = now.since(since);
                }
            }
        }
    }

    /// What the heat maps say, if it is time to look at them; the next victims are to be drawn then.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        pages: &Pages<Marks>,
        is_top: impl Fn(NodeId) -> bool,
        free: u64,
    ) -> Option<Overlap> {
        let (drawn, params) = (self.drawn?, self.params);
        let (mut fast, mut slow) = (HeatMap::new(params.buckets), HeatMap::new(params.buckets));
        let mut waiting = Vec::new();
        let mut counted = 0;
        for (key, victims) in &self.victims {
            let Some(chunk) = pages.get(*key) else {
                continue;
            };
            for (page, victim) in victims {
                let Some(node) = chunk.node(*page) else {
                    continue;
                };
                let wait = match (params.probe, victim.since) {
                    (_, None) => Nanos::ZERO,
                    (Source::Faults, Some(since)) => now.since(since),
                    (Source::AccessedBits, Some(_)) => victim.unseen,
                };
                let idle = as_base(victim.longest.max(wait), chunk.size());
                counted += 1;
                if victim.rounds < params.rounds {
                    waiting.push(idle);
                    // Nothing is known of it.
                    if idle == Nanos::ZERO {
                        continue;
                    }
                }
                let pages = real(chunk.size().bytes() >> 12) * victim.weight;
                let map = if is_top(node) { &mut fast } else { &mut slow };
                map.add(idle, pages);
            }
        }
        let found = overlap(&fast, &slow, real(free >> 12))?;
        let undecided = waiting.iter().filter(|idle| **idle < found.cut).count();
        let old = now.since(drawn).0 >= params.scan_period.0.saturating_mul(params.rounds.into());
        if undecided * UNDECIDED > counted && !old {
            return None;
        }
        self.looks += 1;
        self.maps = Some([fast, slow]);
        self.drawn = None;
        Some(found)
    }

    /// Whether there are victims.
    pub(super) const fn is_drawn(&self) -> bool {
        self.drawn.is_some()
    }
}

impl Victim {
    /// A round is over; the next begins when the page is armed, or its bit is cleared, again.
    fn ended(&mut self, now: Nanos, idle: Nanos, rounds: u8) {
        self.longest = self.longest.max(idle);
        self.rounds += 1;
        self.since = None;
        self.unseen = Nanos::ZERO;
        self.after = if self.rounds < rounds {
            now
        } else {
            Nanos::MAX
        };
    }
}

/// The idle time of what a reading shows for the first time: in the middle between it and the one before.
pub(super) const fn middle(reading: &ChunkReading<'_>) -> Nanos {
    Nanos(reading.since.0 / 2 + reading.until.0 / 2)
}

/// The page of the nth bit that is set.
fn nth(bits: &PageBits, n: u64) -> usize {
    let mut left = n;
    for (word, set) in bits.0.into_iter().enumerate() {
        let here = u64::from(set.count_ones());
        if left < here {
            let mut set = set;
            for _ in 0..left {
                set &= set - 1;
            }
            return word * 64 + set.trailing_zeros() as usize;
        }
        left -= here;
    }
    0
}

#[expect(clippy::cast_precision_loss, reason = "pages, or 53 bits")]
const fn real(value: u64) -> f64 {
    value as f64
}
