// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens when in a profiling interval.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;

use super::Mtm;
use super::histogram::Histogram;
use super::plan::Plan;
use super::plan::Planner;
use super::spacing::Agreement;
use super::spacing::Found;
use crate::event::Action;
use crate::event::Migration;

/// Counters are on for this part of an interval (5.5).
const COUNTED_PART: u64 = 10;
/// Pages of the scans before the first interval.
const MEASURED_PAGES: u64 = 64;
/// Where nothing is mapped, and an answer is waited for, it is looked again after so long.
const LOOK_AGAIN: Nanos = Nanos::from_millis(50);

/// Where the interval has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing is mapped, or what a scan takes was not measured.
    Unmeasured,
    /// A scan that measures it is under way, or how far apart scans are to be.
    Measuring,
    /// The next such scan is to come.
    Between,
    /// Counters are on.
    Counting,
    /// So many scans have been asked for.
    Scanning(u8),
    /// Until the interval ends.
    Resting,
}

impl Mtm {
    /// Its time has come.
    pub(super) fn go_on(&mut self, now: Nanos) {
        match self.stage {
            Stage::Unmeasured => self.measure(now),
            Stage::Measuring => self.measured(now),
            Stage::Between => self.measure_again(now),
            Stage::Counting => self.choose(now),
            Stage::Scanning(_) if self.round.waits() && now < self.patience() => {
                self.deadline = self.patience();
            }
            Stage::Scanning(done) => self.scan(now, done),
            Stage::Resting => self.rest(now),
        }
    }

    fn measure(&mut self, now: Nanos) {
        self.deadline = now + LOOK_AGAIN;
        if self.regions.is_empty() {
            return;
        }
        let single = (&[][..], &mut self.captured);
        self.profile
            .choose(&mut self.regions, &mut self.random, single);
        self.profile.thin(MEASURED_PAGES);
        self.counters.scanned = self.profile.len();
        (self.begun, self.scans) = (now, 0);
        self.measure_again(now);
    }

    fn measure_again(&mut self, now: Nanos) {
        self.stage = Stage::Measuring;
        self.round.begin(now, self.profile.len());
        self.deadline = self.patience();
    }

    /// A scan that measures was answered, or not in time.
    fn measured(&mut self, now: Nanos) {
        let Some(pages) = self.overhead.tried_pages(&self.params) else {
            // Nobody answered: what was mapped may be gone.
            return self.measure(now);
        };
        // What the first one finds is old.
        let first = self.round.asked == self.begun;
        if !self.apart.is_adaptive() || !first && self.is_apart() {
            self.overhead.measured();
            self.settle();
            self.begin(now);
        } else {
            self.profile.thin(pages);
            self.stage = Stage::Between;
            self.deadline = now.max(self.round.asked + self.apart.spacing);
        }
    }

    /// Whether scans are so far apart as they are to be, by what the last one of those that measure found.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a machine")]
    fn is_apart(&mut self) -> bool {
        let all: u64 = self.regions.iter().map(|(_, region)| region.bytes()).sum();
        let there = u128::from(all) * u128::from(self.round.told());
        let found = Found {
            accessed: self.round.share(),
            fastest: self.fits(there as f64 / self.profile.len().max(1) as f64),
        };
        self.scans += 1;
        let agreement = self.round.agreement();
        let agreement = Some(agreement).filter(|one| self.scans > 1 && *one > self.round.noise());
        let span = self.round.span;
        self.apart.tried(found, span, agreement)
    }

    /// The share of so many bytes that the fastest tier holds.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a machine")]
    fn fits(&self, bytes: f64) -> f64 {
        self.views.fastest_bytes(&self.tiers) as f64 / bytes.max(1.0)
    }

    /// So long the answers to a scan are waited for.
    fn patience(&self) -> Nanos {
        self.round.asked + self.apart.longest().max(self.apart.spacing)
    }

