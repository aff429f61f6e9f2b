// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine in memory: base pages and huge ones on its nodes, read in passes as the contract says,
//! with accesses that come by a law of each page's own.

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::Turns;
use terrace_core::shorten;
use terrace_policy::About;
use terrace_policy::Action;
use terrace_policy::Belief;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_policy::Share;
use terrace_policy::Verdict;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

use crate::nodes::FAST;
use crate::nodes::PAGE;
use crate::nodes::tiers;

/// What splitting a huge page takes, on a virtual machine.
const SPLIT: Nanos = Nanos(250_000);

const PID: Pid = Pid(7);
/// Who has the pages from [`Machine::second`] on.
const OTHER: Pid = Pid(8);

/// Numbers that are the same in each run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub(crate) fn exponential(&mut self) -> f64 {
        -(((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64).ln()
    }
}

/// The end of an order that was carried out.
pub(crate) const fn has_moved(page: PageRef, migration: Migration) -> Event {
    ended(page, migration, Verdict::Moved { shadow: false })
}

const fn ended(page: PageRef, migration: Migration, verdict: Verdict) -> Event {
    Event::Ended {
        from: None,
        page,
        migration,
        verdict,
        mechanism: Mechanism::MovePages,
        took: Nanos::ZERO,
        inaccessible: Nanos::ZERO,
    }
}

/// Chunks that are cleared and read together.
struct Slice {
    chunks: std::ops::Range<usize>,
    cleared: u64,
    rungs: Vec<Nanos>,
    done: usize,
    /// The reading before.
    since: u64,
}

impl Slice {
    /// A pass under way ends sooner where shorter ones were asked for.
    fn shorten(&mut self, pass: u64, now: u64) {
        let end = pass.max(now.saturating_sub(self.cleared));
        shorten(&mut self.rungs, self.done, Nanos(end));
    }
}

/// See the module.
pub(crate) struct Machine {
    pub(crate) policy: Adaptive,
    /// The node of each page.
    pub(crate) at: Vec<u16>,
    /// Chunks that are huge pages, all others are base pages; and what splitting one is said to take of a visit, if it can be done.
    pub(crate) huge: Vec<bool>,
    pub(crate) walk: Option<Nanos>,
    /// Huge pages that were to be split, and that were.
    pub(crate) asked: u64,
    pub(crate) splits: u64,
    /// Pages that do not move, and orders for them.
    pub(crate) pinned: Box<dyn Fn(usize) -> bool>,
    pub(crate) stayed: u64,
    /// Pages that each node has room for.
    capacity: Vec<u64>,
    /// Free pages of the first node under which the kernel reclaims.
    pub(crate) high: u64,
    /// The first page of another process; a multiple of a chunk's.
    pub(crate) second: usize,
    now: u64,
    shortest: u64,
    pass: u64,
    parts: u32,
    turns: Turns,
    cleared: u64,
    pub(crate) dice: Dice,
    /// What a move takes.
    pub(crate) price: Nanos,
    /// Where pages were at first, and what moves up to anywhere else took: as if each went into room.
    home: Vec<u16>,
    pub(crate) spent: u64,
    /// Processor time that reading it all takes.
    pub(crate) busy: Nanos,
    /// And what that takes of the program.
    pub(crate) lost: Nanos,
    /// How much later the second half of the memory is cleared and read; 0 for all at once.
    pub(crate) lag: u64,
    /// The node whose processors access each page, where hint faults tell; and how long a pass of them is.
    pub(crate) accessed_from: Option<Box<dyn Fn(usize) -> u16>>,
    pub(crate) armed: Nanos,
    /// Hint faults told, and pages armed that were asked for in their turn.
    pub(crate) faults: u64,
    hand: usize,
    /// What the program runs in so long from then on, s.
    pub(crate) runs: Box<dyn Fn(f64, f64) -> f64>,
    /// Orders by pass, and their pages.
    pub(crate) moves: u64,
    /// Base pages of them.
    pub(crate) pages_moved: u64,
    pub(crate) orders: Vec<(u64, bool)>,
}

impl Machine {
    /// With the first pages in fast memory until it is full.
    pub(crate) fn new(pages: usize, fast_pages: u64) -> Self {
        let params = Params {
            reserve: Some(0),
            ..Params::default()
        };
        let full = usize::try_from(fast_pages).expect("few");
        let policy = Adaptive::new(params, tiers(fast_pages));
        let at = (0..pages).map(|page| u16::from(page >= full)).collect();
        Self::on(policy, at, vec![fast_pages, 1 << 22])
    }

