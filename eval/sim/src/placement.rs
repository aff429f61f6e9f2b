// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where pages are at first, and where the oracle puts them.
//!
//! Memory is given in the order of first touch, before time begins, each page to the nearest node that
//! has room ([`Memory::allocate`](crate::memory::Memory::allocate)); a program that starts on slow
//! memory prefers the nodes below the fastest tier of its socket.

use terrace_policy::FirstPlacement;
use terrace_workload::Start;

use crate::Setup;
use crate::SimError;
use crate::access_rates::AccessRates;
use crate::hardware::Hardware;
use crate::hardware::NODES;
use crate::memory::Memory;
use crate::memory_mode::Layout;
use crate::system::Placement;
use crate::world::World;
use crate::world::bits;

/// The node that is a cache, if one is.
fn cache_node(hardware: &Hardware, placement: Placement) -> Option<usize> {
    (placement == Placement::Cache).then(|| hardware.by_latency(0)[0])
}

/// Whether there is memory for all pages.
pub(crate) fn room(
    setup: &Setup,
    hardware: &Hardware,
    memory: &Memory,
    placement: Placement,
) -> Result<(), SimError> {
    let bytes: u64 = setup.workload.bytes();
    let available = match cache_node(hardware, placement) {
        None => memory.available(),
        Some(node) => {
            let own = &memory.nodes[node];
            memory.available() - own.free.saturating_sub(own.min)
        }
    };
    if bytes > available {
        return Err(SimError::TooLarge {
            what: format!("Workload '{}'", setup.workload.name),
            bytes,
            free: available,
        });
    }
    Ok(())
}

/// Gives every page its memory, in the order of first touch. There is [`room`].
pub(crate) fn allocate(
    setup: &Setup,
    world: &mut World,
    placement: Placement,
    first_placement: FirstPlacement,
) -> Option<Layout> {
    let cache_node = cache_node(&world.hardware, placement);
    for (index, program) in setup.workload.programs.iter().enumerate() {
        let socket = world.sockets[index];
        let by_distance = world.hardware.by_distance(socket);
        let best = world.hardware.by_latency(socket)[0];
        let slow_first = || {
            let fast = |node: usize| {
                // As its socket sees them: the fastest tier is the policy's where that is the first socket's.
                if socket == 0 {
                    world.top[node]
                } else {
                    node == best
                }
            };
            let (mut slow, fast): (Vec<_>, Vec<_>) =
                by_distance.iter().partition(|node| !fast(**node));
            slow.extend(fast);
            slow
        };
        let start = match first_placement {
            FirstPlacement::SlowLocal => Start::Slow,
            FirstPlacement::FirstTouch if program.start == Start::Across => Start::Across,
            FirstPlacement::FirstTouch => Start::FirstTouch,
            FirstPlacement::AsIs | FirstPlacement::FastFirst => program.start,
        };
        let first_touch_order = |socket: usize| match first_placement {
            FirstPlacement::FastFirst => world.hardware.by_tier(socket),
            _ => world.hardware.by_distance(socket),
        };
        let order = match (cache_node, start) {
            (Some(cache), _) => by_distance
                .iter()
                .copied()
                .filter(|n| *n != cache)
                .collect(),
            (None, Start::Slow) => slow_first(),
            (None, Start::FirstTouch) => first_touch_order(socket),
            (None, Start::Across) => first_touch_order(world.socket_after(socket)),
        };
        for range in program.fill_order() {
            let mut page = range.start;
            while page < range.end {
                let Some(unit) = world.space.at(index, page) else {
                    break;
                };
                let (base, pages) = world.space.base_pages(unit);
                page = base + pages;
                if world.node(unit) < NODES {
                    continue;
                }
                first_touch(world, unit, &order);
            }
        }
    }
    let nodes = world.memory.nodes.iter().enumerate();
    let slow = nodes.filter(|(node, _)| Some(*node) != cache_node);
    let pages = slow.map(|(_, node)| node.total >> 12).sum();
    cache_node.map(|node| Layout::new(node, world.memory.nodes[node].free, pages, setup.seed))
}

fn first_touch(world: &mut World, unit: u32, order: &[usize]) {
    let bytes = world.space.bytes(unit);
    let node = world.memory.allocate(order, bytes).unwrap_or_else(|| {
        // Large pages may not fit where as many bytes are free in all; the kernel would fall back to
        // small ones. Counted, and put where most is free.
        world.totals.allocations_failed += 1;
        let nodes = order.iter().copied();
        let node = nodes
            .max_by_key(|n| world.memory.nodes[*n].free)
            .unwrap_or(0);
        let free = &mut world.memory.nodes[node].free;
        *free = free.saturating_sub(bytes);
        node
    });
    let state = &mut world.state[unit as usize];
    *state = *state & !bits::NODE | u16::try_from(node).expect("below NODES");
}

/// The oracle: pages by what their place saves per byte, the fastest node first. Moves are free.
pub(crate) fn place_best(setup: &Setup, world: &mut World, phases: &[usize], rates: &[f64]) {
    let rates: Vec<f64> = rates
        .iter()
        .zip(&world.threads)
        .map(|(rate, threads)| if *rate > 0.0 { *rate } else { threads / 200.0 })
        .collect();
    let truth = AccessRates::new(
        setup,
        &world.space,
        &world.hardware,
        &world.sockets,
        phases,
        &rates,
    );
    // Each program has its socket's order.
    let orders = world
        .sockets
        .iter()
        .map(|socket| world.hardware.by_latency(*socket));
    let orders: Vec<Vec<usize>> = orders.collect();
    // Runs of units that are alike, with what each saves a ns and byte if it is fast.
    let mut runs: Vec<(f64, u32, u32)> = Vec::new();
    for (index, program) in truth.programs.iter().enumerate() {
        let (views, order) = (&world.hardware.views[world.sockets[index]], &orders[index]);
        let (fast, slow) = (&views[order[0]], &views[order[order.len() - 1]]);
        let units = world.space.program_units(index);
        let mut unit = units.start;
        while unit < units.end {
            let end = program.alike_until(&world.space, unit);
            let one = program.unit(&world.space, unit);
            let saved = one.miss_read * (slow.read_ns - fast.read_ns)
                + one.miss_write * (slow.update_ns() - fast.update_ns())
                // What is written back costs bandwidth, even where it costs no time.
                + one.backs * (slow.read_ns - fast.read_ns) * 0.1;
            #[expect(clippy::cast_precision_loss, reason = "a page size")]
            let density = saved * rates[index] / world.space.bytes(unit) as f64;
            runs.push((density, unit, end));
            unit = end;
        }
    }
    runs.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for unit in 0..world.space.units() {
        let bytes = world.space.bytes(unit);
        world.memory.give(world.node(unit), bytes);
    }
    for (_, start, end) in runs {
        for unit in start..end {
            let bytes = world.space.bytes(unit);
            let was = world.node(unit);
            let order = &orders[world.program(unit)];
            let node = world.memory.allocate(order, bytes).unwrap_or(was);
            if node != was {
                world.place(unit, node);
            }
        }
    }
}
