// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated reader of accessed bits tells what the contract says, and both engines tell the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use terrace_core::Addr;
use terrace_core::ChunkReading;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::PageBits;
use terrace_core::Pid;
use terrace_core::is_sampled;
use terrace_machine_spec::Machine;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::ScanScope;
use terrace_sim::EngineKind;
use terrace_sim::Mover;
use terrace_sim::Setup;
use terrace_sim::TrackerKind;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const SHORTEST: Nanos = Nanos::from_millis(1);
const PASS: Nanos = Nanos::from_millis(100);

/// What was read.
#[derive(Debug, Default)]
struct Log {
    passes: u64,
    /// Of each pass: of how many chunks it read one, and how many pages.
    watched: Vec<(u32, u64)>,
    /// By rung, ns: pages first seen there, in all passes but the first.
    fresh: BTreeMap<u64, u64>,
    unseen: u64,
    /// Of the pass under way, by chunk: pages seen, and when it was read last.
    seen: BTreeMap<(Pid, Addr), (PageBits, Nanos)>,
}

#[derive(Debug)]
struct Reader {
    asks: bool,
    parts: u32,
    log: Arc<Mutex<Log>>,
}

impl Policy for Reader {
    fn name(&self) -> &'static str {
        "reader"
    }
    fn observe(&mut self, _now: Nanos, event: &Event) {
        if let Event::Watched { parts, pages, .. } = *event {
            self.log
                .lock()
                .expect("one thread")
                .watched
                .push((parts, pages));
        }
    }
    fn accessed(&mut self, _now: Nanos, reading: &ChunkReading<'_>) {
        let mut log = self.log.lock().expect("one thread");
        assert!(is_sampled(reading.start, reading.parts));
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
            parts: self.parts,
        })
    }
    fn next_deadline(&self) -> Nanos {
        Nanos::MAX
    }
    fn counters(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

/// In the place of a preset that goes with the trackers.
fn run(
    engine: EngineKind,
    system: &str,
    trackers: &[TrackerKind],
    wrap: &mut dyn FnMut() -> Box<dyn Policy>,
) {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let workload = Workload::named("gups", &Sizes::fast_free(16 << 20)).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.trackers = trackers.to_vec();
    setup.mover = Mover::MovePages;
    setup.free.insert(0, 16 << 20);
    setup.engine = engine;
    // A cache that is soon filled: the rate engine's is from the start.
    setup.machine.sockets[0].llc.bytes = 2 << 20;
    setup.seconds = 1.05;
    terrace_sim::run_with(&setup, &mut |_| wrap(), &mut |_| {}).expect("it can be simulated");
}

fn read(engine: EngineKind, parts: u32) -> Log {
    let log = Arc::new(Mutex::new(Log::default()));
    run(engine, "none", &[TrackerKind::AccessedBits], &mut || {
        Box::new(Reader {
            asks: true,
            parts,
            log: Arc::clone(&log),
        })
    });
    Arc::try_unwrap(log)
        .expect("the run is over")
        .into_inner()
        .expect("one thread")
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
fn readings_keep_the_contract_and_engines_agree() {
    let (exact, rate) = (read(EngineKind::Exact, 1), read(EngineKind::Rate, 1));
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

/// What hint faults and readings say of the same pages.
#[derive(Debug)]
struct Both {
    asks: Vec<Action>,
    log: Arc<Mutex<[u64; 2]>>,
    /// Slow pages that were armed and have not faulted since, and when.
    armed: BTreeMap<Addr, Nanos>,
    faulted: BTreeMap<Addr, Nanos>,
}

impl Policy for Both {
    fn name(&self) -> &'static str {
        "both"
    }
    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::Armed { range, .. } => {
                let pages = (range.start.0 >> 12)..(range.end.0 >> 12);
                for page in pages {
                    self.armed.entry(Addr(page << 12)).or_insert(now);
                }
            }
            Event::HintFault { page, .. } => {
                self.armed.remove(&page.addr);
                self.faulted.insert(page.addr, now);
            }
            _ => {}
        }
    }
    fn accessed(&mut self, now: Nanos, reading: &ChunkReading<'_>) {
        let cleared = Nanos(now.0 - reading.until.0);
        let slow = reading.nodes.iter().find(|(node, _)| node.0 == 1);
        let slow = slow.map_or(PageBits::NONE, |(_, pages)| *pages);
        let mut log = self.log.lock().expect("one thread");
        for page in slow.pages() {
            let addr = Addr(reading.start.0 + page as u64 * 4096);
            let accessed = reading.accessed.get(page);
            if self.faulted.get(&addr).is_some_and(|at| *at > cleared) {
                assert!(accessed, "{addr:?} has faulted since the clearing");
                log[0] += 1;
            }
            if self.armed.get(&addr).is_some_and(|at| *at < cleared) {
                assert!(!accessed, "{addr:?} would have faulted");
                log[1] += 1;
            }
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

/// A hint fault sets the accessed bit, and an armed page that has not faulted was not accessed.
#[test]
fn hint_faults_and_accessed_bits_tell_the_same_of_a_page() {
    for engine in [EngineKind::Exact, EngineKind::Rate] {
        let log = Arc::new(Mutex::new([0; 2]));
        let both = [TrackerKind::AccessedBits, TrackerKind::HintFaults];
        run(engine, "nomad", &both, &mut || {
            let read = Action::ReadAccessed {
                shortest: SHORTEST,
                pass: PASS,
                parts: 1,
            };
            let scan = Action::Scan {
                scope: ScanScope::Slow,
                period: Nanos::from_millis(200),
            };
            Box::new(Both {
                asks: vec![read, scan],
                log: Arc::clone(&log),
                armed: BTreeMap::new(),
                faulted: BTreeMap::new(),
            })
        });
        let [faulted, idle] = *log.lock().expect("one thread");
        assert!(faulted > 1_000 && idle > 100, "{engine:?} {faulted} {idle}");
    }
}

#[test]
fn one_pass_in_four_reads_all_and_the_others_a_sample() {
    for engine in [EngineKind::Exact, EngineKind::Rate] {
        let watched = read(engine, 4).watched;
        assert_eq!(watched.len(), 10);
        let all = watched.iter().map(|(_, pages)| *pages).max().expect("ten");
        for (parts, pages) in watched.iter().copied() {
            match parts {
                1 => assert_eq!(pages, all),
                _ => assert!(pages > all / 16 && pages < all / 2, "{pages} of {all}"),
            }
        }
        let turns: Vec<u32> = watched.into_iter().map(|(parts, _)| parts).collect();
        assert_eq!(turns[..9], [4, 4, 4, 1, 4, 4, 4, 1, 4]);
    }
}
