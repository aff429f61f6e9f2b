// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes in: accesses from the trackers, reports of the movers. All of it becomes events for the
//! engine.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_mover::move_pages::Done;
use terrace_policy::Action;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Migration;
use terrace_policy::ScanScope;
use terrace_proto::Notice;
use terrace_proto::Report;
use terrace_sys::memory_blocks::MemoryBlocks;
use terrace_track::HintFault;
use terrace_track::Sample;
use terrace_track::TrackEvent;
use terrace_track::accessed_bits::Told;

use super::LinuxMachine;
use super::arms;
use super::managed::Managed;
use super::meter::Meter;
use super::orders::End;
use super::orders::Reporter;
use super::samples::Batch;
use crate::budget::Budget;
use crate::tracking::Tracking;

impl LinuxMachine {
    /// Reads the trackers that are due; whether they had anything to tell. Whose processes come and go is for `processes` to
    /// say, in the order of what is told.
    pub fn track(
        &mut self,
        now: Nanos,
        engine: &mut Engine,
        due: impl Fn(&Tracking) -> bool,
        mut processes: impl FnMut(TrackEvent, &mut Managed, &mut Engine),
    ) -> bool {
        let (mut found, mut slow) = (false, false);
        let (managed, blocks, learning) = (&mut self.managed, &self.blocks, &mut self.learning);
        let looks_for_slow = self.trackers.minds_slow();
        for (tracking, first) in self.trackers.iter_mut() {
            if !due(tracking) {
                continue;
            }
            found |= if first {
                let processes = |event, engine: &mut Engine| processes(event, managed, engine);
                read(tracking, (now, blocks), engine, None, processes)
            } else {
                let known = Some(&managed.pids);
                read(tracking, (now, blocks), engine, known, |_, _| ())
            };
            learning.begin();
            found |= learn(tracking, now, learning, engine, |node| {
                slow |= looks_for_slow && !self.tiers.is_top(node);
            });
            learning.end();
        }
        if slow {
            self.trackers.no_other_moves();
        }
        found
    }

    /// All that movers have to say.
    pub fn take_reports(&mut self, now: Nanos, budget: Option<&Budget>, engine: &mut Engine) {
        let ends = self.managed.movers.move_pages.ends();
        if !ends.is_empty() {
            self.ordering.begin();
            let own = Nanos(self.ordering.charge().0 / ends.len() as u64);
            for event in costs_of(&ends, own) {
                engine.observe(now, &event);
            }
            for done in &ends {
                let end = End {
                    seq: done.seq,
                    outcome: done.outcome,
                    inaccessible: Nanos::ZERO,
                };
                self.ended(now, Reporter::MovePages, end, budget, engine);
            }
            self.ordering.end();
        }
        while let Some(end) = self.managed.movers.refused() {
            self.ended(now, Reporter::MovePages, end, budget, engine);
        }
        let pids: Vec<Pid> = self.managed.movers.links.keys().copied().collect();
        for pid in pids {
            self.take_reports_of(now, pid, budget, engine);
        }
    }

    /// What an agent has to say.
    fn take_reports_of(
        &mut self,
        now: Nanos,
        pid: Pid,
        budget: Option<&Budget>,
        engine: &mut Engine,
    ) {
        let mut reports = Vec::new();
        let Some(link) = self.managed.movers.links.get_mut(&pid) else {
            return;
        };
        let read = link.reports_each(now, |report| reports.push(report));
        for report in reports {
            self.take_report(now, pid, report, budget, engine);
        }
        if let Err(error) = read {
            tracing::warn!("Agent of process {pid}: {error}; going on without it");
            self.managed.movers.forget(now, pid, engine);
        }
    }

    fn take_report(
        &mut self,
        now: Nanos,
        pid: Pid,
        report: Report,
        budget: Option<&Budget>,
        engine: &mut Engine,
    ) {
        match report {
            Report::Ended {
                seq,
                outcome,
                inaccessible,
                ..
            } => {
                if let Some(page) = self.managed.movers.arm_ended(pid, seq) {
                    self.trackers.not_armed(page);
                    let (what, why) = (Action::Arm { page }, arms::refusal(outcome));
                    engine.observe(now, &Event::Refused { what, why });
                    return;
                }
                let end = End {
                    seq,
                    outcome,
                    inaccessible,
                };
                self.ended(now, Reporter::Agent(pid), end, budget, engine);
            }
            Report::Armed { seq, since, .. } => {
                if let Some(page) = self.managed.movers.arm_ended(pid, seq) {
                    self.trackers.armed(page, since.min(now));
                }
            }
            Report::Reclaimed { seq, shadows } => {
                self.managed.movers.reclaimed(pid, seq, shadows, engine);
            }
            Report::Notice(notice) => self.take_notice(now, pid, notice, engine),
        }
    }

    fn take_notice(&mut self, now: Nanos, pid: Pid, notice: Notice, engine: &mut Engine) {
        match notice {
            Notice::ShadowDropped { addr } => {
                let page = PageRef {
                    pid,
                    addr,
                    size: PageSize::Base4K,
                };
                engine.observe(now, &Event::ShadowLost { page });
            }
            Notice::Unmapped(range) => {
                self.trackers.unmapped(pid, range);
                if let Some(mappings) = &mut self.managed.mappings {
                    mappings.unmapped(pid, range);
                }
                engine.observe(now, &Event::Unmapped { pid, range });
            }
            // The mapping's pages are met anew at their new place.
            Notice::Remapped { .. } => {}
            Notice::Faults {
                write_protect,
                missing,
                writes_waited,
            } => {
                let stats = engine.stats_mut();
                stats.writes_waited = stats.writes_waited.saturating_add(writes_waited.into());
                stats.write_protect_faults =
                    stats.write_protect_faults.saturating_add(write_protect);
                stats.missing_faults = stats.missing_faults.saturating_add(missing.into());
            }
        }
    }