    fn begin(&mut self, now: Nanos) {
        self.begun = now;
        self.captured.clear();
        if self.params.pebs {
            self.actions.push_back(Action::Sample { on: true });
        }
        self.stage = Stage::Counting;
        self.deadline = now + Nanos(self.params.interval.0 / COUNTED_PART);
    }

    fn choose(&mut self, now: Nanos) {
        if self.params.pebs {
            self.actions.push_back(Action::Sample { on: false });
        }
        let guided = if self.counted && self.params.pebs {
            self.views.slowest()
        } else {
            &[]
        };
        let counters = (guided, &mut self.captured);
        self.profile
            .choose(&mut self.regions, &mut self.random, counters);
        self.counters.scanned = self.profile.len();
        self.scan(now, 0);
    }

    /// When the next scan is to come; behind the last one the interval's rest, at once.
    fn next_scan(&self, now: Nanos) -> Nanos {
        if self.scans >= self.params.num_scans {
            return now;
        }
        let span = self.apart.span(self.scans + 1);
        now.max(self.round.asked + span)
    }

    /// The first two scans that cleared nothing old, and the last two.
    fn agreed(&mut self, done: u8) {
        if done > 2 {
            let farther = self.round.agreement();
            self.agreement = Some(Agreement {
                closer: self.agreement.map_or(farther, |all| all.closer),
                farther,
                noise: self.round.noise(),
            });
        }
    }

    /// How many pages another scan may have that follows so many (5.3); none where that was the last.
    fn fits_now(&self, done: u8) -> u64 {
        let faults = self.has_faults();
        if done > self.params.num_scans {
            0
        } else if self.params.overhead_control {
            let num_ps = self.overhead.num_ps(&self.params, done, faults);
            num_ps.unwrap_or(u64::MAX)
        } else {
            u64::MAX
        }
    }

    fn scan(&mut self, now: Nanos, done: u8) {
        self.agreed(done);
        let fits = self.fits_now(done);
        if fits > 0 {
            self.profile.thin(fits);
            self.round.begin(now, self.profile.len());
            if done == 0 {
                (self.first_scan, self.agreement) = (now, None);
            }
            self.stage = Stage::Scanning(done + 1);
            self.scans = done;
            self.deadline = self.next_scan(now);
        } else {
            self.stage = Stage::Resting;
            self.deadline = self.begun + self.params.interval;
        }
    }

    fn rest(&mut self, now: Nanos) {
        self.finish(now);
        self.begin(now);
    }

    /// The end of an interval: what the scans say, regions, samples, moves.
    fn finish(&mut self, now: Nanos) {
        self.counters.intervals += 1;
        let guided = self.guided().to_vec();
        let counters = (&guided[..], &self.captured);
        self.profile
            .judge(&mut self.regions, self.params.num_scans, counters);
        self.average();
        self.space();
        let took = now.since(self.begun);
        let (regions, faults) = (self.regions.len() as u64, self.has_faults());
        self.overhead.end(&self.params, regions, faults, took);
        if self.params.adaptive_regions {
            let (tau_m, tau_s) = self.overhead.thresholds(&self.params);
            self.counters.merged += self.regions.merge(tau_m, tau_s);
            self.counters.split += self.regions.split(tau_s);
        }
        self.settle();
        self.ask_for_faults();
        self.plan();
    }

