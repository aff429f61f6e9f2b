// SPDX-License-Identifier: MIT OR Apache-2.0
//! MTM against its paper: region invariants, overhead, convergence.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "small numbers of a test"
)]

#[path = "mtm/machine.rs"]
mod machine;

use std::collections::BTreeSet;

use machine::BASE;
use machine::Chunk;
use machine::Machine;
use machine::PID;
use proptest::prelude::*;
use terrace_core::AccessPath;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::Views;
use terrace_policy::Capabilities;
use terrace_policy::Event;
use terrace_policy::Host;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::presets::mtm::Params;
use terrace_policy::presets::mtm::params::Spacing;
use terrace_policy::presets::mtm::quota::Quota;
use terrace_policy::presets::mtm::regions::Mapped;
use terrace_policy::presets::mtm::regions::Regions;

const PAGE: u64 = 4096;
const PAGES: u64 = 24 * 512;
const MIB: u64 = 1 << 20;

fn cold(node: u16, huge: bool) -> Chunk {
    Chunk {
        node: NodeId(node),
        heat: 1.0,
        huge,
    }
}

/// `count` chunks on a node, of which those in `hot` are a hundred times as hot.
fn heat(count: usize, node: u16, huge: bool, hot: std::ops::Range<usize>) -> Vec<Chunk> {
    let mut chunks = vec![cold(node, huge); count];
    for chunk in &mut chunks[hot] {
        chunk.heat = 100.0;
    }
    chunks
}

// --- Regions ---

#[derive(Debug, Clone)]
enum Step {
    Map(u64, u64),
    Unmap(u64, u64),
    /// An interval: hotness and spread by a seed, then merge and split.
    Form(u64, u8),
    Cut(u64),
    Settle(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = || (0..PAGES, 1..PAGES / 3);
    let step = prop_oneof![
        3 => span().prop_map(|(at, pages)| Step::Map(at, pages)),
        2 => span().prop_map(|(at, pages)| Step::Unmap(at, pages)),
        6 => (any::<u64>(), 0_u8..4).prop_map(|(seed, tau)| Step::Form(seed, tau)),
        1 => (0..PAGES).prop_map(Step::Cut),
        3 => (0_u64..600).prop_map(Step::Settle),
    ];
    prop::collection::vec(step, 1..40)
}

fn pages_of(at: u64, pages: u64) -> Range {
    Range {
        start: Addr(BASE + at * PAGE),
        end: Addr(BASE + (at + pages).min(PAGES) * PAGE),
    }
}

/// Pages that are mapped, and 2 MiB that a huge page maps.
#[derive(Debug, Default)]
struct Truth {
    mapped: BTreeSet<u64>,
    huge: BTreeSet<u64>,
}

impl Truth {
    fn map(&mut self, range: Range) {
        let pages = (range.start.0 - BASE) / PAGE..(range.end.0 - BASE) / PAGE;
        self.mapped.extend(pages);
        for chunk in 0..PAGES / 512 {
            let whole = (chunk * 512..(chunk + 1) * 512).all(|page| self.mapped.contains(&page));
            if whole && chunk % 3 == 0 {
                self.huge.insert(chunk);
            }
        }
    }

    fn unmap(&mut self, range: Range) {
        for page in (range.start.0 - BASE) / PAGE..(range.end.0 - BASE) / PAGE {
            if self.mapped.remove(&page) {
                self.huge.remove(&(page / 512));
            }
        }
    }

    /// As samples would show it.
    fn show(&self, regions: &mut Regions) {
        for (_, region) in regions.iter_mut() {
            let chunks =
                (region.start - BASE) / CHUNK_BYTES..(region.end - BASE).div_ceil(CHUNK_BYTES);
            let mut chunks = chunks;
            let huge = chunks.any(|chunk| self.huge.contains(&chunk));
            region.mapped = if huge { Mapped::Huge } else { Mapped::Base };
        }
    }

