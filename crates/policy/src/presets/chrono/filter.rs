// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captured idle times and what they make of a page (3.1): a candidate, a page to promote, or neither.

use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::Chrono;
use super::dcsc::middle;
use super::heat::as_base;
use super::params::Probe;
use super::params::Source;
use super::queue::Entry;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;
use crate::kit::pages::split;

impl Chrono {
    /// A page was touched that the scanner had armed. Pages of 1 GiB are not moved by anybody.
    pub(super) fn hint_fault(
        &mut self,
        now: Nanos,
        page: PageRef,
        node: NodeId,
        idle: Option<Nanos>,
    ) {
        if page.size == PageSize::Giant1G || self.tiers.node(node).is_none() {
            return;
        }
        let (key, index) = split(page);
        self.residents
            .sized(key, page.size == PageSize::Huge2M, now);
        self.residents.put(key, index, node);
        let slow = !self.tiers.is_top(node);
        self.counters.faults_slow += u64::from(slow);
        let Some(idle) = idle else {
            return;
        };
        if self.params.probe != Probe::AccessedBits {
            let victim = self.dcsc.faulted(now, page, idle);
            // What was armed for the heat maps is in them alone (3.2.2: PG_probed).
            if victim && self.params.probe == Probe::ChosenFaults {
                return;
            }
        }
        if slow && self.params.cit == Source::Faults {
            self.measured(now, key, &PageBits::one(index), idle);
        }
    }

    /// The captured idle time of slow pages of 2 MiB, one round of the filter. What waits for its migration has passed, and
    /// leaves the queue where it is not below the threshold any more.
    fn measured(&mut self, now: Nanos, key: Key, pages: &PageBits, idle: Nanos) {
        let threshold = self.tuning.threshold();
        let period_ago = Nanos(now.0.saturating_sub(self.round.0));
        let Some(chunk) = self.residents.pages.get_mut(key) else {
            return;
        };
        let idle = as_base(idle, chunk.size());
        let marks = &mut chunk.own;
        // Their rounds begin now; in the paper the demotion itself arms them.
        for page in marks.demoted.and(pages).pages() {
            if self.demoted.take(period_ago, key, page) {
                self.demoted.add(now, key, page);
            }
        }
        marks.demoted = marks.demoted.without(pages);
        if idle >= threshold {
            self.lost(key, pages);
            return;
        }
        let stay = pages.without(&chunk.flying);
        let new = stay.without(&marks.queued);
        let again = if self.params.rounds == 1 {
            new
        } else {
            let first = new.without(&marks.candidate);
            marks.first_round(&first, idle);
            self.counters.candidates += u64::from(first.count());
            new.without(&first)
        };
        self.another_round(now, key, (again, stay), idle);
    }

    /// Pages that may have passed the filter with this round, of those that have had one.
    fn another_round(
        &mut self,
        now: Nanos,
        key: Key,
        (mut left, stay): (PageBits, PageBits),
        idle: Nanos,
    ) {
        let mut refused = None;
        if !left.is_empty() {
            refused = self.queue.refused(key);
        }
        while let Some(page) = take_first(&mut left) {
            let Some(chunk) = self.residents.pages.get_mut(key) else {
                return;
            };
            let size = chunk.size();
            let (rounds, idle) = chunk.own.round(page, idle);
            self.counters.candidates += u64::from(rounds == 1);
            if rounds < self.params.rounds {
                continue;
            }
            chunk.own.candidate.clear(page);
            self.passed(now, key, page, size);
            if refused.is_some_and(|longest| longest <= idle) {
                self.queue.dropped += 1;
                continue;
            }
            if let Some(chunk) = self.residents.pages.get_mut(key) {
                chunk.own.queued.set(page);
            }
            let entry = Entry {
                page: page_of(key, page, size),
                idle,
            };
            // Whose place it takes begins anew, with this round where that is still to come.
            let out = self.enqueue(entry).map(split);
            if let Some((_, out)) = out.filter(|(of, out)| *of == key && *out > page) {
                left = left.or(&stay.and(&PageBits::one(out)));
            }
            refused = self.queue.refused(key);
        }
    }

    /// A page has passed the filter.
    fn passed(&mut self, now: Nanos, key: Key, page: usize, size: PageSize) {
        let period_ago = Nanos(now.0.saturating_sub(self.round.0));
        self.counters.enqueued += 1;
        self.tuning.now.enqueued += size.bytes();
        if self.demoted.take(period_ago, key, page) {
            self.counters.thrashed += 1;
            self.tuning.now.thrashed += size.bytes();
        }
    }

