// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs come, and run here or there.

use terrace_core::NodeId;
use terrace_core::Pid;

use super::Adaptive;
use super::plan::Plan;
use super::process::Process;
use super::sight::Sights;

impl Adaptive {
    /// Meets a process, if it is new.
    pub(super) fn meet(&mut self, pid: Pid) {
        if self.processes.contains_key(&pid) {
            return;
        }
        // Nothing is known of it, and most is to be gained soon.
        if self.pace.hurry(&self.price(), &self.params) {
            self.ask();
        }
        let runs_on = self.runs_on.get(&pid).copied();
        let sights = Sights::new(&self.latencies, &self.places, runs_on);
        let mut process = Process::new(&self.params, self.pace.pass, sights);
        process.runs_on = runs_on;
        self.processes.insert(pid, process);
        self.arming.hurry();
        self.sides_change();
    }

    /// Where a process runs or its pages are accessed from has changed, or which there are: the sides are others, and what was planned between those before is
    /// nothing any more.
    pub(super) fn sides_change(&mut self) {
        let now = self.sides_now();
        if now != self.sides {
            self.sides = now;
            self.moves.plan = Plan::default();
        }
    }

    /// A process runs on the processors of that node, or of several.
    pub(super) fn runs(&mut self, pid: Pid, cpu_node: Option<NodeId>) {
        match cpu_node {
            Some(node) => self.runs_on.insert(pid, node),
            None => self.runs_on.remove(&pid),
        };
        let sights = Sights::new(&self.latencies, &self.places, cpu_node);
        if let Some(process) = self.processes.get_mut(&pid) {
            (process.runs_on, process.sights) = (cpu_node, sights);
            self.arming.hurry();
            self.sides_change();
        }
    }
}
