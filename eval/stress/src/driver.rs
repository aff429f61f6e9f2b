// SPDX-License-Identifier: MIT OR Apache-2.0
//! The supervisor's side: random commands at full rate, every answer counted.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::bail;
use serde::Deserialize;
use serde::Serialize;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_proto::Command;
use terrace_proto::Notice;
use terrace_proto::Op;
use terrace_proto::Outcome;
use terrace_proto::Report;
use terrace_proto::features;
use terrace_sys::mempolicy;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;
use terrace_sys::procmaps::MapsFile;
use terrace_sys::unix_channel::Listener;

use crate::latency::Latency;
use crate::link::Link;
use crate::options::CHAOS_BASE;
use crate::options::CHAOS_PAGES;
use crate::options::CHAOS_STRIDE;
use crate::options::Chaos;
use crate::options::DriveOptions;
use crate::options::PARTS_PAGES;
use crate::options::WORDS_BASE;

/// Tries of what an idle machine does at once: rounds in which a page at least must move for its place to be looked at.
pub(crate) const PLACEMENTS: u32 = 30;
/// Commands that may wait for their answer at a time.
pub(crate) const WINDOW: usize = 256;
/// The C library's arenas begin at multiples of this, with their state (glibc `HEAP_MAX_SIZE`).
const ARENA_BYTES: u64 = 64 << 20;
/// Pages that `--exchanges` has change places.
const EXCHANGED_PAGES: u64 = 64;
/// Longest run of neighbouring pages in one go.
pub(crate) const RUN_MAX: u64 = 24;

/// What the driver saw.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) commands: u64,
    pub(crate) committed: u64,
    /// Of these, pages that were out of reach for a time that the agent knows: it moved them, not the kernel.
    pub(crate) taken_out: u64,
    pub(crate) aborted: u64,
    pub(crate) shadow_hits: u64,
    pub(crate) stale_caught: u64,
    pub(crate) exchanged: u64,
    pub(crate) busy: u64,
    pub(crate) gone: u64,
    pub(crate) not_managed: u64,
    pub(crate) no_shadow: u64,
    pub(crate) no_memory: u64,
    pub(crate) failed: u64,
    pub(crate) reclaimed: u64,
    pub(crate) shadows_dropped: u64,
    pub(crate) unmapped: u64,
    pub(crate) remapped: u64,
    pub(crate) wp_faults: u64,
    pub(crate) missing_faults: u64,
    pub(crate) writes_waited: u64,
    pub(crate) seconds: f64,
    pub(crate) inaccessible_ns_p50: u64,
    pub(crate) inaccessible_ns_p99: u64,
    pub(crate) inaccessible_ns_max: u64,
    pub(crate) placed: u64,
    pub(crate) misplaced: u64,
    /// Pages that were armed, and those that `move_pages` moved meanwhile, `--arm` only.
    pub(crate) armed: u64,
    pub(crate) moved_beside: u64,
    /// Moves of a page with the state of one of malloc's arenas, `--everywhere` only.
    pub(crate) arenas_moved: u64,
    pub(crate) costs: Vec<String>,
    /// With `--latency` only.
    pub(crate) latencies: Vec<Latency>,
}

/// Of values in order; 0 where there are none.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(index).copied().unwrap_or(0)
}

/// A small generator: the same run every time would find the same races.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn seeded(salt: u64) -> Self {
        let time = terrace_sys::clock::now().0;
        Self((time ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }
}

pub(crate) struct Driver<'a> {
    pub(crate) options: &'a DriveOptions,
    pub(crate) link: Link,
    pub(crate) random: Random,
    pub(crate) waiting: BTreeMap<u64, Op>,
    next_seq: u64,
    pub(crate) counts: Counts,
    pub(crate) times: Vec<u64>,
    pub(crate) fast: NodeId,
    pub(crate) slow: NodeId,
    anywhere: Vec<(u64, u64)>,
    /// Processor time the agent had used when a measurement began, ns.
    pub(crate) agent_time: u64,
    /// Pages of the last round that the agent said it moved.
    pub(crate) moved: Vec<u64>,
}