    /// With pages on these nodes, which have room for so many.
    pub(crate) fn on(policy: Adaptive, at: Vec<u16>, capacity: Vec<u64>) -> Self {
        Self {
            policy,
            second: at.len(),
            huge: vec![false; at.len().div_ceil(CHUNK_PAGES)],
            walk: Some(Nanos::ZERO),
            asked: 0,
            splits: 0,
            pinned: Box::new(|_| false),
            stayed: 0,
            home: at.clone(),
            at,
            capacity,
            high: 0,
            now: 0,
            shortest: 0,
            pass: 0,
            parts: 1,
            turns: Turns::default(),
            cleared: 0,
            dice: Dice(1),
            price: Nanos(5_000),
            spent: 0,
            busy: Nanos::ZERO,
            lost: Nanos::ZERO,
            lag: 0,
            accessed_from: None,
            armed: Nanos::MAX,
            faults: 0,
            hand: 0,
            runs: Box::new(|_, time| time),
            moves: 0,
            pages_moved: 0,
            orders: Vec::new(),
        }
    }

    /// What the policy believes.
    pub(crate) fn explain(&self, page: Option<Addr>) -> Option<Belief> {
        self.policy
            .explain(Nanos(self.now), About { pid: PID, page })
    }

    /// Seconds so far.
    pub(crate) fn seconds(&self) -> u64 {
        self.now / 1_000_000_000
    }

    /// Whether a page is on the first node.
    pub(crate) fn is_fast(&self, page: usize) -> bool {
        self.at[page] == 0
    }

    fn free(&self, node: u16) -> u64 {
        let used = self.at.iter().filter(|at| **at == node).count() as u64;
        let free = self.capacity[usize::from(node)].checked_sub(used);
        free.expect("more than fits")
    }

    fn memory(&mut self) {
        for node in 0..u16::try_from(self.capacity.len()).expect("few") {
            let memory = NodeMemory {
                free_bytes: self.free(node) * PAGE,
                low_bytes: 0,
                high_bytes: if node == 0 { self.high * PAGE } else { 0 },
                total_bytes: self.capacity[usize::from(node)] * PAGE,
            };
            let node = NodeId(node);
            let event = Event::Memory { node, memory };
            self.policy.observe(Nanos(self.now), &event);
        }
    }

    /// Lets the policy act until it wants no more; every order is carried out at once.
    fn act(&mut self) {
        if self.policy.next_deadline() <= Nanos(self.now) {
            self.policy.tick(Nanos(self.now));
        }
        loop {
            let (mut ends, mut refused) = (Vec::new(), Vec::new());
            while let Some(action) = self.policy.poll_action() {
                match action {
                    Action::ReadAccessed {
                        shortest,
                        pass,
                        parts,
                    } => {
                        (self.shortest, self.pass) = (shortest.0, pass.0);
                        self.parts = parts;
                    }
                    Action::Migrate {
                        page, migration, ..
                    } => ends.push((page, migration)),
                    Action::Split { page } => {
                        self.asked += 1;
                        match self.walk {
                            Some(walk) => self.split(page, walk),
                            None => refused.push(action),
                        }
                    }
                    Action::Scan {
                        scope: ScanScope::All,
                        period,
                    } => match self.accessed_from {
                        Some(_) => self.armed = period,
                        None => refused.push(action),
                    },
                    other => panic!("asks for {other:?}"),
                }
            }
            for what in refused {
                let why = Refusal::Unserved;
                let event = Event::Refused { what, why };
                self.policy.observe(Nanos(self.now), &event);
            }
            if ends.is_empty() {
                return;
            }
            for (page, migration) in ends {
                self.carry_out(page, migration);
            }
        }
    }

    fn split(&mut self, page: PageRef, walk: Nanos) {
        let chunk = usize::try_from(page.addr.0 / CHUNK_BYTES).expect("few");
        assert!(self.huge[chunk] && page.size == PageSize::Huge2M);
        self.huge[chunk] = false;
        self.splits += 1;
        let event = Event::Parts { walk, split: SPLIT };
        self.policy.observe(Nanos(self.now), &event);
    }

