// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any tracker with any policy and any mover, as far as they go together; several trackers at once.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use terrace_core::ChunkReading;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_machine_spec::Machine;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::ScanScope;
use terrace_sim::EngineKind;
use terrace_sim::Mover;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_sim::TrackerKind;
use terrace_workload::Sizes;
use terrace_workload::Workload;

fn setup(system: &str, trackers: &[TrackerKind], mover: Mover) -> Setup {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let workload = Workload::named("gups", &Sizes::fast_free(16 << 20)).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.trackers = trackers.to_vec();
    setup.mover = mover;
    setup.free.insert(0, 16 << 20);
    setup.seconds = 12.0;
    setup
}

fn run(system: &str, trackers: &[TrackerKind], mover: Mover) -> Outcome {
    let setup = setup(system, trackers, mover);
    terrace_sim::run(&setup, &mut |_| {}).expect("it can be simulated")
}

fn refused(system: &str, trackers: &[TrackerKind], mover: Mover) -> String {
    let setup = setup(system, trackers, mover);
    let error = terrace_sim::check(&setup).expect_err("it does not fit");
    error.to_string()
}

const AUTO: &[TrackerKind] = &[TrackerKind::Auto];

/// What was told and what was refused.
#[derive(Debug, Default)]
struct Seen {
    faults: u64,
    samples: u64,
    readings: u64,
    refused: Vec<Action>,
}

/// Asks once for hint faults and for accessed bits.
#[derive(Debug)]
struct Asker {
    asks: Vec<Action>,
    seen: Arc<Mutex<Seen>>,
}

impl Policy for Asker {
    fn name(&self) -> &'static str {
        "asker"
    }
    fn observe(&mut self, _now: Nanos, event: &Event) {
        let mut seen = self.seen.lock().expect("one thread");
        match event {
            Event::HintFault { .. } => seen.faults += 1,
            Event::Sampled { .. } => seen.samples += 1,
            Event::Refused { what, .. } => seen.refused.push(*what),
            _ => {}
        }
    }
    fn accessed(&mut self, _now: Nanos, _reading: &ChunkReading<'_>) {
        self.seen.lock().expect("one thread").readings += 1;
    }
    fn tick(&mut self, _now: Nanos) {}
    fn poll_action(&mut self) -> Option<Action> {
        self.asks.pop()
    }
    fn next_deadline(&self) -> Nanos {
        Nanos::MAX
    }
    fn counters(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

/// What one that asks for both is told with these trackers, in the place of a preset that goes with them.
fn asked(system: &str, trackers: &[TrackerKind], engine: EngineKind) -> Seen {
    let mut setup = setup(system, trackers, Mover::MovePages);
    (setup.engine, setup.seconds) = (engine, 1.5);
    let scan = Action::Scan {
        scope: ScanScope::All,
        period: Nanos::from_millis(500),
    };
    let read = Action::ReadAccessed {
        shortest: Nanos::from_millis(1),
        pass: Nanos::from_millis(500),
        parts: 1,
    };
    let seen = Arc::new(Mutex::new(Seen::default()));
    let asker = || Asker {
        asks: vec![scan, read],
        seen: Arc::clone(&seen),
    };
    terrace_sim::run_with(&setup, &mut |_| Box::new(asker()), &mut |_| {}).expect("it runs");
    std::mem::take(&mut seen.lock().expect("one thread"))
}

#[test]
fn several_trackers_at_once_each_serve_their_part_and_no_other() {
    use TrackerKind::AccessedBits;
    use TrackerKind::HintFaults;
    for engine in [EngineKind::Exact, EngineKind::Rate] {
        let both = asked("nomad", &[HintFaults, AccessedBits], engine);
        assert!(both.faults > 1_000 && both.readings > 10, "{both:?}");
        assert!(both.refused.is_empty(), "{both:?}");
        let bits = asked("adaptive", &[AccessedBits], engine);
        assert!(bits.faults == 0 && bits.readings > 10, "{bits:?}");
        assert!(matches!(bits.refused[..], [Action::Scan { .. }]));
        // Hint faults are samples for who decides by those, and one is not both.
        let samples = asked("hemem", &[HintFaults], engine);
        assert!(
            samples.samples > 1_000 && samples.faults == 0 && samples.readings == 0,
            "{samples:?}"
        );
        assert!(matches!(samples.refused[..], [Action::ReadAccessed { .. }]));
    }
}

#[test]
fn a_preset_does_with_other_trackers_and_movers_what_it_does() {
    let sampled = run("hemem", &[TrackerKind::HintFaults], Mover::Auto);
    assert!(sampled.stats.samples > 1_000, "{:?}", sampled.stats);
    assert!(sampled.stats.promoted_pages > 0, "{:?}", sampled.stats);
    let own = run("nomad", AUTO, Mover::Auto).stats;
    assert!(own.tpm_committed > 0 && own.ordinary_moves == 0, "{own:?}");
    let outside = run("nomad", AUTO, Mover::MovePages).stats;
    assert_eq!(outside.tpm_committed, 0, "{outside:?}");
    assert!(outside.ordinary_moves > 0, "{outside:?}");
    let agent = run("adaptive", AUTO, Mover::Agent).stats;
    assert!(
        agent.tpm_committed > 0 && agent.ordinary_moves == 0,
        "{agent:?}"
    );
}

#[test]
fn what_does_not_go_together_is_refused_in_one_line() {
    assert_eq!(
        refused("adaptive", &[TrackerKind::Pmu], Mover::Auto),
        "--tracker pmu: policy 'adaptive' needs accessed bits, which it does not give; \
         use accessed-bits or auto"
    );
    assert_eq!(
        refused("hemem", &[TrackerKind::EmulatedPmu], Mover::Auto),
        "--tracker emulated-pmu: there is none here; there are: auto, accessed-bits, pmu, hint-faults"
    );
    assert_eq!(
        refused("tpp", AUTO, Mover::Agent),
        "--mover agent: policy 'tpp' needs promotion in the fault, which it does not give; \
         use in-fault or auto"
    );
    let line = refused("oracle", &[TrackerKind::Pmu], Mover::Auto);
    assert!(line.contains("leave tracker and mover out"), "{line}");
}
