// SPDX-License-Identifier: MIT OR Apache-2.0
//! New phases: a program does what nobody expected of it, by so many bits a page ([`super::transitions`]). Nothing that was
//! learned is of the new one. What pages are taken for while estimates settle ([`super::settling`]) is not much: it stays, as what changes so
//! soon may change again, and goes by itself.
//!
//! At the end of a pass all its pages say so; within it those that it has shown so far, and the rest of it is not waited for.

use terrace_core::Nanos;

use super::Adaptive;
use super::classes::class_of;
use super::estimate::PASSES;
use super::estimate::Seen;
use super::pace::ALARM_AGAIN;
use super::process::Process;
use super::settling::Settling;
use super::steps::Steps;

/// Bits a page by which a pass must be worse predicted than usual to be a new phase: a page's class is
/// then half an octave further off than usual.
const ALARM_BITS: f64 = 0.5;

/// What of a program is not of its new phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forget {
    /// What was counted of classes.
    Counts,
    /// And what pages are taken for.
    All,
}

impl Adaptive {
    /// Looks at what passes under way have shown so far.
    pub(super) fn look(&mut self, now: Nanos) {
        self.look_at = Nanos::MAX;
        let mut alarmed = false;
        for process in self.processes.values_mut() {
            if !process.alarmed && process.surprises_so_far(now, &mut self.steps) {
                process.alarmed = true;
                alarmed = true;
            }
        }
        if alarmed && self.pace.hurry(&self.price(), &self.params) {
            self.ask();
        }
    }
}

impl Process {
    /// Whether it has surprised a short while ago.
    fn did_surprise(&self, now: Nanos) -> bool {
        self.surprised.is_some_and(|at| now.since(at) < ALARM_AGAIN)
    }

    /// Whether the pages that its pass has shown so far do.
    fn surprises_so_far(&self, now: Nanos, steps: &mut Steps) -> bool {
        let (since, until) = self.rung;
        // What is first seen later than in the pass before M says nothing of.
        let known = until > 0.0 && until <= self.pass_s_before;
        if !known || self.did_surprise(now) {
            return false;
        }
        let seen = Seen {
            seen: true,
            since,
            until,
        };
        let step = steps.of(seen, PASSES);
        let least = |class: usize| class_of(step[(2 * class).max(1)]);
        self.transitions
            .surprised_so_far(&self.m, least, ALARM_BITS)
    }

    /// Ends its pass for the transitions: what is to be forgotten, if it is one of a new phase. For M one of another length than the one
    /// before is never that.
    pub(super) fn new_phase(
        &mut self,
        now: Nanos,
        changed: bool,
        keep: f64,
        steps: &mut Steps,
    ) -> Option<Forget> {
        self.rung = (0.0, 0.0);
        let alarmed = std::mem::take(&mut self.alarmed);
        let alarm = if changed || self.did_surprise(now) {
            f64::INFINITY
        } else {
            ALARM_BITS
        };
        let part = self.clock.end();
        let unseen = Seen {
            seen: false,
            since: 0.0,
            until: self.pass_s,
        };
        let step = steps.of(unseen, PASSES);
        let unseen = |class: usize| class_of(step[2 * class + 1]);
        let weights = (keep, part);
        let settles = !self.transitions.is_trained();
        if self.transitions.end_pass(&self.m, weights, alarm, unseen) || alarmed {
            return Some(Forget::All);
        }
        if !settles {
            self.settling = Settling::default();
            return None;
        }
        // A sample is not held against the pass before.
        let bits = if self.parts == 1 {
            self.settling.end_pass()
        } else {
            0.0
        };
        (bits > ALARM_BITS && !self.did_surprise(now)).then_some(Forget::Counts)
    }
}
