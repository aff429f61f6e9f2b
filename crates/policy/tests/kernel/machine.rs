// SPDX-License-Identifier: MIT OR Apache-2.0
//! A policy that stands for a kernel, on two sockets with memory of their own and slow memory behind them: what it
//! is told, and what it wants then.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
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

pub(crate) const FAST: NodeId = NodeId(0);
pub(crate) const SLOW: NodeId = NodeId(1);
/// The other socket's.
pub(crate) const OTHER: NodeId = NodeId(2);
pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
/// A fast node's, where a test does not say.
pub(crate) const TOTAL: u64 = 1024 * MIB;
pub(crate) const LOW: u64 = 4 * MIB;
pub(crate) const HIGH: u64 = 6 * MIB;
/// As far above high as high is above low.
pub(crate) const PROMO: u64 = 2 * HIGH - LOW;
pub(crate) const PAGES: u32 = 4096;

pub(crate) const PROMOTE: Migration = Migration::Promote {
    to: FAST,
    keep_shadow: false,
};
pub(crate) const DEMOTE: Migration = Migration::Demote { to: SLOW };
pub(crate) const MOVED: Verdict = Verdict::Moved { shadow: false };

pub(crate) struct Kernel {
    pub(crate) policy: Box<dyn Policy>,
    space: Space,
    pub(crate) now: Nanos,
    /// The first socket's memory, bytes.
    pub(crate) total: u64,
}

impl Kernel {
    pub(crate) fn new(preset: &str, params: &[(&str, &str)]) -> Self {
        Self::with_pages(preset, params, PageSize::Base4K)
    }

    pub(crate) fn with_pages(preset: &str, params: &[(&str, &str)], size: PageSize) -> Self {
        Self::with_view(preset, params, size, KernelView::default())
    }

    /// All but the memory is as the view has it.
    pub(crate) fn with_view(
        preset: &str,
        params: &[(&str, &str)],
        size: PageSize,
        mut view: KernelView,
    ) -> Self {
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
        let base_pages = u32::try_from(size.bytes() / PAGE).expect("few");
        assert!(space.add([(0..PAGES * base_pages, size)]));
        let tiers = Tiers::new(vec![
            node(FAST, 0, &[0], 80),
            node(OTHER, 0, &[1], 80),
            node(SLOW, 1, &[], 250),
        ]);
        view.space = space.clone();
        let host = Host {
            kernel: view,
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
            total: TOTAL,
        };
        settings.finish().expect("all known");
        kernel.free(TOTAL / 2);
        kernel.drain();
        kernel
    }

    pub(crate) fn page(&self, unit: u32) -> PageRef {
        self.space.page(unit)
    }

    pub(crate) fn observe(&mut self, event: &Event) {
        self.policy.observe(self.now, event);
    }

    /// A sample of the first socket's memory.
    pub(crate) fn free(&mut self, free_bytes: u64) {
        self.free_on(FAST, free_bytes);
    }

    pub(crate) fn free_on(&mut self, node: NodeId, free_bytes: u64) {
        let memory = NodeMemory {
            free_bytes,
            low_bytes: LOW,
            high_bytes: HIGH,
            total_bytes: self.total,
        };
        self.observe(&Event::Memory { node, memory });
    }

    pub(crate) fn drain(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.policy.poll_action()).collect()
    }

    /// A hint fault on a slow page, idle for so long; what the policy wants.
    pub(crate) fn fault(&mut self, unit: u32, idle_ms: u64) -> Vec<Action> {
        let idle = Some(Nanos::from_millis(idle_ms));
        self.fault_from(unit, SLOW, None, idle)
    }

    /// One on a page of that node, of a processor of that one.
    pub(crate) fn fault_from(
        &mut self,
        unit: u32,
        node: NodeId,
        cpu_node: Option<NodeId>,
        idle: Option<Nanos>,
    ) -> Vec<Action> {
        self.observe(&Event::HintFault {
            cpu_node,
            page: self.page(unit),
            node,
            write: false,
            idle,
        });
        self.drain()
    }

    /// Whether a hint fault on a slow page, idle for so long, promotes it.
    pub(crate) fn promotes(&mut self, unit: u32, idle_ms: u64) -> bool {
        self.fault(unit, idle_ms).iter().any(promotes)
    }

    /// Faults of one access until it is let through; how many, and whether the page was to be promoted.
    pub(crate) fn access(&mut self, unit: u32) -> (u32, bool) {
        for faults in 1..1_000 {
            match self.fault(unit, 1).as_slice() {
                [Action::FaultAgain { page }] if *page == self.page(unit) => {}
                rest => return (faults, rest.iter().any(promotes)),
            }
        }
        panic!("it faults for ever");
    }

    /// A page of the first socket was looked at; whether it is to be demoted.
    pub(crate) fn probe(&mut self, unit: u32, accessed: bool) -> bool {
        self.probe_on(FAST, unit, accessed)
    }

    pub(crate) fn probe_on(&mut self, node: NodeId, unit: u32, accessed: bool) -> bool {
        self.observe(&Event::Probed {
            page: self.page(unit),
            node,
            accessed,
        });
        self.drain().iter().any(demotes)
    }

    pub(crate) fn ended(&mut self, unit: u32, migration: Migration, verdict: Verdict) {
        self.ended_from(None, unit, migration, verdict);
    }

    pub(crate) fn ended_from(
        &mut self,
        from: Option<NodeId>,
        unit: u32,
        migration: Migration,
        verdict: Verdict,
    ) {
        self.observe(&Event::Ended {
            from,
            page: self.page(unit),
            migration,
            verdict,
            mechanism: Mechanism::MovePages,
            took: Nanos::ZERO,
            inaccessible: Nanos::ZERO,
        });
    }

    /// The scanner has armed what is from that page on.
    pub(crate) fn armed(&mut self, unit: u32) {
        let first = self.page(unit);
        self.observe(&Event::Armed {
            pid: first.pid,
            range: Range {
                start: first.addr,
                end: Addr(first.addr.0 + first.size.bytes()),
            },
            scope: ScanScope::Slow,
        });
    }

    /// Lets a tick's time pass; what the policy wants.
    pub(crate) fn tick(&mut self) -> Vec<Action> {
        self.now = self.now + Nanos::from_millis(10);
        self.policy.tick(self.now);
        self.drain()
    }

    /// Pages that it wants to look at on the first socket, in a tick's time with so much free.
    pub(crate) fn looks_at(&mut self, free_bytes: u64) -> u32 {
        self.free(free_bytes);
        let looks = |action: &Action| match action {
            Action::ProbeNext { node: FAST, pages } => *pages,
            _ => 0,
        };
        self.tick().iter().map(looks).sum()
    }

    /// Whether it looks for pages to demote, with so much free.
    pub(crate) fn demotes_at(&mut self, free_bytes: u64) -> bool {
        self.looks_at(free_bytes) > 0
    }
}

pub(crate) fn promotes(action: &Action) -> bool {
    matches!(action, Action::Migrate { migration, .. } if *migration == PROMOTE)
}

pub(crate) fn demotes(action: &Action) -> bool {
    matches!(action, Action::Migrate { migration, .. } if *migration == DEMOTE)
}

/// The period that the scanner is told, ms.
pub(crate) fn period_ms(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::Scan { period, .. } => Some(period.0 / 1_000_000),
        _ => None,
    })
}
