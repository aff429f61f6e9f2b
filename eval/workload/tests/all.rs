// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds for every workload, at every size: shares sum to 1, pieces and visits agree with them,
//! the same seed gives the same visits.

use proptest::prelude::*;
use terrace_workload::Choice;
use terrace_workload::LINES_PER_PAGE;
use terrace_workload::NAMES;
use terrace_workload::Phase;
use terrace_workload::Program;
use terrace_workload::Shares;
use terrace_workload::Sizes;
use terrace_workload::Visits;
use terrace_workload::Workload;

const FREE: u64 = 8 << 20;
const DRAWS: u32 = 300_000;

fn programs(sizes: &Sizes) -> impl Iterator<Item = Program> + use<> {
    let named = |name| Workload::named(name, sizes).expect(name);
    let all: Vec<Workload> = NAMES.iter().copied().map(named).collect();
    all.into_iter().flat_map(|workload| workload.programs)
}

fn small() -> impl Iterator<Item = Program> {
    programs(&Sizes::fast_free(FREE))
}

fn sum(shares: &Shares) -> f64 {
    let all = shares.read.iter().chain(&shares.write);
    all.map(|&share| f64::from(share)).sum()
}

#[test]
fn definitions_are_sound() {
    for program in small().chain(programs(&Sizes::paper())) {
        let name = &program.name;
        assert!(!program.phases.is_empty() && program.threads > 0, "{name}");
        for phase in &program.phases {
            let weights: f64 = phase.parts.iter().map(|part| part.weight).sum();
            assert!(
                (weights - 1.0).abs() < 1e-9,
                "{name}: weights sum to {weights}"
            );
            assert!(phase.think_ns >= terrace_workload::DRAW_NS, "{name}");
            for part in &phase.parts {
                assert!(part.pages.start < part.pages.end, "{name}: {part:?}");
                assert!(part.pages.end <= program.pages, "{name}: {part:?}");
                assert!(
                    part.weight > 0.0 && part.write_percent <= 100,
                    "{name}: {part:?}"
                );
                assert!(
                    (1..=LINES_PER_PAGE).contains(&part.lines),
                    "{name}: {part:?}"
                );
                assert_eq!(part.step % 2, 1, "{name}: an even step visits a line twice");
            }
        }
        let (last, others) = program.phases.split_last().expect("one at least");
        assert!(others.iter().all(|phase| phase.lasts.is_some()), "{name}");
        assert!(last.lasts.is_none() || program.phases.len() > 1, "{name}");
    }
}

#[test]
fn shares_sum_to_one_and_pieces_agree() {
    for program in small() {
        for phase in &program.phases {
            let shares = phase.shares(&program, 3);
            let name = &program.name;
            assert!(
                (sum(&shares) - 1.0).abs() < 1e-4,
                "{name}: {}",
                sum(&shares)
            );
            let Some(pieces) = phase.pieces(&program) else {
                assert!(
                    phase.parts.iter().any(|part| !part.choice.is_flat()),
                    "{name}"
                );
                continue;
            };
            let mut next = 0;
            for piece in pieces {
                assert_eq!(
                    piece.pages.start, next,
                    "{name}: pieces cover all pages in order"
                );
                next = piece.pages.end;
                for page in piece.pages {
                    let (read, write) = (shares.read[page as usize], shares.write[page as usize]);
                    assert!((f64::from(read) - piece.read).abs() < 1e-9, "{name} {page}");
                    assert!(
                        (f64::from(write) - piece.write).abs() < 1e-9,
                        "{name} {page}"
                    );
                }
            }
            assert_eq!(next, program.pages, "{name}");
        }
    }
}

#[test]
fn lines_per_page_are_those_of_the_parts() {
    for program in small() {
        for phase in &program.phases {
            let (shares, lines) = phase.shares_and_lines(&program, 3);
            assert_eq!(shares, phase.shares(&program, 3), "{}", program.name);
            let by_lines = |part: &terrace_workload::Part| part.weight * f64::from(part.lines);
            let touched = phase.shares_weighted(&program, 3, by_lines);
            assert!((sum(&touched) - phase.mean_lines()).abs() < 1e-3 * phase.mean_lines());
            for page in 0..program.pages {
                let mean = match &lines {
                    Some(lines) => lines[page as usize],
                    None => f32::from(phase.parts[0].lines),
                };
                let expected = touched.of(page);
                let off = (shares.of(page) * mean - expected).abs();
                assert!(
                    off <= 1e-4 * expected,
                    "{} {page}: {mean} lines",
                    program.name
                );
            }
        }
    }
}