    fn check(&self, regions: &Regions) -> Result<(), TestCaseError> {
        let mut pages = Vec::new();
        for (pid, region) in regions.iter() {
            prop_assert_eq!(pid, PID);
            prop_assert!(region.start < region.end);
            pages.extend((region.start - BASE) / PAGE..(region.end - BASE) / PAGE);
            for edge in [region.start, region.end] {
                let cuts = self.huge.contains(&((edge - BASE) / CHUNK_BYTES));
                prop_assert!(
                    !cuts || edge.is_multiple_of(CHUNK_BYTES),
                    "a huge page is cut at {edge:#x}"
                );
            }
        }
        let mapped: Vec<u64> = self.mapped.iter().copied().collect();
        prop_assert_eq!(pages, mapped, "in order, each page once");
        Ok(())
    }
}

fn quotas(regions: &Regions) -> u64 {
    regions
        .iter()
        .map(|(_, region)| u64::from(region.quota))
        .sum()
}

fn form(regions: &mut Regions, seed: u64, tau: u8) -> Result<(), TestCaseError> {
    let mut random = terrace_policy::kit::Random::new(seed);
    for (_, region) in regions.iter_mut() {
        region.before = region.hotness;
        region.hotness = random.below(7) as f32 / 2.0;
        region.spread = random.below(4) as f32;
    }
    let (before, count) = (quotas(regions), regions.len() as u64);
    let merged = regions.merge(f32::from(tau), 2.0);
    prop_assert_eq!(regions.len() as u64 + merged, count);
    prop_assert!(quotas(regions) <= before + merged, "halved, one at least");
    let (before, count) = (quotas(regions), regions.len() as u64);
    let split = regions.split(2.0);
    prop_assert_eq!(regions.len() as u64, count + split);
    prop_assert_eq!(quotas(regions), before, "a split gives and takes no sample");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Regions tile the mappings, no huge page is cut, samples add up, whatever happens.
    #[test]
    fn regions_are_the_mappings_and_samples_are_num_ps(steps in steps()) {
        let (mut regions, mut truth, mut quota) = (Regions::default(), Truth::default(), Quota::default());
        for step in &steps {
            match step {
                Step::Map(at, pages) => {
                    regions.map(PID, pages_of(*at, *pages), 1 << 40);
                    truth.map(pages_of(*at, *pages));
                    truth.show(&mut regions);
                    // The kernel may have made huge pages across what were several mappings.
                    regions.merge(0.0, 9.0);
                }
                Step::Unmap(at, pages) => {
                    regions.unmap(PID, pages_of(*at, *pages));
                    truth.unmap(pages_of(*at, *pages));
                    truth.show(&mut regions);
                }
                Step::Form(seed, tau) => form(&mut regions, *seed, *tau)?,
                Step::Cut(page) => {
                    let chunk = page / 512;
                    let at = if truth.huge.contains(&chunk) { chunk * 512 } else { *page };
                    regions.cut_at(PID, BASE + at * PAGE);
                }
                Step::Settle(num_ps) => {
                    let sum = quota.settle(&mut regions, *num_ps, None);
                    let pages: u64 = regions.iter().map(|(_, region)| region.pages()).sum();
                    prop_assert_eq!(sum, pages.min(*num_ps));
                    prop_assert_eq!(quotas(&regions), sum);
                    let enough = regions.len() as u64 <= sum;
                    let each = regions.iter().all(|(_, region)| region.quota >= 1);
                    prop_assert!(!enough || each, "each region has a sample");
                }
            }
            truth.check(&regions)?;
        }
        regions.unmap(PID, pages_of(0, PAGES));
        prop_assert!(regions.is_empty());
    }
}

#[test]
fn where_regions_are_too_many_samples_go_round() {
    let mut regions = Regions::default();
    regions.map(PID, pages_of(0, PAGES), 1 << 40);
    let mut quota = Quota::default();
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        for (_, region) in regions.iter_mut() {
            region.quota = region.quota.max(1);
        }
        assert_eq!(quota.settle(&mut regions, 5, None), 5);
        let with = regions.iter().filter(|(_, region)| region.quota > 0);
        seen.extend(with.map(|(_, region)| region.start));
    }
    assert_eq!(seen.len(), 24, "five times five of 24");
}

#[test]
fn a_mapping_beyond_all_memory_begins_with_larger_regions() {
    let mut regions = Regions::default();
    let range = Range {
        start: Addr(BASE + PAGE),
        end: Addr(BASE + (16 << 40)),
    };
    regions.map(Pid(2), range, 64 << 30);
    assert!(regions.len() <= (64 << 30) / CHUNK_BYTES as usize + 1);
    let bytes: u64 = regions.iter().map(|(_, region)| region.bytes()).sum();
    assert_eq!(bytes, range.end.0 - range.start.0);
}

// --- Overhead ---