    fn ended(
        &mut self,
        now: Nanos,
        from: Reporter,
        end: End,
        budget: Option<&Budget>,
        engine: &mut Engine,
    ) {
        let room = &mut self.memory.cache_room;
        let Some((page, how)) = self.managed.movers.ended(now, from, end, room, engine) else {
            return;
        };
        self.trackers.moved(page, now);
        if let Migration::Exchange { with, .. } = how {
            // Each node has as much as before.
            self.trackers.moved(with, now);
        } else if let Some(budget) = budget {
            budget.moved(&self.tiers, page, how.target());
        }
    }
}

/// All that a tracker has to say; of `known` processes only where another says who there is: what it has of
/// one that has ended since is nobody's.
fn read(
    tracking: &mut Tracking,
    (now, blocks): (Nanos, &MemoryBlocks),
    engine: &mut Engine,
    known: Option<&BTreeSet<Pid>>,
    mut processes: impl FnMut(TrackEvent, &mut Engine),
) -> bool {
    let as_samples = tracking.samples();
    let mut batch = Batch::default();
    let mut found = false;
    let (mut faults, mut took) = (0, Nanos::ZERO);
    let unknown = |pid: &Pid| known.is_some_and(|known| !known.contains(pid));
    let mut take = |event| match event {
        TrackEvent::HintFault(HintFault { pid, .. })
        | TrackEvent::Scanned { pid, .. }
        | TrackEvent::Sample(Sample { pid, .. })
            if unknown(&pid) => {}
        TrackEvent::HintFault(fault) if as_samples => batch.push(&stand_in(&fault), blocks),
        TrackEvent::HintFault(fault) => {
            if let Some(one) = fault.took {
                (faults, took) = (faults + 1, took + one);
            }
            hint_fault(now, &fault, engine);
        }
        TrackEvent::Scanned {
            pid, range, all, ..
        } => {
            let scope = if all { ScanScope::All } else { ScanScope::Slow };
            engine.observe(now, &Event::Armed { pid, range, scope });
        }
        TrackEvent::Sample(sample) => batch.push(&sample, blocks),
        TrackEvent::Forked { .. } | TrackEvent::Execed { .. } | TrackEvent::Exited { .. } => {
            processes(event, engine);
        }
    };
    let polled = tracking.poll(|event| {
        found = true;
        take(event);
    });
    if let Err(error) = polled {
        tracing::warn!("Tracker {}: {error}", tracking.name());
    }
    for event in batch.finish() {
        engine.observe(now, &event);
    }
    if faults > 0 {
        engine.observe(now, &Event::Faulted { faults, took });
    }
    found
}

/// What was read of accessed bits, if anything, and which nodes pages are on.
fn learn(
    tracking: &mut Tracking,
    now: Nanos,
    learning: &mut Meter,
    engine: &mut Engine,
    mut seen: impl FnMut(NodeId),
) -> bool {
    let mut found = false;
    let mut take = |told| match told {
        Told::Reading(reading) => {
            let reading = reading.as_chunk();
            let with_pages = reading.nodes.iter().filter(|(_, pages)| !pages.is_empty());
            with_pages.for_each(|(node, _)| seen(*node));
            engine.accessed(now, &reading);
        }
        Told::Looked {
            pid,
            looked,
            pages,
            busy,
            lost,
        } => {
            for one in looked {
                seen(one.node);
                let found = Event::Probed {
                    page: one.page,
                    node: one.node,
                    accessed: one.accessed,
                };
                engine.observe(now, &found);
            }
            let busy = busy + learning.charge();
            engine.observe(now, &watched((pid, 1), pages, busy, lost));
        }
        Told::PassOver {
            pid,
            parts,
            pages,
            busy,
            lost,
        } => {
            let busy = busy + learning.charge();
            engine.observe(now, &watched((pid, parts), pages, busy, lost));
        }
    };
    tracking.told(|told| {
        found = true;
        take(told);
    });
    found
}

const fn watched((pid, parts): (Pid, u32), pages: u64, busy: Nanos, lost: Nanos) -> Event {
    Event::Watched {
        pid,
        parts,
        pages,
        busy,
        lost,
    }
}

/// What orders took, by size of page: `move_pages`, and this thread its own share of each.
fn costs_of(ends: &[Done], own: Nanos) -> impl Iterator<Item = Event> {
    let mut by_size: BTreeMap<PageSize, (u64, Nanos)> = BTreeMap::new();
    for done in ends {
        let size = done.page.size;
        let (pages, busy) = by_size.entry(size).or_default();
        *pages += u64::from(done.outcome.moved()) * size.base_pages();
        *busy = *busy + done.busy + own;
    }
    let events = by_size.into_iter();
    events.map(|(size, (pages, busy))| Event::Moved {
        pages: u32::try_from(pages).unwrap_or(u32::MAX),
        size,
        busy,
    })
}

fn hint_fault(now: Nanos, fault: &HintFault, engine: &mut Engine) {
    let Some(node) = fault.node else { return };
    let event = Event::HintFault {
        page: fault.page(),
        node,
        write: fault.write,
        idle: fault.idle(),
        cpu_node: fault.cpu_node,
    };
    engine.observe(now, &event);
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
        accesses: 1,
        time: fault.fault_time,
    }
}
