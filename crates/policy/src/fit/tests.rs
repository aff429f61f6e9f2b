// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every preset with every tracker and every mover, and made-up presets for needs that none of them has.

use crate::PRESETS;

use super::*;

/// As Linux has it.
const HERE: Offer = Offer {
    always: Capabilities::MAPPINGS.union(Capabilities::LATENCIES),
    trackers: &TrackerKind::ALL,
    movers: &[Mover::MovePages, Mover::Agent],
    sockets: false,
};

/// What goes together, by preset: the trackers that each suffice, those of `auto`, and whether `auto` brings the agent.
const TABLE: &[(&str, &[&str], &[&str], bool)] = &[
    (
        "none",
        &["accessed-bits", "pmu", "emulated-pmu", "hint-faults"],
        &[""],
        false,
    ),
    ("nomad", &[], &["accessed-bits,hint-faults"], true),
    ("chrono", &[], &["accessed-bits,hint-faults"], false),
    (
        "hemem",
        &["pmu", "emulated-pmu", "hint-faults"],
        &["pmu", "emulated-pmu", "hint-faults"],
        true,
    ),
    (
        "hemem-page-table",
        &["accessed-bits"],
        &["accessed-bits"],
        true,
    ),
    (
        "mtm",
        &["accessed-bits"],
        &[
            "accessed-bits,pmu",
            "accessed-bits,emulated-pmu",
            "accessed-bits",
        ],
        true,
    ),
    ("autotiering", &[], &["accessed-bits,hint-faults"], false),
    ("adaptive", &["accessed-bits"], &["accessed-bits"], false),
];

fn sets_of(fit: &Fit) -> Vec<String> {
    fit.trackers.iter().map(|set| names(set)).collect()
}

fn here(preset: &Preset, trackers: &[TrackerKind], mover: Mover) -> Result<Fit, Misfit> {
    fit(preset, trackers, mover, &HERE)
}

/// Nomad's preset with other needs.
fn needing(needs: Capabilities) -> Preset {
    let nomad = Preset::of("nomad").expect("a preset");
    Preset { needs, ..*nomad }
}

/// Of sets of trackers those that have no more than is needed, as a message lists them.
fn fewest(auto: &[&str]) -> String {
    let size = |set: &&str| set.split(',').count();
    let least = auto.iter().map(size).min();
    let few: Vec<&str> = auto
        .iter()
        .copied()
        .filter(|set| Some(size(set)) == least)
        .collect();
    few.join(" or ")
}

#[test]
fn each_preset_with_each_tracker_and_each_mover() {
    let movers = [Mover::Auto, Mover::MovePages, Mover::Agent];
    let (real, simulated): (Vec<&Preset>, Vec<&Preset>) =
        PRESETS.iter().partition(|preset| preset.in_user_space());
    assert_eq!(TABLE.len(), real.len(), "a line for each preset");
    for (preset, mover) in simulated
        .iter()
        .flat_map(|one| movers.map(|mover| (one, mover)))
    {
        let line = here(preset, &[TrackerKind::Auto], mover).expect_err("simulated only");
        assert!(line.to_string().contains("needs promotion in the fault"));
    }
    for &(policy, takes, auto, in_process) in TABLE {
        let preset = Preset::of(policy).expect("a preset");
        for mover in movers {
            let agent = match mover {
                Mover::Auto => in_process,
                other => other == Mover::Agent,
            };
            let all = here(preset, &[TrackerKind::Auto], mover).expect("auto fits");
            assert_eq!(
                (sets_of(&all), all.agent()),
                (auto.iter().map(ToString::to_string).collect(), agent),
                "{policy}"
            );
            for tracker in TrackerKind::ALL {
                let name = tracker.name();
                let found = here(preset, &[tracker], mover);
                let case = format!("{policy} {name} {}", mover.name());
                if takes.contains(&name) {
                    let found = found.expect(&case);
                    assert_eq!(
                        (sets_of(&found), found.agent()),
                        (vec![name.to_owned()], agent),
                        "{case}"
                    );
                } else {
                    let line = found.expect_err(&case).to_string();
                    let missing = preset.needs.difference(tracker.gives());
                    let needs = format!("policy '{policy}' needs {missing}");
                    assert!(line.starts_with(&format!("--tracker {name}: ")), "{line}");
                    assert!(line.contains(&needs) && !line.contains('\n'), "{line}");
                    assert!(line.ends_with(&format!("use {} or auto", fewest(auto))));
                }
            }
        }
    }
}

