// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a pass: the counts become values, the values a plan.
//!
//! What was planned and not yet ordered is dropped; a new plan says better what is worth it now.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_core::Pid;

use super::Adaptive;
use super::accesses::Accesses;
use super::census::Census;
use super::classes::CLASSES;
use super::explain;
use super::lag::LAG;
use super::lag::Lag;
use super::pace::Price;
use super::pace::Shown;
use super::select;
use super::select::Group;
use super::transitions::Transitions;
use super::whole_ns;

pub(super) const SIZES: [PageSize; 2] = [PageSize::Base4K, PageSize::Huge2M];

/// A sum of times, ns.
#[expect(clippy::cast_precision_loss, reason = "times far below 2^53 ns")]
fn whole(times: impl Iterator<Item = u64>) -> f64 {
    times.sum::<u64>() as f64
}

impl Adaptive {
    /// Plans by what is known now.
    pub(super) fn decide(&mut self, now: Nanos) {
        self.plan_at = Nanos::MAX;
        self.plan_by = Nanos::MAX;
        self.plan_again = now + Nanos(self.pace.pass.0 / 8);
        self.counters.passes += 1;
        let all = self.processes.values_mut();
        all.for_each(|process| process.over = false);
        let counts = self.chunks.census().clone();
        let shown = self.plan(&counts);
        // Likewise once in a pass.
        if now < self.pace_at {
            return;
        }
        self.pace_at = now + Nanos(self.pace.pass.0 / 2);
        let before = self.pace;
        self.pace.next(shown, &self.params);
        self.surprised = false;
        if self.pace.asks() != before.asks() {
            self.ask();
        }
    }

    /// Of how many chunks the last passes read one, at most: who is too small for a sample is not read in most.
    fn parts(&self) -> u32 {
        let all = self.processes.values().map(|process| process.parts);
        all.max().unwrap_or(1)
    }

    /// What reading all pages once takes.
    pub(super) fn price(&self) -> Price {
        let all = || self.processes.values();
        Price {
            busy: whole(all().map(|process| process.busy.0)),
            lost: whole(all().map(|process| process.lost.0)),
            runs: all().map(|process| process.clock.runs).sum(),
        }
    }

    /// Learns from a process's pass of one in so many chunks, which is over and took so much processor time: of the reader, and of the
    /// process itself.
    pub(super) fn end_pass(
        &mut self,
        now: Nanos,
        (pid, parts): (Pid, u32),
        (busy, lost): (Nanos, Nanos),
    ) {
        let keep = self.params.keep();
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.over = true;
        process.parts = parts;
        process.pass = process.pass.wrapping_add(1);
        let changed = process.changes_length();
        if parts == 1 {
            (process.busy, process.lost) = (busy, lost);
            process.first_before = std::mem::take(&mut process.first);
        }
        if process.is_new_phase(now, changed, keep, &mut self.steps) {
            // Nothing that was estimated or counted is of it.
            process.transitions = Transitions::new();
            process.lag = Lag::new();
            process.accesses = Accesses::default();
            self.chunks.begin_anew(pid, process.pass);
            process.surprised = Some(now);
            self.counters.surprises += 1;
            self.surprised = true;
        } else if changed {
            process.transitions.forget();
            process.lag = Lag::new();
        }
        let pages = self.chunks.census().get(&pid);
        process.end_pass(&self.params, &self.latencies, pages);
        if changed || parts > 1 {
            // Passes in a row are counted only where all of them are of one length and of all chunks.
            self.chunks.of(pid).for_each(|(_, chunk)| chunk.then = None);
        }
        if parts > 1 {
            return;
        }
        if process.pass.is_multiple_of(LAG) {
            let chunks = self.chunks.len();
            if self.chunks.of(pid).any(|(_, chunk)| chunk.then.is_some()) {
                process.lag.fade(keep);
            }
            for (key, chunk) in self.chunks.of(pid) {
                process.lag.turn(key.1, chunk, process.pass, chunks);
            }
        }
        self.chunks.expire(pid, process.pass);
    }

    /// Groups of one side, in the order of [`Self::spread`].
    #[expect(clippy::cast_precision_loss, reason = "base pages of a page")]
    pub(super) fn groups(&self, counts: &BTreeMap<Pid, Census>, fast: usize) -> Vec<Group> {
        let saved = self.latencies.saved_ns();
        let mut groups = Vec::with_capacity(counts.len() * SIZES.len() * CLASSES);
        for (pid, census) in counts {
            let process = self.processes.get(pid);
            let visit = process.map_or(0.0, |process| process.visit_saves(saved));
            for (size, sides) in SIZES.into_iter().zip(census.0.iter()) {
                let each = size.base_pages() as f64;
                let cost = self.costs.of(size) / each;
                for (class, pages) in sides[fast].iter().enumerate() {
                    let of = |of: Option<&[f64; CLASSES]>| of.map_or(0.0, |of| of[class] / each);
                    let value = of(process.map(|process| &process.values));
                    let rate = of(process.map(|process| &process.rates));
                    groups.push(Group {
                        pages: *pages,
                        value,
                        place: value,
                        cost,
                        saves: rate * visit,
                    });
                }
            }
        }
        groups
    }

    fn plan(&mut self, counts: &BTreeMap<Pid, Census>) -> Shown {
        let pages = |bytes: i128| u64::try_from(bytes / 4096).unwrap_or(0);
        let (room, short) = (pages(self.spare()), pages(self.shortage()));
        let [slow, fast] = self.worth(counts, room);
        let most = self.params.plan_pages as u64;
        let quotas = select::quotas(&slow, &fast, room, short.min(most), most);
        self.planned = explain::planned(&slow, &fast, room, &quotas);
        self.moves.plan.up.clear();
        self.moves.plan.down.clear();
        if quotas.up.iter().chain(&quotas.down).any(|n| *n > 0) {
            let mut left = spread(counts, &quotas);
            let plan = &mut self.moves.plan;
            self.cursor = select::take(&self.chunks, self.cursor, &mut left, plan);
        }
        let all = |groups: &[Group]| groups.iter().map(|group| group.pages).sum::<u64>();
        let on_fast = all(&fast);
        self.counters.pages = all(&slow) + on_fast;
        self.counters.value_possible_ns = whole_ns(quotas.gain);
        self.counters.swaps += quotas.swapped;
        Shown {
            saves: quotas.saves,
            spends: quotas.spends,
            price: self.price(),
            fast: on_fast,
            first: self
                .processes
                .values()
                .map(|process| process.first_before)
                .sum(),
            chunks: self.chunks.len(),
            parts: self.parts(),
            surprised: self.surprised,
        }
    }
}

/// Quotas by process, size, side and class.
fn spread(counts: &BTreeMap<Pid, Census>, quotas: &select::Quotas) -> BTreeMap<Pid, Census> {
    let mut left: BTreeMap<Pid, Census> = BTreeMap::new();
    let (up, down) = (quotas.up.chunks(CLASSES), quotas.down.chunks(CLASSES));
    let mut both = up.zip(down);
    for pid in counts.keys() {
        let of_process = left.entry(*pid).or_default();
        for sides in of_process.0.iter_mut() {
            if let Some((up, down)) = both.next() {
                sides[0].copy_from_slice(up);
                sides[1].copy_from_slice(down);
            }
        }
    }
    left
}
