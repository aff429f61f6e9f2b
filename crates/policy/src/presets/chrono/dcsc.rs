// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dynamic CIT statistic collection (3.2.2): victims drawn at random, their captured idle times of as many rounds as
//! the filter has, and from these the heat maps.
//!
//! * A victim's round begins when it is armed or its accessed bit is cleared, and ends with its next access. It counts
//!   with the longest of its rounds; one whose rounds are not over with its wait so far, if that is longer.
//! * The scanner arms victims as it comes by, or they alone are armed ([`Probe::ChosenFaults`], as in the paper): when
//!   they are drawn, and again when a round is over.
//! * A huge page is one victim that stands for 512 pages.
//! * A draw is looked at when hardly any victim with rounds to go is still in the cut's bucket or below, and so could come to lie in
//!   another, or when it is as old as its rounds of scan periods. Then the next one is drawn.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

use super::heat::HeatMap;
use super::heat::Overlap;
use super::heat::as_base;
use super::heat::overlap;
use super::marks::Marks;
use super::params::Params;
use super::params::Probe;
use super::victims::Draws;
use super::victims::Victim;
use crate::kit::Pages;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;
use crate::kit::pages::split;

/// Of so many victims that could still change sides one does not matter.
const UNDECIDED: usize = 100;

/// See the module.
#[derive(Debug)]
pub(super) struct Dcsc {
    victims: BTreeMap<Key, Vec<(usize, Victim)>>,
    drawn: Option<Nanos>,
    draws: Draws,
    /// To be armed.
    to_arm: VecDeque<PageRef>,
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
            draws: Draws::new(),
            to_arm: VecDeque::new(),
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
        self.to_arm.clear();
        let fast_of = |nodes: &[(NodeId, PageBits)], fast: bool| {
            let of = nodes.iter().filter(|(id, _)| is_top(*id) == fast);
            of.fold(PageBits::NONE, |all, (_, on)| all.or(on))
        };
        let chosen = self.params.probe == Probe::ChosenFaults;
        for fast in [true, false] {
            let sets = || pages.all().map(|(key, c)| (key, fast_of(c.nodes(), fast)));
            let (victims, to_arm) = (&mut self.victims, &mut self.to_arm);
            self.draws
                .draw(sets, self.params.p_victim, |key, page, weight| {
                    let mut victim = Victim::new(now, weight);
                    if chosen {
                        victim.since = Some(now);
                        let size = pages.get(key).map_or(PageSize::Base4K, |c| c.size());
                        to_arm.push_back(page_of(key, page, size));
                    }
                    victims.entry(key).or_default().push((page, victim));
                });
        }
        self.drawn = (!self.victims.is_empty()).then_some(now);
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

    /// The next victim to be armed.
    pub(super) fn next_to_arm(&mut self) -> Option<PageRef> {
        self.to_arm.pop_front()
    }

    /// It could not be: nothing will be known of it.
    pub(super) fn not_armed(&mut self, page: PageRef) {
        let (key, page) = split(page);
        if let Some(victims) = self.victims.get_mut(&key) {
            victims.retain(|(of, _)| *of != page);
        }
    }

    /// A hint fault: whether it ended a victim's round. Of a page that was armed before it was chosen, the idle time is
    /// longer than that round.
    pub(super) fn faulted(&mut self, now: Nanos, of: PageRef, idle: Nanos) -> bool {
        let (rounds, chosen) = (self.params.rounds, self.params.probe == Probe::ChosenFaults);
        let Some((victim, since)) = self.under_way(of) else {
            return false;
        };
        let idle = if chosen {
            idle.min(now.since(since))
        } else {
            idle
        };
        victim.ended(now, idle, rounds);
        if chosen && victim.rounds < rounds {
            victim.since = Some(now);
            self.to_arm.push_back(of);
        }
        true
    }

    /// A page has moved, and so may not be armed any more: a round that was under way begins anew.
    pub(super) fn moved(&mut self, now: Nanos, page: PageRef) {
        if self.params.probe == Probe::ChosenFaults
            && let Some((victim, _)) = self.under_way(page)
        {
            victim.since = Some(now);
            self.to_arm.push_back(page);
        }
    }

    /// A victim whose round is under way, and since when.
    fn under_way(&mut self, page: PageRef) -> Option<(&mut Victim, Nanos)> {
        let (key, page) = split(page);
        let victims = self.victims.get_mut(&key)?;
        let (_, victim) = victims.iter_mut().find(|(at, _)| *at == page)?;
        let since = victim.since?;
        Some((victim, since))
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
                    (Probe::AccessedBits, Some(_)) => victim.unseen,
                    (_, Some(since)) => now.since(since),
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
        let Some(found) = overlap(&fast, &slow, real(free >> 12)) else {
            // Of these nothing will be known.
            if counted == 0 {
                self.drawn = None;
            }
            return None;
        };
        let undecided = waiting.iter().filter(|idle| **idle < found.end).count();
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

/// The idle time of what a reading shows for the first time: in the middle between it and the one before.
pub(super) const fn middle(reading: &ChunkReading<'_>) -> Nanos {
    Nanos(reading.since.0 / 2 + reading.until.0 / 2)
}

#[expect(clippy::cast_precision_loss, reason = "pages, or 53 bits")]
const fn real(value: u64) -> f64 {
    value as f64
}
