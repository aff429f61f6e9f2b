// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages change places: by groups of equal value, never by a sort of all pages.
//!
//! A group is all pages of one process, class, size and side. Per base page, with v the value V, d the worth D of
//! its place, and c the cost of a move:
//!
//! ```text
//! up   into room          if  v_p           > c_p,  d_p > -c_p        what had to go down again at once stays
//! swap p with q           if  d_p - d_q     > c_p + c_q       greatest differences first
//! ```
//!
//! The slow groups are gone through from the greatest d - c, the fast ones from the least d + c, and
//! give quotas; a walk over the pages then takes as many of each group.

use std::collections::BTreeMap;

use terrace_core::PageSize;
use terrace_core::Pid;

use super::chunks::Chunks;
use super::chunks::Key;
use super::chunks::page_of;
use super::classes::CLASSES;
use super::classes::class_of;
use super::decide::SIZES;
use super::plan::Order;
use super::plan::Plan;
use super::sides::Sides;

/// Pages of one value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Group {
    /// Base pages.
    pub(super) pages: u64,
    /// V, ns a base page.
    pub(super) value: f64,
    /// D, ns a base page.
    pub(super) place: f64,
    /// What a move costs, ns a base page.
    pub(super) cost: f64,
    /// What it saves in fast memory at present, ns a second and base page.
    pub(super) saves: f64,
}

/// What is to be moved of each group, base pages; what that gains in all, ns, and saves from then on, ns a second.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Quotas {
    pub(super) up: Vec<u64>,
    pub(super) down: Vec<u64>,
    pub(super) gain: f64,
    pub(super) saves: f64,
    /// What the moves take, ns.
    pub(super) spends: f64,
    /// Of those that go up, the ones that change places with another.
    pub(super) swapped: u64,
}

/// The order of the groups: indexes, the best first.
pub(super) fn order(groups: &[Group], key: impl Fn(&Group) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..groups.len()).filter(|i| groups[*i].pages > 0).collect();
    order.sort_by(|a, b| {
        let by_key = key(&groups[*a]).total_cmp(&key(&groups[*b]));
        by_key.then(a.cmp(b))
    });
    order
}

/// The quotas: `room` is how many base pages go up without a demotion, `short` how many must go down
/// whatever that costs, `most` how many may go up.
pub(super) fn quotas(slow: &[Group], fast: &[Group], room: u64, short: u64, most: u64) -> Quotas {
    let mut out = Quotas {
        up: vec![0; slow.len()],
        down: vec![0; fast.len()],
        ..Quotas::default()
    };
    let best = order(slow, |group| group.cost - group.place);
    let victims = order(fast, |group| group.place + group.cost);
    let mut victims = victims.into_iter().peekable();
    let mut short = short;
    while let Some(&q) = victims.peek().filter(|_| short > 0) {
        let taken = (fast[q].pages - out.down[q]).min(short);
        out.down[q] += taken;
        short -= taken;
        if out.down[q] == fast[q].pages {
            victims.next();
        }
    }
    let (mut room, mut most) = (room, most);
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    for p in best {
        let net = slow[p].value - slow[p].cost;
        let mut left = slow[p].pages.min(most);
        let stays = slow[p].place > -slow[p].cost;
        let into_room = if net > 0.0 && stays {
            left.min(room)
        } else {
            0
        };
        out.up[p] += into_room;
        out.gain += into_room as f64 * net;
        out.saves += into_room as f64 * slow[p].saves;
        room -= into_room;
        left -= into_room;
        most -= into_room;
        while left > 0
            && let Some(&q) = victims.peek()
        {
            let (up, down) = (&slow[p], &fast[q]);
            if up.place - up.cost <= down.place + down.cost {
                break;
            }
            let gain = net - (down.value + down.cost);
            let taken = left.min(fast[q].pages - out.down[q]);
            out.up[p] += taken;
            out.down[q] += taken;
            out.gain += taken as f64 * gain;
            out.saves += taken as f64 * (up.saves - down.saves);
            out.swapped += taken;
            left -= taken;
            most -= taken;
            if out.down[q] == fast[q].pages {
                victims.next();
            }
        }
    }
    let costs = |groups: &[Group], moved: &[u64]| -> f64 {
        let each = groups.iter().zip(moved);
        each.map(|(group, pages)| *pages as f64 * group.cost).sum()
    };
    out.spends = costs(slow, &out.up) + costs(fast, &out.down);
    out
}

/// What is still to be taken of a process.
struct OfProcess {
    /// By the side that it goes to, the one that it is on, size and class: base pages.
    quotas: Vec<Vec<[[u64; CLASSES]; SIZES.len()]>>,
    /// The same of all classes: most chunks have nothing that is wanted, or nothing is any more.
    wanted: Vec<Vec<[u64; SIZES.len()]>>,
}

