// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dynamic CIT statistic collection (3.2.2), slow and plain, where memory is so small that each page is a victim; and
//! idle times from accessed bits.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_policy::presets::chrono::params::Probe;
use terrace_policy::presets::chrono::params::Source;

use super::super::machine::HIGH;
use super::super::machine::PAGE;
use super::super::machine::Told;
use super::super::machine::at;
use super::Reference;
use super::whole;

/// A page that is probed.
#[derive(Debug, Default)]
struct Victim {
    /// The idle times of its rounds.
    rounds: Vec<Nanos>,
    /// The round under way began.
    began: Option<Nanos>,
    /// A round begins no sooner.
    from: Nanos,
    /// So long the last reading has not shown it in this round.
    unseen: Nanos,
}

impl Victim {
    fn ended(&mut self, now: Nanos, idle: Nanos) {
        self.rounds.push(idle);
        self.began = None;
        self.from = now;
        self.unseen = Nanos::ZERO;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    victims: BTreeMap<u64, Victim>,
    drawn: Option<Nanos>,
    looked: Nanos,
    /// The last reading in this pass, after its clearing.
    before: Nanos,
    pub(crate) looks: u64,
    /// Pages that were marked as inaccessible since these were emptied, by themselves: victims; demoted ones.
    pub(crate) to_arm: Vec<u64>,
    pub(crate) demoted_to_arm: Vec<u64>,
    pub(crate) misplacement_percent: u64,
    /// Pages of slow and fast nodes by bucket, at the last look.
    pub(crate) maps: [Vec<u64>; 2],
}

impl Statistics {
    /// The maps as figures.
    pub(crate) fn told(&self) -> Vec<(String, u64)> {
        let [slow, fast] = &self.maps;
        let tiers = [("fast", fast), ("slow", slow)].into_iter();
        let all = tiers.flat_map(|(tier, map)| map.iter().enumerate().map(move |of| (tier, of)));
        let some = all.filter(|(_, (_, pages))| **pages > 0);
        some.map(|(tier, (i, pages))| (format!("heat_{tier}_{i:02}"), *pages))
            .collect()
    }
}

impl Reference {
    /// "These pages are marked as inaccessible".
    pub(crate) fn armed(&mut self, now: Nanos, n: u64) {
        let rounds = self.params.rounds.into();
        if let Some(victim) = self.statistics.victims.get_mut(&n)
            && victim.began.is_none()
            && victim.rounds.len() < rounds
            && victim.from <= now
        {
            victim.began = Some(now);
        }
    }

    /// "The CIT values of the probed pages are gathered using a two-round CIT generation mechanism".
    /// Those that a special flag tells from others ("to differentiate them from those subjected to a regular
    /// Ticking-scan") are probed again at once. Whether it was one.
    pub(crate) fn probed(&mut self, now: Nanos, n: u64, cit: Nanos) -> bool {
        self.known.insert(n);
        let rounds: usize = self.params.rounds.into();
        let flagged = self.params.probe == Probe::ChosenFaults;
        let victim = self.statistics.victims.get_mut(&n);
        let Some((victim, began)) = victim.and_then(|of| of.began.map(|began| (of, began))) else {
            return false;
        };
        victim.ended(
            now,
            if flagged {
                cit.min(now.since(began))
            } else {
                cit
            },
        );
        if flagged && victim.rounds.len() < rounds {
            victim.began = Some(now);
            self.statistics.to_arm.push(n);
        }
        flagged
    }

    /// "Chrono marks each recently demoted page ... and immediately makes them inaccessible".
    pub(super) fn arm_demoted(&mut self, n: u64) {
        if self.params.arms && self.params.cit == Source::Faults {
            self.statistics.demoted_to_arm.push(n);
        }
    }

    /// A page that moved is to be marked again.
    pub(super) fn moved(&mut self, now: Nanos, n: u64) {
        let flagged = self.params.probe == Probe::ChosenFaults;
        let victim = self.statistics.victims.get_mut(&n);
        if let Some(victim) = victim.filter(|of| flagged && of.began.is_some()) {
            victim.began = Some(now);
            self.statistics.to_arm.push(n);
        }
    }