/// How many visits come together: what they have in common makes counts vary more.
fn together(phase: &Phase) -> f64 {
    let longest = |choice: &Choice| match choice {
        Choice::Runs { pages_max, .. } => *pages_max,
        _ => 1,
    };
    let runs = phase.parts.iter().map(|part| longest(&part.choice));
    f64::from(runs.max().expect("one part at least"))
}

#[test]
fn visits_agree_with_shares() {
    for program in small() {
        // The first and the last: phases between differ only in where their ranges are.
        for phase in [0, program.phases.len() - 1] {
            let shares = program.phases[phase].shares(&program, 9);
            let mut visits = Visits::new(&program, 9);
            let mut seen = vec![[0u32; 2]; program.pages as usize];
            for _ in 0..DRAWS {
                let visit = visits.visit(phase);
                seen[visit.page as usize][usize::from(visit.write)] += 1;
            }
            let together = together(&program.phases[phase]);
            check_pages(&program, &shares, &seen, together);
            check_groups(&program, phase, &shares, &seen, together);
        }
    }
}

/// No page is further from its share than six deviations of a binomial count.
fn check_pages(program: &Program, shares: &Shares, seen: &[[u32; 2]], together: f64) {
    for (page, counts) in seen.iter().enumerate() {
        for (&n, share) in counts.iter().zip([shares.read[page], shares.write[page]]) {
            let expected = f64::from(share) * f64::from(DRAWS);
            let off = (f64::from(n) - expected).abs();
            let bound = 6.0 * (expected * together).sqrt() + 6.0 * together;
            let name = &program.name;
            assert!(off < bound, "{name} page {page}: {n} instead of {expected}");
            assert!(
                share > 0.0 || n == 0,
                "{name} page {page} should not be visited"
            );
        }
    }
}

/// Chi-square over 64 groups of neighbouring pages: 63 degrees of freedom, mean 63, deviation 11.
///
/// Left out is what a part goes through in order and does not get around often.
fn check_groups(
    program: &Program,
    phase: usize,
    shares: &Shares,
    seen: &[[u32; 2]],
    together: f64,
) {
    let unfinished: Vec<_> = program.phases[phase]
        .parts
        .iter()
        .filter(|part| part.choice == Choice::Sequential)
        .filter(|part| part.weight * f64::from(DRAWS) < 20.0 * f64::from(part.page_count()))
        .map(|part| part.pages.clone())
        .collect();
    let group = |page: usize| page * 64 / seen.len();
    let (mut expected, mut found) = ([0.0; 64], [0.0f64; 64]);
    for (page, counts) in seen.iter().enumerate() {
        let index = u32::try_from(page).expect("small");
        if unfinished.iter().any(|pages| pages.contains(&index)) {
            continue;
        }
        expected[group(page)] += f64::from(shares.of(index)) * f64::from(DRAWS);
        found[group(page)] += f64::from(counts[0] + counts[1]);
    }
    let chi: f64 = found
        .iter()
        .zip(expected)
        .filter(|(_, expected)| *expected > 5.0)
        .map(|(found, expected)| (found - expected).powi(2) / expected)
        .sum();
    assert!(chi < 130.0 * together, "{}: chi square {chi}", program.name);
}

