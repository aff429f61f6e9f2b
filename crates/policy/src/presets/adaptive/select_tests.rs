// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;

fn page(value: f64) -> Group {
    Group {
        pages: 1,
        value,
        place: value,
        cost: 2.0,
        ..Group::default()
    }
}

const ALL: Bounds = Bounds {
    room: 0,
    short: 0,
    most: u64::MAX,
    shift: f64::INFINITY,
};

/// Page by page, each time the pair with the greatest difference.
fn slow_way(slow: &[f64], fast: &[f64], room: u64) -> f64 {
    let (mut slow, mut fast) = (slow.to_vec(), fast.to_vec());
    slow.sort_by(f64::total_cmp);
    fast.sort_by(f64::total_cmp);
    let (mut gain, mut room) = (0.0, room);
    while let Some(p) = slow.pop() {
        let (by, used) = if room > 0 {
            (p - 2.0, true)
        } else if fast.is_empty() {
            break;
        } else {
            (p - fast.remove(0) - 4.0, false)
        };
        if by <= 0.0 {
            break;
        }
        gain += by;
        room -= u64::from(used);
    }
    gain
}

proptest! {
    #[test]
    fn groups_gain_what_pairs_gain(
        slow in prop::collection::vec(0.0_f64..100.0, 0..40),
        fast in prop::collection::vec(0.0_f64..100.0, 0..40),
        room in 0_u64..10,
    ) {
        let up: Vec<Group> = slow.iter().copied().map(page).collect();
        let down: Vec<Group> = fast.iter().copied().map(page).collect();
        let out = quotas(&up, &down, Bounds { room, ..ALL });
        prop_assert!((out.gain - slow_way(&slow, &fast, room)).abs() < 1e-6);
        let (ups, downs): (u64, u64) = (out.up.iter().sum(), out.down.iter().sum());
        prop_assert!(ups <= downs + room);
        prop_assert_eq!(downs, out.swapped);
        let few = quotas(&up, &down, Bounds { room, most: 3, ..ALL });
        prop_assert!(few.up.iter().sum::<u64>() <= 3);
    }
}

/// A plan for pages of which nobody can tell which is visited more takes those that were seen sooner.
#[test]
fn of_what_was_not_told_apart_the_higher_class_goes_up_and_the_lower_down() {
    let groups = [page(9.0), page(9.0), page(9.0)];
    let room = Bounds { room: 1, ..ALL };
    assert_eq!(quotas(&groups, &[], room).up, [0, 0, 1]);
    let short = Bounds { short: 2, ..ALL };
    assert_eq!(quotas(&[], &groups, short).down, [1, 1, 0]);
}

#[test]
fn the_last_who_makes_room_says_what_is_asked() {
    let busy = |pages, place| Group {
        pages,
        place,
        ..page(place)
    };
    let sides = [
        vec![busy(4, 9.0), busy(3, 5.0)],
        vec![busy(2, -6.0), busy(4, 1.0), busy(9, 4.0)],
    ];
    let of = |room, pays| asks(&sides, room, pays);
    assert_eq!(
        [of(0, 0.0), of(1, 0.0), of(5, 0.0), of(7, 0.0)],
        [6.0, 3.0, 0.0, 0.0]
    );
    assert_eq!([of(0, 4.0), of(2, 4.0), of(0, 8.0)], [3.0, 0.0, 0.0]);
}

#[test]
fn what_is_short_goes_down_whatever_it_is_worth() {
    let short = Bounds { short: 2, ..ALL };
    let out = quotas(&[], &[page(50.0), page(5.0), page(9.0)], short);
    assert_eq!(out.down, [0, 1, 1]);
}

#[test]
fn no_more_accesses_come_up_than_may() {
    let busy = |pages, value, load| Group {
        pages,
        load,
        ..page(value)
    };
    let (up, down) = ([busy(10, 50.0, 3.0)], [busy(10, 0.0, 1.0)]);
    let of = |room, shift| quotas(&up, &down, Bounds { room, shift, ..ALL }).up[0];
    assert_eq!([of(0, 0.0), of(0, 7.0), of(0, 1e9)], [0, 3, 10]);
    assert_eq!([of(9, 7.0), of(1, 7.0)], [2, 3]);
}