pub(crate) fn run(options: &DriveOptions) -> anyhow::Result<()> {
    let listener = Listener::bind(&options.socket).context("Cannot listen")?;
    println!("LISTENING");
    let link = Link::accept(&listener, options.welcome())?;
    if !link.can_transact() {
        bail!("The agent has no transactions: errno {}", link.hello.errno);
    }
    if options.arm && link.hello.features & features::ARMS == 0 {
        bail!("The agent cannot arm pages: the kernel has no CONFIG_USERFAULTFD_RWP (Linux 7.3)");
    }
    println!("CONNECTED {}", link.hello.features);
    let nodes = mempolicy::allowed_nodes()?;
    let (Some(fast), Some(slow)) = (nodes.first().copied(), nodes.last().copied()) else {
        bail!("No memory node to use");
    };
    let mut driver = Driver {
        options,
        link,
        random: Random::seeded(1),
        waiting: BTreeMap::new(),
        next_seq: 1,
        counts: Counts::default(),
        times: Vec::new(),
        fast,
        slow,
        anywhere: Vec::new(),
        agent_time: 0,
        moved: Vec::new(),
    };
    // The judge says when the victim is ready.
    std::io::stdin().read_line(&mut String::new())?;
    if options.cost {
        crate::cost::measure(&mut driver)?;
    } else if options.latency {
        driver.counts.latencies = crate::latency::measure(&mut driver)?;
    } else {
        driver.storm()?;
        driver.settle()?;
        if driver.fast != driver.slow && options.placement {
            driver.check_placement()?;
        }
    }
    driver.finish();
    println!("{}", serde_json::to_string(&driver.counts)?);
    Ok(())
}

