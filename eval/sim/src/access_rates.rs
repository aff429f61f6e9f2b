// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs really do in their present phases: shares of the visits and of the missed lines,
//! by unit. The rate engine lives on it; the oracle and the judgement of trackers look at it.
//!
//! Where all parts of a phase are uniform a few pieces say everything; else 12 bytes a unit do.

use std::ops::Range;

use terrace_workload::Phase;
use terrace_workload::Program;

use crate::Setup;
use crate::cache;
use crate::hardware::Hardware;
use crate::sampling::Sampler;
use crate::space::Space;

const LINES: f64 = 64.0;

/// Of one program's visits, what concerns one unit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct UnitRates {
    /// Share of the visits that read it.
    pub(crate) read: f64,
    /// Share of the visits that write it.
    pub(crate) write: f64,
    /// Lines a visit misses here, reading.
    pub(crate) miss_read: f64,
    /// Lines a visit misses here, writing.
    pub(crate) miss_write: f64,
    /// Dirty lines given back, a visit.
    pub(crate) backs: f64,
}

impl UnitRates {
    /// `lines` of each visit, of which `miss` go to memory.
    fn of(read: f64, write: f64, lines: f64, miss: f64) -> Self {
        let (miss_read, miss_write) = (read * lines * miss, write * lines * miss);
        let all = read + write;
        let writes = if all > 0.0 { write / all } else { 0.0 };
        Self {
            read,
            write,
            miss_read,
            miss_write,
            backs: (miss_read + miss_write) * cache::dirty_share(1.0 - miss, writes),
        }
    }

    fn add(&mut self, other: Self) {
        self.read += other.read;
        self.write += other.write;
        self.miss_read += other.miss_read;
        self.miss_write += other.miss_write;
        self.backs += other.backs;
    }

    fn times(mut self, count: f64) -> Self {
        for field in [
            &mut self.read,
            &mut self.write,
            &mut self.miss_read,
            &mut self.miss_write,
            &mut self.backs,
        ] {
            *field *= count;
        }
        self
    }
}

/// Base pages that are all alike.
#[derive(Debug, Clone)]
struct Flat {
    pages: Range<u32>,
    read: f64,
    write: f64,
    lines: f64,
    miss: f64,
}

#[derive(Debug, Clone)]
enum Map {
    Flat(Vec<Flat>),
    /// By unit: shares, and missed lines per visit of the unit.
    Dense {
        first: u32,
        read: Vec<f32>,
        write: Vec<f32>,
        miss: Vec<f32>,
        /// Mean lines of a visit.
        lines: f64,
    },
}

/// One program in one phase.
#[derive(Debug, Clone)]
pub(crate) struct ProgramRates {
    map: Map,
    /// Lines a visit touches.
    pub(crate) lines: f64,
    /// Which share of the lines comes behind another in a stream.
    pub(crate) streamed: f64,
    pub(crate) think_ns: f64,
    /// How long a line stays in the cache after its last access, in visits of this program.
    pub(crate) stay: f64,
}

/// All programs.
#[derive(Debug, Clone)]
pub(crate) struct AccessRates {
    pub(crate) programs: Vec<ProgramRates>,
}

/// Whether the lines of a visit follow one another.
pub(crate) const fn is_stream(step: u8) -> bool {
    step == 1 || step == 63
}

/// Lines by their rate, for the cache: so many lines of about that rate.
#[derive(Debug, Default)]
struct Classes {
    by_octave: std::collections::BTreeMap<i32, (f64, f64)>,
}

impl Classes {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a logarithm times 16 is small"
    )]
    fn add(&mut self, rate: f64, lines: f64) {
        if rate > 0.0 {
            let class = self
                .by_octave
                .entry((rate.log2() * 16.0).floor() as i32)
                .or_default();
            class.0 += rate * lines;
            class.1 += lines;
        }
    }

    fn occupied(&self, time: f64) -> f64 {
        self.by_octave
            .values()
            .map(|(sum, lines)| lines * (1.0 - (-sum / lines * time).exp()))
            .sum()
    }
}

