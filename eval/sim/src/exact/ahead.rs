// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program's visits, drawn [`AHEAD`] at a time.
//!
//! What visits will look at can be read in a row before they are played: a processor fetches many
//! places of memory side by side, but not if each visit must end before the next one's place is known.
//! Drawing ahead changes no visit: at a change of phase those that were not played are taken back.

use terrace_workload::Program;
use terrace_workload::Visit;
use terrace_workload::Visits;

use crate::space::Space;

/// Visits drawn at a time: enough to keep the memory busy, few enough to stay in the first cache.
pub(super) const AHEAD: usize = 128;

/// Base page to unit.
#[derive(Debug)]
pub(super) enum Lookup {
    /// One region: shift, and add.
    Shift {
        shift: u8,
        first: u32,
    },
    Table(Vec<u32>),
}

impl Lookup {
    pub(super) fn new(space: &Space, program: usize) -> Self {
        match space.program_regions(program) {
            [only] => Self::Shift {
                shift: only.size.shift() - 12,
                first: only.unit,
            },
            regions => Self::Table(
                regions
                    .iter()
                    .flat_map(|r| {
                        let pages = usize::try_from(r.size.base_pages()).expect("2^18");
                        (r.unit..r.unit + r.count).flat_map(move |u| std::iter::repeat_n(u, pages))
                    })
                    .collect(),
            ),
        }
    }

    #[inline]
    pub(super) fn unit(&self, page: u32) -> u32 {
        match self {
            Self::Shift { shift, first } => first + (page >> shift),
            Self::Table(table) => table[page as usize],
        }
    }
}

/// A visit and the unit it is to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) unit: u32,
    pub(super) visit: Visit,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ahead {
    visits: Visits,
    phase: usize,
    drawn: Vec<Drawn>,
    played: usize,
    /// As `visits` was before `drawn` was, where there are phases to change to.
    before: Option<Visits>,
    phases: usize,
}

impl Ahead {
    pub(super) fn new(program: &Program, seed: u64) -> Self {
        Self {
            visits: Visits::new(program, seed),
            phase: 0,
            drawn: Vec::with_capacity(AHEAD),
            played: 0,
            before: None,
            phases: program.phases.len(),
        }
    }

    /// The next one drawn.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Drawn> {
        let next = self.drawn.get(self.played).copied()?;
        self.played += 1;
        Some(next)
    }

    /// Draws more, the last ones being played; shows them.
    pub(super) fn more(&mut self, lookup: &Lookup) -> &[Drawn] {
        if self.phases > 1 {
            self.before = Some(self.visits.clone());
        }
        self.draw(lookup, AHEAD);
        &self.drawn
    }

    /// The program's phase from now on.
    pub(super) fn set_phase(&mut self, lookup: &Lookup, phase: usize) {
        if phase != self.phase && self.played < self.drawn.len() {
            if let Some(before) = self.before.take() {
                self.visits = before;
                self.draw(lookup, self.played);
            }
            self.drawn.clear();
            self.played = 0;
        }
        self.phase = phase;
    }

    fn draw(&mut self, lookup: &Lookup, count: usize) {
        let (visits, phase) = (&mut self.visits, self.phase);
        self.drawn.clear();
        for _ in 0..count {
            let visit = visits.visit(phase);
            let unit = lookup.unit(visit.page);
            self.drawn.push(Drawn { unit, visit });
        }
        self.played = 0;
    }
}

#[cfg(test)]
mod tests {
    use terrace_workload::Sizes;
    use terrace_workload::Workload;

    use super::*;

    /// Whenever the phase changes, the visits are those of a program that draws one at a time.
    #[test]
    fn drawing_ahead_changes_no_visit() {
        let lookup = Lookup::Shift { shift: 0, first: 7 };
        for name in ["phases", "gups-moving", "ycsb-e", "scan"] {
            let workload = Workload::named(name, &Sizes::fast_free(1 << 26)).expect("known");
            let program = &workload.programs[0];
            let (mut ahead, mut visits) = (Ahead::new(program, 5), Visits::new(program, 5));
            for turn in 0..60 {
                let phase = turn % program.phases.len();
                ahead.set_phase(&lookup, phase);
                for _ in 0..turn * 37 % 300 {
                    let next = ahead.next().or_else(|| {
                        ahead.more(&lookup);
                        ahead.next()
                    });
                    let drawn = next.expect("more were drawn");
                    assert_eq!(drawn.visit, visits.visit(phase), "{name}, turn {turn}");
                    assert_eq!(drawn.unit, drawn.visit.page + 7);
                }
            }
        }
    }
}
