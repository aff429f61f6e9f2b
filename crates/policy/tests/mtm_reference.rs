// SPDX-License-Identifier: MIT OR Apache-2.0
//! MTM against a plain reference of its intervals and plans, written from the paper's sentences (5.1 to 5.3, 6).
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers of a test"
)]

#[path = "mtm/machine.rs"]
mod machine;
#[path = "mtm/plan_reference.rs"]
mod plan_reference;
#[path = "mtm/reference.rs"]
mod reference;

use machine::Chunk;
use machine::Machine;
use proptest::prelude::*;
use reference::Rules;
use terrace_core::CHUNK_BYTES;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_policy::presets::mtm::Params;
use terrace_policy::presets::mtm::params::Spacing;

/// Where all memory is.
const NODE: NodeId = NodeId(1);

fn as_reference(machine: &Machine) -> Vec<reference::Region> {
    let all = machine.policy.regions().iter();
    all.map(|(_, r)| reference::Region {
        start: r.start,
        end: r.end,
        hotness: r.hotness,
        before: r.before,
        average: r.average,
        spread: r.spread,
        quota: r.quota,
        node: r.node,
    })
    .collect()
}

/// How often each rule was seen to matter.
#[derive(Debug, Default)]
struct Seen {
    /// Samples that the five that varied most were given, while others could have had them.
    given: u64,
    /// Samples that merging saved, and regions that were split.
    halved: u64,
    divided: usize,
    /// Intervals with a raised `tau_m`, and times that it was reset.
    raised: usize,
    reset: usize,
}

fn samples(regions: &[reference::Region]) -> u64 {
    regions.iter().map(|region| u64::from(region.quota)).sum()
}

fn follows(heats: &[u8], scan: u64, num_scans: u8, seen: &mut Seen) -> Result<(), TestCaseError> {
    let chunk = |heat: &u8| Chunk {
        node: NODE,
        heat: f64::from(*heat).powi(2),
        huge: true,
    };
    let chunks: Vec<Chunk> = heats.iter().map(chunk).collect();
    let scans = f64::from(num_scans);
    let params = Params {
        num_scans,
        tau_m: scans / 3.0,
        tau_s: scans * 2.0 / 3.0,
        scan_spacing: Spacing::Fixed(Nanos::from_millis(50)),
        // Moves cut regions; they have a test of their own.
        promote_bytes: 0,
        ..Params::default()
    };
    let original = Rules {
        num_scans: u64::from(num_scans),
        tau_m: params.tau_m,
        tau_s: params.tau_s,
        alpha: params.alpha as f32,
    };
    let mut machine = Machine::new(params, &[8, 1000], chunks);
    machine.scan = Nanos(scan);
    // Of the first interval's budget, what a scan takes is measured.
    machine.intervals(1);
    let num_ps = 10_000_000_000 / 20 / (scan * (original.num_scans + 1));
    prop_assert_eq!(machine.counter("num_ps"), num_ps, "equation 1");
    let mut expected = as_reference(&machine);
    let mut rules = reference::control(original, original, heats.len(), num_ps);
    for _ in 0..24 {
        machine.scans.clear();
        machine.intervals(1);
        reference::judge(&mut expected, &machine.scans, rules, |_| NODE);
        let raised = rules.tau_m > original.tau_m;
        rules = reference::control(rules, original, expected.len(), num_ps);
        seen.raised += usize::from(rules.tau_m > original.tau_m);
        seen.reset += usize::from(raised && rules.tau_m <= original.tau_m);
        prop_assert_eq!(machine.counter("tau_m_milli"), (rules.tau_m * 1e3) as u64);
        let before = samples(&expected);
        expected = reference::merge(&expected, rules);
        seen.halved += before - samples(&expected);
        let count = expected.len();
        expected = reference::split(&expected, rules);
        seen.divided += expected.len() - count;
        let found = as_reference(&machine);
        if expected.len() as u64 <= num_ps {
            let given = reference::settle(&mut expected, num_ps);
            let pages = heats.len() as u64;
            seen.given += if num_ps < pages { given } else { 0 };
        } else {
            // Which regions have the samples meanwhile is not said.
            prop_assert_eq!(samples(&found), num_ps);
            for (region, found) in expected.iter_mut().zip(&found) {
                prop_assert!(found.quota <= 1, "{found:?}");
                region.quota = found.quota;
            }
        }
        prop_assert_eq!(&found, &expected);
    }
    Ok(())
}

