// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever happens: the same orders as the reference's, on several machines, of pages of both sizes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use terrace_policy::Verdict;
use terrace_policy::presets::autotiering::Mode;
use terrace_policy::presets::autotiering::Params;

use super::layouts::HOLES;
use super::layouts::Layout;
use super::layouts::SAID;
use super::layouts::THREE;
use super::layouts::TWO;
use super::machine::EACH;
use super::machine::HUGE;
use super::machine::MOVED;
use super::machine::Machine;
use super::params;
use super::reference::Reference;

/// Nodes and sockets are by their places in the layout, from the start again where there are fewer.
#[derive(Debug, Clone)]
enum Step {
    Fault(u64, Option<usize>),
    Round(u64),
    Finish(usize, u8),
    /// A node has so many pages from now on; what it has more of stays.
    Resize(usize, u64),
    Sample,
    Unmap(u64),
    Map(u64, usize),
}

/// Huge pages behind the base pages of six times 2 MiB.
const HUGE_PAGES: u64 = 5;

/// The number of a page: of 4 KiB, and as often as said of 2 MiB.
fn some_page(huge: u32) -> impl Strategy<Value = u64> {
    prop_oneof![
        10 => 0..HUGE,
        huge => (0..HUGE_PAGES).prop_map(|at| HUGE + at * EACH),
    ]
}

/// Pages that a node has: few of 4 KiB, and room for so many of 2 MiB.
fn size(base: u64) -> impl Strategy<Value = u64> {
    let huge = prop_oneof![2 => Just(0_u64), 1 => Just(1), 1 => Just(2)];
    (0..base, huge).prop_map(|(base, huge)| base + 512 * huge)
}

fn step() -> impl Strategy<Value = Step> {
    let cpu = prop_oneof![8 => (0_usize..3).prop_map(Some), 1 => Just(None)];
    prop_oneof![
        10 => (some_page(5), cpu).prop_map(|(n, cpu)| Step::Fault(n, cpu)),
        4 => any::<u64>().prop_map(Step::Round),
        6 => (any::<usize>(), 0_u8..10).prop_map(|(at, how)| Step::Finish(at, how)),
        1 => (0_usize..6, size(20)).prop_map(|(node, pages)| Step::Resize(node, pages)),
        2 => Just(Step::Sample),
        1 => (0..HUGE / EACH + HUGE_PAGES).prop_map(Step::Unmap),
        1 => (some_page(2), 0_usize..6).prop_map(|(n, node)| Step::Map(n, node)),
    ]
}

fn verdict(how: u8) -> Verdict {
    match how {
        0 => Verdict::Busy,
        1 => Verdict::NoMemory,
        2 => Verdict::Lost,
        _ => MOVED,
    }
}

/// The policy and the reference, which are told the same.
struct Both {
    layout: &'static Layout,
    machine: Machine,
    reference: Reference,
}

impl Both {
    /// `on` has a place of a node for each page, `free` what each node has free.
    fn new(
        layout: &'static Layout,
        (params, exchanges): (Params, bool),
        on: &[usize],
        free: &[u64],
    ) -> Self {
        let numbers = (0..HUGE).chain((0..HUGE_PAGES).map(|at| HUGE + at * EACH));
        let place = |at: &usize| layout.nodes[at % layout.nodes.len()].0;
        let node: BTreeMap<u64, u16> = numbers.zip(on.iter().map(place)).collect();
        let mut machine = Machine::new(layout, params, exchanges, node);
        for (id, free) in layout.ids().zip(free) {
            machine.capacity[usize::from(id)] = machine.used(id) + free;
        }
        let mut both = Self {
            layout,
            machine,
            reference: Reference::new(layout, params, exchanges),
        };
        both.step(&Step::Sample);
        both.step(&Step::Round(u64::MAX));
        both
    }

    fn node(&self, place: usize) -> u16 {
        self.layout.nodes[place % self.layout.nodes.len()].0
    }

    /// What both order then.
    fn step(&mut self, step: &Step) -> [Vec<(u64, u16, Option<u64>)>; 2] {
        let Self {
            layout,
            machine,
            reference,
        } = self;
        let mut told = Vec::new();
        match *step {
            Step::Fault(n, cpu) if machine.node.contains_key(&n) => {
                let cpu = cpu.map(|at| layout.cpu(at));
                told = machine.fault(n, cpu);
                reference.fault(n, machine.node[&n], cpu);
            }
            Step::Round(bits) => {
                let accessed = |n: u64| bits >> (n % 64) & 1 == 1;
                machine.round(accessed);
                reference.round(&machine.node, accessed);
            }
            Step::Finish(at, how) if !machine.flying.is_empty() => {
                let mut flying = machine.flying.keys();
                let n = *flying.nth(at % flying.len()).expect("one");
                let (verdict, orders) = machine.finish(n, verdict(how));
                told = orders;
                reference.ended(n, verdict);
                if verdict == Verdict::Lost {
                    machine.node.remove(&n);
                }
            }
            Step::Resize(place, pages) => {
                let node = self.node(place);
                self.machine.capacity[usize::from(node)] = pages;
            }
            Step::Sample => {
                machine.sample();
                for id in layout.ids() {
                    reference.sampled(id, machine.free(id));
                }
            }
            Step::Unmap(chunk) => {
                machine.unmap(chunk);
                reference.unmap(chunk);
            }
            Step::Map(n, place) => {
                let node = self.node(place);
                if !self.machine.flying.contains_key(&n) {
                    self.machine.node.entry(n).or_insert(node);
                }
            }
            Step::Fault(..) | Step::Finish(..) => {}
        }
        [told, self.reference.orders()]
    }

    /// A page that another socket would have elsewhere is asked for; gives what is ordered, and what should be.
    fn ask(&mut self, n: u64) -> [Vec<(u64, u16, Option<u64>)>; 2] {
        let node = self.machine.node[&n];
        let best = |socket| Some((socket, *self.layout.better(socket, node).first()?));
        let Some((socket, to)) = (0..self.layout.orders.len()).find_map(best) else {
            return [Vec::new(), Vec::new()];
        };
        let orders = self.machine.fault(n, Some(self.layout.cpu(socket)));
        [orders, vec![(n, to, None)]]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_500))]

    /// Faults, rounds, ends of all kinds, nodes that fill up or lose their memory, pages that come and go: the same
    /// orders as the reference's, and nothing is stuck at the end.
    #[test]
    fn orders_are_the_references(
        layout in prop::sample::select(vec![&TWO, &THREE, &HOLES, &SAID]),
        mode in prop::sample::select(vec![Mode::Cpm, Mode::Cpmx, Mode::Opm, Mode::Opmx, Mode::OpmBd]),
        exchanges in any::<bool>(),
        on in prop::collection::vec(0_usize..30, 53),
        free in prop::collection::vec(size(12), 6),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut both = Both::new(layout, (params(mode), exchanges), &on, &free);
        for step in steps {
            prop_assert!(both.machine.orders().is_empty());
            let [told, right] = both.step(&step);
            prop_assert_eq!(told, right);
        }
        // All ends, with all of the chains; then every page that could be better placed can be ordered.
        while let Some(n) = both.machine.flying.keys().next().copied() {
            both.machine.finish(n, MOVED);
        }
        both.machine.capacity.fill(100_000);
        both.machine.sample();
        for n in both.machine.node.clone().into_keys() {
            let [told, right] = both.ask(n);
            let asked = !told.is_empty();
            prop_assert_eq!(told, right, "page {} of node {} is stuck", n, both.machine.node[&n]);
            if asked {
                both.machine.finish(n, MOVED);
            }
        }
    }
}
