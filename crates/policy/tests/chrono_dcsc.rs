// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrono as it is by default, threshold and limit from heat maps (DCSC) and all idle times from accessed bits, against
//! the slow reference; and with idle times from hint faults.

#[path = "common/machine.rs"]
mod machine;
#[path = "chrono/reference.rs"]
mod reference;
#[path = "chrono/steps.rs"]
mod steps;

use machine::FAST;
use machine::Machine;
use machine::PAGE;
use machine::SLOW;
use machine::page;
use machine::tiers;
use proptest::prelude::*;
use reference::Reference;
use steps::counter;
use steps::verdict;
use terrace_core::Addr;
use terrace_core::Nanos;

use terrace_core::Pid;
use terrace_core::Range;
use terrace_policy::Event;
use terrace_policy::ScanScope;
use terrace_policy::Verdict;
use terrace_policy::presets::chrono::Chrono;
use terrace_policy::presets::chrono::Params;
use terrace_policy::presets::chrono::params::Probe;
use terrace_policy::presets::chrono::params::Source;

const PAGES: u64 = 160;
const BITS: (Source, Probe) = (Source::AccessedBits, Probe::AccessedBits);
const FAULTS: (Source, Probe) = (Source::Faults, Probe::Faults);
/// As in the paper.
const CHOSEN: (Source, Probe) = (Source::Faults, Probe::ChosenFaults);
/// A pass over the accessed bits is as long as the threshold at first.
const PASS: Nanos = Nanos::from_millis(100);

/// A small machine's: 400 pages a second at first, scan periods of a fifth of one.
fn params((cit, probe): (Source, Probe)) -> Params {
    Params {
        scan_period: Nanos::from_millis(200),
        statistic_period: Nanos::from_millis(20),
        rate_limit: 400 * PAGE,
        cit_threshold: PASS,
        cit,
        probe,
        arms: probe == Probe::ChosenFaults,
        ..Params::default()
    }
}

/// The policy on its machine beside the reference.
struct Both {
    machine: Machine,
    reference: Reference,
    params: Params,
    /// Lost, and no reading has told of them since.
    gone: Vec<u64>,
}

impl Both {
    /// `fast` pages on the fast node, and a first pass.
    fn new(params: Params, fast: u64) -> Self {
        let policy = Chrono::new(params, tiers());
        let limit = (params.inflight_pages, false);
        let mut both = Self {
            machine: Machine::new(policy, limit, fast, PAGES),
            reference: Reference::new(params, fast),
            params,
            gone: Vec::new(),
        };
        both.machine.wait(PASS.0 / 1_000_000);
        both.read(true);
        both
    }

    fn read(&mut self, last: bool) {
        let cleared = self.machine.cleared;
        let told = self.machine.read(last);
        let now = self.machine.now;
        self.reference.readings(now, cleared, last, &told);
        for told in &told {
            self.gone.retain(|n| !told.pages.contains(n));
        }
    }

    /// An access after so long a time; it is a hint fault where idle times are from these.
    fn access(&mut self, n: u64, cit: Nanos) {
        if self.params.cit == Source::AccessedBits {
            self.machine.touch(n);
        } else if !self.gone.contains(&n) {
            self.machine.fault_after(n, Some(cit));
            if !self.reference.probed(self.machine.now, n, cit) {
                self.reference.fault(self.machine.now, n, cit);
            }
        }
    }

    /// The scanner comes by a page and those behind it.
    fn arm(&mut self, pages: std::ops::Range<u64>) {
        let now = self.machine.now;
        for n in pages {
            let start = page(n).addr;
            let range = Range {
                start,
                end: Addr(start.0 + PAGE),
            };
            let (pid, scope) = (Pid(1), ScanScope::All);
            let armed = Event::Armed { pid, range, scope };
            self.machine.policy.observe(now, &armed);
            self.reference.armed(now, n);
        }
    }

    fn tick(&mut self) -> Result<(), TestCaseError> {
        let now = self.machine.now;
        let wanted = self.reference.tick(now, self.machine.free());
        prop_assert_eq!(self.machine.tick(), wanted);
        let statistics = &mut self.reference.statistics;
        let mut wanted = std::mem::take(&mut statistics.to_arm);
        wanted.append(&mut statistics.demoted_to_arm);
        let mut armed = std::mem::take(&mut self.machine.armed);
        wanted.sort_unstable();
        armed.sort_unstable();
        prop_assert_eq!(armed, wanted);
        let policy = self.machine.policy.as_ref();
        let statistics = &self.reference.statistics;
        for (name, wanted) in [
            ("heat_maps", statistics.looks),
            ("cit_threshold", self.reference.threshold.0 / 1_000),
            ("rate_limit", self.reference.limit()),
            ("misplacement_percent", statistics.misplacement_percent),
            ("queue_dropped", self.reference.dropped),
        ] {
            prop_assert_eq!(counter(policy, name), wanted, "{}", name);
        }
        let heat = policy.counters().into_iter();
        let heat = heat.filter(|(figure, _)| figure.name != "heat_maps");
        let heat = heat.filter(|(figure, _)| figure.name.starts_with("heat_"));
        let told: Vec<(&str, u64)> = heat.map(|(figure, pages)| (figure.name, pages)).collect();
        let wanted = statistics.told();
        let wanted: Vec<(&str, u64)> = wanted.iter().map(|(name, n)| (&**name, *n)).collect();
        prop_assert_eq!(told, wanted);
        Ok(())
    }

