// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ycsb-a` to `ycsb-f`: a key-value store under YCSB's core workloads.
//!
//! Records of 1 KB (ten fields of 100 bytes: YCSB's default), four to a page, and an index of 16
//! bytes a record. An operation is two visits: one line of the index and the record (all of its 16
//! lines when read, two when one field is updated). Keys are zipfian with theta 0.99, scattered over
//! records and index as YCSB's scrambled distribution does.
//!
//! | name | operations, as in YCSB's `workloads/` |
//! | --- | --- |
//! | `ycsb-a` | 50 % read, 50 % update |
//! | `ycsb-b` | 95 % read, 5 % update |
//! | `ycsb-c` | read |
//! | `ycsb-d` | 95 % read of the latest records, 5 % insert |
//! | `ycsb-e` | 95 % scan of 1 to 100 records, 5 % insert |
//! | `ycsb-f` | 50 % read, 50 % read-modify-write |
//!
//! Records are a ring that is full from the beginning: `ycsb-d` writes the next of 24 (paper: 48)
//! windows while it reads mostly what came just before, and goes on by a window every 5 s (paper: 10 s,
//! about 5 % inserts of a million operations a second). In `ycsb-e` records are in the order of keys and
//! inserts go anywhere, as YCSB's hashed keys do; a scan reads up to 25 pages in a row after one visit
//! to the index.
//!
//! Sizes: Nomad section 4.2, case 2, which runs `ycsb-a` against Redis: 24 GB resident, all on the slow
//! tier at first. (Redis needs 2.4 KB for a record of 1 KB; here the memory is filled with records.) The
//! small sizes have the same proportion to the 13 GB that are free there: 1.85. Think time: 3.5 us a
//! visit, so that a thread makes an operation in 7 us as in HeMem's Table 3 (8 threads, 1.14 million
//! operations a second, all in DRAM); Nomad gives none.

use std::ops::Range;

use terrace_core::Nanos;

use crate::Choice;
use crate::PAGE_BYTES;
use crate::Part;
use crate::Phase;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;
use crate::sizes::Shape;

/// YCSB's default exponent, which Nomad's benchmark uses too.
pub const YCSB_THETA: f64 = 0.99;

const GB: u64 = 1_000_000_000;
const THINK_NS: f64 = 3500.0;
/// Records and index entries in a page.
const RECORDS_PER_PAGE: u16 = 4;
const ENTRIES_PER_PAGE: u16 = 256;
/// Lines of a record, and of a field with what it straddles.
const RECORD_LINES: u8 = 16;
const FIELD_LINES: u8 = 2;
/// Scans are of 1 to 100 records.
const SCAN_PAGES: u32 = 25;

/// The memory and the skew.
struct Store {
    index: Range<u32>,
    records: Range<u32>,
    theta: f64,
}

/// `ycsb-a` to `ycsb-f`.
pub(crate) fn build(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 24 * GB, 185)?;
    // One page of index for 64 of records.
    let index = pages.div_ceil(u32::from(ENTRIES_PER_PAGE / RECORDS_PER_PAGE) + 1);
    if pages - index < SCAN_PAGES {
        return Err(parameters.too_small("its records"));
    }
    let store = Store {
        index: 0..index,
        records: index..pages,
        theta: parameters.theta(YCSB_THETA)?,
    };
    let phases = match parameters.workload() {
        "ycsb-a" => forever(store.reads_and_updates(50.0)),
        "ycsb-b" => forever(store.reads_and_updates(5.0)),
        "ycsb-c" => forever(store.reads_and_updates(0.0)),
        "ycsb-d" => store.latest(parameters)?,
        "ycsb-e" => forever(store.scans()),
        "ycsb-f" => forever(store.modifies()),
        other => {
            return Err(WorkloadError::Name {
                name: other.to_owned(),
            });
        }
    };
    parameters.program(Shape {
        pages,
        threads_paper: 1,
        start: Start::Slow,
        think_ns: THINK_NS,
        phases,
    })
}

fn forever(parts: Vec<Part>) -> Vec<Phase> {
    vec![Phase::forever(parts)]
}

impl Store {
    fn scattered(&self, items_per_page: u16) -> Choice {
        Choice::Zipf {
            theta: self.theta,
            items_per_page,
        }
    }

    /// Looking up a key, and with `write_percent` changing its entry.
    fn look_up(&self, weight: f64, write_percent: u8) -> Part {
        Part {
            weight,
            pages: self.index.clone(),
            choice: self.scattered(ENTRIES_PER_PAGE),
            write_percent,
            lines: 1,
            step: 1,
        }
    }

    fn record(&self, weight: f64, lines: u8, write_percent: u8) -> Part {
        Part {
            weight,
            pages: self.records.clone(),
            choice: self.scattered(RECORDS_PER_PAGE),
            write_percent,
            lines,
            step: 1,
        }
    }

