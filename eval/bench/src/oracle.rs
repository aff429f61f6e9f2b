// SPDX-License-Identifier: MIT OR Apache-2.0
//! The best placement that stays put: which page belongs on which node. Pure.
//!
//! Pages go, the most visited first, to the node that is fastest for the socket that visits them and has room. A socket is
//! that of the threads' home ([`crate::sockets`]); pages that threads of several visit are placed for the first of them.

use std::collections::BTreeMap;
use std::time::Duration;

use terrace_core::NodeId;
use terrace_workload::Program;
use terrace_workload::Workload;

use crate::fill::mean_shares;
use crate::group;
use crate::sockets;

/// How many pages a node has room for.
pub type Rooms = BTreeMap<NodeId, u64>;

/// A page, as far as its place goes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Page {
    /// Visits, where only the proportion matters.
    heat: f64,
    /// Which of the orders of nodes is its visitors'.
    home: usize,
    /// Of which program.
    program: usize,
}

/// Where each page of a program goes, and all of them, the most visited first; equals by index.
///
/// `orders` are the nodes as each socket sees them, the fastest first; `first` is the number of the program's first
/// thread where threads are bound.
#[must_use]
pub fn places(
    program: &Program,
    (seed, time): (u64, Duration),
    orders: &[Vec<NodeId>],
    first: Option<u32>,
    rooms: &Rooms,
) -> (Vec<NodeId>, Vec<u32>) {
    let pages = pages(program, (seed, time), orders.len(), first);
    let order = by_heat(&pages);
    let places = assign(&pages, &order, orders, rooms);
    let order = order.into_iter();
    let order = order.map(|page| u32::try_from(page).expect("a page's index"));
    (places, order.collect())
}

/// The best use of the nodes' room: how many pages of each node for each program. What they do not hold is on the last one
/// of a program's order. `bound`: the threads of all programs are; else of those that need it.
#[must_use]
pub fn budgets(
    workload: &Workload,
    (seed, time): (u64, Duration),
    orders: &[Vec<NodeId>],
    bound: bool,
    rooms: &Rooms,
) -> Vec<Rooms> {
    let weights = group::weights(workload);
    let mut all = Vec::new();
    for (index, program) in workload.programs.iter().enumerate() {
        let first = sockets::bound_from(program, bound, group::first_thread(workload, index));
        let run = (group::seed_of(seed, index), time);
        let own = pages(program, run, orders.len(), first).into_iter();
        all.extend(own.map(|page| Page {
            heat: page.heat * weights[index],
            program: index,
            ..page
        }));
    }
    let mut budgets = vec![Rooms::new(); workload.programs.len()];
    let places = assign(&all, &by_heat(&all), orders, rooms);
    for (page, node) in all.iter().zip(places) {
        *budgets[page.program].entry(node).or_default() += 1;
    }
    budgets
}

/// How often each page is visited, and from which of so many sockets.
fn pages(
    program: &Program,
    (seed, time): (u64, Duration),
    sockets: usize,
    first: Option<u32>,
) -> Vec<Page> {
    let home = |thread: usize| first.map_or(0, |first| (first as usize + thread) % sockets.max(1));
    let mut homes = vec![home(0); program.pages as usize];
    for (thread, own) in program.partitions.iter().enumerate() {
        homes[own.start as usize..own.end as usize].fill(home(thread));
    }
    let shares = mean_shares(program, seed, time.max(Duration::from_nanos(1)));
    let page = |(heat, home)| Page {
        heat: f64::from(heat),
        home,
        program: 0,
    };
    shares.into_iter().zip(homes).map(page).collect()
}

fn by_heat(pages: &[Page]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pages.len()).collect();
    order.sort_by(|&a, &b| pages[b].heat.total_cmp(&pages[a].heat).then(a.cmp(&b)));
    order
}

/// A node for each page, one after the other by heat: the first of its home's order that has room, else the last.
fn assign(pages: &[Page], by_heat: &[usize], orders: &[Vec<NodeId>], rooms: &Rooms) -> Vec<NodeId> {
    let mut rooms = rooms.clone();
    let mut places = vec![NodeId(0); pages.len()];
    for &page in by_heat {
        let order = &orders[pages[page].home];
        let has_room = |node: &&NodeId| rooms.get(node).is_some_and(|&room| room > 0);
        let node = order.iter().find(has_room).or(order.last());
        let node = *node.expect("an order has a node");
        if let Some(room) = rooms.get_mut(&node) {
            *room = room.saturating_sub(1);
        }
        places[page] = node;
    }
    places
}

