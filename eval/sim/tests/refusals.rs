// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated machine refuses what it cannot do, and serves what it can.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use terrace_core::Addr;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_machine_spec::Machine;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::Reason;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_sim::Setup;
use terrace_sim::TrackerKind;
use terrace_workload::Sizes;
use terrace_workload::Workload;

type Log = Arc<Mutex<Vec<(Action, Refusal)>>>;

#[derive(Debug)]
struct Asker {
    asks: Vec<Action>,
    log: Log,
}

impl Policy for Asker {
    fn name(&self) -> &'static str {
        "asker"
    }
    fn observe(&mut self, _now: Nanos, event: &Event) {
        if let Event::Refused { what, why } = event {
            self.log.lock().expect("one thread").push((*what, *why));
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

/// What a system of that movement refuses of these.
fn refused(system: &str, asks: &[Action]) -> Vec<(Action, Refusal)> {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let workload = Workload::named("gups", &Sizes::fast_free(16 << 20)).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.trackers = vec![TrackerKind::HintFaults, TrackerKind::AccessedBits];
    setup.free.insert(0, 16 << 20);
    setup.seconds = 0.05;
    let log = Log::default();
    let mut wrap = |_| {
        Box::new(Asker {
            asks: asks.to_vec(),
            log: Arc::clone(&log),
        }) as Box<dyn Policy>
    };
    let outcome = terrace_sim::run_with(&setup, &mut wrap, &mut |_| {}).expect("it can be");
    let refused = std::mem::take(&mut *log.lock().expect("one thread"));
    assert_eq!(outcome.stats.actions_refused, refused.len() as u64);
    refused
}

#[test]
fn what_is_not_there_is_refused_and_the_rest_is_served() {
    let page = |pid| PageRef {
        pid: Pid(pid),
        addr: Addr(0),
        size: PageSize::Base4K,
    };
    let probe = |node| Action::ProbeNext {
        node: NodeId(node),
        pages: 1,
    };
    let look = Action::ProbeRange {
        node: Some(NodeId(0)),
        page: page(99),
        pages: 1,
    };
    let reclaim = Action::ReclaimShadows {
        bytes: 4096,
        reason: Reason::SlowPressure,
    };
    let served = [
        Action::Scan {
            scope: ScanScope::Slow,
            period: Nanos::from_secs(1),
        },
        Action::ReadAccessed {
            shortest: Nanos::from_millis(1),
            pass: Nanos::from_millis(16),
            parts: 1,
        },
        Action::Inventory,
        Action::FindSlow { pid: Pid(1) },
        probe(0),
    ];
    assert_eq!(refused("none", &served), []);
    assert_eq!(
        refused("none", &[reclaim, look, probe(9)]),
        [
            (probe(9), Refusal::Unknown),
            (look, Refusal::Unknown),
            (reclaim, Refusal::Unserved)
        ]
    );
    assert_eq!(refused("nomad", &[reclaim]), [], "it can have shadows");
}
