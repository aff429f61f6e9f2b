// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrono's statistics on synthetic heat (`chrono/world.rs`): the threshold comes to the true cut, the hottest pages come
//! to the fast node, and after a shift of the heat both do so again within three scan periods.

#[path = "common/machine.rs"]
mod machine;
#[path = "chrono/world.rs"]
mod world;

use terrace_policy::presets::chrono::Params;
use terrace_policy::presets::chrono::params::Source;
use world::PAGES;
use world::World;
use world::heats;

/// Pages below the threshold, for each that fits, where it counts as having come to the true cut.
const CUT: std::ops::Range<f64> = 0.7..1.15;

/// Faults as the paper has them, and idle times from accessed bits alone.
fn ways() -> [Params; 2] {
    [Source::Faults, Source::AccessedBits].map(|cit| Params {
        cit,
        ..Params::default()
    })
}

#[test]
fn the_threshold_comes_to_the_true_cut_and_the_hottest_pages_to_the_fast_node() {
    for params in ways() {
        for (name, heat) in heats(0, 1.0) {
            let mut world = World::new(params, heat);
            let begin = world.share();
            world.run(600, &params);
            let (below, share) = (world.below(&params), world.share());
            let case = format!(
                "{name} by {:?}: {below:.2} of the fast node below, share {begin:.3} to {share:.3}, {} moves",
                params.cit, world.migrations
            );
            println!("{case}");
            assert!(CUT.contains(&below), "{case}");
            assert!(name == "uniform" || share > 0.85, "{case}");
        }
    }
}

/// The hottest pages become the coldest, and all are accessed more or less often: a threshold that stays is off by more
/// than is allowed, as are pages that stay.
#[test]
fn after_a_shift_it_does_so_again_within_three_scan_periods() {
    let shifts = [
        ("uniform", 4.0),
        ("uniform", 0.25),
        ("normal", 4.0),
        ("normal", 0.25),
        ("zipf", 4.0),
        ("zipf", 0.5),
        // Slower, the same threshold still tells its two levels apart.
        ("two-level", 4.0),
    ];
    for params in ways() {
        for (name, faster) in shifts {
            let heat = |shift, faster| heats(shift, faster).remove(name).expect("there is");
            let mut world = World::new(params, heat(0, 1.0));
            world.run(600, &params);
            world.heat = heat(PAGES / 2, faster);
            let (off, begin) = (world.below(&params), world.share());
            world.run(3 * params.scan_period.0 / 1_000_000_000, &params);
            let (below, share) = (world.below(&params), world.share());
            let case = format!(
                "{name}, {faster} times as fast, by {:?}: {off:.2} of the fast node below, then {below:.2}, share \
                 {begin:.3} to {share:.3}",
                params.cit
            );
            println!("{case}");
            assert!(!CUT.contains(&off), "nothing to come to: {case}");
            assert!(CUT.contains(&below), "{case}");
            assert!(name == "uniform" || begin < 0.6, "nothing to move: {case}");
            assert!(share > 0.6, "{case}");
        }
    }
}