#[test]
fn trackers_that_are_named_are_used_together_and_auto_adds_the_fewest() {
    let both = needing(Capabilities::ACCESSED_BITS | Capabilities::HINT_FAULTS);
    let of = |trackers: &[&str]| {
        let named = trackers.iter().map(|name| name.parse().expect("a tracker"));
        here(&both, &named.collect::<Vec<_>>(), Mover::Auto)
    };
    let set = "accessed-bits,hint-faults";
    for given in [
        &["auto"][..],
        &["hint-faults", "accessed-bits"],
        &["hint-faults", "auto"],
        &["hint-faults", "hint-faults", "accessed-bits"],
    ] {
        assert_eq!(sets_of(&of(given).expect("fits")), [set], "{given:?}");
    }
    let more = of(&["pmu", "auto"]).expect("and the PMU");
    assert_eq!(sets_of(&more), ["accessed-bits,pmu,hint-faults"]);
    let line = of(&["hint-faults", "pmu"]).expect_err("no accessed bits");
    assert_eq!(
        line.to_string(),
        "--tracker hint-faults,pmu: policy 'nomad' needs accessed bits, which it does not give; \
         use accessed-bits,hint-faults or auto"
    );
    let samples = needing(Capabilities::ACCESSED_BITS | Capabilities::SAMPLES);
    let auto = here(&samples, &[TrackerKind::Auto], Mover::Auto).expect("several do");
    let found = sets_of(&auto);
    let expected = [
        "accessed-bits,pmu",
        "accessed-bits,emulated-pmu",
        "accessed-bits,hint-faults",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_hint_fault_is_a_sample_for_who_takes_those_alone() {
    let stands_in = |needs, set: &[TrackerKind]| {
        let fit = here(&needing(needs), set, Mover::Auto).expect("fits");
        fit.stands_in(set)
    };
    let (bits, faults) = (TrackerKind::AccessedBits, TrackerKind::HintFaults);
    assert!(stands_in(Capabilities::SAMPLES, &[faults]));
    assert!(stands_in(Capabilities::SAMPLES, &[bits, faults]));
    assert!(!stands_in(
        Capabilities::SAMPLES,
        &[TrackerKind::Pmu, faults]
    ));
    assert!(!stands_in(Capabilities::HINT_FAULTS, &[faults]));
    assert!(!stands_in(Capabilities::ACCESSED_BITS, &[bits, faults]));
    assert!(stands_in(Capabilities::empty(), &[faults]));
    // One fault is not both.
    let both = needing(Capabilities::SAMPLES | Capabilities::HINT_FAULTS);
    let line = here(&both, &[faults], Mover::Auto).expect_err("no samples");
    assert!(line.to_string().contains("needs samples, which"), "{line}");
}

#[test]
fn what_is_not_there_is_refused() {
    let nomad = Preset::of("nomad").expect("a preset");
    let offer = Offer {
        trackers: &[TrackerKind::AccessedBits, TrackerKind::HintFaults],
        ..HERE
    };
    let line = fit(nomad, &[TrackerKind::Pmu], Mover::Auto, &offer).expect_err("no PMU");
    assert_eq!(
        line.to_string(),
        "--tracker pmu: there is none here; there are: auto, accessed-bits, hint-faults"
    );
    let line = here(nomad, &[TrackerKind::Auto], Mover::InFault).expect_err("simulated only");
    assert_eq!(
        line.to_string(),
        "--mover in-fault: there is none here; there are: auto, move-pages, agent"
    );
    let simulated = Offer {
        movers: &[Mover::MovePages, Mover::Agent, Mover::InFault],
        ..HERE
    };
    let preset = PRESETS.iter().find(|preset| !preset.in_user_space());
    let preset = preset.expect("the kernel's own");
    let auto = [TrackerKind::Auto];
    let found = fit(preset, &auto, Mover::Auto, &simulated).expect("it is simulated");
    assert_eq!(found.mover, Mover::InFault);
    let line = fit(preset, &auto, Mover::Agent, &simulated).expect_err("not in the fault");
    assert!(line.to_string().ends_with("use in-fault or auto"), "{line}");
}

#[test]
fn hint_faults_tell_who_accesses_where_there_are_several_sockets() {
    let on_sockets = |policy: &str, trackers: &[TrackerKind]| {
        let offer = Offer {
            sockets: true,
            ..HERE
        };
        let preset = Preset::of(policy).expect("a preset");
        let found = fit(preset, trackers, Mover::Auto, &offer).expect("they go together");
        (
            sets_of(&found).join(" "),
            found.takes.contains(Capabilities::HINT_FAULTS),
        )
    };
    let (sets, takes) = on_sockets("adaptive", &[TrackerKind::Auto]);
    assert_eq!(sets, "accessed-bits,hint-faults accessed-bits");
    assert!(takes);
    let (sets, _) = on_sockets("mtm", &[TrackerKind::Auto]);
    assert!(sets.starts_with("accessed-bits,pmu,hint-faults "), "{sets}");
    assert!(sets.ends_with(" accessed-bits"), "{sets}");
    // Who names a tracker has that and no other.
    let (sets, takes) = on_sockets("adaptive", &[TrackerKind::AccessedBits]);
    assert_eq!(sets, "accessed-bits");
    assert!(!takes);
    let (sets, _) = on_sockets("hemem-page-table", &[TrackerKind::Auto]);
    assert_eq!(sets, "accessed-bits");
}

#[test]
fn what_a_policy_uses_is_what_there_is_of_it() {
    let takes = |policy: &str, mover| {
        let preset = Preset::of(policy).expect("a preset");
        here(preset, &[TrackerKind::Auto], mover)
            .expect("fits")
            .takes
    };
    let seen = Capabilities::HINT_FAULTS | Capabilities::ACCESSED_BITS;
    let moves = Capabilities::TRANSACTIONS | Capabilities::SHADOWS;
    assert_eq!(takes("nomad", Mover::Auto), seen | moves);
    assert_eq!(takes("nomad", Mover::MovePages), seen);
    let told = Capabilities::SAMPLES | Capabilities::MAPPINGS;
    assert_eq!(takes("hemem", Mover::MovePages), told);
}

#[test]
fn needs_that_no_preset_has_yet() {
    let auto = [TrackerKind::Auto];
    let shadows = needing(Capabilities::HINT_FAULTS | Capabilities::SHADOWS);
    assert!(here(&shadows, &auto, Mover::Auto).is_ok_and(|fit| fit.agent()));
    let line = here(&shadows, &auto, Mover::MovePages).expect_err("none without the agent");
    assert_eq!(
        line.to_string(),
        "--mover move-pages: policy 'nomad' needs shadows, which it does not give; use agent or auto"
    );
    let maps = needing(Capabilities::SAMPLES | Capabilities::MAPPINGS);
    assert!(here(&maps, &auto, Mover::MovePages).is_ok());
}
