// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes in: memory samples, hint faults, reports of movers, new agents. All of it becomes
//! events for the engine.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_mover::agent::AgentLink;
use terrace_mover::agent::Terms;
use terrace_policy::Event;
use terrace_policy::ScanScope;
use terrace_proto::Notice;
use terrace_proto::Report;
use terrace_sys::process;
use terrace_sys::process::lineage;
use terrace_track::HintFault;
use terrace_track::Sample;
use terrace_track::TrackEvent;
use terrace_track::accessed_bits::Told;

use super::Session;
use super::samples::Batch;
use crate::machine::End;
use crate::memory;

/// Watermarks change with `vm.watermark_scale_factor` and when memory comes or goes.
const WATERMARKS_INTERVAL: Nanos = Nanos::from_secs(10);
/// Looks at a family that forks faster than it can be added.
const FAMILY_LOOKS: u32 = 16;

impl Session {
    pub(super) fn sample_memory(&mut self, now: Nanos) {
        if now < self.memory_due {
            return;
        }
        self.memory_due = now + self.options.memory_interval;
        self.agents_cpu
            .look(now, self.machine.links.keys().copied());
        let nodes: Vec<NodeId> = self.setting.tiers.nodes().iter().map(|n| n.id).collect();
        if now >= self.watermarks_due {
            self.watermarks_due = now + WATERMARKS_INTERVAL;
            if let Err(error) = self.memory.refresh_watermarks() {
                tracing::warn!("Watermarks not read again: {error}");
            }
            if let Some(tracking) = &mut self.tracking {
                tracking.resized(memory::largest(self.managed.iter().copied()));
            }
        }
        for node in nodes {
            let Ok((memory, cache_bytes)) = self.memory.read_with_cache(node) else {
                continue;
            };
            let is_top = self.setting.tiers.is_top(node);
            let cache_room = &mut self.machine.cache_room;
            let mut sample = cache_room.sample(now, (node, is_top), memory, cache_bytes);
            if let Some(cap) = self.options.fast_bytes
                && is_top
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

    pub(super) fn measure_latencies(&mut self, now: Nanos) {
        if let Some(latencies) = &mut self.latencies
            && self.tracking.is_some()
        {
            let engine = &mut self.engine;
            latencies.measure(now, &self.setting.tiers, |node, read| {
                engine.observe(now, &Event::Latency { node, read });
            });
        }
    }

    pub(super) fn track(&mut self, now: Nanos) {
        let Some(mut tracking) = self.tracking.take() else {
            return;
        };
        let as_samples = tracking.samples();
        let mut batch = Batch::default();
        let polled = tracking.poll(|event| match event {
            TrackEvent::HintFault(fault) if as_samples => {
                batch.push(&stand_in(&fault), &self.blocks);
            }
            TrackEvent::HintFault(fault) => self.hint_fault(now, &fault),
            TrackEvent::Scanned {
                pid, range, all, ..
            } => {
                let scope = if all { ScanScope::All } else { ScanScope::Slow };
                self.engine
                    .observe(now, &Event::Armed { pid, range, scope });
            }
            TrackEvent::Sample(sample) => batch.push(&sample, &self.blocks),
            TrackEvent::Forked { .. } | TrackEvent::Execed { .. } | TrackEvent::Exited { .. } => {
                self.process_event(now, event);
            }
        });
        if let Err(error) = polled {
            tracing::warn!("Tracker {}: {error}", tracking.name());
        }
        tracking.told(|told| match told {
            Told::Reading(reading) => self.engine.accessed(now, &reading.as_chunk()),
            Told::PassOver { pid, pages, busy } => {
                self.engine
                    .observe(now, &Event::Watched { pid, pages, busy });
            }
        });
        self.tracking = Some(tracking);
        for event in batch.finish() {
            self.engine.observe(now, &event);
        }
    }

    fn process_event(&mut self, now: Nanos, event: TrackEvent) {
        match event {
            TrackEvent::Forked { child, .. } => {
                self.managed.insert(child);
                self.tell_priority(now, child);
            }
            // A new program in an old process. Its agent may have connected before we read this.
            TrackEvent::Execed { pid, .. } => {
                self.drop_dead_link(now, pid);
                self.gone(now, pid);
                self.tell_priority(now, pid);
            }
            TrackEvent::Exited { pid, .. } => {
                self.forget(now, pid);
                self.managed.remove(&pid);
            }
            TrackEvent::HintFault(_) | TrackEvent::Scanned { .. } | TrackEvent::Sample(_) => {}
        }
    }

    fn hint_fault(&mut self, now: Nanos, fault: &HintFault) {
        let Some(node) = fault.node else { return };
        let event = Event::HintFault {
            page: fault.page(),
            node,
            write: fault.write,
            idle: fault.idle(),
        };
        self.engine.observe(now, &event);
    }

    pub(super) fn look_at_mappings(&mut self, now: Nanos) {
        if let Some(mappings) = &mut self.mappings {
            let engine = &mut self.engine;
            mappings.step(now, self.managed.iter().copied(), |event| {
                engine.observe(now, &event);
            });
        }
    }

    /// A process, or the program in it, went.
    fn gone(&mut self, now: Nanos, pid: Pid) {
        if let Some(mappings) = &mut self.mappings {
            mappings.forget(pid);
        }
        self.engine.observe(now, &Event::Gone { pid });
    }

    pub(super) fn forget(&mut self, now: Nanos, pid: Pid) {
        self.machine.forget(now, pid, &mut self.engine);
        self.gone(now, pid);
    }

    /// All that movers have to say.
    pub(super) fn take_reports(&mut self, now: Nanos) {
        while let Some(done) = self.machine.ordinary.poll() {
            let end = End {
                seq: done.seq,
                outcome: done.outcome,
                inaccessible_ns: 0,
            };
            self.ended(now, end);
            let (size, busy) = (done.page.size, done.busy);
            let pages = if done.outcome.moved() {
                size.base_pages()
            } else {
                0
            };
            let pages = u32::try_from(pages).unwrap_or(u32::MAX);
            self.engine
                .observe(now, &Event::Moved { pages, size, busy });
        }
        let pids: Vec<Pid> = self.machine.links.keys().copied().collect();
        for pid in pids {
            self.take_reports_of(now, pid);
        }
    }

    /// What an agent has to say.
    fn take_reports_of(&mut self, now: Nanos, pid: Pid) {
        let mut reports = Vec::new();
        let Some(link) = self.machine.links.get_mut(&pid) else {
            return;
        };
        if let Err(error) = link.reports_each(|report| reports.push(report)) {
            tracing::warn!("Agent of process {pid}: {error}; going on without it");
            self.machine.forget(now, pid, &mut self.engine);
            return;
        }
        for report in reports {
            self.take_report(now, pid, report);
        }
    }

    fn ended(&mut self, now: Nanos, end: End) {
        let moved = self.machine.ended(now, end, &mut self.engine);
        if let (Some(page), Some(tracking)) = (moved, &mut self.tracking) {
            tracking.moved(page, now);
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
                if let Some(tracking) = &mut self.tracking {
                    tracking.unmapped(pid, range);
                }
                if let Some(mappings) = &mut self.mappings {
                    mappings.unmapped(pid, range);
                }
                self.engine.observe(now, &Event::Unmapped { pid, range });
            }
            // The mapping's pages are met anew at their new place.
            Report::Notice(Notice::Remapped { .. }) => {}
            Report::Notice(Notice::Faults {
                write_protect,
                missing,
                writes_waited,
            }) => {
                self.engine.stats_mut().writes_waited += u64::from(writes_waited);
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
            copy_threads: self.options.copy_threads,
            streaming: self.options.streaming,
        };
        while let Some(link) = self.socket.as_ref().and_then(|s| s.accept(terms)) {
            match link {
                Ok(link) => self.connected(now, link),
                Err(error) => tracing::warn!("{error:#}"),
            }
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
        self.tell_priority(now, pid);
    }

    /// Tells the policy of the priority a process has by its group.
    pub(super) fn tell_priority(&mut self, now: Nanos, pid: Pid) {
        let priority = self.members.as_ref().and_then(|m| m.priority(pid));
        if let Some(priority) = priority.filter(|priority| *priority > 0) {
            self.engine.observe(now, &Event::Priority { pid, priority });
        }
    }

    /// Whether a managed process, or a member of the group, is among the ancestors.
    fn descends(&self, pid: Pid) -> bool {
        if self
            .members
            .as_ref()
            .is_some_and(|m| m.priority(pid).is_some())
        {
            return true;
        }
        lineage(pid).any(|pid| self.managed.contains(&pid))
    }

    pub(super) fn drop_dead_link(&mut self, now: Nanos, pid: Pid) {
        if self.machine.links.get(&pid).is_some_and(AgentLink::is_gone) {
            self.machine.forget(now, pid, &mut self.engine);
        }
    }

    /// Manages a process and, where children are followed, those that it has: one that it forked before
    /// it was tracked is told by nobody.
    pub(super) fn add_family(&mut self, pid: Pid) {
        self.add(pid);
        if !self.options.follow {
            return;
        }
        // Who is forked by one that was added is told: with nobody new in a look, all are there.
        for _ in 0..FAMILY_LOOKS {
            let family = process::descendants(pid).unwrap_or_default();
            let managed = |one: &Pid| self.managed.contains(one);
            let new: Vec<Pid> = family.into_iter().filter(|one| !managed(one)).collect();
            if new.is_empty() {
                return;
            }
            new.into_iter().for_each(|one| self.add(one));
        }
    }

    pub(super) fn add(&mut self, pid: Pid) {
        self.managed.insert(pid);
        if let Some(tracking) = &mut self.tracking
            && let Err(error) = tracking.add(pid, self.options.follow)
        {
            self.setting
                .limits
                .push(format!("process {pid} is not tracked: {error:#}"));
        }
    }
}

/// A hint fault as a sample.
const fn stand_in(fault: &HintFault) -> Sample {
    Sample {
        pid: fault.pid,
        tid: fault.tid,
        cpu: fault.cpu,
        addr: fault.addr,
        phys: None,
        node: fault.node,
        write: fault.write,
        time: fault.fault_time,
    }
}