    /// These pages of 2 MiB are not below the threshold: no candidates, and not to be promoted.
    fn lost(&mut self, key: Key, pages: &PageBits) {
        let Some(chunk) = self.residents.pages.get_mut(key) else {
            return;
        };
        let size = chunk.size();
        let marks = &mut chunk.own;
        self.counters.lost += u64::from(marks.candidate.and(pages).count());
        marks.candidate = marks.candidate.without(pages);
        for page in marks.queued.and(pages).pages() {
            self.counters.lost += 1;
            self.queue.remove(page_of(key, page, size));
        }
        marks.queued = marks.queued.without(pages);
    }

    /// Into the queue; who is not in it because of that, which this gives, has to be a candidate again.
    pub(super) fn enqueue(&mut self, entry: Entry) -> Option<PageRef> {
        let out = self.queue.push(entry);
        if let Some((_, chunk, index)) = out.and_then(|page| self.residents.pages.find(page)) {
            chunk.own.queued.clear(index);
        }
        out
    }

    /// A reading of 2 MiB: where its pages are, idle times of the victims and, by option, of all; and once a pass
    /// which pages of the lists were accessed.
    pub(super) fn read(&mut self, now: Nanos, reading: &ChunkReading<'_>) {
        let key = (reading.pid, reading.start.0 / CHUNK_BYTES);
        self.residents.sized(key, reading.huge, now);
        self.residents.placed(key, reading);
        self.huge |= reading.huge;
        if self.params.probe == Probe::AccessedBits {
            self.dcsc.read(now, key, reading);
        }
        if self.params.cit == Source::AccessedBits {
            self.measured_by_bits(now, key, reading);
        }
        self.mark(key, reading);
        let Some(chunk) = self.residents.pages.get_mut(key) else {
            return;
        };
        chunk.read = now;
        let absent = (chunk.own.queued.or(&chunk.own.candidate)).without(&reading.present);
        let absent = absent.without(&chunk.flying);
        if !absent.is_empty() {
            self.residents.forget(key, &absent);
        }
    }

    /// By accessed bits the Ticking-scan takes 2 MiB once a scan period: the rung that shows a page is its idle time; who
    /// is not seen in the pass, which is longer than the threshold, is not below it.
    fn measured_by_bits(&mut self, now: Nanos, key: Key, reading: &ChunkReading<'_>) {
        let cleared = Nanos(now.0.saturating_sub(reading.until.0));
        let (_, pass) = self.asked;
        let Some(chunk) = self.residents.pages.get_mut(key) else {
            return;
        };
        let ago = chunk.own.ticked.map(|ticked| cleared.since(ticked));
        if ago.is_none_or(|ago| ago >= self.params.scan_period) {
            chunk.own.ticked = Some(cleared);
        } else if ago.is_some_and(|ago| ago.0 >= pass.0 / 2) {
            return;
        }
        let slow = reading.nodes.iter();
        let slow = slow.filter(|(node, _)| !self.tiers.is_top(*node));
        let slow = slow.fold(PageBits::NONE, |all, (_, on)| all.or(on));
        let seen = reading.fresh.and(&slow);
        if !seen.is_empty() {
            self.measured(now, key, &seen, middle(reading));
        }
        if reading.last {
            self.lost(key, &PageBits::ALL.without(&reading.accessed));
        }
    }

    /// Tells the lists which pages were accessed since the clearing, as far as [`Chrono::window`] goes.
    fn mark(&mut self, key: Key, reading: &ChunkReading<'_>) {
        let Some(chunk) = self.residents.pages.get_mut(key) else {
            return;
        };
        let marks = &mut chunk.own;
        if reading.until <= self.window {
            marks.early = reading.accessed;
        }
        let tell = !marks.told && (reading.until >= self.window || reading.last);
        let early = marks.early;
        marks.told = !reading.last && (marks.told || tell);
        if reading.last {
            marks.early = PageBits::NONE;
        }
        if !tell {
            return;
        }
        self.residents.tell(key, &PageBits::ALL, &early);
    }
}

/// The first of the pages, which is none of them any more.
fn take_first(pages: &mut PageBits) -> Option<usize> {
    let mut words = pages.0.iter_mut().enumerate();
    let (word, bits) = words.find(|(_, bits)| **bits != 0)?;
    let page = word * 64 + bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    Some(page)
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
