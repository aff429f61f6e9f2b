// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two programs on two sockets: who accesses is told, and two pages change places.

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
use terrace_policy::ScanScope;
use terrace_policy::Verdict;
use terrace_sim::Mover;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

type Told = Arc<Mutex<Vec<Event>>>;

/// Has the first page that faults on the first slow node change places with the first on the second node of DRAM.
#[derive(Debug)]
struct Exchanger {
    asks: Vec<Action>,
    pages: [Option<PageRef>; 2],
    told: Told,
    deadline: Nanos,
    asked: bool,
}

impl Policy for Exchanger {
    fn name(&self) -> &'static str {
        "exchanger"
    }
    fn observe(&mut self, _now: Nanos, event: &Event) {
        match *event {
            Event::HintFault { page, node, .. } if (1..=2).contains(&node.0) => {
                self.pages[usize::from(node.0) - 1].get_or_insert(page);
                if let [Some(with), Some(page)] = self.pages
                    && !std::mem::replace(&mut self.asked, true)
                {
                    self.asks.push(Action::Migrate {
                        page,
                        migration: Migration::Exchange {
                            to: NodeId(1),
                            with,
                        },
                        mechanism: None,
                        reason: Reason::HintFault,
                    });
                }
            }
            Event::HintFault { .. } | Event::Ended { .. } => {}
            _ => return,
        }
        self.told.lock().expect("one thread").push(*event);
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

fn told(mover: Mover) -> Vec<Event> {
    let text = include_str!("../../../machines/autotiering-2socket.toml");
    let path = Path::new("autotiering-2socket.toml");
    let machine = Machine::parse(text, path).expect("it is checked");
    let workload = Workload::named("mix", &Sizes::fast_free(32 << 20)).expect("known");
    assert_eq!(workload.programs.len(), 2);
    let mut setup = Setup::new(machine, workload);
    setup.free.extend([(0, 16 << 20), (1, 16 << 20)]);
    setup.spread = true;
    setup.seconds = 1.5;
    setup.mover = mover;
    setup.system = "nomad".to_owned();
    let told = Told::default();
    let scan = Action::Scan {
        scope: ScanScope::All,
        period: Nanos::from_millis(500),
    };
    let policy = || Exchanger {
        asks: vec![scan],
        pages: [None, None],
        told: Arc::clone(&told),
        deadline: Nanos::ZERO,
        asked: false,
    };
    terrace_sim::run_with(&setup, &mut |_| Box::new(policy()), &mut |_| {}).expect("it runs");
    std::mem::take(&mut told.lock().expect("one thread"))
}

#[test]
fn who_accesses_is_told() {
    let faults = told(Mover::MovePages)
        .into_iter()
        .filter_map(|event| match event {
            Event::HintFault { page, cpu_node, .. } => Some((page.pid.0, cpu_node)),
            _ => None,
        });
    let mut seen: Vec<_> = faults.collect();
    seen.sort_unstable();
    seen.dedup();
    let nodes: Vec<_> = seen.iter().map(|(_, node)| *node).collect();
    assert_eq!(nodes, [Some(NodeId(0)), Some(NodeId(1))], "a socket each");
}

#[test]
fn two_pages_change_places_where_the_mover_can() {
    for mover in [Mover::Agent, Mover::InFault, Mover::MovePages] {
        let told = told(mover);
        let ends = told.iter().filter_map(|event| match *event {
            Event::Ended {
                page,
                migration: Migration::Exchange { with, to },
                from,
                verdict,
                mechanism,
                took,
                inaccessible,
            } => {
                assert_eq!((to, from), (NodeId(1), Some(NodeId(2))));
                Some((page, with, verdict, mechanism, [took, inaccessible]))
            }
            _ => None,
        });
        let (page, with, verdict, mechanism, [took, inaccessible]) =
            ends.clone().next().expect("an end");
        if mover == Mover::MovePages {
            assert_eq!(verdict, Verdict::Busy, "nobody can");
            continue;
        }
        assert_eq!(verdict, Verdict::Moved { shadow: false }, "{mover:?}");
        let by = match mover {
            Mover::Agent => Mechanism::Exchange,
            _ => Mechanism::InFault,
        };
        assert_eq!(mechanism, by);
        assert!(inaccessible > Nanos::ZERO && took >= inaccessible);
        // Both are where the other was.
        let end = told
            .iter()
            .position(|event| matches!(event, Event::Ended { .. }));
        let after = &told[end.expect("it ended")..];
        for (which, on) in [(page, NodeId(1)), (with, NodeId(2))] {
            let seen = after.iter().filter_map(|event| match *event {
                Event::HintFault { page, node, .. } if page == which => Some(node),
                _ => None,
            });
            assert!(seen.clone().count() > 0 && seen.into_iter().all(|node| node == on));
        }
        assert_eq!(ends.count(), 1, "once");
    }
}