impl AccessRates {
    /// For these phases; `rates` are the programs' visits a ns, as far as known: programs share the
    /// cache by them.
    #[expect(clippy::cast_precision_loss, reason = "cache lines, below 2^53")]
    pub(crate) fn new(
        setup: &Setup,
        space: &Space,
        hardware: &Hardware,
        sockets: &[usize],
        phases: &[usize],
        rates: &[f64],
    ) -> Self {
        let programs = setup.workload.programs.iter();
        let mut all: Vec<(ProgramRates, Option<Base>)> = programs
            .zip(phases)
            .map(|(program, &phase)| {
                ProgramRates::without_cache(program, &program.phases[phase], setup)
            })
            .collect();
        let times: Vec<f64> = (0..hardware.views.len())
            .map(|socket| {
                let Some(size) = hardware.cache else {
                    return 0.0;
                };
                let mut classes = Classes::default();
                for (index, (program, base)) in all.iter().enumerate() {
                    if sockets[index] == socket {
                        program.classes(base.as_ref(), rates[index], &mut classes);
                    }
                }
                let lines = (size.sets * size.ways) as f64;
                cache::characteristic_time(lines, |time| classes.occupied(time))
            })
            .collect();
        for (index, (program, base)) in all.iter_mut().enumerate() {
            let time = times[sockets[index]] * rates[index];
            program.finish(space, index, base.take(), time);
        }
        Self {
            programs: all.into_iter().map(|(program, _)| program).collect(),
        }
    }
}

/// Shares by base page, before they are put together to units.
#[derive(Debug)]
struct Base {
    read: Vec<f32>,
    write: Vec<f32>,
    /// Lines of a visit to the page, where parts differ.
    lines: Option<Vec<f32>>,
}

impl ProgramRates {
    fn without_cache(program: &Program, phase: &Phase, setup: &Setup) -> (Self, Option<Base>) {
        let mean = phase.mean_lines();
        let streamed: f64 = phase
            .parts
            .iter()
            .filter(|part| is_stream(part.step))
            .map(|part| part.weight * f64::from(part.lines.saturating_sub(1)))
            .sum();
        // The same phase, each part weighted by its lines.
        let mut by_lines = phase.clone();
        for part in &mut by_lines.parts {
            part.weight *= f64::from(part.lines);
        }
        let alike = phase.parts.windows(2).all(|w| w[0].lines == w[1].lines);
        let truth = |map| Self {
            map,
            lines: mean,
            streamed: streamed / mean,
            think_ns: phase.think_ns * setup.costs.think_scale + setup.costs.visit_ns,
            stay: 0.0,
        };
        if let (Some(visits), Some(lines)) = (phase.pieces(program), by_lines.pieces(program)) {
            let flat = visits.into_iter().zip(lines).map(|(visit, line)| {
                let all = visit.read + visit.write;
                Flat {
                    pages: visit.pages,
                    read: visit.read,
                    write: visit.write,
                    lines: if all > 0.0 {
                        (line.read + line.write) / all
                    } else {
                        0.0
                    },
                    miss: 1.0,
                }
            });
            return (truth(Map::Flat(flat.collect())), None);
        }
        let shares = phase.shares(program, setup.seed);
        let lines = (!alike).then(|| {
            let lines = by_lines.shares(program, setup.seed);
            let visits = shares.read.iter().zip(&shares.write);
            visits
                .zip(lines.read.iter().zip(&lines.write))
                .map(|((r, w), (lr, lw))| {
                    if r + w > 0.0 {
                        (lr + lw) / (r + w)
                    } else {
                        0.0
                    }
                })
                .collect()
        });
        let base = Base {
            read: shares.read,
            write: shares.write,
            lines,
        };
        (truth(Map::Flat(Vec::new())), Some(base))
    }

    fn classes(&self, base: Option<&Base>, rate: f64, classes: &mut Classes) {
        if let Map::Flat(pieces) = &self.map {
            for piece in pieces {
                let line = (piece.read + piece.write) * piece.lines / LINES;
                let pages = f64::from(piece.pages.end - piece.pages.start);
                classes.add(line * rate, pages * LINES);
            }
        }
        if let Some(base) = base {
            for page in 0..base.read.len() {
                let visits = f64::from(base.read[page] + base.write[page]);
                classes.add(
                    visits * base.lines_of(page, self.lines) / LINES * rate,
                    LINES,
                );
            }
        }
    }