#[test]
fn profiling_takes_its_share_and_no_more() {
    for (share, scan) in [0.01, 0.02, 0.05, 0.1]
        .into_iter()
        .flat_map(|share| [20_000, 300_000].map(|scan| (share, scan)))
    {
        let params = Params {
            profiling_overhead: share,
            ..Params::default()
        };
        let mut machine = Machine::new(params, &[200, 1000], heat(512, 1, false, 40..100));
        machine.scan = Nanos(scan);
        machine.intervals(30);
        let budget = share * 10e9;
        for (index, spent) in machine.intervals.iter().enumerate() {
            let part = spent.0 as f64 / budget;
            assert!(
                part <= 1.1,
                "{share} {scan}: interval {index} took {part} of its budget"
            );
            // Once what maps the memory is known, the budget is used.
            assert!(
                index < 3 || part > 0.8,
                "{share} {scan}: interval {index} took {part}"
            );
        }
        let (regions, num_ps) = (machine.counter("regions"), machine.counter("num_ps"));
        assert!(
            regions <= num_ps,
            "{share} {scan}: {regions} regions, {num_ps} samples"
        );
        assert_eq!(machine.counter("page_samples"), num_ps);
        assert_eq!(machine.counter("tau_m_milli"), 1_000, "reset once they fit");
    }
}

/// Scans that follow each other at once would find nothing accessed; and where answers take their time, the next scan
/// waits for them.
#[test]
fn before_the_first_interval_it_is_found_how_far_apart_scans_are_to_be() {
    for answers_after in [Nanos::ZERO, Nanos::from_millis(30)] {
        let mut machine = Machine::new(Params::default(), &[64, 400], heat(400, 1, true, 100..140));
        machine.answers_after = answers_after;
        machine.intervals(1);
        let found = Nanos(machine.counter("scan_spacing_us") * 1_000);
        let within = Nanos::from_millis(2)..Nanos::from_millis(200);
        assert!(within.contains(&found), "{found:?}");
        machine.intervals(2);
        let fast = machine.on_node(0, |chunk| chunk.heat > 50.0);
        assert!(fast >= 36, "{answers_after:?}: {fast} of 40");
        // Whatever the spacing is, an interval is as long as it is said to be.
        let unused = Chunk {
            heat: 0.0,
            ..cold(1, true)
        };
        let mut idle = Machine::new(Params::default(), &[64, 400], vec![unused; 400]);
        idle.answers_after = answers_after;
        idle.intervals(1);
        let begun = idle.now;
        idle.intervals(3);
        assert_eq!(idle.now.since(begun), Nanos::from_secs(30));
    }
}

#[test]
fn too_many_regions_raise_tau_m_until_they_fit() {
    // Neighbours are as different as can be, so that only a raised threshold merges them.
    let chunk = |n: usize| Chunk {
        heat: if n.is_multiple_of(2) { 1e6 } else { 0.0 },
        ..cold(1, true)
    };
    let params = Params {
        scan_spacing: Spacing::Fixed(Nanos::from_millis(100)),
        ..Params::default()
    };
    let mut machine = Machine::new(params, &[8, 1000], (0..400).map(chunk).collect());
    machine.scan = Nanos(1_250_000);
    let mut raised = 0;
    for _ in 0..40 {
        machine.intervals(1);
        raised = raised.max(machine.counter("tau_m_milli"));
    }
    assert_eq!(machine.counter("num_ps"), 100);
    assert!(raised > 1_000, "it had to rise");
    let regions = machine.counter("regions");
    assert!(regions <= 110, "{regions} regions");
}

// --- Migration ---

#[test]
fn the_hot_go_to_the_fastest_tier_and_the_next_to_the_second() {
    let mut chunks = heat(600, 3, true, 100..160);
    for chunk in &mut chunks[300..400] {
        chunk.heat = 12.0;
    }
    let mut machine = Machine::new(Params::default(), &[64, 128, 300, 700], chunks);
    machine.intervals(25);
    let (hot, warm) = (
        |c: &Chunk| c.heat > 50.0,
        |c: &Chunk| (5.0..50.0).contains(&c.heat),
    );
    assert!(
        machine.on_node(0, hot) >= 57,
        "{} of 60",
        machine.on_node(0, hot)
    );
    let warm = machine.on_node(1, warm) + machine.on_node(0, warm);
    assert!(warm >= 90, "{warm} of 100");
    let most = 200_000_000 / CHUNK_BYTES;
    assert!(machine.moves.len() as u64 <= 25 * 2 * most);
}