/// Such that there is a sample for every page; for half of them; for few; for fewer than regions at first.
const SCANS: [u64; 4] = [80, 4_000_000, 10_000_000, 25_000_000];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn as_the_text_says(
        heats in prop::collection::vec(0_u8..20, 1..60),
        scan in prop::sample::select(SCANS.to_vec()),
        num_scans in 1_u8..7,
    ) {
        follows(&heats, scan, num_scans, &mut Seen::default())?;
    }
}

/// The same where each rule is at work.
#[test]
fn samples_are_fewer_than_pages_and_regions_too_many() {
    let mut seen = Seen::default();
    for scan in SCANS {
        for step in 1..20_usize {
            let heats: Vec<u8> = (0..59).map(|n| ((n / 8 * step) % 20) as u8).collect();
            follows(&heats, scan, 3, &mut seen).expect("as the text says");
        }
    }
    let Seen {
        given,
        halved,
        divided,
        raised,
        reset,
    } = seen;
    let least = [given, halved, divided as u64, raised as u64, reset as u64];
    assert!(least.iter().all(|times| *times >= 20), "{least:?}");
}

/// Free huge pages of each of three tiers, beside those that are used.
type Free = [u64; 3];

/// Of each interval, what is ordered is the plan of section 6 for the regions as the text forms them.
fn plans(
    chunks: &[(u8, u16)],
    free: Free,
    n: u64,
    used: &mut plan_reference::Used,
) -> Result<(), TestCaseError> {
    let params = Params {
        scan_spacing: Spacing::Fixed(Nanos::from_millis(50)),
        promote_bytes: n * CHUNK_BYTES,
        ..Params::default()
    };
    let rules = Rules {
        num_scans: u64::from(params.num_scans),
        tau_m: params.tau_m,
        tau_s: params.tau_s,
        alpha: params.alpha as f32,
    };
    let num_scans = params.num_scans;
    let chunk = |(heat, node): &(u8, u16)| Chunk {
        node: NodeId(*node),
        heat: f64::from(*heat).powi(2),
        huge: true,
    };
    let chunks: Vec<Chunk> = chunks.iter().map(chunk).collect();
    let on = |chunks: &[Chunk], node: usize| {
        let there = chunks
            .iter()
            .filter(|chunk| usize::from(chunk.node.0) == node);
        there.count() as u64
    };
    let room: Vec<u64> = (0..3).map(|node| free[node] + on(&chunks, node)).collect();
    let mut machine = Machine::new(params, &room, chunks);
    machine.intervals(1);
    for _ in 0..8 {
        let mut expected = as_reference(&machine);
        let before = machine.chunks.clone();
        machine.scans.clear();
        machine.moves.clear();
        machine.intervals(1);
        let node = |addr: u64| before[((addr - machine::BASE) / CHUNK_BYTES) as usize].node;
        reference::judge(&mut expected, &machine.scans, rules, node);
        let formed = reference::split(&reference::merge(&expected, rules), rules);
        let now_free: Vec<u64> = (0..3).map(|node| room[node] - on(&before, node)).collect();
        let plan = plan_reference::plan(&formed, &now_free, n, num_scans, used);
        let moves = machine.moves.iter();
        let moves: Vec<_> = moves
            .map(|(page, how)| (page.addr.0, how.target()))
            .collect();
        prop_assert_eq!(moves, plan);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_moves_is_as_the_text_says(
        chunks in prop::collection::vec((0_u8..20, 0_u16..3), 1..60),
        free in prop::array::uniform3(0_u64..6),
        n in 1_u64..30,
    ) {
        plans(&chunks, free, n, &mut plan_reference::Used::default())?;
    }
}

/// The same where each rule is at work.
#[test]
fn plans_promote_to_each_tier_and_make_room_until_n_is_spent() {
    let mut used = plan_reference::Used::default();
    for step in 1..20_u16 {
        let chunk = |n: u16| (((n / 6 * step) % 20) as u8, (n / 4 + step) % 3);
        let chunks: Vec<_> = (0..59).map(chunk).collect();
        for (free, n) in [([0, 0, 4], 8), ([2, 5, 9], 30), ([0, 3, 1], 3)] {
            plans(&chunks, free, n, &mut used).expect("as the text says");
        }
    }
    let plan_reference::Used {
        fastest,
        next,
        down,
        parts,
        ended,
    } = used;
    let least = [fastest, next, down, parts, ended];
    assert!(least.iter().all(|times| *times >= 20), "{least:?}");
}
