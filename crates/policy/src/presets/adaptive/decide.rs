// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a pass: the counts become values, the values a plan.
//!
//! What was planned and not yet ordered is dropped; a new plan says better what is worth it now.

use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_core::Pid;

use super::Adaptive;
use super::accesses::Accesses;
use super::away::Brings;
use super::chunks::Chunks;
use super::chunks::Counts;
use super::lag::LAG;
use super::lag::Lag;
use super::pace::Price;
use super::pace::Shown;
use super::phase::Forget;
use super::plan::Sums;
use super::process::Process;
use super::settling::Settling;
use super::sight::Sights;
use super::transitions::Transitions;

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
        self.settle(now);
        let counts = self.chunks.census().clone();
        self.arm(now);
        let plan = self.plan(&counts);
        self.split(now, &counts);
        let shown = self.shown(&counts, &plan);
        // Likewise once in a pass.
        if now < self.pace_at {
            return;
        }
        self.pace_at = now + Nanos(self.pace.pass.0 / 2);
        let before = self.pace;
        self.pace.next(now, shown, &self.params);
        self.surprised = false;
        if self.pace.asks() != before.asks() {
            self.ask();
        }
    }

    /// Ledgers as they are now.
    fn settle(&mut self, now: Nanos) {
        let seconds = now.since(self.settled_at).as_secs_f64();
        self.settled_at = now;
        let keep = (-seconds / self.params.horizon.as_secs_f64()).exp();
        let brings = self.processes.values().map(|process| process.away.brings);
        let all = brings.fold(Brings::default(), Brings::and);
        for process in self.processes.values_mut() {
            let own = [process.away.brings, all];
            process
                .ledger
                .settle((seconds, process.clock.runs), own, keep);
        }
    }

    /// Of how many chunks the last passes read one, at most: who is too small for a sample is not read in most.
    pub(super) fn parts(&self) -> u32 {
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
        let forget = process.new_phase(now, changed, keep, &mut self.steps);
        if forget.is_some() {
            process.transitions = Transitions::new();
            process.lag = Lag::new();
            process.accesses = Accesses::default();
            process.skew.forget();
            if forget == Some(Forget::All) {
                process.settling = Settling::default();
                self.chunks.begin_anew(pid, process.pass);
            }
            process.surprised = Some(now);
            self.arming.hurry();
            self.counters.surprises += 1;
            self.surprised = true;
        } else if changed {
            process.transitions.forget();
            process.lag = Lag::new();
        }
        let others = changed || forget.is_some();
        turn(&mut self.chunks, (pid, process), others, keep);
        process.sights = Sights::new(&self.latencies, &self.places, process.runs_on);
        process.end_pass(&self.params, self.chunks.census_of(pid));
        if parts == 1 {
            self.chunks.expire(pid, process.pass);
        }
    }

    /// What the plan has shown of the passes before it.
    fn shown(&self, counts: &Counts, plan: &Sums) -> Shown {
        let all = || self.processes.values();
        Shown {
            saves: plan.saves,
            spends: plan.spends,
            price: self.price(),
            fast: self.on_fastest(counts),
            first: all().map(|process| process.first_before).sum(),
            chunks: self.chunks.len(),
            parts: self.parts(),
            surprised: self.surprised,
            tries: all().any(|process| process.skew.tries(process.pass)),
        }
    }
}

/// Counts what the pages of a process did where L passes in a row were alike: of one length, one phase and of all chunks. Begins to count
/// anew.
fn turn(chunks: &mut Chunks, (pid, process): (Pid, &mut Process), others: bool, keep: f64) {
    if others || process.parts > 1 {
        chunks.of(pid).for_each(|(_, chunk)| chunk.then = None);
        process.lag.drop_now();
    }
    if process.parts > 1 || !process.pass.is_multiple_of(LAG) {
        return;
    }
    if chunks.of(pid).any(|(_, chunk)| chunk.then.is_some()) {
        process.lag.fade(keep);
    }
    let all = chunks.len();
    for (key, chunk) in chunks.of(pid) {
        process.lag.turn(key.1, chunk, process.pass, all);
    }
}