    #[expect(clippy::cast_possible_truncation, reason = "a weight from 0 to 1")]
    fn average(&mut self) {
        let alpha = self.params.alpha as f32;
        for (_, region) in self.regions.iter_mut() {
            region.average = alpha * region.hotness + (1.0 - alpha) * region.average;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes as weights")]
    fn space(&mut self) {
        let (mut bytes, mut accessed) = (0.0, 0.0);
        for (_, region) in self
            .regions
            .iter()
            .filter(|(_, region)| region.node.is_some())
        {
            bytes += region.bytes() as f64;
            accessed += region.bytes() as f64 * f64::from(region.hotness);
        }
        if bytes > 0.0 {
            let found = Found {
                accessed: accessed / bytes / f64::from(self.params.num_scans),
                fastest: self.fits(bytes),
            };
            let took = self.round.asked.since(self.first_scan);
            if let Some(span) = self.apart.middle(took, self.scans) {
                let agreement = self.agreement;
                self.apart.space(found, span, agreement);
            }
        }
    }

    /// Equation 1; without control, a sample for each region at least.
    fn num_ps(&mut self) -> u64 {
        let faults = self.has_faults();
        let bound = self.overhead.num_ps(&self.params, 0, faults);
        let bound = bound.unwrap_or(MEASURED_PAGES).max(1);
        self.counters.num_ps = if self.params.overhead_control {
            bound
        } else {
            bound.max(self.regions.len() as u64)
        };
        self.counters.num_ps
    }

    fn settle(&mut self) {
        let num_ps = self.num_ps();
        self.quota.alone = match self.params.captured_alone {
            true => self.guided().to_vec(),
            false => Vec::new(),
        };
        let random = (!self.params.adaptive_sampling).then_some(&mut self.random);
        self.counters.samples = self.quota.settle(&mut self.regions, num_ps, random);
    }

    fn plan(&mut self) {
        let all: Vec<_> = self.regions.iter().collect();
        let mut histogram = Histogram::new(f32::from(self.params.num_scans));
        for (index, (_, region)) in (0_u32..).zip(&all) {
            if region.node.is_some() {
                histogram.add(region.average, index);
            }
        }
        let orders = &self.orders;
        let planner = Planner {
            regions: &all,
            views: &self.views,
            memory: &self.memory,
            histogram: &histogram,
            busy: &|pid, region| orders.touches(pid, region.start, region.end),
        };
        let Plan { moves, bytes } = planner.plan(self.params.promote_bytes);
        self.plan_bytes = bytes;
        for what in &moves {
            self.regions.cut_at(what.pid, what.start);
            self.regions.cut_at(what.pid, what.end);
            match what.migration {
                Migration::Promote { .. } => self.counters.promotions += 1,
                Migration::Demote { .. } | Migration::Exchange { .. } => {
                    self.counters.demotions += 1;
                }
            }
        }
        self.orders.replace(moves);
    }

    /// The next page of a scan under way.
    pub(super) fn next_look(&mut self) -> Option<Action> {
        let behind = self.round.cursor()?;
        let next = self.profile.next(behind);
        self.round
            .asked_for(next.map(|(pid, index, _)| (pid, index)));
        let (_, _, page) = next?;
        Some(Action::ProbeRange {
            node: None,
            page,
            pages: 1,
        })
    }

    /// A page was looked at.
    pub(super) fn probed(&mut self, page: PageRef, node: NodeId, accessed: bool) {
        self.counters.scans += 1;
        if let Some(before) = self.profile.probed(page, node, accessed) {
            self.round.found(before, accessed);
        }
    }

    /// Pages were scanned, which took so long of whoever did it and of the program.
    pub(super) fn watched(&mut self, now: Nanos, pages: u64, took: Nanos) {
        self.overhead.scanned(pages, took);
        self.answered(now, pages);
    }

    /// So many pages of a scan were looked at, or could not be.
    pub(super) fn answered(&mut self, now: Nanos, pages: u64) {
        if self.round.looked(pages) {
            match self.stage {
                Stage::Measuring => self.deadline = now,
                Stage::Scanning(_) => self.deadline = self.next_scan(now),
                _ => {}
            }
        }
    }

    /// A sample of an access (5.5).
    pub(super) fn sampled(&mut self, page: PageRef, node: NodeId) {
        self.counted = true;
        if self.stage == Stage::Counting && self.params.pebs && self.views.slowest().contains(&node)
        {
            self.counters.captured += 1;
            self.captured.take(page);
        }
    }
}
