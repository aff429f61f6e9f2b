// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated reader of accessed bits tells what the contract says, and both engines tell the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use terrace_core::Addr;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::PageBits;
use terrace_core::Pid;
use terrace_machine_spec::Machine;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_sim::EngineKind;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const SHORTEST: Nanos = Nanos::from_millis(1);
const PASS: Nanos = Nanos::from_millis(100);

/// What was read.
#[derive(Debug, Default)]
struct Log {
    passes: u64,
    /// By rung, ns: pages first seen there, in all passes but the first.
    fresh: BTreeMap<u64, u64>,
    unseen: u64,
    /// Of the pass under way, by chunk: pages seen, and when it was read last.
    seen: BTreeMap<(Pid, Addr), (PageBits, Nanos)>,
}

#[derive(Debug)]
struct Reader {
    asks: bool,
    log: Arc<Mutex<Log>>,
}

impl Policy for Reader {
    fn name(&self) -> &'static str {
        "reader"
    }
    fn observe(&mut self, _now: Nanos, _event: &Event) {}
    fn accessed(&mut self, _now: Nanos, reading: &ChunkReading<'_>) {
        let mut log = self.log.lock().expect("one thread");
        let key = (reading.pid, reading.start);
        let (seen, until) = log.seen.remove(&key).unwrap_or_default();
        assert!(reading.since >= until && reading.since < reading.until);
        assert_eq!(reading.last, reading.until == PASS);
        assert!(reading.last || !reading.fresh.is_empty());
        assert_eq!(reading.accessed, seen.or(&reading.fresh));
        assert!(reading.fresh.and(&seen).is_empty());
        assert!(reading.accessed.without(&reading.present).is_empty());
        let on = reading.nodes.iter();
        let on = on.fold(PageBits::NONE, |all, (_, pages)| all.or(pages));
        assert_eq!(on, reading.present);
        let fresh = u64::from(reading.fresh.count());
        *log.fresh.entry(reading.until.0).or_default() += fresh;
        if reading.last {
            let missed = reading.present.without(&reading.accessed);
            log.unseen += u64::from(missed.count());
            log.passes += 1;
        } else {
            log.seen.insert(key, (reading.accessed, reading.until));
        }
    }
    fn tick(&mut self, _now: Nanos) {}
    fn poll_action(&mut self) -> Option<Action> {
        std::mem::take(&mut self.asks).then_some(Action::ReadAccessed {
            shortest: SHORTEST,
            pass: PASS,
        })
    }
    fn next_deadline(&self) -> Nanos {
        Nanos::MAX
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

fn read(engine: EngineKind) -> Log {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let workload = Workload::named("gups", &Sizes::fast_free(16 << 20)).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = "none".to_owned();
    setup.free.insert(0, 16 << 20);
    setup.engine = engine;
    // A cache that is soon filled: the rate engine's is from the start.
    setup.machine.sockets[0].llc.bytes = 2 << 20;
    setup.seconds = 1.05;
    let log = Arc::new(Mutex::new(Log::default()));
    let mut wrap = |_| {
        Box::new(Reader {
            asks: true,
            log: Arc::clone(&log),
        }) as Box<dyn Policy>
    };
    terrace_sim::run_with(&setup, &mut wrap, &mut |_| {}).expect("it can be simulated");
    Arc::try_unwrap(log)
        .expect("the run is over")
        .into_inner()
        .expect("one thread")
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
fn readings_keep_the_contract_and_engines_agree() {
    let (exact, rate) = (read(EngineKind::Exact), read(EngineKind::Rate));
    assert!(exact.passes > 50);
    assert_eq!(exact.passes, rate.passes);
    let pages: u64 = exact.fresh.values().sum::<u64>() + exact.unseen;
    // All but what the pass at the end, which is not over, would add.
    let other = rate.fresh.values().sum::<u64>() + rate.unseen;
    assert!(pages.abs_diff(other) * 100 < pages, "{pages} and {other}");
    for (rung, count) in &exact.fresh {
        let other = rate.fresh.get(rung).copied().unwrap_or(0);
        let apart = (*count as f64 - other as f64).abs() / pages as f64;
        assert!(apart < 0.03, "{rung} ns: {count} and {other} of {pages}");
    }
    assert!(exact.fresh.len() > 4, "pages are seen at several rungs");
}