#[cfg(test)]
mod tests {
    use terrace_workload::Sizes;

    use super::*;

    const TIME: Duration = Duration::from_secs(1);

    fn nodes(numbers: &[u16]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    fn rooms(rooms: &[u64]) -> Rooms {
        (0..).map(NodeId).zip(rooms.iter().copied()).collect()
    }

    #[test]
    fn fast_memory_goes_to_the_programs_that_use_it_most() {
        let workload =
            Workload::named("pmbench-groups", &Sizes::fast_free(8 << 20)).expect("known");
        let pages = u64::from(workload.programs[0].pages);
        let room = rooms(&[pages * 5 / 2, pages, pages]);
        let found = budgets(&workload, (1, TIME), &[nodes(&[0, 2, 1])], false, &room);
        let on =
            |program: usize, node: u16| found[program].get(&NodeId(node)).copied().unwrap_or(0);
        for program in [0, 1] {
            assert_eq!(on(program, 0), pages, "the fastest two get all");
        }
        assert_eq!(
            (on(2, 0), on(2, 2)),
            (pages / 2, pages - pages / 2),
            "the rest is next"
        );
        assert_eq!((on(3, 2), on(3, 1)), (pages / 2, pages - pages / 2));
        let slowest = found[4..].iter().map(|own| own.len()).max();
        assert_eq!(slowest, Some(1), "the slowest only the last node");
        assert_eq!(on(7, 1), pages, "however full it is");
    }

    #[test]
    fn bound_threads_have_their_hot_sets_beside_them() {
        let workload = Workload::named("gups-crossed", &Sizes::fast_free(8 << 20)).expect("known");
        let program = &workload.programs[0];
        let orders = [nodes(&[0, 1, 2, 3]), nodes(&[1, 0, 3, 2])];
        let hot: Vec<_> = [1, 3]
            .map(|part| program.phases[0].parts[part].pages.clone())
            .into();
        let size = hot[0].end - hot[0].start;
        let near = u64::from(size) + 10;
        let room = rooms(&[near, near, 1000, 10_000]);
        // Whose first thread is on the second socket has that one's memory for it.
        for first in [0, 1] {
            let (places, order) = places(program, (1, TIME), &orders, Some(first), &room);
            for (thread, hot) in (first..).zip(&hot) {
                let beside = NodeId(u16::try_from(thread % 2).expect("small"));
                assert!(hot.clone().all(|page| places[page as usize] == beside));
                assert!(order[..2 * size as usize].contains(&hot.start));
            }
            let on = |node: u16| {
                places
                    .iter()
                    .filter(|&&place| place == NodeId(node))
                    .count()
            };
            let full = size as usize + 10;
            assert_eq!(
                [on(0), on(1), on(2)],
                [full, full, 1000],
                "what is left is filled"
            );
        }
        // Not bound, all is as the first socket sees it.
        let (places, _) = super::places(program, (1, TIME), &orders, None, &room);
        assert_eq!(places[hot[0].start as usize], NodeId(0));
        assert_eq!(
            places[hot[1].start as usize],
            NodeId(0),
            "it has room for ten of them"
        );
        assert_eq!(places[hot[1].end as usize - 1], NodeId(1));
    }

    /// A program that gets its part as room places its pages as all together were placed.
    #[test]
    fn parts_of_the_whole_make_the_whole() {
        let sizes = Sizes::fast_free(8 << 20)
            .with("of=a:gups+b:zipf")
            .expect("set");
        let workload = Workload::named("mix", &sizes).expect("known");
        let orders = [nodes(&[0, 1, 2, 3]), nodes(&[1, 0, 3, 2])];
        let room = rooms(&[700, 500, 900, 20_000]);
        for bound in [false, true] {
            let all = budgets(&workload, (1, TIME), &orders, bound, &room);
            let used = |node| all.iter().filter_map(|own| own.get(&node)).sum::<u64>();
            assert_eq!(
                (used(NodeId(0)), used(NodeId(1)), used(NodeId(2))),
                (700, 500, 900)
            );
            for (index, (program, own)) in workload.programs.iter().zip(&all).enumerate() {
                let first = bound.then_some(u32::try_from(index).expect("small"));
                let run = (group::seed_of(1, index), TIME);
                let (places, _) = places(program, run, &orders, first, own);
                let mut found = Rooms::new();
                for node in places {
                    *found.entry(node).or_default() += 1;
                }
                assert_eq!(found, *own, "{}", program.name);
            }
        }
    }
}
