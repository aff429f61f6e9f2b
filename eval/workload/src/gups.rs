// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gups*`: updates of single words, HeMem section 5.1.
//!
//! "GUPS executes parallel read-modify-write operations to fixed size objects in a uniform or
//! skewed random pattern": 16 threads, objects of 8 bytes, a working set of 512 GB with a hot set of
//! 16 GB that gets 90 % of the operations (the rest goes to all of the working set: the paper says
//! that "approximately 10% of accesses must go to slow" memory when only the hot set fits). "Each
//! thread has its own exclusive working set partition", so the hot set is one piece in the middle of
//! each thread's partition; where exactly the paper does not say. The small sizes have one thread,
//! a working set of 2.7 and a hot set of 0.36 of the free fast memory, and start on the slow node,
//! so that all of the hot set has to be found and moved; with the paper's sizes pages start where
//! filling by address puts them.
//!
//! `gups-moving` ("Dynamic hot set"): the hot set is "non-consecutive", here 16 pieces at any number
//! of threads; after 150 s a quarter of each (4 of 16 GB) becomes cold and as much that was cold
//! becomes hot. The small sizes do it after 30 s.
//!
//! `gups-crossed` (ours, for machines of several sockets): each thread visits only its own partition, as in the paper, and
//! is bound to a socket, in turn; another socket's thread touched the partition first, by address, as where one thread
//! initialises what others work on. So each hot set begins on the wrong socket's memory.
//!
//! `gups-writeskew` ("Asymmetric access pattern"): "of a 256 GB hot set out of a 512 GB working set,
//! 128 GB are write-only, while the remainder of the working set is read-only. [...] 90% of accesses
//! go to the hot set", here half of them to its write-only half; the rest reads what is not hot.

use std::ops::Range;

use terrace_core::Nanos;

use crate::Choice;
use crate::DRAW_NS;
use crate::Part;
use crate::Phase;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;
use crate::sizes::Shape;

const GIB: u64 = 1 << 30;

/// Share of the operations that goes to the hot set.
const HOT_PERCENT: f64 = 90.0;
/// The paper's threads.
const THREADS: u32 = 16;
/// Pieces of the hot set of which a part moves, at least.
const MOVING_PIECES: u32 = 16;

/// `gups-uniform`: all pages alike.
pub(crate) fn uniform(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let parts = vec![update(1.0, 0..pages)];
    program(parameters, pages, vec![Phase::forever(parts)])
}

/// `gups`: a hot set that stays.
pub(crate) fn hot_set(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let (pages, hot) = sizes(parameters, threads(parameters)?)?;
    let share = hot_share(parameters)?;
    let parts = around(share, pages, &pieces(pages, hot, threads(parameters)?));
    program(parameters, pages, vec![Phase::forever(parts)])
}

/// `gups-moving`: a quarter of the hot set moves once.
pub(crate) fn moving(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let (pages, hot) = sizes(parameters, threads(parameters)?)?;
    let share = hot_share(parameters)?;
    let pieces = pieces(pages, hot, threads(parameters)?.max(MOVING_PIECES));
    let room = pages / count(&pieces);
    if pieces
        .iter()
        .any(|piece| size(piece) < 4 || size(piece) > room / 2)
    {
        return Err(parameters.too_small("a hot set in pieces that move"));
    }
    let moved = pieces
        .iter()
        .flat_map(|piece| {
            // The last quarter goes to where the next partition's cold begins.
            let quarter = size(piece) / 4;
            let end = piece.end + (room - size(piece)) / 2;
            [piece.start..piece.end - quarter, end - quarter..end]
        })
        .collect::<Vec<_>>();
    let mut first = Phase::forever(around(share, pages, &pieces));
    let default = Nanos(parameters.default(150, 30) * 1_000_000_000);
    first.lasts = Some(parameters.time("moves_at", default)?);
    let second = Phase::forever(around(share, pages, &moved));
    program(parameters, pages, vec![first, second])
}

/// `gups-crossed`: a hot set for each thread, which another socket's touched first.
pub(crate) fn crossed(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let threads = parameters.number("threads", parameters.default(THREADS, 2), 1, 1024)?;
    let (pages, hot) = sizes(parameters, threads)?;
    let share = hot_share(parameters)?;
    let (partitions, hot) = (pieces(pages, pages, threads), pieces(pages, hot, threads));
    let mut parts = Vec::new();
    for (partition, piece) in partitions.iter().zip(&hot) {
        let weight = f64::from(size(partition)) / f64::from(pages);
        parts.push(update((1.0 - share) * weight, partition.clone()));
        parts.push(update(share * weight, piece.clone()));
    }
    parts.retain(|part| part.weight > 0.0);
    let mut workload = parameters.program(Shape {
        pages,
        threads_paper: THREADS,
        start: Start::Across,
        think_ns: DRAW_NS,
        phases: vec![Phase::forever(parts)],
    })?;
    for program in &mut workload.programs {
        program.threads = threads;
        program.partitions.clone_from(&partitions);
    }
    Ok(workload)
}

