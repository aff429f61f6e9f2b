// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings that come, grow and go, found by reading `/proc/PID/maps` now and then: whoever calls
//! malloc, and with or without an agent.
//!
//! Only memory that a policy could move is told of: private, anonymous, writable, not Terrace's own.
//! Neighbours are one mapping, whatever attributes the kernel splits them by. How often is bounded by
//! what it costs: at most one part in [`COST_SHARE`] of the time. What comes and goes between two
//! looks is not seen; the agent's notices say what went.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_policy::Event;
use terrace_sys::clock;
use terrace_sys::procmaps::MapsFile;

/// Shortest time between two looks.
const INTERVAL: Nanos = Nanos::from_millis(250);
/// Reading takes at most one part in so many of the time.
const COST_SHARE: u64 = 200;

/// What was mapped when we last looked.
#[derive(Debug, Default)]
pub struct Mappings {
    known: BTreeMap<Pid, Vec<Range>>,
    due: Nanos,
}

impl Mappings {
    /// Looks if it is time, and tells what is new and what is gone.
    pub fn step(
        &mut self,
        now: Nanos,
        pids: impl Iterator<Item = Pid>,
        mut tell: impl FnMut(Event),
    ) {
        if now < self.due {
            return;
        }
        let begun = clock::now();
        for pid in pids {
            let Some(found) = plain_anonymous(pid) else {
                continue;
            };
            let known = self.known.entry(pid).or_default();
            for range in without(known, &found) {
                tell(Event::Unmapped { pid, range });
            }
            for range in &found {
                if !without(&[*range], known).is_empty() {
                    tell(Event::Mapped { pid, range: *range });
                }
            }
            *known = found;
        }
        let cost = clock::now().since(begun);
        self.due = now + Nanos(INTERVAL.0.max(cost.0.saturating_mul(COST_SHARE)));
    }

    /// When to look next.
    #[must_use]
    pub const fn due(&self) -> Nanos {
        self.due
    }

    /// The agent said that a range went: if it is there when we look, it is new.
    pub fn unmapped(&mut self, pid: Pid, range: Range) {
        if let Some(known) = self.known.get_mut(&pid) {
            *known = without(known, &[range]);
        }
    }

    /// A process went, or replaced its memory.
    pub fn forget(&mut self, pid: Pid) {
        self.known.remove(&pid);
    }
}

/// A process's memory that could be moved, in address order, neighbours as one. `None` where the
/// process is gone.
fn plain_anonymous(pid: Pid) -> Option<Vec<Range>> {
    let all = MapsFile::of(pid.0).and_then(|mut maps| maps.all()).ok()?;
    let mut found: Vec<Range> = Vec::new();
    for mapping in all {
        if !mapping.is_plain_anonymous() || mapping.name.starts_with("[anon:terrace") {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == mapping.range.start => last.end = mapping.range.end,
            _ => found.push(mapping.range),
        }
    }
    Some(found)
}

/// The parts of `ranges` that are not in `taken`. Both in address order and without overlaps.
fn without(ranges: &[Range], taken: &[Range]) -> Vec<Range> {
    let mut left = Vec::new();
    let mut from = 0;
    for range in ranges {
        let mut start = range.start;
        while taken.get(from).is_some_and(|t| t.end <= range.start) {
            from += 1;
        }
        for t in taken[from..].iter().take_while(|t| t.start < range.end) {
            if start < t.start {
                left.push(Range {
                    start,
                    end: t.start,
                });
            }
            start = start.max(t.end);
        }
        if start < range.end {
            left.push(Range {
                start,
                end: range.end,
            });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use terrace_core::Addr;

    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range {
            start: Addr(start),
            end: Addr(end),
        }
    }

    fn ranges(points: &std::collections::BTreeSet<u64>) -> Vec<Range> {
        let points: Vec<u64> = points.iter().copied().collect();
        points
            .chunks_exact(2)
            .map(|pair| range(pair[0], pair[1]))
            .collect()
    }

    proptest! {
        /// What is left is exactly what is in the one and not in the other, point by point.
        #[test]
        fn differences_are_exact(
            a in prop::collection::btree_set(0..60_u64, 0..12),
            b in prop::collection::btree_set(0..60_u64, 0..12),
        ) {
            let (a, b) = (ranges(&a), ranges(&b));
            let left = without(&a, &b);
            let has = |set: &[Range], at| set.iter().any(|r| r.contains(Addr(at)));
            for at in 0..60 {
                prop_assert_eq!(has(&left, at), has(&a, at) && !has(&b, at));
            }
            prop_assert!(left.iter().all(|r| r.start < r.end));
        }
    }

    fn step(mappings: &mut Mappings) -> Vec<Event> {
        let mut told = Vec::new();
        let now = mappings.due;
        mappings.step(now, std::iter::once(Pid(std::process::id())), |event| {
            told.push(event);
        });
        told
    }

    #[test]
    fn memory_of_this_process_comes_grows_and_goes() {
        let mut mappings = Mappings::default();
        step(&mut mappings);
        let area = terrace_sys::arena::Reservation::new(64 << 20, 1 << 12).expect("addresses");
        area.commit(0, 1 << 20).expect("memory");
        let inside = Addr(area.start() + 4096);
        let covers = |event: &Event, at: Addr| match event {
            Event::Mapped { range, .. } => range.contains(at),
            _ => false,
        };
        let mine = |told: &[Event], at| told.iter().any(|event| covers(event, at));
        let first = step(&mut mappings);
        // The arena is named as Terrace's own where the kernel can name it: then it is not told of.
        let named = !mine(&first, inside);
        let pid = Pid(std::process::id());
        if !named {
            assert!(!mine(&step(&mut mappings), inside), "told once");
            mappings.unmapped(pid, range(inside.0, inside.0 + 4096));
            assert!(mine(&step(&mut mappings), inside), "the agent said it went");
        }
        drop(area);
        let gone = step(&mut mappings);
        let went = gone.iter().any(|event| match event {
            Event::Unmapped { range, .. } => range.contains(inside),
            _ => false,
        });
        assert_eq!(went, !named);
    }
}
