// SPDX-License-Identifier: MIT OR Apache-2.0
//! What works beside the programs, and what share of a processor that leaves their threads.
//!
//! Migration workers are busy while they wait, too. Terrace's supervisor, with the policy in it, has
//! one thread and a price for each hint fault it is told of and each migration it orders
//! (`supervisor_fault_ns`, `supervisor_move_ns`); what it cannot do in a step is left for the next.
//! All of them and the threads share the processors evenly where these are too few; where they are
//! not, work beside the programs is free. The policy's decisions are not late for it.

use crate::world::World;

/// Work beside the programs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuShare {
    /// `totals.workers` at the last step.
    workers_before: f64,
    /// What the supervisor has not done yet, ns.
    backlog: f64,
}

impl World {
    /// Work for the supervisor, ns; none where a system decides in the kernel.
    pub(crate) fn supervise(&mut self, ns: f64) {
        if self.movement.supervised {
            self.cpu_share.backlog += ns;
            self.totals.supervisor += ns;
        }
    }

    /// What share of the time a thread of each socket has a processor, if workers and supervisor are as
    /// busy as they were in the last `span` ns. Work beside the programs is spread over the sockets.
    pub(crate) fn processor_share(&mut self, span: f64) -> Vec<f64> {
        let span = span.max(1.0);
        let share = &mut self.cpu_share;
        let workers = (self.totals.workers - share.workers_before) / span;
        share.workers_before = self.totals.workers;
        let supervisor = (share.backlog / span).min(1.0);
        #[expect(clippy::cast_precision_loss, reason = "a handful of sockets")]
        let sockets = self.hardware.cpus.len() as f64;
        let busy = (workers + supervisor) / sockets;
        let shares: Vec<f64> = (0..self.hardware.cpus.len())
            .map(|socket| {
                let all = self.threads.iter().zip(&self.sockets);
                let on = all.filter(|&(_, &s)| s == socket);
                let threads: f64 = on.map(|(threads, _)| threads).sum();
                (f64::from(self.hardware.cpus[socket]) / (threads + busy)).min(1.0)
            })
            .collect();
        let mean = shares.iter().sum::<f64>() / sockets;
        // Rounding may leave less than nothing, which would be time that nobody has.
        self.cpu_share.backlog = (self.cpu_share.backlog - supervisor * span * mean).max(0.0);
        shares
    }
}