    fn carry_out(&mut self, page: PageRef, migration: Migration) {
        let index = usize::try_from(page.addr.0 / PAGE).expect("few");
        let up = matches!(migration, Migration::Promote { .. });
        let to = migration.target().0;
        assert_ne!(self.at[index], to, "page {index} is there already");
        assert_eq!(page.pid, self.owner(index));
        if (self.pinned)(index) {
            self.stayed += 1;
            let stays = ended(page, migration, Verdict::Busy);
            return self.policy.observe(Nanos(self.now), &stays);
        }
        let pages = page.size.base_pages();
        let huge = self.huge[index / CHUNK_PAGES];
        assert_eq!(huge, page.size == PageSize::Huge2M, "page {index}");
        self.at[index..][..usize::try_from(pages).expect("few")].fill(to);
        if up && self.home[index] != to {
            self.spent += self.price.0;
        }
        self.free(to);
        self.moves += 1;
        self.pages_moved += pages;
        self.orders.push((page.addr.0 / PAGE, up));
        let now = Nanos(self.now);
        let moved = Event::Moved {
            pages: u32::try_from(pages).expect("few"),
            size: page.size,
            busy: Nanos(self.price.0 * pages),
        };
        self.policy.observe(now, &moved);
        self.policy.observe(now, &has_moved(page, migration));
    }

    /// The process gives these pages back.
    pub(crate) fn unmapped(&mut self, pages: std::ops::Range<usize>) {
        let [start, end] = [pages.start, pages.end].map(|page| Addr(page as u64 * PAGE));
        let event = Event::Unmapped {
            pid: self.owner(pages.start),
            range: Range { start, end },
        };
        self.policy.observe(Nanos(self.now), &event);
    }

    /// One pass; `idle` gives each page's time to its next access in s, from what is drawn.
    pub(crate) fn pass(&mut self, idle: impl Fn(usize, &mut Dice, f64) -> f64) {
        self.memory();
        self.act();
        let start = self.now;
        let seconds = |ns: u64| Nanos(ns).as_secs_f64();
        let idle: Vec<f64> = (0..self.at.len())
            .map(|page| idle(page, &mut self.dice, seconds(start)))
            .collect();
        self.turns.begin(self.parts);
        let mut slices = self.slices();
        loop {
            slices
                .iter_mut()
                .for_each(|slice| slice.shorten(self.pass, self.now));
            let due = |slice: &Slice| Some(slice.cleared + slice.rungs.get(slice.done)?.0);
            let next = slices.iter().enumerate();
            let next = next.filter_map(|(at, slice)| Some((due(slice)?, at))).min();
            let Some((due, at)) = next else { break };
            if self.policy.next_deadline().0 < due {
                self.now = self.now.max(self.policy.next_deadline().0);
                self.act();
                continue;
            }
            self.now = due;
            slices[at].done += 1;
            let since = self.read_slice(&slices[at], &idle);
            slices[at].since = since;
            self.memory();
            self.act();
        }
        self.take_faults(Nanos(self.now - start), &idle);
        let second = (self.second < self.at.len()).then_some(OTHER);
        for pid in std::iter::once(PID).chain(second) {
            let watched = Event::Watched {
                pid,
                parts: self.turns.parts(),
                pages: self.at.len() as u64 / u64::from(self.turns.parts()),
                busy: self.busy,
                lost: self.lost,
            };
            self.policy.observe(Nanos(self.now), &watched);
        }
        // The plan comes a little later, with the next pass under way.
        let due = self.policy.next_deadline();
        if due != Nanos::MAX {
            self.now = self.now.max(due.0);
            self.act();
        }
    }