/// What is still to be taken of all.
pub(super) struct Left<'a> {
    sides: &'a Sides,
    of: BTreeMap<Pid, OfProcess>,
    all: u64,
}

impl<'a> Left<'a> {
    /// Quotas by the side that pages go to and the one that they are on; of these processes, by size and class.
    pub(super) fn new(
        sides: &'a Sides,
        pids: impl Iterator<Item = Pid>,
        taken: &[Vec<Vec<u64>>],
    ) -> Self {
        let of_process = |at: usize| {
            let sizes = |quotas: &[u64]| -> [[u64; CLASSES]; SIZES.len()] {
                std::array::from_fn(|size| {
                    let first = (at * SIZES.len() + size) * CLASSES;
                    std::array::from_fn(|class| quotas[first + class])
                })
            };
            let from = |from: &Vec<Vec<u64>>| from.iter().map(|quotas| sizes(quotas)).collect();
            let quotas: Vec<Vec<[[u64; CLASSES]; SIZES.len()]>> = taken.iter().map(from).collect();
            let sums =
                |quotas: &[[u64; CLASSES]; SIZES.len()]| quotas.map(|size| size.iter().sum());
            let wanted =
                |from: &Vec<[[u64; CLASSES]; SIZES.len()]>| from.iter().map(sums).collect();
            OfProcess {
                wanted: quotas.iter().map(wanted).collect(),
                quotas,
            }
        };
        let of = pids.enumerate().map(|(at, pid)| (pid, of_process(at)));
        let all = taken.iter().flatten().flatten().sum();
        Self {
            sides,
            of: of.collect(),
            all,
        }
    }
}

/// Takes pages from the chunks, beginning at `start`, as long as the quotas of
/// its process have some left; gives the chunk where it took the last.
pub(super) fn take(chunks: &Chunks, start: Key, left: &mut Left<'_>, plan: &mut Plan) -> Key {
    let mut end = start;
    let sides = left.sides;
    for (key, chunk) in chunks.from(start) {
        let Some(process) = left.of.get_mut(&key.0) else {
            continue;
        };
        let (size, huge) = (chunk.size(), usize::from(chunk.huge));
        for from in 0..sides.len() {
            let wanted = |process: &OfProcess| process.wanted.iter().any(|to| to[from][huge] > 0);
            if !wanted(process) {
                continue;
            }
            for place in sides.places(from) {
                for page in chunk.at(*place).pages() {
                    let class = class_of(chunk.levels[page]);
                    // To the best side first.
                    for to in 0..sides.len() {
                        let quota = &mut process.quotas[to][from][huge][class];
                        let before = *quota;
                        if before == 0 || !draw(quota, size, to > from) {
                            continue;
                        }
                        process.wanted[to][from][huge] -= before - *quota;
                        left.all -= before - *quota;
                        let page = page_of(key, page, size);
                        plan.0[to].push_back(Order { page, from: *place });
                        end = key;
                        break;
                    }
                }
            }
        }
        if left.all == 0 {
            break;
        }
    }
    end
}

/// Whether a quota has a page of that size left; takes it.
pub(super) fn draw(quota: &mut u64, size: PageSize, round_up: bool) -> bool {
    let pages = size.base_pages();
    if *quota == 0 || !round_up && *quota < pages {
        return false;
    }
    *quota = quota.saturating_sub(pages);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(value: f64) -> Group {
        Group {
            pages: 1,
            value,
            place: value,
            cost: 2.0,
            saves: 0.0,
        }
    }

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
            let out = quotas(&up, &down, room, 0, u64::MAX);
            prop_assert!((out.gain - slow_way(&slow, &fast, room)).abs() < 1e-6);
            let (ups, downs): (u64, u64) = (out.up.iter().sum(), out.down.iter().sum());
            prop_assert!(ups <= downs + room);
            prop_assert_eq!(downs, out.swapped);
            prop_assert!(quotas(&up, &down, room, 0, 3).up.iter().sum::<u64>() <= 3);
        }
    }

    #[test]
    fn what_is_short_goes_down_whatever_it_is_worth() {
        let out = quotas(&[], &[page(50.0), page(5.0), page(9.0)], 0, 2, 100);
        assert_eq!(out.down, [0, 1, 1]);
    }

    #[test]
    fn a_huge_page_takes_its_whole_quota() {
        let mut quota = 700;
        assert!(draw(&mut quota, PageSize::Huge2M, false));
        assert!(!draw(&mut quota, PageSize::Huge2M, false));
        assert!(draw(&mut quota, PageSize::Huge2M, true));
        assert!(!draw(&mut quota, PageSize::Base4K, true));
    }
}