    fn reads_and_updates(&self, update_percent: f64) -> Vec<Part> {
        let updates = update_percent / 200.0;
        let mut parts = vec![
            self.look_up(0.5, 0),
            self.record(0.5 - updates, RECORD_LINES, 0),
        ];
        if updates > 0.0 {
            parts.push(self.record(updates, FIELD_LINES, 100));
        }
        parts
    }

    /// Half read; half look up, read and then update: three visits.
    fn modifies(&self) -> Vec<Part> {
        vec![
            self.look_up(0.4, 0),
            self.record(0.4, RECORD_LINES, 0),
            self.record(0.2, FIELD_LINES, 100),
        ]
    }

    /// A scan looks up once and visits (1 + 25) / 2 pages; an insert writes index and record.
    fn scans(&self) -> Vec<Part> {
        let pages = f64::from(SCAN_PAGES + 1) / 2.0;
        let all = 0.95 * (1.0 + pages) + 0.05 * 2.0;
        let scan = Part {
            choice: Choice::Runs {
                theta: self.theta,
                items_per_page: RECORDS_PER_PAGE,
                pages_max: SCAN_PAGES,
            },
            ..self.record(0.95 * pages / all, 64, 0)
        };
        let insert = Part {
            choice: Choice::Uniform,
            ..self.record(0.05 / all, RECORD_LINES, 100)
        };
        let entry = Part {
            choice: Choice::Uniform,
            ..self.look_up(0.05 / all, 100)
        };
        vec![self.look_up(0.95 / all, 0), scan, insert, entry]
    }

    /// Reads by age while the head goes around the ring, a window a phase.
    fn latest(&self, parameters: &Parameters<'_>) -> Result<Vec<Phase>, WorkloadError> {
        let default = Nanos(parameters.default(10, 5) * 1_000_000_000);
        let lasts = parameters.time("window_time", default)?;
        let windows = parameters.number("windows", parameters.default(48, 24), 2, 1000)?;
        let (first, pages) = (self.records.start, self.records.end - self.records.start);
        let width = pages / windows;
        if width == 0 {
            return Err(parameters.too_small("its windows"));
        }
        let phase = |window: u32| {
            let head = window * width;
            let by_age = Part {
                choice: Choice::Latest {
                    theta: self.theta,
                    items_per_page: RECORDS_PER_PAGE,
                    head,
                },
                ..self.record(0.475, RECORD_LINES, 0)
            };
            let insert = Part {
                choice: Choice::Sequential,
                pages: first + head..first + head + width,
                ..self.record(0.025, RECORD_LINES, 100)
            };
            // Hashed keys: the index has no order of age.
            let entry = Part {
                choice: Choice::Uniform,
                ..self.look_up(0.5, 5)
            };
            Phase {
                lasts: Some(lasts),
                ..Phase::forever(vec![entry, by_age, insert])
            }
        };
        Ok((0..windows).map(phase).collect())
    }
}

// An index page has as many entries as this many pages have records.
const _: () = assert!(PAGE_BYTES / 16 == ENTRIES_PER_PAGE as u64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::Sizes;

    fn named(name: &str) -> Program {
        let mut workload = Workload::named(name, &Sizes::fast_free(8 << 20)).expect(name);
        workload.programs.remove(0)
    }

    /// Share of the visits that write.
    fn writes(program: &Program) -> f64 {
        let parts = &program.phases[0].parts;
        parts
            .iter()
            .map(|p| p.weight * f64::from(p.write_percent) / 100.0)
            .sum()
    }

    #[test]
    fn operations_are_those_of_ycsb() {
        assert!((writes(&named("ycsb-a")) - 0.25).abs() < 1e-9);
        assert!((writes(&named("ycsb-b")) - 0.025).abs() < 1e-9);
        assert!(writes(&named("ycsb-c")).abs() < 1e-9);
        assert!((writes(&named("ycsb-d")) - 0.05).abs() < 1e-9);
        assert!((writes(&named("ycsb-f")) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn the_latest_are_hottest_and_move_on() {
        let program = named("ycsb-d");
        let records = program.phases[0].parts[1].pages.clone();
        let width = records.len() / program.phases.len();
        let hottest = |phase: usize| program.phases[phase].shares(&program, 1).by_popularity()[0];
        // The youngest page at the beginning of a phase is the last of the window before.
        let window = u32::try_from(width).expect("small");
        assert_eq!(hottest(0), records.end - 1);
        assert_eq!(hottest(1), records.start + window - 1);
        assert_eq!(hottest(2), records.start + 2 * window - 1);
    }

    #[test]
    fn index_and_records_fit_together() {
        let program = named("ycsb-a");
        let parts = &program.phases[0].parts;
        let entries = u64::from(parts[0].page_count()) * u64::from(ENTRIES_PER_PAGE);
        let records = u64::from(parts[1].page_count()) * u64::from(RECORDS_PER_PAGE);
        assert!(entries >= records && entries < records + 2 * u64::from(ENTRIES_PER_PAGE));
    }
}
