// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds {
    room: 0,
    short: 0,
    most: u64::MAX,
    shift: f64::INFINITY,
};

fn group(pages: u64, worth: f64) -> Group {
    Group {
        pages,
        value: worth,
        place: worth,
        cost: 1.0,
        saves: worth,
        load: worth,
    }
}

/// A few groups for each process, the rest are empty.
fn groups(processes: &[Vec<(u64, f64)>]) -> Vec<Group> {
    let all = processes.iter().flat_map(|own| {
        let own = own.iter().map(|(pages, worth)| group(*pages, *worth));
        own.chain(std::iter::repeat(Group::default())).take(GROUPS)
    });
    all.collect()
}

/// Each process with limits has them by itself.
fn limits(owners: &[Option<(u64, u64)>], fast: &[Group]) -> Limits {
    let mut limits = Limits::default();
    for (owner, own) in owners.iter().zip(fast.chunks(GROUPS)) {
        let at = owner.map(|(floor, ceiling)| {
            limits.owners.push(Owner {
                fast: own.iter().map(|group| group.pages).sum(),
                floor,
                ceiling,
            });
            limits.owners.len() - 1
        });
        limits.of.push(at);
    }
    limits.here.clone_from(&limits.of);
    limits
}

fn sum(pages: &[u64], process: usize) -> u64 {
    pages[process * GROUPS..(process + 1) * GROUPS].iter().sum()
}

#[test]
fn what_is_below_its_floor_comes_up_whatever_others_are_worth() {
    let slow = groups(&[vec![(50, 5.0), (50, 0.5)], vec![]]);
    let fast = groups(&[vec![(3, 9.0)], vec![(40, 900.0), (60, 800.0)]]);
    let of = |floor| {
        let mut limits = limits(&[Some((floor, u64::MAX)), None], &fast);
        let quotas = limits.quotas([&slow, &fast], BOUNDS);
        (quotas, limits.owners[0].fast)
    };
    let (quotas, own) = of(23);
    assert_eq!((sum(&quotas.up, 0), own), (20, 23));
    assert_eq!(quotas.down[GROUPS..GROUPS + 2], [0, 20], "the least worth");
    let (quotas, own) = of(1_000);
    assert_eq!(
        (quotas.up[..2].to_vec(), own),
        (vec![50, 0], 53),
        "what pays"
    );
}

#[test]
fn at_its_ceiling_a_program_changes_its_own_pages() {
    let slow = groups(&[vec![(50, 500.0)], vec![(7, 600.0)]]);
    let fast = groups(&[vec![(20, 90.0)], vec![(30, 5.0)]]);
    let mut limits = limits(&[Some((0, 20)), None], &fast);
    let quotas = limits.quotas([&slow, &fast], BOUNDS);
    assert_eq!((sum(&quotas.up, 0), sum(&quotas.down, 0)), (20, 20));
    assert_eq!((sum(&quotas.up, 1), sum(&quotas.down, 1)), (7, 7));
    assert_eq!(limits.owners[0].fast, 20);
}

#[test]
fn without_limits_nothing_is_different() {
    let slow = groups(&[vec![(50, 500.0), (9, 3.0)], vec![(7, 600.0)]]);
    let fast = groups(&[vec![(20, 90.0)], vec![(30, 5.0)]]);
    let bounds = Bounds { room: 5, ..BOUNDS };
    let mut limits = limits(&[None, None], &fast);
    let quotas = limits.quotas([&slow, &fast], bounds);
    assert_eq!(quotas, select::quotas(&slow, &fast, bounds));
}

type Pages = Vec<(u64, f64)>;
type OfProcess = (Pages, Pages, Option<(u64, u64)>);

fn process() -> impl Strategy<Value = OfProcess> {
    let pages = || prop::collection::vec((0_u64..200, -5.0_f64..50.0), 0..6);
    let limits = prop::option::of((0_u64..400, 0_u64..400));
    (pages(), pages(), limits)
}

proptest! {
    #[test]
    fn floors_and_ceilings_hold(
        processes in prop::collection::vec(process(), 1..5),
        room in 0_u64..100,
        most in 0_u64..1_000,
    ) {
        let slow = groups(&processes.iter().map(|(slow, ..)| slow.clone()).collect::<Vec<_>>());
        let fast = groups(&processes.iter().map(|(_, fast, _)| fast.clone()).collect::<Vec<_>>());
        let owners: Vec<_> = processes.iter().map(|(.., limits)| *limits).collect();
        let mut limits = limits(&owners, &fast);
        let before = limits.owners.clone();
        let quotas = limits.quotas([&slow, &fast], Bounds { room, most, ..BOUNDS });
        let (up, down): (u64, u64) = (quotas.up.iter().sum(), quotas.down.iter().sum());
        prop_assert!(up <= most && up - quotas.swapped <= room && down == quotas.swapped);
        for (groups, moved) in [(&slow, &quotas.up), (&fast, &quotas.down)] {
            prop_assert!(groups.iter().zip(moved).all(|(group, moved)| *moved <= group.pages));
        }
        for (process, owner) in limits.of.iter().enumerate() {
            let Some(owner) = owner else { continue };
            let (then, now) = (before[*owner], limits.owners[*owner].fast);
            prop_assert_eq!(then.fast + sum(&quotas.up, process), now + sum(&quotas.down, process));
            prop_assert!(now <= then.fast.max(then.ceiling), "{} of {}", now, then.ceiling);
            prop_assert!(now >= then.fast.min(then.floor), "{} of {}", now, then.floor);
        }
    }
}
