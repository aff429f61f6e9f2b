// SPDX-License-Identifier: MIT OR Apache-2.0
use super::super::classes::level_of;
use super::*;

const HOT: Level = 133;
const COLD: Level = 85;

/// Pages of a rate, read after a first time, twice that .. until the end of a pass.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of pages"
)]
fn read(settling: &mut Settling, groups: &[(f64, Level, f64)], (first, end): (f64, f64)) {
    let age = settling.age;
    for &(pages, level, rate) in groups {
        let still = |t: f64| pages * (-rate * t).exp();
        let count = |pages: f64| pages.round() as u32;
        let (mut since, mut until) = (0.0, first);
        while until <= end {
            let [one, _] = Seen::both(since, until);
            settling.count(count(still(since) - still(until)), (level, age), one);
            (since, until) = (until, until * 2.0);
        }
        let [_, one] = Seen::both(0.0, end);
        settling.count(count(still(end)), (level, age), one);
    }
}

fn pass(settling: &mut Settling, groups: &[(f64, Level, f64)], end: f64) -> f64 {
    read(settling, groups, (1.0 / 64.0, end));
    settling.end_pass()
}

/// A hot eighth of 20 visits a second, the others of 0.3, the first pass of which nothing was known.
fn begun() -> Settling {
    assert!(level_of(20.0).abs_diff(HOT) < 4 && level_of(0.3).abs_diff(COLD) < 4);
    let mut settling = Settling::default();
    let first = [(1_000.0, 0, 20.0), (7_000.0, 0, 0.3)];
    assert!(pass(&mut settling, &first, 1.0).abs() < f64::EPSILON);
    settling
}

const SAME: [(f64, Level, f64); 2] = [(1_000.0, HOT, 20.0), (7_000.0, COLD, 0.3)];

#[test]
fn passes_alike_are_not_otherwise_whatever_their_length() {
    let mut settling = begun();
    for end in [2.0, 4.0, 8.0, 1.0, 1.0] {
        let bits = pass(&mut settling, &SAME, end);
        assert!(bits.abs() < 0.06, "{end} s: {bits}");
    }
}

/// Chunks are cleared one after the other, so that each has readings of its own times; all that was expected of each would be too much.
#[test]
fn what_is_read_at_other_times_is_not_otherwise() {
    let half = |groups: [(f64, Level, f64); 2]| {
        groups.map(|(pages, level, rate)| (pages / 2.0, level, rate))
    };
    let mut settling = Settling::default();
    for level in [[0; 2], [HOT, COLD], [HOT, COLD]] {
        let groups = half([(1_000.0, level[0], 20.0), (7_000.0, level[1], 0.3)]);
        for late in [1.0, 1.2] {
            read(&mut settling, &groups, (late / 64.0, late));
        }
        let bits = settling.end_pass();
        assert!(bits.abs() < 0.1, "{bits}");
    }
}

/// A program's memory comes after what its start needs.
#[test]
fn pages_that_most_came_with_are_the_ones() {
    let mut settling = Settling::default();
    pass(&mut settling, &[(100.0, 0, 20.0)], 1.0);
    let [seen, _] = Seen::both(0.25, 0.5);
    settling.count(8_000, (0, 0), seen);
    pass(&mut settling, &[(100.0, HOT, 20.0)], 1.0);
    let bits = pass(&mut settling, &[(7_500.0, HOT, 0.0)], 1.0);
    assert!(bits > 1.0, "{bits}: they are not visited any more");
}

#[test]
fn what_all_pages_do_otherwise_is_told() {
    let was = |now: &[(f64, Level, f64)]| pass(&mut begun(), now, 2.0);
    let all = |rate| was(&[(1_000.0, HOT, rate), (7_000.0, COLD, rate)]);
    assert!(
        all(20.0) > 1.0 && all(0.0) > 0.1,
        "{} {}",
        all(20.0),
        all(0.0)
    );
    let half = was(&SAME.map(|(pages, level, rate)| (pages, level, rate / 2.0)));
    assert!(half < 0.25, "{half}: half as fast, it goes on");
}

/// As many are hot as before, but others: by all together nothing is otherwise.
#[test]
fn a_hot_set_that_jumps_is_told_by_what_its_pages_were_taken_for() {
    let jump = [
        (1_000.0, HOT, 0.3),
        (1_000.0, COLD, 20.0),
        (6_000.0, COLD, 0.3),
    ];
    let mut settling = begun();
    let second = pass(&mut settling, &jump, 2.0);
    assert!(
        second.abs() < 0.06,
        "{second}: nothing else is known of all"
    );
    let mut settling = begun();
    pass(&mut settling, &SAME, 2.0);
    let third = pass(&mut settling, &jump, 4.0);
    assert!(third > 0.5, "{third}");
}

#[test]
fn of_other_pages_nothing_is_said() {
    let of = |new: f64| {
        let now = [(new, 0, 0.0), (7_000.0, COLD, 20.0), (1_000.0, HOT, 20.0)];
        pass(&mut begun(), &now, 2.0)
    };
    assert!(of(800.0) > 0.5 && of(1_000.0).abs() < f64::EPSILON);
    let mut few = Settling::default();
    pass(&mut few, &[(30.0, 0, 20.0)], 1.0);
    let bits = pass(&mut few, &[(28.0, HOT, 20.0), (2.0, COLD, 20.0)], 1.0);
    assert!(bits < 0.3, "{bits}: thirty pages");
}
