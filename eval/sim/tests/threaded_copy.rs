// SPDX-License-Identifier: MIT OR Apache-2.0
//! MTM's figure 11: an array of 1 GB is read, updated or written while it moves from one tier to another, by the
//! kernel's migration, by a parallel copy, and by one that turns synchronous at the first write.

use std::path::Path;

use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_machine_spec::Machine;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Reason;
use terrace_policy::Verdict;
use terrace_sim::EngineKind;
use terrace_sim::Mover;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const TO: NodeId = NodeId(1);

/// Has all that is mapped go to a node, once.
#[derive(Debug, Default)]
struct MovesAll {
    asks: Vec<Action>,
}

impl Policy for MovesAll {
    fn name(&self) -> &'static str {
        "moves-all"
    }
    fn observe(&mut self, _now: Nanos, event: &Event) {
        match *event {
            Event::Mapped { pid, range } => {
                for at in (range.start.0..range.end.0).step_by(2 << 20) {
                    self.asks.push(Action::Migrate {
                        page: PageRef {
                            pid,
                            addr: terrace_core::Addr(at),
                            size: PageSize::Huge2M,
                        },
                        migration: Migration::Demote { to: TO },
                        mechanism: None,
                        reason: Reason::MakeRoom,
                    });
                }
            }
            Event::Ended { verdict, .. } => {
                assert_eq!(verdict, Verdict::Moved { shadow: false });
            }
            _ => {}
        }
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

fn run(mover: Mover, write_percent: u32, engine: EngineKind) -> Outcome {
    let text = include_str!("../../../machines/optane-4tier.toml");
    let machine = Machine::parse(text, Path::new("optane-4tier.toml")).expect("it is checked");
    let writes = format!("write_percent={write_percent}");
    let settings = [
        "working_set=1GiB",
        &writes,
        "threads=1",
        "start=first-touch",
    ];
    let sizes = settings.into_iter().fold(Sizes::paper(), |sizes, setting| {
        sizes.with(setting).expect("a parameter")
    });
    let workload = Workload::named("scan", &sizes).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = "adaptive".to_owned();
    setup.page_size = PageSize::Huge2M;
    setup.mover = mover;
    setup.engine = engine;
    setup.seconds = 2.0;
    let policy = || Box::<MovesAll>::default();
    terrace_sim::run_with(&setup, &mut |_| policy(), &mut |_| {}).expect("it runs")
}

/// What migrating cost the program, ms: its charges, and what it waited for pages.
fn exposed(outcome: &Outcome) -> f64 {
    (outcome.migration_ns + outcome.stall_ns) / 1e6
}

#[test]
fn a_copy_beside_the_program_costs_little_until_it_writes() {
    let engine = EngineKind::Rate;
    let of = |mover| [0, 50, 100].map(|writes| run(mover, writes, engine));
    let kernel = of(Mover::MovePages);
    let parallel = of(Mover::ParallelCopy);
    let adaptive = of(Mover::AdaptiveCopy);
    for index in 0..3 {
        let all = [&kernel, &parallel, &adaptive].map(|runs| &runs[index]);
        assert!(
            all.iter().all(|run| run.stats.demoted_pages == 512),
            "all moved, once"
        );
        assert!(
            all.iter().all(|run| run.stats.tpm_aborted == 0),
            "nothing is aborted"
        );
        // The fault of a first write, which the paper has apart (9.5).
        let count = u32::try_from(all[2].stats.write_protect_faults).expect("at most one a page");
        let faults = f64::from(count) * 0.04;
        let [kernel, parallel, adaptive] = all.map(exposed);
        println!(
            "{engine:?} {index}: move_pages {kernel:.2} ms, parallel {parallel:.2} ms, \
                 adaptive {adaptive:.2} ms, of it faults {faults:.2} ms"
        );
        assert!(parallel < kernel * 1.02, "more threads copy no slower");
        match index {
            0 => assert!(adaptive < kernel * 0.6 && adaptive < parallel * 0.8),
            _ => assert!(adaptive - faults < kernel * 1.3, "{adaptive} and {kernel}"),
        }
    }
    assert!(
        adaptive[0].stats.write_protect_faults == 0 && adaptive[2].stats.write_protect_faults > 0
    );
    assert!(
        adaptive[2].stats.write_protect_faults <= 512,
        "tracking ends with the first write"
    );
}