/// `gups-writeskew`: half of the hot set is only written, all else is only read.
pub(crate) fn write_skew(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let hot = parameters.pages("hot", 256 * GIB, 135)?;
    let share = hot_share(parameters)?;
    let pieces = pieces(pages, hot, threads(parameters)?);
    if hot >= pages || pieces.iter().any(|piece| size(piece) < 2) {
        return Err(parameters.too_small("its hot set and its cold one"));
    }
    let mut parts = Vec::new();
    let mut cold = Vec::new();
    let mut last = 0;
    for piece in &pieces {
        let middle = piece.start + size(piece) / 2;
        let weight = share * f64::from(size(piece)) / f64::from(total(&pieces));
        parts.push(update(weight / 2.0, piece.start..middle));
        parts.push(read(weight / 2.0, middle..piece.end));
        cold.push(last..piece.start);
        last = piece.end;
    }
    cold.push(last..pages);
    cold.retain(|range| !range.is_empty());
    let all = f64::from(total(&cold));
    parts.extend(cold.into_iter().map(|range| {
        let weight = (1.0 - share) * f64::from(size(&range)) / all;
        read(weight, range)
    }));
    program(parameters, pages, vec![Phase::forever(parts)])
}

/// `hot` gets `share` of the updates, all of the working set the rest.
fn around(share: f64, pages: u32, hot: &[Range<u32>]) -> Vec<Part> {
    let all = f64::from(total(hot));
    let mut parts = vec![update(1.0 - share, 0..pages)];
    parts.extend(hot.iter().map(|piece| {
        let weight = share * f64::from(size(piece)) / all;
        update(weight, piece.clone())
    }));
    parts
}

fn hot_share(parameters: &Parameters<'_>) -> Result<f64, WorkloadError> {
    Ok(parameters.number("hot_percent", HOT_PERCENT, 0.0, 100.0)? / 100.0)
}

fn size(range: &Range<u32>) -> u32 {
    range.end - range.start
}

fn total(ranges: &[Range<u32>]) -> u32 {
    ranges.iter().map(size).sum()
}

fn count(pieces: &[Range<u32>]) -> u32 {
    u32::try_from(pieces.len()).expect("one for a thread")
}

/// Pages of the working set and of the hot one, of which each thread has one at least.
fn sizes(parameters: &Parameters<'_>, threads: u32) -> Result<(u32, u32), WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let hot = parameters.pages("hot", 16 * GIB, 36)?;
    if hot > pages || hot < threads {
        return Err(parameters.too_small("its hot set"));
    }
    Ok((pages, hot))
}

fn threads(parameters: &Parameters<'_>) -> Result<u32, WorkloadError> {
    parameters.threads(THREADS)
}

/// A piece in the middle of each of `count` partitions; together `hot` pages.
fn pieces(pages: u32, hot: u32, count: u32) -> Vec<Range<u32>> {
    let share = |of: u32, i: u32| {
        let cut = u64::from(of) * u64::from(i) / u64::from(count);
        u32::try_from(cut).expect("at most `of`")
    };
    (0..count)
        .map(|i| {
            let (begin, end) = (share(pages, i), share(pages, i + 1));
            let size = (share(hot, i + 1) - share(hot, i)).min(end - begin);
            let first = begin + (end - begin - size) / 2;
            first..first + size
        })
        .collect()
}

/// Read-modify-write of one word.
pub(crate) fn update(weight: f64, pages: Range<u32>) -> Part {
    Part {
        weight,
        pages,
        choice: Choice::Uniform,
        write_percent: 100,
        lines: 1,
        step: 1,
    }
}

/// A read of one word.
fn read(weight: f64, pages: Range<u32>) -> Part {
    Part {
        write_percent: 0,
        ..update(weight, pages)
    }
}