/// Promotions of an interval are at most N, straight to the target, and make room by colder ones a tier down.
#[test]
fn a_moved_hot_set_takes_the_place_of_the_old_one() {
    let params = Params {
        promote_bytes: 40 * MIB,
        ..Params::default()
    };
    let mut machine = Machine::new(params, &[64, 400], heat(400, 1, true, 0..60));
    machine.intervals(25);
    assert!(machine.on_node(0, |c| c.heat > 50.0) >= 57);
    for (index, chunk) in machine.chunks.iter_mut().enumerate() {
        chunk.heat = if (200..260).contains(&index) {
            100.0
        } else {
            1.0
        };
    }
    for _ in 0..15 {
        machine.moves.clear();
        machine.intervals(1);
        let up = |(page, migration): &(PageRef, Migration)| match migration {
            Migration::Promote { .. } => page.size.bytes(),
            _ => 0,
        };
        let promoted: u64 = machine.moves.iter().map(up).sum();
        assert!(promoted <= 40 * MIB, "{promoted}");
    }
    let there = machine.on_node(0, |c| c.heat > 50.0);
    assert!(there >= 55, "{there} of 60");
}

#[test]
fn base_pages_go_one_by_one_in_order() {
    let mut machine = Machine::new(Params::default(), &[40, 400], heat(200, 1, false, 10..40));
    machine.intervals(15);
    let promoted = machine
        .moves
        .iter()
        .filter(|(_, m)| matches!(m, Migration::Promote { .. }));
    let pages: Vec<_> = promoted.map(|(page, _)| *page).collect();
    assert!(pages.iter().all(|page| page.size == PageSize::Base4K));
    assert!(machine.on_node(0, |c| c.heat > 50.0) >= 28);
}

#[test]
fn a_region_goes_to_the_fastest_tier_of_who_accesses_it() {
    let room = [40, 40, 400];
    let tiers = machine::tiers(&room);
    let path = |from, to, latency| AccessPath {
        from: NodeId(from),
        to: NodeId(to),
        read_latency_ns: Some(latency),
        ..AccessPath::default()
    };
    // Two sockets, each with its own fastest node.
    let same_tier = |id: u16| terrace_core::NodeInfo {
        tier: terrace_core::TierId(u16::from(id == 2)),
        ..tiers.node(NodeId(id)).unwrap().clone()
    };
    let seen = terrace_core::Tiers::new((0..3).map(same_tier).collect());
    let mut paths = vec![path(0, 0, 90), path(0, 1, 145), path(0, 2, 275)];
    paths.extend([path(1, 0, 145), path(1, 1, 90), path(1, 2, 275)]);
    let host = Host {
        views: Views::new(&seen, &[NodeId(0), NodeId(1)], &paths),
        given: Capabilities::HINT_FAULTS,
        ..Host::new(tiers)
    };
    let chunks = heat(200, 2, true, 50..80);
    let mut machine = Machine::on(&host, Params::default(), &room, chunks);
    machine.intervals(1);
    let period = machine.armed.expect("hint faults, one for 12 scans");
    // 4 scans of 200 pages are 66 faults an interval, a third of the pages.
    assert!((25..35).contains(&(period.0 / 1_000_000_000)), "{period:?}");
    for _ in 0..14 {
        for index in 50..80_u64 {
            let cpu_node = Some(NodeId(u16::from(index >= 65)));
            let page = PageRef {
                pid: PID,
                addr: Addr(BASE + index * CHUNK_BYTES),
                size: PageSize::Huge2M,
            };
            let event = Event::HintFault {
                page,
                node: NodeId(2),
                write: false,
                cpu_node,
                idle: None,
            };
            machine.policy.observe(machine.now, &event);
        }
        machine.intervals(1);
    }
    let on = |node: u16, range: std::ops::Range<usize>| {
        let chunks = machine.chunks[range].iter();
        chunks.filter(|chunk| chunk.node == NodeId(node)).count()
    };
    assert!(on(0, 50..65) >= 13, "{} of 15", on(0, 50..65));
    assert!(on(1, 65..80) >= 13, "{} of 15", on(1, 65..80));
}