impl Driver<'_> {
    fn storm(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let limit = Duration::from_secs_f64(self.options.seconds);
        let mut maps = Instant::now();
        self.refresh_maps();
        while begun.elapsed() < limit {
            if maps.elapsed() > Duration::from_millis(200) {
                maps = Instant::now();
                self.refresh_maps();
            }
            while self.waiting.len() < WINDOW {
                if self.options.arm {
                    self.arm_something()?;
                } else {
                    self.order_something();
                }
            }
            self.link.ring_bell();
            self.collect()?;
        }
        self.counts.seconds = begun.elapsed().as_secs_f64();
        Ok(())
    }

    fn refresh_maps(&mut self) {
        if !self.options.everywhere {
            return;
        }
        let all = MapsFile::of(self.link.hello.pid).and_then(|mut maps| maps.all());
        self.anywhere = all
            .unwrap_or_default()
            .iter()
            .filter(|mapping| mapping.writable && !mapping.shared)
            .map(|mapping| (mapping.range.start.0, mapping.range.end.0))
            .collect();
    }

    /// A page to play with: (first page, size, how many pages follow in its area).
    pub(crate) fn some_page(&mut self) -> (u64, PageSize, u64) {
        let pick = self.random.below(100);
        if pick < 20
            && let Some((start, end)) = self.some_mapping()
        {
            let pages = (end - start) >> 12;
            // Allocators keep their state at the start.
            let page = self.random.below(pages) * (pick & 1);
            return (start + (page << 12), PageSize::Base4K, pages - page);
        }
        if pick < 50 && !self.options.chaos.is_empty() {
            return self.some_page_of_chaos();
        }
        let size = self.options.page_size.size();
        let page = self.random.below(self.options.pages);
        let addr = WORDS_BASE + page * size.bytes();
        (addr, size, self.options.pages - page)
    }

    fn some_page_of_chaos(&mut self) -> (u64, PageSize, u64) {
        let area = self.random.below(self.options.chaos.len() as u64);
        let kind = usize::try_from(area).map(|at| self.options.chaos[at]);
        let (size, pages) = match kind {
            Ok(Chaos::Parts) => (PageSize::Huge2M, PARTS_PAGES),
            Ok(Chaos::Reuse) => (PageSize::Huge2M, 1),
            _ => (PageSize::Base4K, CHAOS_PAGES),
        };
        let page = self.random.below(pages);
        let addr = CHAOS_BASE + area * CHAOS_STRIDE + page * size.bytes();
        (addr, size, pages - page)
    }

    fn is_arena(&self, addr: u64) -> bool {
        addr.is_multiple_of(ARENA_BYTES) && self.anywhere.iter().any(|(start, _)| *start == addr)
    }

    fn some_mapping(&mut self) -> Option<(u64, u64)> {
        let count = self.anywhere.len() as u64;
        let pick = usize::try_from(self.random.below(count)).ok()?;
        self.anywhere.get(pick).copied()
    }

    /// Two pages of a few change places, and are asked to change back from the other side while they do.
    fn exchange_something(&mut self) {
        let parts = self.options.chaos.iter().position(|c| *c == Chaos::Parts);
        let (start, size, count) = match parts {
            Some(area) if self.random.below(2) == 0 => {
                let start = CHAOS_BASE + area as u64 * CHAOS_STRIDE;
                (start, PageSize::Huge2M, PARTS_PAGES)
            }
            _ => {
                let count = self.options.pages.min(EXCHANGED_PAGES);
                (WORDS_BASE, self.options.page_size.size(), count)
            }
        };
        let [one, other] = [0; 2].map(|_| start + self.random.below(count) * size.bytes());
        for (addr, with) in [(one, other), (other, one)] {
            self.order(Op::Exchange { with: Addr(with) }, addr, size);
        }
    }

    fn order_something(&mut self) {
        // The others bring the pages to different nodes, and shadows.
        if self.options.exchanges && self.random.below(4) != 0 {
            return self.exchange_something();
        }
        let (addr, size, room) = self.some_page();
        let promote = |keep_shadow| Op::Promote {
            node: self.fast,
            keep_shadow,
        };
        let op = match self.random.below(100) {
            0..42 => promote(true),
            42..50 => promote(false),
            50..86 => Op::Demote {
                node: self.slow,
                copy: self.random.below(8) != 0,
            },
            86..95 => {
                let (other, other_size, _) = self.some_page();
                if other_size != size {
                    return;
                }
                Op::Exchange { with: Addr(other) }
            }
            95..98 => Op::DropShadow,
            _ => Op::ReclaimShadows { count: 8 },
        };
        let run = match op {
            Op::Promote { .. } | Op::Demote { .. } if size == PageSize::Base4K => {
                1 + self.random.below(RUN_MAX).min(room - 1)
            }
            _ => 1,
        };
        for n in 0..run {
            self.order(op, addr + n * size.bytes(), size);
        }
        // At once back again: the shortest life of a shadow is the hardest.
        if matches!(
            op,
            Op::Promote {
                keep_shadow: true,
                ..
            }
        ) && self.random.below(2) == 0
        {
            for n in 0..run {
                let back = Op::Demote {
                    node: self.slow,
                    copy: true,
                };
                self.order(back, addr + n * size.bytes(), size);
            }
        }
    }

    pub(crate) fn order(&mut self, op: Op, addr: u64, size: PageSize) {
        let command = Command {
            seq: self.next_seq,
            op,
            addr: Addr(addr),
            size,
        };
        if self.link.send(&command) {
            self.waiting.insert(self.next_seq, op);
            self.next_seq += 1;
            self.counts.commands += 1;
        }
    }

    fn collect(&mut self) -> anyhow::Result<()> {
        if self.waiting.len() >= WINDOW / 2 && !self.link.wait()? {
            bail!("The agent is gone");
        }
        while let Some(report) = self.link.report()? {
            match report {
                Report::Ended {
                    seq,
                    outcome,
                    inaccessible,
                    errno,
                    addr,
                } => {
                    let op = self.answered(seq)?;
                    self.count(op, outcome, inaccessible, errno, addr)?;
                }
                Report::Armed { seq, .. } => {
                    self.answered(seq)?;
                    self.counts.armed += 1;
                }
                Report::Reclaimed { seq, shadows } => {
                    self.answered(seq)?;
                    self.counts.reclaimed += shadows;
                }
                Report::Notice(notice) => self.count_notice(notice),
            }
        }
        Ok(())
    }

    fn answered(&mut self, seq: u64) -> anyhow::Result<Op> {
        let op = self.waiting.remove(&seq);
        op.with_context(|| format!("Answer to {seq}, which was not asked"))
    }

    fn count(
        &mut self,
        op: Op,
        outcome: Outcome,
        inaccessible: Nanos,
        errno: u8,
        addr: Addr,
    ) -> anyhow::Result<()> {
        if !matches!(
            op,
            Op::Promote { .. } | Op::Demote { .. } | Op::Exchange { .. } | Op::Arm
        ) {
            return Ok(());
        }
        if inaccessible > Nanos::ZERO {
            self.times.push(inaccessible.0);
        }
        if outcome.moved() {
            self.moved.push(addr.0);
            self.counts.arenas_moved += u64::from(self.is_arena(addr.0));
        }
        let counts = &mut self.counts;
        let moved = matches!(outcome, Outcome::Done | Outcome::DoneShadowStale);
        let alone = !matches!(op, Op::Exchange { .. });
        counts.taken_out += u64::from(moved && alone && inaccessible > Nanos::ZERO);
        let counter = match (outcome, op) {
            (Outcome::Done, Op::Exchange { .. }) => &mut counts.exchanged,
            (Outcome::Done, _) => &mut counts.committed,
            (Outcome::ShadowHit, _) => &mut counts.shadow_hits,
            (Outcome::DoneShadowStale, _) => {
                counts.committed += 1;
                &mut counts.stale_caught
            }
            (Outcome::Dirtied, _) => &mut counts.aborted,
            (Outcome::Busy, _) => &mut counts.busy,
            (Outcome::Gone, _) => &mut counts.gone,
            (Outcome::NoMemory, _) => &mut counts.no_memory,
            (Outcome::NotManaged, _) => &mut counts.not_managed,
            (Outcome::NoShadow, _) => &mut counts.no_shadow,
            (Outcome::Unavailable, _) => bail!("The agent refuses"),
            (Outcome::Failed, _) => {
                counts.failed += 1;
                bail!("Page {addr}: the kernel said errno {errno}");
            }
        };
        *counter += 1;
        Ok(())
    }

    fn count_notice(&mut self, notice: Notice) {
        match notice {
            Notice::ShadowDropped { .. } => self.counts.shadows_dropped += 1,
            Notice::Unmapped(_) => self.counts.unmapped += 1,
            Notice::Remapped { .. } => self.counts.remapped += 1,
            Notice::Faults {
                write_protect,
                missing,
                writes_waited,
            } => {
                self.counts.wp_faults += write_protect;
                self.counts.writes_waited += u64::from(writes_waited);
                self.counts.missing_faults += u64::from(missing);
            }
        }
    }

    /// Waits until every command is answered, and a last one behind them.
    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        self.order(Op::Ping, 0, PageSize::Base4K);
        self.wait_for_answers()
    }

    /// Waits until every command that was sent is answered.
    pub(crate) fn wait_for_answers(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !self.waiting.is_empty() {
            self.link.ring_bell();
            if !self.link.wait()? {
                bail!("The agent is gone");
            }
            self.collect()?;
            if begun.elapsed() > Duration::from_secs(60) {
                bail!("{} commands were never answered", self.waiting.len());
            }
        }
        Ok(())
    }

    /// Sends every page to the slow node, then to the fast one, and asks the kernel where they
    /// are. Only on a machine with two nodes. Where the program wrote to every page while it was copied, again.
    fn check_placement(&mut self) -> anyhow::Result<()> {
        let mut all = 0;
        for _ in 0..PLACEMENTS {
            for node in [self.slow, self.fast, self.slow] {
                self.place_all(node)?;
            }
            all = self.counts.placed + self.counts.misplaced;
            if all > 0 {
                break;
            }
        }
        if all == 0 {
            bail!("In {PLACEMENTS} rounds no page of all moved");
        }
        if self.counts.misplaced * 50 > all {
            bail!(
                "{} of {all} pages are not where the agent said",
                self.counts.misplaced
            );
        }
        Ok(())
    }

    fn place_all(&mut self, node: NodeId) -> anyhow::Result<()> {
        let size = self.options.page_size.size();
        self.moved.clear();
        for page in 0..self.options.pages {
            let op = if node == self.fast {
                Op::Promote {
                    node,
                    keep_shadow: true,
                }
            } else {
                Op::Demote { node, copy: true }
            };
            self.order(op, WORDS_BASE + page * size.bytes(), size);
            if self.waiting.len() >= WINDOW {
                self.settle()?;
            }
        }
        self.settle()?;
        let pid = Pid(self.link.hello.pid);
        for status in move_pages::query(Target::Process(pid), &self.moved)? {
            match status {
                PageStatus::On(on) if on == node => self.counts.placed += 1,
                _ => self.counts.misplaced += 1,
            }
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) {
        self.times.sort_unstable();
        let at = |percent| percentile(&self.times, percent);
        self.counts.inaccessible_ns_p50 = at(50);
        self.counts.inaccessible_ns_p99 = at(99);
        self.counts.inaccessible_ns_max = at(100);
    }
}
