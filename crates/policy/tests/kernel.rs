// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of the presets that stand for a kernel's tiering, each by the faults and samples that set it off:
//! which fault promotes, where there must be room, when demotion begins, what goes.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Space;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Host;
use terrace_policy::KernelView;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Preset;
use terrace_policy::ScanScope;
use terrace_policy::Settings;
use terrace_policy::Verdict;

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// The fast node's.
const TOTAL: u64 = 1024 * MIB;
const LOW: u64 = 4 * MIB;
const HIGH: u64 = 6 * MIB;
const PAGES: u32 = 4096;

struct Kernel {
    policy: Box<dyn Policy>,
    space: Space,
    now: Nanos,
}

impl Kernel {
    fn new(preset: &str, params: &[(&str, &str)]) -> Self {
        Self::with_pages(preset, params, PageSize::Base4K)
    }

    fn with_pages(preset: &str, params: &[(&str, &str)], size: PageSize) -> Self {
        let node = |id, tier, cpus: &[u32], latency| NodeInfo {
            id,
            tier: TierId(tier),
            capacity_bytes: TOTAL,
            cpus: cpus.to_vec(),
            read_latency_ns: Some(latency),
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        };
        let mut space = Space::new(Pid(7), Addr(1 << 40));
        assert!(space.add([(0..PAGES, size)]));
        let tiers = Tiers::new(vec![node(FAST, 0, &[0], 80), node(SLOW, 1, &[], 250)]);
        let host = Host {
            kernel: KernelView {
                space: space.clone(),
                ..KernelView::default()
            },
            ..Host::new(tiers)
        };
        let given = params.iter().map(|(name, value)| {
            let (name, value) = ((*name).to_owned(), (*value).to_owned());
            (name, value)
        });
        let mut settings = Settings::new(preset, given.collect::<BTreeMap<_, _>>());
        let preset = Preset::of(preset).expect("a preset");
        let mut kernel = Self {
            policy: (preset.build)(&mut settings, &host).expect("good settings"),
            space,
            now: Nanos(1),
        };
        settings.finish().expect("all known");
        kernel.free(TOTAL / 2);
        kernel.drain();
        kernel
    }

    fn page(&self, unit: u32) -> PageRef {
        self.space.page(unit)
    }

    fn free(&mut self, free_bytes: u64) {
        let memory = NodeMemory {
            free_bytes,
            low_bytes: LOW,
            high_bytes: HIGH,
            total_bytes: TOTAL,
        };
        let event = Event::Memory { node: FAST, memory };
        self.policy.observe(self.now, &event);
    }

    fn drain(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.policy.poll_action()).collect()
    }

    /// A hint fault on a slow page, idle for so long; what the policy wants.
    fn fault(&mut self, unit: u32, idle_ms: u64) -> Vec<Action> {
        let event = Event::HintFault {
            cpu_node: None,
            page: self.page(unit),
            node: SLOW,
            write: false,
            idle: Some(Nanos::from_millis(idle_ms)),
        };
        self.policy.observe(self.now, &event);
        self.drain()
    }

    /// Faults of one access until it is let through; how many, and whether the page was to be promoted.
    fn access(&mut self, unit: u32) -> (u32, bool) {
        for faults in 1..1_000 {
            match self.fault(unit, 1).as_slice() {
                [Action::FaultAgain { page }] if *page == self.page(unit) => {}
                rest => return (faults, rest.iter().any(promotes)),
            }
        }
        panic!("it faults for ever");
    }

    fn ended(&mut self, unit: u32, migration: Migration) {
        let event = Event::Ended {
            from: None,
            page: self.page(unit),
            migration,
            verdict: Verdict::Moved { shadow: false },
            mechanism: Mechanism::MovePages,
            took: Nanos::ZERO,
            inaccessible: Nanos::ZERO,
        };
        self.policy.observe(self.now, &event);
    }

    /// Lets a tick's time pass; what the policy wants.
    fn tick(&mut self) -> Vec<Action> {
        self.now = self.now + Nanos::from_millis(10);
        self.policy.tick(self.now);
        self.drain()
    }

    /// Whether it looks for pages to demote, with so much free.
    fn demotes_at(&mut self, free_bytes: u64) -> bool {
        self.free(free_bytes);
        let looks = |action: &Action| matches!(action, Action::ProbeNext { node: FAST, .. });
        self.tick().iter().any(looks)
    }
}

fn promotes(action: &Action) -> bool {
    matches!(
        action,
        Action::Migrate {
            migration: Migration::Promote {
                to: FAST,
                keep_shadow: false
            },
            ..
        }
    )
}

#[test]
fn tpp_promotes_an_inactive_page_at_its_fifteenth_fault_of_one_access() {
    let mut tpp = Kernel::new("tpp", &[]);
    assert_eq!(tpp.access(3), (15, true));
    assert_eq!(tpp.access(4), (15, true), "each page");
    let mut source = Kernel::new("tpp", &[("promotion_faults", "31")]);
    assert_eq!(source.access(3), (31, true));
}

#[test]
fn tpp_promotes_an_active_page_and_a_huge_one_at_the_first_fault() {
    let mut tpp = Kernel::new("tpp", &[]);
    tpp.free(HIGH);
    assert_eq!(tpp.access(3), (15, false), "no room above high");
    tpp.free(HIGH + PAGE);
    assert_eq!(tpp.access(3), (1, true), "it is active since");
    let demote = Migration::Demote { to: SLOW };
    tpp.ended(3, demote);
    assert_eq!(tpp.access(3), (15, true), "inactive ones are demoted");
    let mut huge = Kernel::with_pages("tpp", &[], PageSize::Huge2M);
    assert_eq!(huge.access(1), (1, true));
}

