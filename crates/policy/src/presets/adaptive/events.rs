// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the policy is told, and when it plans.

use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Measurement;
use terrace_core::Nanos;

use super::Adaptive;
use super::Process;
use crate::About;
use crate::Belief;
use crate::MachineOptions;
use crate::Policy;
use crate::event::Action;
use crate::event::Event;

/// A plan is made so long after the end of a pass, in case those of other processes end, too.
const QUIET: Nanos = Nanos::from_millis(10);

impl Policy for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn machine_options(&self) -> MachineOptions {
        MachineOptions {
            sample_period: Some(self.params.sample_period),
            ..MachineOptions::default()
        }
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        if !matches!(event, Event::Ended { .. }) {
            self.take_ends();
        }
        match *event {
            Event::Memory { node, memory } => self.memory.sampled(node, memory),
            Event::Moved { pages, size, busy } => self.costs.moved(pages, size, busy),
            Event::Ended { page, verdict, .. } => self.end_move(page, verdict),
            Event::Runs { pid, cpu_node } => {
                self.runs(pid, cpu_node);
                self.arming.look(now);
            }
            Event::Share { pid, share } => {
                self.shares.insert(pid, share);
            }
            Event::Latency { from, node, read } => self.latencies.measured(from, node, read),
            Event::Watched {
                pid,
                parts,
                busy,
                lost,
                ..
            } => {
                self.end_pass(now, (pid, parts), (busy, lost));
                self.account(pid);
                if self.plan_by == Nanos::MAX {
                    self.plan_by = now + Nanos(self.pace.pass.0 / 2);
                }
                self.plan_at = (now + QUIET).min(self.plan_by);
            }
            Event::Sampled {
                page,
                write: false,
                accesses,
                ..
            } => {
                if let Some(process) = self.processes.get_mut(&page.pid) {
                    process.accesses.sampled(accesses);
                }
            }
            Event::Parts { walk, split } => self.splitting.measured(walk, split),
            Event::Refused {
                what: Action::Split { .. },
                ..
            } => self.splitting.refused(),
            Event::Refused {
                what: Action::Scan { .. },
                why,
            } => self.arming.refused(why),
            Event::HintFault { page, cpu_node, .. } => self.faulted(page, cpu_node),
            Event::Armed { pid, range, scope } => self.armed(now, (pid, range), scope),
            Event::Faulted { faults, took } => self.arming.took(faults, took),
            Event::Unmapped { pid, range } => {
                self.chunks.unmapped(pid, range);
                self.moves.stays.unmapped(&self.chunks, pid, range);
            }
            Event::Gone { pid } => {
                self.chunks.gone(pid);
                self.moves.stays.gone(pid);
                self.processes.remove(&pid);
                self.runs_on.remove(&pid);
                self.shares.remove(&pid);
                self.arming.look(now);
            }
            Event::Sampled { write: true, .. }
            | Event::Mapped { .. }
            | Event::Resident { .. }
            | Event::ShadowLost { .. }
            | Event::Refused { .. }
            | Event::Probed { .. } => {}
        }
    }

    fn accessed(&mut self, now: Nanos, reading: &ChunkReading<'_>) {
        self.take_ends();
        let key = (reading.pid, reading.start.0 / CHUNK_BYTES);
        let over = |process: &mut Process| std::mem::take(&mut process.over);
        if self.processes.get_mut(&reading.pid).is_some_and(over) && now >= self.plan_again {
            // The next pass has begun: what it shows first would make those that it shows look better.
            self.decide(now);
        }
        let candidates = self.learn(key, reading);
        if reading.last {
            return;
        }
        // Once for all chunks that are read about now.
        let soon = Nanos(reading.until.0 / 8).max(QUIET);
        self.look_at = self.look_at.min(now + soon);
        if self.params.early && !candidates.is_empty() {
            self.promote_early(key, candidates);
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.take_ends();
        if now >= self.look_at {
            self.look(now);
        }
        if now >= self.arming.at && self.arm(now) {
            self.plan_at = now;
        }
        if now >= self.plan_at {
            self.decide(now);
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.take_ends();
        self.asks.pop_front().or_else(|| self.next_move())
    }

    fn next_deadline(&self) -> Nanos {
        self.plan_at.min(self.look_at).min(self.arming.at)
    }

    fn explain(&self, now: Nanos, about: About) -> Option<Belief> {
        self.believes(now, about)
    }

    fn counters(&self) -> Vec<Measurement> {
        self.figures()
    }
}
