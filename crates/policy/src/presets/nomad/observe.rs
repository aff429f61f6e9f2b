// SPDX-License-Identifier: MIT OR Apache-2.0
//! What hint faults and readings of accessed bits say of pages.

use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;

use super::FIRST_READING;
use super::Nomad;
use crate::event::Action;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;
use crate::kit::pages::split;
use crate::kit::rate;

impl Nomad {
    /// A page that a faster tier is there for was touched: it is a candidate (3.1). Pages of 1 GiB have
    /// no accessed bits that are read.
    pub(super) fn hint_fault(&mut self, now: Nanos, page: PageRef, node: NodeId) {
        if page.size == PageSize::Giant1G || self.tiers.above(node).next().is_none() {
            return;
        }
        self.counters.faults_slow += 1;
        let (key, index) = split(page);
        self.sized(key, page.size == PageSize::Huge2M, now);
        self.residents.put(key, index, node);
        let Some(chunk) = self.residents.pages.get_mut(key) else {
            return;
        };
        let queued = chunk.own.candidate.or(&chunk.own.pending).or(&chunk.flying);
        if !queued.get(index) && self.pcq.push(key, index, now) {
            chunk.own.candidate.set(index);
        }
    }

    /// A reading of 2 MiB: where its pages are, which candidates were accessed again, and at the end of a pass
    /// which pages of the lists were.
    pub(super) fn read(&mut self, now: Nanos, reading: &ChunkReading<'_>) {
        let key = (reading.pid, reading.start.0 / CHUNK_BYTES);
        self.sized(key, reading.huge, now);
        self.residents.placed(key, reading);
        self.drop_absent(key, &reading.present);
        self.mark(key, reading);
        let cleared = Nanos(now.0.saturating_sub(reading.until.0));
        let (hot, cold) = self.pcq.read(key, cleared, &reading.accessed, reading.last);
        let Some(chunk) = self.residents.pages.get_mut(key) else {
            return;
        };
        chunk.read = now;
        self.counters.cold += cold.len() as u64;
        for page in cold {
            chunk.own.candidate.clear(page);
        }
        for page in hot {
            chunk.own.candidate.clear(page);
            self.counters.referenced_twice += 1;
            let from = chunk.node(page).unwrap_or_default();
            if self.mpq.push(from, page_of(key, page, chunk.size()), 0) {
                chunk.own.pending.set(page);
            }
        }
    }

    /// What is not in memory any more is in no queue.
    fn drop_absent(&mut self, key: Key, present: &PageBits) {
        if let Some(chunk) = self.residents.pages.get_mut(key) {
            let queued = chunk
                .own
                .candidate
                .or(&chunk.own.pending)
                .or(&chunk.own.shadow);
            let absent = queued.without(present).without(&chunk.flying);
            if !absent.is_empty() {
                self.forget(key, &absent);
            }
        }
    }

    /// What the lists are told. Who was seen accessed before in this pass is so again at its end only.
    fn mark(&mut self, key: Key, reading: &ChunkReading<'_>) {
        let told = if reading.last {
            PageBits::ALL
        } else {
            reading.fresh.or(&PageBits::ALL.without(&reading.accessed))
        };
        self.residents.tell(key, &told, &reading.accessed);
    }

    /// A pass over a process is over. What two passes did not tell of is gone.
    pub(super) fn pass_ended(&mut self, now: Nanos, pid: Pid) {
        if let Some(before) = self.watched.insert(pid, now) {
            for key in self.residents.pages.unread(pid, before) {
                self.forget(key, &PageBits::ALL);
            }
        }
        self.ask();
    }

    /// Asks for passes as long as the scanner's over what is known now, where that changed by an eighth.
    pub(super) fn ask(&mut self) {
        let known = self.residents.pages.mapped_bytes();
        let pass = rate::time_of(known, self.params.accessed_rate).max(self.params.accessed_pass);
        if rate::differs(pass, self.pass) {
            self.pass = pass;
            self.actions.push_back(Action::ReadAccessed {
                shortest: Nanos(pass.0 / FIRST_READING),
                pass,
                parts: 1,
            });
        }
    }

    /// 2 MiB are one huge page, or base pages. What was known of them in another size is forgotten.
    fn sized(&mut self, key: Key, huge: bool, now: Nanos) {
        if self.residents.sized(key, huge, now) {
            self.pcq.forget(key, &PageBits::ALL);
        }
    }

    /// Nothing is known of these pages any more.
    pub(super) fn forget(&mut self, key: Key, pages: &PageBits) {
        self.residents.forget(key, pages);
        self.pcq.forget(key, pages);
    }
}