    /// Fills in the misses; `time` is the cache's characteristic time in visits of this program.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "shares are kept in single precision on purpose"
    )]
    fn finish(&mut self, space: &Space, program: usize, base: Option<Base>, time: f64) {
        self.stay = time;
        let miss_of = |visits: f64, lines: f64| (-visits * lines / LINES * time).exp();
        let Some(base) = base else {
            if let Map::Flat(pieces) = &mut self.map {
                for piece in pieces {
                    // Untouched lines miss nothing; infinity times nothing is no number.
                    let visits = piece.read + piece.write;
                    piece.miss = if visits > 0.0 {
                        miss_of(visits, piece.lines)
                    } else {
                        1.0
                    };
                }
            }
            return;
        };
        let units = space.program_units(program);
        let count = (units.end - units.start) as usize;
        let (mut read, mut write) = (vec![0.0; count], vec![0.0; count]);
        let mut miss = vec![0.0_f32; count];
        for (index, unit) in units.clone().enumerate() {
            let (first, pages) = space.base_pages(unit);
            let (mut r, mut w, mut m) = (0.0, 0.0, 0.0);
            for page in first as usize..(first + pages) as usize {
                let (pr, pw) = (f64::from(base.read[page]), f64::from(base.write[page]));
                let lines = base.lines_of(page, self.lines);
                r += pr;
                w += pw;
                if pr + pw > 0.0 {
                    m += (pr + pw) * lines * miss_of(pr + pw, lines);
                }
            }
            read[index] = r as f32;
            write[index] = w as f32;
            miss[index] = if r + w > 0.0 {
                (m / (r + w)) as f32
            } else {
                0.0
            };
        }
        self.map = Map::Dense {
            first: units.start,
            read,
            write,
            miss,
            lines: self.lines,
        };
    }

    /// What concerns a unit.
    #[inline]
    pub(crate) fn unit(&self, space: &Space, unit: u32) -> UnitRates {
        match &self.map {
            Map::Dense {
                first,
                read,
                write,
                miss,
                lines,
            } => {
                let at = (unit - first) as usize;
                let missed = f64::from(miss[at]) / lines;
                UnitRates::of(f64::from(read[at]), f64::from(write[at]), *lines, missed)
            }
            Map::Flat(pieces) => {
                let (base, pages) = space.base_pages(unit);
                let end = base + pages;
                let mut sum = UnitRates::default();
                let mut at = pieces.partition_point(|piece| piece.pages.end <= base);
                while let Some(piece) = pieces.get(at).filter(|p| p.pages.start < end) {
                    let overlap = piece.pages.end.min(end) - piece.pages.start.max(base);
                    let each = UnitRates::of(piece.read, piece.write, piece.lines, piece.miss);
                    sum.add(each.times(f64::from(overlap)));
                    at += 1;
                }
                sum
            }
        }
    }

    /// Share of the visits to a unit, reading and writing; cheaper than [`ProgramRates::unit`].
    #[inline]
    pub(crate) fn visits(&self, space: &Space, unit: u32) -> (f64, f64) {
        match &self.map {
            Map::Dense {
                first, read, write, ..
            } => {
                let at = (unit - first) as usize;
                (f64::from(read[at]), f64::from(write[at]))
            }
            Map::Flat(_) => {
                let truth = self.unit(space, unit);
                (truth.read, truth.write)
            }
        }
    }

    /// Draws pages by what they miss.
    pub(crate) fn sampler(&self, space: &Space, units: Range<u32>) -> Option<Sampler> {
        match &self.map {
            Map::Flat(pieces) => Sampler::by_piece(pieces.iter().map(|piece| {
                let missed = (piece.read + piece.write) * piece.lines * piece.miss;
                (piece.pages.clone(), missed)
            })),
            Map::Dense { .. } => {
                let missed = |unit| {
                    let one = self.unit(space, unit);
                    one.miss_read + one.miss_write
                };
                Sampler::by_unit(units.start, &units.map(missed).collect::<Vec<_>>())
            }
        }
    }

    /// The unit behind the last one for which [`ProgramRates::unit`] gives the same as for this.
    pub(crate) fn alike_until(&self, space: &Space, unit: u32) -> u32 {
        let Map::Flat(pieces) = &self.map else {
            return unit + 1;
        };
        let (base, pages) = space.base_pages(unit);
        let region = space.region(unit);
        let piece = &pieces[pieces.partition_point(|piece| piece.pages.end <= base)];
        let inside = (piece.pages.end - base) / pages;
        (unit + inside.max(1)).min(region.unit + region.count)
    }

    /// Bytes this takes.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.map {
            Map::Flat(pieces) => std::mem::size_of_val(&pieces[..]) as u64,
            Map::Dense { read, .. } => read.len() as u64 * 12,
        }
    }
}

impl Base {
    fn lines_of(&self, page: usize, mean: f64) -> f64 {
        self.lines
            .as_ref()
            .map_or(mean, |lines| f64::from(lines[page]))
    }
}