/// One program of the paper's threads whose visits do nothing but access.
pub(crate) fn program(
    parameters: &Parameters<'_>,
    pages: u32,
    phases: Vec<Phase>,
) -> Result<Workload, WorkloadError> {
    parameters.program(Shape {
        pages,
        threads_paper: THREADS,
        start: parameters.default(Start::FirstTouch, Start::Slow),
        think_ns: DRAW_NS,
        phases,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::Sizes;

    fn named(name: &str, sizes: &Sizes) -> Program {
        let mut workload = Workload::named(name, sizes).expect(name);
        workload.programs.remove(0)
    }

    /// Pages that get more than their even share, and what they get together.
    fn hot(program: &Program, phase: usize) -> (u32, f64, f64) {
        let pieces = program.phases[phase]
            .pieces(program)
            .expect("uniform parts");
        let even = 1.0 / f64::from(program.pages);
        let hot: Vec<_> = pieces.iter().filter(|p| p.read + p.write > even).collect();
        (
            hot.iter().map(|p| size(&p.pages)).sum(),
            hot.iter().map(|p| f64::from(size(&p.pages)) * p.read).sum(),
            hot.iter()
                .map(|p| f64::from(size(&p.pages)) * p.write)
                .sum(),
        )
    }

    #[test]
    fn the_paper_s_hot_set_is_16_of_512_gib() {
        let gups = named("gups", &Sizes::paper());
        assert_eq!((gups.bytes() / GIB, gups.threads), (512, 16));
        let (pages, read, write) = hot(&gups, 0);
        assert_eq!(u64::from(pages) * 4096, 16 * GIB);
        assert!((write - (0.9 + 0.1 / 32.0)).abs() < 1e-9, "{write}");
        assert!(read.abs() < 1e-9);
    }

    #[test]
    fn small_sizes_are_proportions_of_the_free_memory() {
        let gups = named("gups", &Sizes::fast_free(111 << 20));
        assert_eq!((gups.bytes() >> 20, gups.threads), (299, 1));
        assert_eq!(hot(&gups, 0).0, 10_229);
        assert_eq!(gups.start, Start::Slow);
    }

    #[test]
    fn a_quarter_of_the_hot_set_moves() {
        for sizes in [Sizes::paper(), Sizes::fast_free(64 << 20)] {
            let gups = named("gups-moving", &sizes);
            let before = gups.phases[0].pieces(&gups).expect("uniform");
            let after = gups.phases[1].pieces(&gups).expect("uniform");
            let at = |pieces: &[crate::Piece], page: u32| {
                let piece = pieces.iter().find(|p| p.pages.contains(&page));
                piece.expect("pieces cover all").write * f64::from(gups.pages) > 1.0
            };
            let (mut hot, mut stay) = (0.0f64, 0.0f64);
            // Every 64th page is enough to see a quarter.
            for page in (0..gups.pages).step_by(if gups.pages > 1 << 20 { 64 } else { 1 }) {
                if at(&before, page) {
                    hot += 1.0;
                    stay += if at(&after, page) { 1.0 } else { 0.0 };
                }
            }
            assert!((stay / hot - 0.75).abs() < 0.02, "{stay} of {hot}");
            assert!(hot_sizes_agree(&gups));
        }
        let paper = named("gups-moving", &Sizes::paper());
        assert_eq!(paper.phases[0].lasts, Some(Nanos(150_000_000_000)));
    }

    fn hot_sizes_agree(gups: &Program) -> bool {
        hot(gups, 0).0 == hot(gups, 1).0
    }

    #[test]
    fn the_skewed_hot_set_is_half_written_and_nothing_is_both() {
        let gups = named("gups-writeskew", &Sizes::paper());
        let (pages, read, write) = hot(&gups, 0);
        assert_eq!(u64::from(pages) * 4096, 256 * GIB);
        assert!((read - 0.45).abs() < 1e-9 && (write - 0.45).abs() < 1e-9);
        let pieces = gups.phases[0].pieces(&gups).expect("uniform");
        assert!(pieces.iter().all(|p| p.read == 0.0 || p.write == 0.0));
    }

    #[test]
    fn crossed_threads_keep_to_their_partitions() {
        let sizes = Sizes::fast_free(64 << 20).with("threads=3").expect("set");
        let crossed = Workload::named("gups-crossed", &sizes).expect("known");
        let program = &crossed.programs[0];
        assert_eq!((program.start, program.threads), (Start::Across, 3));
        let mut next = 0;
        for (thread, own) in (0..).zip(&program.partitions) {
            assert_eq!(own.start, next, "partitions cover all pages in order");
            next = own.end;
            let mut visits = crate::Visits::for_thread(program, 1, thread);
            let hot = program.phases[0].parts[2 * thread as usize + 1]
                .pages
                .clone();
            let pages = (0..10_000).map(|_| visits.visit(0).page);
            let (mut first, mut last, mut hits) = (u32::MAX, 0, 0);
            for page in pages {
                (first, last) = (first.min(page), last.max(page));
                hits += u32::from(hot.contains(&page));
            }
            assert!(
                own.start <= first && last < own.end,
                "{own:?} {first} {last}"
            );
            assert!((9_000..9_400).contains(&hits), "{hits}");
        }
        assert_eq!(next, program.pages);
        // Each by itself as a program: the same visits, from its own first page.
        let alone = crossed.by_thread();
        let middle = &alone.programs[1];
        assert_eq!((alone.programs.len(), alone.bytes()), (3, crossed.bytes()));
        assert_eq!((middle.threads, middle.start), (1, Start::Across));
        let hot = &middle.phases[0].parts[1];
        let there = program.phases[0].parts[3].pages.start - program.partitions[1].start;
        assert_eq!(hot.pages.start, there);
        assert!((hot.weight - 0.9).abs() < 1e-9);
    }

    #[test]
    fn too_little_is_said() {
        for name in [
            "gups",
            "gups-crossed",
            "gups-uniform",
            "gups-moving",
            "gups-writeskew",
        ] {
            let error = Workload::named(name, &Sizes::fast_free(4096)).expect_err(name);
            assert!(matches!(error, WorkloadError::TooSmall { .. }), "{error}");
        }
        let sizes = Sizes::paper().with("hot=1TiB").expect("setting");
        let error = Workload::named("gups", &sizes).expect_err("larger than the working set");
        assert!(error.to_string().contains("hot set"), "{error}");
    }
}
