// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a page is moved can be stated where the mover has more than one mechanism; what it has not is refused, and each
//! end tells the mechanism and how long it took.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_machine_spec::Machine;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Reason;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_policy::TrackerKind;
use terrace_policy::Verdict;
use terrace_sim::Mover;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const ALL: [Mechanism; 8] = [
    Mechanism::InFault,
    Mechanism::MovePages,
    Mechanism::Transaction,
    Mechanism::CopyInCommit,
    Mechanism::WritersWait,
    Mechanism::AdaptiveCopy,
    Mechanism::ParallelCopy,
    Mechanism::Exchange,
];

/// By page: what was stated for it, and what came of it.
type Told = Arc<Mutex<Vec<(Option<Mechanism>, Event)>>>;

/// Promotes one page after the other as they are accessed, without a word of how and by each mechanism.
#[derive(Debug)]
struct Asker {
    left: Vec<Option<Mechanism>>,
    asked: Vec<(PageRef, Option<Mechanism>)>,
    asks: Vec<Action>,
    told: Told,
    deadline: Nanos,
}

impl Policy for Asker {
    fn name(&self) -> &'static str {
        "asker"
    }
    fn observe(&mut self, _now: Nanos, event: &Event) {
        let about = match *event {
            Event::HintFault { page, node, .. } | Event::Sampled { page, node, .. }
                if node.0 > 1 && self.asked.iter().all(|(known, _)| *known != page) =>
            {
                let Some(mechanism) = self.left.pop() else {
                    return;
                };
                self.asked.push((page, mechanism));
                return self.asks.push(Action::Migrate {
                    page,
                    migration: Migration::Promote {
                        to: NodeId(1),
                        keep_shadow: false,
                    },
                    mechanism,
                    reason: Reason::HintFault,
                });
            }
            Event::Ended { page, .. } => page,
            Event::Refused {
                what: Action::Migrate { page, .. },
                ..
            } => page,
            _ => return,
        };
        let asked = self.asked.iter().find(|(page, _)| *page == about);
        let (_, mechanism) = asked.expect("it was asked for");
        let mut told = self.told.lock().expect("one thread");
        told.push((*mechanism, *event));
    }
    fn tick(&mut self, now: Nanos) {
        self.deadline = now + Nanos::from_millis(1);
    }
    fn poll_action(&mut self) -> Option<Action> {
        self.asks.pop()
    }
    fn next_deadline(&self) -> Nanos {
        self.deadline
    }
    fn counters(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

fn told(system: &str, mover: Mover) -> Vec<(Option<Mechanism>, Event)> {
    let text = include_str!("../../../machines/autotiering-2socket.toml");
    let path = Path::new("autotiering-2socket.toml");
    let machine = Machine::parse(text, path).expect("it is checked");
    let workload = Workload::named("mix", &Sizes::fast_free(32 << 20)).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.free.extend([(0, 16 << 20), (1, 16 << 20)]);
    setup.spread = true;
    setup.seconds = 1.5;
    if system == "hemem" {
        // In place of samples, of which there are few in so short a time.
        setup.trackers = vec![TrackerKind::HintFaults];
    }
    setup.mover = mover;
    setup.system = system.to_owned();
    let told = Told::default();
    let scan = Action::Scan {
        scope: ScanScope::All,
        period: Nanos::from_millis(500),
    };
    let stated = ALL.map(Some).into_iter();
    let policy = || Asker {
        left: stated.clone().chain([None]).collect(),
        asked: Vec::new(),
        asks: vec![scan],
        told: Arc::clone(&told),
        deadline: Nanos::ZERO,
    };
    terrace_sim::run_with(&setup, &mut |_| Box::new(policy()), &mut |_| {}).expect("it runs");
    std::mem::take(&mut told.lock().expect("one thread"))
}

/// What a mover has: its own mechanism first.
const MOVERS: [(&str, Mover, &[Mechanism]); 6] = [
    (
        "nomad",
        Mover::Agent,
        &[Mechanism::Transaction, Mechanism::MovePages],
    ),
    ("nomad", Mover::MovePages, &[Mechanism::MovePages]),
    (
        "nomad",
        Mover::InFault,
        &[Mechanism::InFault, Mechanism::MovePages],
    ),
    ("nomad", Mover::AdaptiveCopy, &[Mechanism::AdaptiveCopy]),
    ("nomad", Mover::ParallelCopy, &[Mechanism::ParallelCopy]),
    ("hemem", Mover::Agent, &[Mechanism::WritersWait]),
];

#[test]
fn what_is_stated_is_done_or_refused_and_the_end_tells_by_what_and_how_long() {
    for (system, mover, served) in MOVERS {
        let told = told(system, mover);
        assert_eq!(told.len(), 1 + ALL.len(), "{system} {mover:?}: each once");
        for (stated, event) in told {
            let by = stated.unwrap_or(served[0]);
            match event {
                Event::Ended {
                    verdict,
                    mechanism,
                    took,
                    inaccessible,
                    ..
                } => {
                    assert!(served.contains(&by), "{mover:?} has no {by:?}");
                    assert_eq!(mechanism, by, "{mover:?}");
                    if verdict == Verdict::Dirtied {
                        assert_eq!((by, inaccessible), (Mechanism::Transaction, Nanos::ZERO));
                        continue;
                    }
                    assert_eq!(
                        verdict,
                        Verdict::Moved { shadow: false },
                        "{mover:?} {by:?}"
                    );
                    assert!(inaccessible > Nanos::ZERO && took >= inaccessible);
                    // Where the program goes on for a while that is not all of it.
                    let goes_on = match by {
                        Mechanism::Transaction
                        | Mechanism::WritersWait
                        | Mechanism::AdaptiveCopy => true,
                        Mechanism::InFault => false,
                        _ => continue,
                    };
                    assert_eq!(took > inaccessible, goes_on, "{mover:?} {by:?}");
                }
                Event::Refused { why, .. } => {
                    assert!(!served.contains(&by), "{mover:?} has {by:?}");
                    assert_eq!(why, Refusal::Unserved);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
