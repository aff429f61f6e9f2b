// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes in: memory samples, hint faults, reports of movers, new agents. All of it becomes
//! events for the engine.

use std::time::Duration;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_move::agent::AgentLink;
use terrace_move::agent::Terms;
use terrace_policy::Event;
use terrace_proto::Notice;
use terrace_proto::Report;
use terrace_sys::process::Stat;
use terrace_track::TrackEvent;
use terrace_track::Tracker;

use super::Session;
use crate::machine::End;
use crate::memory;

impl Session {
    pub(super) fn sample_memory(&mut self, now: Nanos) {
        if now < self.memory_due {
            return;
        }
        self.memory_due = now + self.options.memory_interval;
        let nodes: Vec<NodeId> = self.setting.tiers.nodes().iter().map(|n| n.id).collect();
        for node in nodes {
            let Ok(mut sample) = self.memory.read(node) else {
                continue;
            };
            if let Some(cap) = self.options.fast_bytes
                && self.setting.tiers.is_top(node)
            {
                let used = self
                    .managed
                    .iter()
                    .map(|pid| memory::resident(*pid, node))
                    .sum();
                sample = memory::capped(sample, cap, used);
            }
            self.engine.memory(now, node, sample);
        }
    }

    pub(super) fn track(&mut self, now: Nanos) {
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        let mut events = Vec::new();
        if let Err(error) = tracker.poll(Duration::ZERO, &mut |event| events.push(event)) {
            tracing::warn!("Hint faults: {error}");
        }
        for event in events {
            match event {
                TrackEvent::HintFault(fault) => {
                    let Some(node) = fault.node else { continue };
                    let event = Event::HintFault {
                        page: fault.page(),
                        node,
                        write: fault.write,
                        idle: fault.idle(),
                    };
                    self.engine.observe(now, &event);
                }
                // The hint-fault tracker makes none.
                TrackEvent::Sample(_) => {}
                TrackEvent::Forked { child, .. } => {
                    self.managed.insert(child);
                }
                // A new program in an old process. Its agent may have connected before we read this.
                TrackEvent::Execed { pid, .. } => {
                    self.drop_dead_link(now, pid);
                    self.engine.observe(now, &Event::Gone { pid });
                }
                TrackEvent::Exited { pid, .. } => {
                    self.forget(now, pid);
                    self.managed.remove(&pid);
                }
            }
        }
    }

    pub(super) fn forget(&mut self, now: Nanos, pid: Pid) {
        self.machine.forget(now, pid, &mut self.engine);
        self.engine.observe(now, &Event::Gone { pid });
    }

    pub(super) fn take_reports(&mut self, now: Nanos) {
        self.machine.ordinary.silence();
        while let Some(done) = self.machine.ordinary.poll() {
            let end = End {
                seq: done.seq,
                outcome: done.outcome,
                inaccessible_ns: 0,
            };
            self.ended(now, end);
        }
        let pids: Vec<Pid> = self.machine.links.keys().copied().collect();
        for pid in pids {
            let mut reports = Vec::new();
            let Some(link) = self.machine.links.get_mut(&pid) else {
                continue;
            };
            if let Err(error) = link.reports_each(|report| reports.push(report)) {
                tracing::warn!("Agent of process {pid}: {error}; going on without it");
                self.machine.forget(now, pid, &mut self.engine);
                continue;
            }
            for report in reports {
                self.take_report(now, pid, report);
            }
        }
    }

    fn ended(&mut self, now: Nanos, end: End) {
        let moved = self.machine.ended(now, end, &mut self.engine);
        if let (Some(page), Some(tracker)) = (moved, &mut self.tracker) {
            tracker.moved(page, now);
        }
    }

    fn take_report(&mut self, now: Nanos, pid: Pid, report: Report) {
        match report {
            Report::Ended {
                seq,
                outcome,
                value,
                ..
            } => {
                let end = End {
                    seq,
                    outcome,
                    inaccessible_ns: value,
                };
                self.ended(now, end);
            }
            Report::Notice(Notice::ShadowDropped { addr }) => {
                let page = PageRef {
                    pid,
                    addr,
                    size: terrace_core::PageSize::Base4K,
                };
                self.engine.observe(now, &Event::ShadowLost { page });
            }
            Report::Notice(Notice::Unmapped(range)) => {
                if let Some(tracker) = &mut self.tracker {
                    tracker.unmapped(pid, range);
                }
                self.engine.observe(now, &Event::Unmapped { pid, range });
            }
            // The mapping's pages are met anew at their new place.
            Report::Notice(Notice::Remapped { .. }) => {}
            Report::Notice(Notice::Faults {
                write_protect,
                missing,
            }) => {
                self.engine.stats_mut().write_protect_faults += write_protect;
                self.engine.stats_mut().missing_faults += u64::from(missing);
            }
        }
    }

    pub(super) fn take_connections(&mut self, now: Nanos) {
        let terms = Terms {
            copy_workers: self.options.copy_workers,
            batch_pages: self.options.batch_pages,
            commit: self.options.commit,
        };
        while let Some(link) = self.socket.as_ref().and_then(|s| s.accept(terms)) {
            match link {
                Ok(link) => self.connected(now, link),
                Err(error) => tracing::warn!("{error:#}"),
            }
        }
        let pids: Vec<Pid> = self.machine.links.keys().copied().collect();
        for pid in pids {
            self.drop_dead_link(now, pid);
        }
    }

    fn connected(&mut self, now: Nanos, link: AgentLink) {
        let pid = link.pid();
        // Its fork or exec may be in the tracker's ring still.
        if !self.managed.contains(&pid) && self.options.follow && self.descends(pid) {
            self.add(pid);
        }
        // A process that is not managed gets no orders, so its agent does nothing.
        if !self.managed.contains(&pid) {
            return;
        }
        if !link.can_transact() {
            let why = std::io::Error::from_raw_os_error(link.hello().errno.cast_signed());
            let text = format!("process {pid}: no transactions, move_pages instead: {why}");
            self.setting.limits.push(text);
        }
        self.machine.forget(now, pid, &mut self.engine);
        self.machine.links.insert(pid, link);
    }

    /// Whether a managed process is among the ancestors.
    fn descends(&self, pid: Pid) -> bool {
        let parent = |pid: &Pid| Stat::read(*pid).ok().map(|stat| stat.parent);
        std::iter::successors(Some(pid), parent)
            .take(64)
            .any(|pid| self.managed.contains(&pid))
    }

    fn drop_dead_link(&mut self, now: Nanos, pid: Pid) {
        if self.machine.links.get(&pid).is_some_and(AgentLink::is_gone) {
            self.machine.forget(now, pid, &mut self.engine);
        }
    }

    pub(super) fn add(&mut self, pid: Pid) {
        self.managed.insert(pid);
        if let Some(tracker) = &mut self.tracker
            && let Err(error) = tracker.add(pid, self.options.follow)
        {
            self.setting
                .limits
                .push(format!("process {pid} is not tracked: {error:#}"));
        }
    }
}
