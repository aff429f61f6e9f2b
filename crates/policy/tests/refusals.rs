// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine refuses, the policy sees and the statistics count: each action but a migration, with its reason.

use std::sync::Arc;
use std::sync::Mutex;

use terrace_core::Addr;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_policy::Action;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Machine;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Reason;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_policy::Served;

const NODE: NodeId = NodeId(1);
const PAGE: PageRef = PageRef {
    pid: Pid(7),
    addr: Addr(4096),
    size: PageSize::Base4K,
};
const ACTIONS: [Action; 12] = [
    Action::Migrate {
        page: PAGE,
        migration: Migration::Demote { to: NODE },
        mechanism: Some(Mechanism::Transaction),
        reason: Reason::SlowPressure,
    },
    Action::ReclaimShadows {
        bytes: 4096,
        reason: Reason::SlowPressure,
    },
    Action::Scan {
        scope: ScanScope::All,
        period: Nanos::from_secs(1),
    },
    Action::ReadAccessed {
        shortest: Nanos::from_millis(1),
        pass: Nanos::from_secs(4),
        parts: 1,
    },
    Action::Arm { page: PAGE },
    Action::FaultAgain { page: PAGE },
    Action::Inventory,
    Action::FindSlow { pid: Pid(1) },
    Action::ProbeNext {
        node: NODE,
        pages: 5,
    },
    Action::ProbeRange {
        node: Some(NODE),
        page: PAGE,
        pages: 3,
    },
    Action::Split { page: PAGE },
    Action::Sample { on: false },
];

type Log = Arc<Mutex<Vec<(Action, Refusal)>>>;

/// Asks for everything, notes what is refused, and asks for that again at once.
#[derive(Debug)]
struct Recorder {
    asks: Vec<Action>,
    log: Log,
}

impl Policy for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }
    fn observe(&mut self, _now: Nanos, event: &Event) {
        if let Event::Refused { what, why } = event {
            self.log.lock().expect("one thread").push((*what, *why));
            self.asks.push(*what);
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

/// Refuses each for a reason of its own, or serves all.
struct Strict {
    serves: bool,
    migrations: u64,
}

impl Strict {
    const fn answer(&self, why: Refusal) -> Served {
        if self.serves { Ok(()) } else { Err(why) }
    }
}

impl Machine for Strict {
    fn migrate(
        &mut self,
        _: Nanos,
        _: PageRef,
        _: Migration,
        mechanism: Option<Mechanism>,
        _: Reason,
    ) -> Served {
        let served = mechanism.map_or(Ok(()), |_| self.answer(Refusal::Unserved));
        self.migrations += u64::from(served.is_ok());
        served
    }
    fn reclaim_shadows(&mut self, _: Nanos, _: u64, _: Reason) -> Served {
        self.answer(Refusal::Busy)
    }
    fn scan(&mut self, _: Nanos, _: ScanScope, _: Nanos) -> Served {
        self.answer(Refusal::Denied)
    }
    fn read_accessed(&mut self, _: Nanos, _: Nanos, _: Nanos, _: u32) -> Served {
        self.answer(Refusal::Denied)
    }
    fn arm(&mut self, _: Nanos, _: PageRef) -> Served {
        self.answer(Refusal::Busy)
    }
    fn fault_again(&mut self, _: Nanos, _: PageRef) -> Served {
        self.answer(Refusal::Unserved)
    }
    fn inventory(&mut self, _: Nanos) -> Served {
        self.answer(Refusal::Busy)
    }
    fn find_slow(&mut self, _: Nanos, _: Pid) -> Served {
        self.answer(Refusal::Unserved)
    }
    fn probe_next(&mut self, _: Nanos, _: NodeId, _: u32) -> Served {
        self.answer(Refusal::Unknown)
    }
    fn probe_range(&mut self, _: Nanos, _: Option<NodeId>, _: PageRef, _: u32) -> Served {
        self.answer(Refusal::Unknown)
    }
    fn split(&mut self, _: Nanos, _: PageRef) -> Served {
        self.answer(Refusal::Unserved)
    }
    fn sample(&mut self, _: Nanos, _: bool) -> Served {
        self.answer(Refusal::Denied)
    }
}

/// Serves what every machine does.
struct Plain;

impl Machine for Plain {
    fn migrate(
        &mut self,
        _: Nanos,
        _: PageRef,
        _: Migration,
        mechanism: Option<Mechanism>,
        _: Reason,
    ) -> Served {
        mechanism.map_or(Ok(()), |_| Err(Refusal::Unserved))
    }
}

fn engine() -> (Engine, Log) {
    let log = Log::default();
    let migration = Migration::Demote { to: NODE };
    let migrate = Action::Migrate {
        page: PAGE,
        migration,
        mechanism: None,
        reason: Reason::FastPressure,
    };
    let asks = [migrate].into_iter().chain(ACTIONS).rev().collect();
    let policy = Recorder {
        asks,
        log: Arc::clone(&log),
    };
    (Engine::new(Box::new(policy)), log)
}

fn take(log: &Log) -> Vec<(Action, Refusal)> {
    std::mem::take(&mut log.lock().expect("one thread"))
}

#[test]
fn each_refusal_reaches_the_policy_and_is_counted() {
    let (mut engine, log) = engine();
    let mut machine = Strict {
        serves: false,
        migrations: 0,
    };
    engine.pump(Nanos::ZERO, &mut machine);
    let why = [
        Refusal::Unserved,
        Refusal::Busy,
        Refusal::Denied,
        Refusal::Denied,
        Refusal::Busy,
        Refusal::Unserved,
        Refusal::Busy,
        Refusal::Unserved,
        Refusal::Unknown,
        Refusal::Unknown,
        Refusal::Unserved,
        Refusal::Denied,
    ];
    let expected: Vec<_> = ACTIONS.into_iter().zip(why).collect();
    assert_eq!(take(&log), expected);
    assert_eq!(engine.stats().actions_refused, 12);
    assert_eq!((engine.stats().ordered, machine.migrations), (1, 1));
    // It has asked again since: once for each round, however often it is refused.
    engine.pump(Nanos(1), &mut machine);
    assert_eq!(take(&log).len(), 12);
    machine.serves = true;
    engine.pump(Nanos(2), &mut machine);
    assert_eq!(take(&log), []);
    assert_eq!((engine.stats().ordered, machine.migrations), (2, 2));
    assert_eq!(engine.stats().actions_refused, 24);
}

#[test]
fn a_machine_that_says_nothing_of_an_action_does_not_serve_it() {
    let (mut engine, log) = engine();
    engine.pump(Nanos::ZERO, &mut Plain);
    let refused = take(&log);
    assert_eq!(refused.len(), ACTIONS.len());
    assert!(refused.iter().all(|(_, why)| *why == Refusal::Unserved));
}