#[test]
fn a_visit_stays_in_its_page_and_touches_each_line_once() {
    for program in small() {
        let mut visits = Visits::new(&program, 1);
        for _ in 0..200 {
            let visit = visits.visit(0);
            let mut lines: Vec<u64> = visit.words().map(|word| word / 8).collect();
            assert!(lines.iter().all(|l| l / 64 == u64::from(visit.page)));
            lines.sort_unstable();
            lines.dedup();
            assert_eq!(lines.len(), usize::from(visit.lines), "{}", program.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_visits_and_another_gives_others() {
    for program in small() {
        let take = |seed, thread| -> Vec<_> {
            let mut visits = Visits::for_thread(&program, seed, thread);
            (0..500).map(|_| visits.visit(0)).collect()
        };
        assert!(take(5, 0) == take(5, 0), "{}", program.name);
        assert!(take(5, 0) != take(6, 0), "{}", program.name);
        assert!(take(5, 0) != take(5, 1), "{}", program.name);
    }
}

#[test]
fn paper_sizes_need_no_memory_to_be_visited() {
    for program in programs(&Sizes::paper()) {
        let mut visits = Visits::new(&program, 1);
        for phase in 0..program.phases.len() {
            for _ in 0..1000 {
                assert!(visits.visit(phase).page < program.pages, "{}", program.name);
            }
        }
    }
}

#[test]
fn names_and_parameters_that_there_are_not_are_named() {
    let unknown = Workload::named("gusp", &Sizes::paper())
        .expect_err("unknown")
        .to_string();
    assert!(
        unknown.contains("'gusp'") && unknown.contains("gups-writeskew"),
        "{unknown}"
    );
    for name in ["nomad-tiny-read", "nomad-small", "ycsb-g", "ycsb-", ""] {
        assert!(Workload::named(name, &Sizes::paper()).is_err(), "{name}");
    }
    for name in NAMES {
        let sizes = Sizes::paper().with("colour=red").expect("a setting");
        let error = Workload::named(name, &sizes).expect_err(name).to_string();
        assert!(error.contains("no parameter 'colour'"), "{name}: {error}");
        assert!(error.contains("it has "), "{name}: {error}");
        let tiny = Workload::named(name, &Sizes::fast_free(4096)).expect_err(name);
        assert!(tiny.to_string().contains("too few pages"), "{name}: {tiny}");
        assert!(
            Workload::named(name, &Sizes::fast_free(u64::MAX)).is_err(),
            "{name}"
        );
    }
}

#[test]
fn think_threads_and_start_can_be_set_everywhere() {
    for name in NAMES.iter().filter(|name| **name != "mix") {
        let sizes = ["threads=3", "think=2us", "start=first-touch"]
            .iter()
            .try_fold(Sizes::fast_free(FREE), |sizes, text| sizes.with(text))
            .expect("settings");
        let workload = Workload::named(name, &sizes).expect(name);
        let program = &workload.programs[0];
        assert_eq!(program.threads, 3, "{name}");
        assert_eq!(program.start, terrace_workload::Start::FirstTouch, "{name}");
        assert!((program.phases[0].think_ns - 2000.0).abs() < 1e-9, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any size from tiny to large gives a sound program or an error, never a panic.
    #[test]
    fn any_size_is_a_workload_or_an_error(free in 1u64..1 << 44, which in 0..NAMES.len()) {
        if let Ok(workload) = Workload::named(NAMES[which], &Sizes::fast_free(free)) {
            for program in &workload.programs {
                let mut visits = Visits::new(program, free);
                for phase in 0..program.phases.len() {
                    for _ in 0..20 {
                        prop_assert!(visits.visit(phase).page < program.pages);
                    }
                }
            }
        }
    }

    /// Whatever the elapsed time, the phase that runs is the one that the times say.
    #[test]
    fn phases_follow_the_clock(seconds in 0u64..1000) {
        let program = Workload::named("phases", &Sizes::fast_free(FREE)).expect("known").programs.remove(0);
        let (phase, end) = program.phase_at(terrace_core::Nanos(seconds * 1_000_000_000));
        prop_assert_eq!(phase as u64, seconds / 30 % 4);
        prop_assert_eq!(end.expect("it ends").0, (seconds / 30 + 1) * 30_000_000_000);
    }
}

#[test]
fn the_documentation_names_every_workload() {
    let text = include_str!("../../../docs/workloads.md");
    for name in NAMES {
        let shown = match name.rsplit_once("-write") {
            // In the same row as the reads.
            Some((stem, "")) if name.starts_with("nomad-") => format!("`{stem}-read`, `-write`"),
            _ => format!("`{name}`"),
        };
        assert!(text.contains(&shown), "docs/workloads.md has no {shown}");
    }
}