    /// The readings of all 2 MiB at a time. A page that one shows was accessed between it and the one before: in the
    /// middle. It is the idle time of a victim since its round began, and of a page that the Ticking-scan takes, which it
    /// does with 2 MiB once a scan period, for one pass; who was not accessed in that is not below the threshold.
    pub(crate) fn readings(&mut self, now: Nanos, cleared: Nanos, last: bool, told: &[Told]) {
        let until = now.since(cleared);
        let middle = Nanos((self.statistics.before.0 + until.0) / 2);
        self.statistics.before = if last { Nanos::ZERO } else { until };
        for told in told {
            self.known.extend(&told.pages);
            if self.params.probe == Probe::AccessedBits {
                let pages = told.pages.iter();
                pages.for_each(|n| self.probe(now, *n, (cleared, middle), told.fresh.contains(n)));
            }
            if self.params.cit == Source::AccessedBits {
                self.tick_by_bits(now, (cleared, middle), told);
            }
            self.read(told);
        }
    }

    fn probe(&mut self, now: Nanos, n: u64, (cleared, middle): (Nanos, Nanos), fresh: bool) {
        let rounds: usize = self.params.rounds.into();
        let victim = self.statistics.victims.get_mut(&n);
        let Some(victim) = victim.filter(|victim| victim.rounds.len() < rounds) else {
            return;
        };
        if victim.began.is_none() && victim.from <= cleared {
            victim.began = Some(cleared);
        }
        match victim.began {
            Some(began) if fresh => victim.ended(now, cleared.since(began) + middle),
            Some(began) => victim.unseen = now.since(began),
            None => {}
        }
    }

    fn tick_by_bits(&mut self, now: Nanos, (cleared, middle): (Nanos, Nanos), told: &Told) {
        let chunk = at(told.pages[0]).0;
        let ticked = *self.ticked.entry(chunk).or_insert(cleared);
        if cleared.since(ticked) >= self.params.scan_period {
            self.ticked.insert(chunk, cleared);
        } else if cleared > ticked {
            return;
        }
        for n in &told.fresh {
            self.fault(now, *n, middle);
        }
        for n in told.pages.iter().filter(|_| told.last) {
            if !told.accessed.contains(n) {
                self.lost(*n);
            }
        }
    }

    /// Nothing is known of a page any more.
    pub(super) fn forget(&mut self, n: u64) {
        self.known.remove(&n);
        let chunk = at(n).0;
        if !self.known.iter().any(|n| at(*n).0 == chunk) {
            self.ticked.remove(&chunk);
        }
    }

    /// "The number of overlapping pages is used to calculate the misplacement ratio, which is then multiplied by the memory
    /// consumption and divided by the Ticking-scan period to determine the proper promotion rate limit. Meanwhile, the CIT
    /// threshold is dynamically recalibrated based on the overlap point". By delta, as in 3.2.1.
    pub(super) fn look(&mut self, now: Nanos, free: u64) {
        if now.since(self.statistics.looked) < self.params.statistic_period {
            return;
        }
        self.statistics.looked = now;
        let coming = self.flying.values().filter(|(up, _)| *up).count() as u64;
        let above = (free.saturating_sub(coming + HIGH) * PAGE).saturating_sub(self.gap());
        if let Some(found) = self.compare(now, above / PAGE) {
            let delta = self.params.delta_step;
            self.adapt(1.0 - delta + delta * found.cut / self.threshold.0 as f64);
            let memory = self.known.len() as u64 * PAGE;
            let ratio = found.misplaced / found.all;
            let seconds = self.params.scan_period.as_secs_f64();
            self.rate = whole((ratio * memory as f64 / seconds).round());
            let percent = 100.0 * found.misplaced / found.all;
            self.statistics.misplacement_percent = whole(percent.round());
            self.statistics.looks += 1;
            self.statistics.drawn = None;
        }
        if self.statistics.drawn.is_none() {
            let chosen = self.params.probe == Probe::ChosenFaults;
            let drawn = |n: &u64| {
                let victim = Victim {
                    from: now,
                    began: chosen.then_some(now),
                    ..Victim::default()
                };
                (*n, victim)
            };
            self.statistics.victims = self.known.iter().map(drawn).collect();
            self.statistics.to_arm.clear();
            if chosen {
                self.statistics.to_arm.extend(&self.known);
            }
            self.statistics.drawn = (!self.known.is_empty()).then_some(now);
        }
    }