#[test]
fn tpp_demotes_below_a_tenth_of_the_node_and_arms_what_it_demotes() {
    let mut tpp = Kernel::new("tpp", &[]);
    assert!(tpp.policy.machine_options().arms_demoted);
    assert!(!tpp.demotes_at(TOTAL / 10 + PAGE));
    assert!(tpp.demotes_at(TOTAL / 10 - PAGE));
    // The patch's own 2 %, and never less than twice high.
    let mut two = Kernel::new("tpp", &[("demote_scale_factor", "200")]);
    assert!(!two.demotes_at(TOTAL / 50 + PAGE) && two.demotes_at(TOTAL / 50 - PAGE));
    let mut least = Kernel::new("tpp", &[("demote_scale_factor", "1")]);
    assert!(!least.demotes_at(2 * HIGH + PAGE) && least.demotes_at(2 * HIGH - PAGE));
}

#[test]
fn tpp_demotes_as_soon_as_promotions_reach_the_mark() {
    let mut tpp = Kernel::new("tpp", &[]);
    let tenth = (TOTAL / 10).next_multiple_of(PAGE);
    assert!(!tpp.demotes_at(tenth + PAGE));
    let promote = Migration::Promote {
        to: FAST,
        keep_shadow: false,
    };
    tpp.ended(1, promote);
    tpp.ended(2, promote);
    let looks = |action: &Action| matches!(action, Action::ProbeNext { .. });
    assert!(tpp.tick().iter().any(looks));
}

/// What is demoted, of pages that are accessed between looks or not.
#[test]
fn the_two_lists_demote_what_is_not_accessed_and_keep_what_is() {
    let mut tpp = Kernel::new("tpp", &[]);
    assert!(tpp.demotes_at(TOTAL / 20));
    let mut probe = |unit, accessed| {
        let event = Event::Probed {
            page: tpp.page(unit),
            node: FAST,
            accessed,
        };
        tpp.policy.observe(tpp.now, &event);
        let demotes = |action: &Action| {
            matches!(
                action,
                Action::Migrate {
                    migration: Migration::Demote { to: SLOW },
                    ..
                }
            )
        };
        tpp.drain().iter().any(demotes)
    };
    assert!(probe(1, false));
    assert!(!probe(2, true), "it gets another round");
    assert!(probe(2, false), "and was not accessed in it");
    assert!(!probe(3, true) && !probe(3, true), "active");
    assert!(!probe(3, false), "active pages are left alone");
}

#[test]
fn kernel_tiering_promotes_by_latency_and_all_while_there_is_plenty() {
    let plenty = 2 * TOTAL;
    let mut kernel = Kernel::new("kernel-tiering", &[("hot_threshold", "1s")]);
    // The first fault that counts moves the threshold by an eighth: far fewer candidates than the limit.
    kernel.free(TOTAL / 2);
    assert!(kernel.fault(1, 1_124).iter().any(promotes));
    assert!(!kernel.fault(2, 1_126).iter().any(promotes));
    kernel.free(plenty);
    assert!(kernel.fault(2, 60_000).iter().any(promotes));
    kernel.free(HIGH);
    assert!(
        !kernel.fault(3, 1).iter().any(promotes),
        "no room above high"
    );
}

#[test]
fn kernel_tiering_promotes_no_more_than_its_rate_limit() {
    let mut kernel = Kernel::new("kernel-tiering", &[("promote_rate_limit_mbps", "1")]);
    kernel.free(TOTAL / 2);
    kernel.now = Nanos::from_secs(5);
    let a_second = |kernel: &mut Kernel| {
        let faults = (0..1_000).filter(|unit| kernel.fault(*unit, 1).iter().any(promotes));
        faults.count()
    };
    // A page less than 1 MiB, as the first is what the second is measured from.
    assert_eq!(a_second(&mut kernel), 256);
    kernel.now = kernel.now + Nanos::from_millis(1_001);
    assert_eq!(a_second(&mut kernel), 256);
    let mut zero = Kernel::new("kernel-tiering", &[("promote_rate_limit_mbps", "0")]);
    assert_eq!(a_second(&mut zero), 0);
}

/// The promo watermark is as far above high as high is above low; only a promotion without room wakes who demotes.
#[test]
fn kernel_tiering_demotes_up_to_the_promo_watermark() {
    let promo = 2 * HIGH - LOW;
    let mut kernel = Kernel::new("kernel-tiering", &[("mglru", "false")]);
    assert!(!kernel.demotes_at(HIGH), "not by itself");
    let _ = kernel.fault(1, 1);
    assert!(kernel.demotes_at(promo - PAGE));
    assert!(!kernel.demotes_at(promo));
    assert!(!kernel.demotes_at(promo - PAGE), "it sleeps");
    assert!(
        kernel.demotes_at(LOW - PAGE),
        "what wakes it for any allocation"
    );
}

#[test]
fn autonuma_promotes_at_any_fault_above_high_and_demotes_nothing() {
    let mut kernel = Kernel::new("autonuma", &[]);
    kernel.free(HIGH + PAGE);
    assert!(kernel.fault(1, 60_000).iter().any(promotes));
    kernel.free(HIGH);
    assert!(!kernel.fault(1, 1).iter().any(promotes));
    assert!(!kernel.demotes_at(0));
}

#[test]
fn each_arms_the_tiers_it_promotes_from() {
    for (preset, expected) in [
        ("autonuma", ScanScope::All),
        ("kernel-tiering", ScanScope::Slow),
        ("tpp", ScanScope::Slow),
    ] {
        let mut kernel = Kernel::new(preset, &[]);
        let scan = kernel.tick().into_iter().find_map(|action| match action {
            Action::Scan { scope, .. } => Some(scope),
            _ => None,
        });
        assert_eq!(scan, Some(expected), "{preset}");
    }
}