    /// Pages are armed in their order, as many as come to so long, and each that is accessed then has its hint fault.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "few pages"
    )]
    fn take_faults(&mut self, time: Nanos, idle: &[f64]) {
        let Some(accessed_from) = &self.accessed_from else {
            return;
        };
        let seconds = time.as_secs_f64();
        let armed = (self.at.len() as f64 * seconds / self.armed.as_secs_f64()) as usize;
        for _ in 0..armed.min(self.at.len()) {
            let page = self.hand;
            self.hand = (self.hand + 1) % self.at.len();
            if page.is_multiple_of(CHUNK_PAGES) {
                let start = Addr(page as u64 * PAGE);
                let end = Addr(start.0 + CHUNK_BYTES);
                let event = Event::Armed {
                    pid: self.owner(page),
                    range: Range { start, end },
                    scope: ScanScope::All,
                };
                self.policy.observe(Nanos(self.now), &event);
            }
            if idle[page] > seconds {
                continue;
            }
            self.faults += 1;
            let event = Event::HintFault {
                page: PageRef {
                    pid: self.owner(page),
                    addr: Addr(page as u64 * PAGE),
                    size: PageSize::Base4K,
                },
                node: NodeId(self.at[page]),
                write: false,
                idle: None,
                cpu_node: Some(NodeId(accessed_from(page))),
            };
            self.policy.observe(Nanos(self.now), &event);
        }
    }

    /// One of all chunks, or two halves of which one is cleared later.
    fn slices(&self) -> Vec<Slice> {
        let mut rungs: Vec<Nanos> = std::iter::successors(Some(self.shortest), |r| Some(r * 2))
            .take_while(|rung| *rung < self.pass)
            .map(Nanos)
            .collect();
        rungs.push(Nanos(self.pass));
        let all = self.at.len().div_ceil(CHUNK_PAGES);
        let half = if self.lag == 0 { all } else { all / 2 };
        let halves = [(0..half, self.now), (half..all, self.now + self.lag)];
        let slice = |(chunks, cleared): (std::ops::Range<usize>, u64)| Slice {
            chunks,
            cleared,
            rungs: rungs.clone(),
            done: 0,
            since: 0,
        };
        let slices = halves.map(slice).into_iter();
        slices.filter(|slice| !slice.chunks.is_empty()).collect()
    }

    /// The reading that is due; when it was, from the clearing.
    fn read_slice(&mut self, slice: &Slice, idle: &[f64]) -> u64 {
        let until = self.now - slice.cleared;
        let last = slice.done == slice.rungs.len();
        self.cleared = slice.cleared;
        let start = |chunk: usize| Addr(chunk as u64 * CHUNK_BYTES);
        let turns = self.turns;
        for chunk in slice.chunks.clone().filter(|at| turns.has(start(*at))) {
            self.read(chunk, idle, slice.since, until, last);
        }
        until
    }

    /// A PMU sampled a load that stands for so many.
    pub(crate) fn sampled(&mut self, accesses: u64) {
        let event = Event::Sampled {
            page: PageRef {
                pid: PID,
                addr: Addr(0),
                size: PageSize::Base4K,
            },
            node: FAST,
            write: false,
            accesses,
        };
        self.policy.observe(Nanos(self.now), &event);
    }

    fn owner(&self, page: usize) -> Pid {
        if page < self.second { PID } else { OTHER }
    }

    /// What a program has beside others.
    pub(crate) fn shares(&mut self, second: bool, share: Share) {
        let pid = if second { OTHER } else { PID };
        let event = Event::Share { pid, share };
        self.policy.observe(Nanos(self.now), &event);
    }

    /// The process of the first pages runs on that node's processors, or the other one.
    pub(crate) fn runs_on(&mut self, second: bool, cpu_node: Option<NodeId>) {
        let pid = if second { OTHER } else { PID };
        let event = Event::Runs { pid, cpu_node };
        self.policy.observe(Nanos(self.now), &event);
    }

    /// A figure of the policy.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let all = self.policy.counters();
        let one = all.iter().find(|(figure, _)| figure.name == name);
        one.expect("it has that figure").1
    }

    fn read(&mut self, chunk: usize, idle: &[f64], since: u64, until: u64, last: bool) {
        let (mut present, mut accessed) = (PageBits::NONE, PageBits::NONE);
        let mut fresh = PageBits::NONE;
        let mut nodes: Vec<(NodeId, PageBits)> = (0..self.capacity.len())
            .map(|node| (NodeId(u16::try_from(node).expect("few")), PageBits::NONE))
            .collect();
        let first = chunk * CHUNK_PAGES;
        let seconds = |ns: u64| Nanos(ns).as_secs_f64();
        let huge = self.huge[chunk];
        let there = self.at.iter().zip(idle).skip(first);
        for (page, (at, idle)) in there.take(CHUNK_PAGES).enumerate() {
            present.set(page);
            if *idle < seconds(until) {
                accessed.set(page);
                if *idle >= seconds(since) {
                    fresh.set(page);
                }
            }
            nodes[usize::from(*at)].1.set(page);
        }
        if huge {
            // One entry, whose bit is set by the first visit to any part.
            let whole = |pages: &mut PageBits| {
                let any = !pages.is_empty();
                *pages = if any {
                    PageBits::one(0)
                } else {
                    PageBits::NONE
                };
            };
            let seen = accessed.without(&fresh).is_empty();
            whole(&mut fresh);
            if !seen {
                fresh = PageBits::NONE;
            }
            whole(&mut present);
            whole(&mut accessed);
            nodes.iter_mut().for_each(|(_, pages)| whole(pages));
        }
        if fresh.is_empty() && !last {
            return;
        }
        let ran = |time: u64| {
            let ran = (self.runs)(seconds(self.cleared), seconds(time));
            Nanos::from(std::time::Duration::from_secs_f64(ran))
        };
        let reading = ChunkReading {
            pid: self.owner(first),
            parts: self.turns.parts(),
            start: Addr(chunk as u64 * CHUNK_BYTES),
            since: Nanos(since),
            until: Nanos(until),
            ran: Some((ran(since), ran(until))),
            last,
            huge,
            present,
            accessed,
            fresh,
            nodes: &nodes,
        };
        self.policy.accessed(Nanos(self.now), &reading);
    }
}