    fn end(&mut self, a: u8, b: u8) {
        let flying: Vec<u64> = self.machine.flying.keys().copied().collect();
        for n in flying.into_iter().filter(|n| (n + u64::from(a)) % 3 > 0) {
            let mut verdict = verdict((n * 37).to_le_bytes()[0].wrapping_add(b));
            if self.machine.node[&n] == SLOW && self.machine.free() == 0 {
                verdict = Verdict::NoMemory;
            }
            self.reference.ended(self.machine.now, n, verdict);
            self.machine.finish(n, verdict);
            if verdict == Verdict::Lost {
                self.machine.node.insert(n, SLOW);
                self.gone.push(n);
            }
        }
    }

    fn step(&mut self, (what, a, b): (u8, u8, u8)) -> Result<(), TestCaseError> {
        self.machine.wait(u64::from(b % 8));
        // Some pages on either side of the full node's border are hotter than others.
        let n = if a < 160 { 80 + a % 32 } else { a % 160 };
        let n = u64::from(n);
        match what {
            0..=4 => {
                for n in n..(n + 8).min(PAGES) {
                    self.access(n, Nanos::from_millis(u64::from(b) + n % 5));
                }
            }
            5 if self.params.probe == Probe::Faults => self.arm(n..(n + 64).min(PAGES)),
            5 => self.machine.wait(u64::from(a)),
            6..=8 => {
                self.machine.wait(1);
                self.read(false);
            }
            9 | 10 => {
                let pass = self.machine.now.since(self.machine.cleared);
                self.machine.wait(PASS.since(pass).0 / 1_000_000 + 1);
                self.read(true);
            }
            11..=13 => self.tick()?,
            _ => self.end(a, b),
        }
        Ok(())
    }
}

fn agree(params: Params, fast: u64, steps: &[(u8, u8, u8)]) -> Result<Both, TestCaseError> {
    let mut both = Both::new(params, fast);
    for step in steps {
        both.step(*step)?;
    }
    Ok(both)
}

fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((0_u8..16, any::<u8>(), any::<u8>()), 1..700)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn as_the_text_says_by_default(
        steps in steps(),
        fast in prop_oneof![Just(0_u64), Just(98)],
        rounds in 1_u8..=3,
        inflight_pages in 1_usize..40,
        delta_step in 0.1_f64..=1.0,
    ) {
        let params = Params { rounds, inflight_pages, delta_step, ..params(BITS) };
        agree(params, fast, &steps)?;
    }

    #[test]
    fn as_the_text_says_by_hint_faults(
        steps in steps(),
        fast in prop_oneof![Just(0_u64), Just(98)],
        rounds in 1_u8..=3,
        buckets in 4_usize..=28,
        of in prop::sample::select(vec![FAULTS, CHOSEN]),
    ) {
        let params = Params { rounds, buckets, ..params(of) };
        agree(params, fast, &steps)?;
    }
}

/// Such sequences have looks, promotions, demotions and thresholds of all lengths: what is compared is there.
#[test]
fn all_of_it_comes_up() {
    for of in [BITS, FAULTS, CHOSEN] {
        let mut random = 5_u64;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695);
            random.to_le_bytes()[7]
        };
        let steps: Vec<(u8, u8, u8)> = (0..24_000).map(|_| (next() % 16, next(), next())).collect();
        let both = agree(params(of), 98, &steps).expect("they agree");
        let policy = both.machine.policy.as_ref();
        let mut wanted = vec![("heat_maps", 20), ("enqueued", 50)];
        if of != CHOSEN {
            // There all pages of so small a memory are victims, whose faults are for the heat maps alone: few are for the filter.
            wanted.push(("candidates_lost", 20));
        }
        for (name, least) in wanted {
            let found = counter(policy, name);
            assert!(found >= least, "{name} by {of:?}: {found}");
        }
        let fast = (98..PAGES).filter(|n| both.machine.node[n] == FAST);
        assert!(fast.count() >= 5, "promoted by {of:?}");
    }
}