/// Goes on for so many intervals, in each of which counters see the fourth page of these chunks while they are on.
fn see(machine: &mut Machine, intervals: usize, chunks: std::ops::Range<usize>) {
    let mut told = 0;
    for _ in 0..intervals {
        let before = machine.intervals.len();
        machine.scans.clear();
        while machine.intervals.len() == before {
            if machine.sampling && told <= machine.intervals.len() {
                told = machine.intervals.len() + 1;
                for index in chunks.clone() {
                    let page = PageRef {
                        pid: PID,
                        addr: Addr(BASE + index as u64 * CHUNK_BYTES + 3 * PAGE),
                        size: PageSize::Base4K,
                    };
                    let node = machine.chunks[index].node;
                    let event = Event::Sampled {
                        page,
                        node,
                        write: false,
                        accesses: 1,
                    };
                    machine.policy.observe(machine.now, &event);
                }
            }
            machine.go_on();
        }
    }
}

#[test]
fn the_slowest_tier_is_scanned_where_counters_saw_something() {
    let params = Params {
        promote_bytes: 8 * MIB,
        ..Params::default()
    };
    let mut machine = Machine::new(params, &[40, 400], heat(200, 1, true, 50..80));
    machine.intervals(2);
    see(&mut machine, 6, 60..70);
    assert!(machine.counter("samples_captured") > 0);
    let unseen = machine
        .scans
        .iter()
        .filter(|(addr, _)| (addr - BASE) / CHUNK_BYTES > 150);
    assert_eq!(unseen.count(), 0, "no sample there, no scan");
    let seen = machine.chunks[60..70].iter();
    let there = seen.filter(|chunk| chunk.node == NodeId(0)).count();
    assert!(there >= 9, "{there} of 10");
}

/// Base pages, a sample for each of which would fit into the budget; nothing moves.
#[test]
fn a_region_of_the_slowest_tier_may_be_sampled_by_its_captured_page_alone() {
    let pages_scanned = |captured_alone| {
        let params = Params {
            promote_bytes: 0,
            captured_alone,
            ..Params::default()
        };
        let mut machine = Machine::new(params, &[40, 400], heat(20, 1, false, 5..8));
        machine.intervals(2);
        see(&mut machine, 4, 0..20);
        machine
            .scans
            .iter()
            .map(|(addr, _)| (addr - BASE) / PAGE)
            .collect::<BTreeSet<_>>()
    };
    let captured: BTreeSet<u64> = (0..20).map(|chunk| chunk * 512 + 3).collect();
    let alone = pages_scanned(true);
    assert!(!alone.is_empty() && alone.is_subset(&captured), "{alone:?}");
    let among = pages_scanned(false);
    assert!(among.len() > 1_000, "{} pages", among.len());
}

#[test]
fn nothing_is_kept_of_what_is_gone() {
    let mut machine = Machine::new(Params::default(), &[40, 400], heat(200, 1, true, 50..80));
    machine.intervals(3);
    machine
        .policy
        .observe(machine.now, &Event::Gone { pid: PID });
    machine.chunks.clear();
    machine.intervals(2);
    assert_eq!(machine.counter("regions"), 0);
    assert_eq!(machine.counter("page_samples"), 0);
    assert_eq!(machine.counter("moving"), 0);
}

/// 5.3: "In general, the memory overhead is less than 0.01%."
#[test]
fn all_that_is_kept_is_counted_and_stays_below_a_ten_thousandth() {
    let params = Params {
        adaptive_regions: false,
        promote_bytes: 0,
        ..Params::default()
    };
    let mut machine = Machine::new(params, &[8, 1000], heat(600, 1, true, 50..80));
    machine.intervals(2);
    let (regions, all) = (
        machine.counter("regions"),
        machine.counter("metadata_bytes"),
    );
    assert_eq!(regions, 600);
    let pages = 8 * machine.counter("pages_scanned");
    // While a plan is made, for each region: what is known of it, its place by hotness and as a victim, whether it is in the plan.
    let plan = regions * (16 + 4 + 16 + 1);
    let least = machine.policy.regions().bytes() + pages + plan;
    assert!(all >= least, "{all}, {least}");
    assert!(all * 10_000 < 600 * CHUNK_BYTES, "{all}");
    // Counters are on.
    for index in 0..1_000 {
        let page = PageRef {
            pid: PID,
            addr: Addr(BASE + index * PAGE),
            size: PageSize::Base4K,
        };
        let event = Event::Sampled {
            page,
            node: NodeId(1),
            write: false,
            accesses: 1,
        };
        machine.policy.observe(machine.now, &event);
    }
    let captured = machine.counter("metadata_bytes") - all;
    assert!(captured >= 8 * 1_000, "{captured}");
}