    /// "Comparing the hot pages in the slow-tier with the cold pages in the fast-tier". Nothing as long as more than 1 % of
    /// the victims, with rounds to go, are in the bucket of the overlap point or below still.
    fn compare(&mut self, now: Nanos, free: u64) -> Option<Overlap> {
        let drawn = self.statistics.drawn?;
        let mut maps = [vec![0; self.params.buckets], vec![0; self.params.buckets]];
        let (mut waiting, mut counted) = (Vec::new(), 0);
        for (n, victim) in &self.statistics.victims {
            if !self.known.contains(n) {
                continue;
            }
            counted += 1;
            let wait = match self.params.probe {
                Probe::AccessedBits => victim.unseen,
                _ => victim.began.map_or(Nanos::ZERO, |began| now.since(began)),
            };
            let idle = victim.rounds.iter().copied().fold(wait, Nanos::max);
            if victim.rounds.len() < self.params.rounds.into() {
                waiting.push(idle);
                if idle == Nanos::ZERO {
                    continue;
                }
            }
            maps[usize::from(self.fast.contains(n))][level(idle, self.params.buckets)] += 1;
        }
        let found = overlap(&maps, free)?;
        let undecided = waiting.iter().filter(|idle| (idle.0 as f64) < found.end);
        let undecided = undecided.count();
        let age = self.params.scan_period.0 * u64::from(self.params.rounds);
        if undecided * 100 > counted && now.since(drawn).0 < age {
            return None;
        }
        self.statistics.maps = maps;
        Some(found)
    }
}

/// What two heat maps say.
struct Overlap {
    /// The idle time below which as many pages are as the fast node holds or has room for, ns.
    cut: f64,
    /// Where the bucket of the cut ends.
    end: f64,
    /// Slow pages that are below it.
    misplaced: f64,
    all: f64,
}

/// "The i-th bucket contains the CIT values in the range of [2^(i-1), 2^i) millisecond."
fn level(idle: Nanos, buckets: usize) -> usize {
    let begins = |i: &usize| *i == 0 || idle >= Nanos::from_millis(1 << (i - 1));
    (0..buckets).rev().find(begins).expect("the first")
}

fn overlap([slow, fast]: &[Vec<u64>; 2], free: u64) -> Option<Overlap> {
    let all = slow.iter().chain(fast).sum::<u64>() as f64;
    let fits = fast.iter().sum::<u64>() + free;
    let (mut below, mut slow_below) = (0, 0);
    for (i, (slow, fast)) in slow.iter().zip(fast).enumerate() {
        let here = slow + fast;
        if here > 0 && below + here >= fits {
            // Pages are spread evenly over the logarithms of a bucket's times.
            let part = (fits - below) as f64 / here as f64;
            let ms = if i == 0 {
                part
            } else {
                (i as f64 - 1.0 + part).exp2()
            };
            return Some(Overlap {
                cut: (ms * 1e6).floor().max(1e6),
                end: (i as f64).exp2() * 1e6,
                misplaced: slow_below as f64 + part * *slow as f64,
                all,
            });
        }
        below += here;
        slow_below += slow;
    }
    // All fit: nothing is too cold.
    (all > 0.0).then(|| Overlap {
        cut: Nanos::from_millis(1 << 27).0 as f64,
        end: Nanos::from_millis(1 << 27).0 as f64,
        misplaced: slow_below as f64,
        all,
    })
}
