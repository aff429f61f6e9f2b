// SPDX-License-Identifier: MIT OR Apache-2.0
//! HeMem's way of copying (3.2): a page is protected against writes, copied by several threads, and
//! put in the place of the old one; whoever writes to it meanwhile waits.
//!
//! An order's page may be larger than the pages the memory is mapped with, or smaller: what is moved is
//! every mapped page that lies in it, all at once and with one end. One worker takes order after
//! order. With a DMA engine the copy takes no processor.
//!
//! As `terrace run` does it without options, and under every mover that knows single pages only, the kernel moves what lies
//! in the order, some pages a call, and whoever touches a page of a call waits.

use terrace_core::PageRef;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Refusal;
use terrace_policy::Served;
use terrace_policy::Verdict;

use crate::in_turn::InTurn;
use crate::memory::Depth;
use crate::threaded_copy::Copier;
use crate::world::By;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::End;
use crate::world::World;
use crate::world::bits;
use crate::world::node_of;
use crate::world::round;

/// What a page of a large batch costs to move in and out, as a share of one that is alone. Design notes:
/// 0.064 us instead of 1.0.
const BATCHED: f64 = 0.064;

/// Pages that the supervisor has the kernel move in one call, which has one shootdown (docs/agent.md).
const CALL: f64 = 64.0;

/// How HeMem copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copying {
    /// Threads for one page.
    pub(crate) threads: u32,
    /// By a DMA engine: as fast, but no processor's time.
    pub(crate) dma: bool,
    /// Not so, but by the kernel's own migration from outside.
    pub(crate) by_kernel: bool,
}

impl Copying {
    pub(crate) const BY_KERNEL: Self = Self {
        threads: 1,
        dma: false,
        by_kernel: true,
    };

    const fn mechanism(self) -> Mechanism {
        if self.by_kernel {
            Mechanism::MovePages
        } else {
            Mechanism::WritersWait
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Order {
    page: PageRef,
    migration: Migration,
    /// Where its first page is.
    from: Option<usize>,
    /// When it was given.
    since: u64,
}

#[derive(Debug)]
struct Job {
    order: Order,
    units: Vec<u32>,
    to: usize,
    /// The copy is done; the pages are being put in place.
    commits: bool,
    commit_ns: f64,
    /// Utilisation that the copy adds: node and share.
    load: Vec<(usize, f64)>,
}

/// The worker.
#[derive(Debug)]
pub(crate) struct ProtectedCopy {
    pub(crate) copying: Copying,
    turn: InTurn<Order, Job>,
    /// When the pages being copied can be written again.
    pub(crate) until: u64,
}

impl ProtectedCopy {
    pub(crate) const fn new(copying: Copying) -> Self {
        Self {
            copying,
            turn: InTurn::new(),
            until: 0,
        }
    }
}

impl World {
    /// When a mover goes on.
    pub(crate) fn movers_next(&self) -> u64 {
        let protected = self.protected.as_ref().map_or(u64::MAX, |p| p.turn.next);
        let copier = self.copier.as_ref().map_or(u64::MAX, Copier::next);
        self.workers.next.min(protected).min(copier)
    }

    /// Takes an order from the policy.
    pub(crate) fn order_protected(
        &mut self,
        now: u64,
        page: PageRef,
        migration: Migration,
        stated: Option<Mechanism>,
    ) -> Served {
        if stated.is_some_and(|stated| stated != self.movement.ranges().mechanism()) {
            return Err(Refusal::Unserved);
        }
        let units = self.space.within(page);
        let from = units.clone().next().map(|unit| self.node(unit));
        let order = Order {
            page,
            migration,
            from,
            since: now,
        };
        let refused = match node_of(self, migration.target()) {
            // None is ordered.
            _ if matches!(migration, Migration::Exchange { .. }) => Some(Verdict::Busy),
            None => Some(Verdict::Lost),
            Some(_) if units.is_empty() => Some(Verdict::Lost),
            Some(to) => {
                let busy = units.clone().any(|unit| self.has(unit, bits::ORDERED));
                let there = units.clone().all(|unit| self.node(unit) == to);
                (busy || there).then_some(Verdict::Busy)
            }
        };
        if let Some(verdict) = refused {
            self.end_protected(order, now, verdict, None);
            return Ok(());
        }
        for unit in units {
            self.set(unit, bits::ORDERED);
        }
        if let Some(worker) = &mut self.protected {
            worker.turn.push(now, order);
        }
        Ok(())
    }

    fn end_protected(&mut self, order: Order, at: u64, verdict: Verdict, blocked: Option<f64>) {
        let mechanism = self.movement.ranges().mechanism();
        let told = self.reader.is_some() && mechanism == Mechanism::MovePages;
        self.ends.push_back(End {
            at,
            page: order.page,
            migration: order.migration,
            from: order.from,
            verdict,
            mechanism,
            took: at.saturating_sub(order.since),
            inaccessible: blocked,
            busy: blocked.filter(|_| told),
        });
    }

    /// Lets the worker go on if its time has come.
    pub(crate) fn protected_step(&mut self, clock: &mut dyn Clock) {
        let Some(mut worker) = self.protected.take() else {
            return;
        };
        while worker.turn.next <= self.now {
            let at = worker.turn.next;
            let took = match worker.turn.job.take() {
                None => self.begin_protected(&mut worker, at, clock),
                Some(job) => self.proceed_protected(&mut worker, job, at, clock),
            };
            worker.turn.took(at, took);
        }
        self.protected = Some(worker);
    }

    /// Protects and copies the next page; gives how long that takes.
    #[expect(clippy::cast_precision_loss, reason = "pages of an order")]
    fn begin_protected(
        &mut self,
        worker: &mut ProtectedCopy,
        at: u64,
        clock: &mut dyn Clock,
    ) -> f64 {
        let Some(order) = worker.turn.pop() else {
            return 0.0;
        };
        let to = usize::from(order.migration.target().0);
        let all = self.space.within(order.page);
        let units: Vec<u32> = all.clone().filter(|unit| self.node(*unit) != to).collect();
        let bytes: u64 = units.iter().map(|unit| self.space.bytes(*unit)).sum();
        if !self.memory.take(to, bytes, Depth::Min) {
            for unit in all {
                self.clear(unit, bits::ORDERED);
            }
            self.end_protected(order, at, Verdict::NoMemory, None);
            return 0.0;
        }
        let program = self.program(units[0]);
        let from = self.node(units[0]);
        let threads = f64::from(worker.copying.threads);
        let busy = [self.busy[from], self.busy[to]];
        let copy = self.hardware.copy_by(threads, bytes, from, to, busy);
        if worker.copying.by_kernel {
            let job = self.begin_by_kernel(order, units, (from, to), copy, clock);
            let wait = job.commit_ns;
            worker.turn.job = Some(job);
            return wait;
        }
        let batch = (units.len() as f64 - 1.0).mul_add(BATCHED, 1.0);
        let fixed = self.costs.transaction_fixed_ns * batch;
        let shootdown = self.shootdown_ns(program, By::Worker);
        self.charge_shootdowns(program, By::Worker, Charge::Migration, 1.0);
        let commit_ns = self.costs.commit_ns * batch + shootdown;
        let wait = copy + fixed + shootdown;
        for unit in &units {
            self.set(*unit, bits::COPYING);
        }
        worker.until = at + round(wait);
        clock.protected(self, &units, wait);
        let load: Vec<(usize, f64)> = self
            .copy_load(bytes, copy.max(1.0), from, to)
            .into_iter()
            .map(|(node, share)| (node, share * copy / wait.max(1.0)))
            .collect();
        for (node, share) in &load {
            self.copying.change(at, *node, *share);
        }
        let copying_ns = if worker.copying.dma {
            0.0
        } else {
            copy * threads
        };
        self.totals.workers += copying_ns + fixed + shootdown;
        worker.turn.job = Some(Job {
            order,
            units,
            to,
            commits: false,
            commit_ns,
            load,
        });
        wait
    }

    /// The same by the kernel, call after call; the whole takes the job's `commit_ns`.
    #[expect(clippy::cast_precision_loss, reason = "pages of an order")]
    fn begin_by_kernel(
        &mut self,
        order: Order,
        units: Vec<u32>,
        (from, to): (usize, usize),
        copy: f64,
        clock: &mut dyn Clock,
    ) -> Job {
        let program = self.program(units[0]);
        let pages = units.len() as f64;
        let calls = (pages / CALL).ceil();
        let shootdowns = self.shootdown_ns(program, By::Worker) * calls;
        self.charge_shootdowns(program, By::Worker, Charge::Migration, calls);
        let wait = copy + self.costs.migrate_fixed_ns * pages + shootdowns;
        let bytes = units.iter().map(|unit| self.space.bytes(*unit)).sum();
        for (node, share) in self.copy_load(bytes, copy.max(1.0), from, to) {
            self.copying.lump(node, share, copy);
        }
        for unit in &units {
            self.set(*unit, bits::BLOCKED);
            clock.blocked(self, *unit, wait / calls);
        }
        let others = f64::from(self.movement.ranges().threads) - 1.0;
        self.totals.workers += wait + copy * others;
        Job {
            order,
            units,
            to,
            commits: true,
            commit_ns: wait,
            load: Vec::new(),
        }
    }

    /// The copy, or the putting in place, is done; gives how long what follows takes.
    fn proceed_protected(
        &mut self,
        worker: &mut ProtectedCopy,
        mut job: Job,
        at: u64,
        clock: &mut dyn Clock,
    ) -> f64 {
        if !job.commits {
            for (node, share) in std::mem::take(&mut job.load) {
                self.copying.change(at, node, -share);
            }
            let program = self.program(job.units[0]);
            self.charge_shootdowns(program, By::Worker, Charge::Migration, 1.0);
            let wait = job.commit_ns;
            for unit in &job.units {
                self.clear(*unit, bits::COPYING);
                self.set(*unit, bits::BLOCKED);
                clock.blocked(self, *unit, wait);
            }
            self.totals.workers += wait;
            job.commits = true;
            worker.turn.job = Some(job);
            return wait;
        }
        for &unit in &job.units {
            let (from, bytes) = (self.node(unit), self.space.bytes(unit));
            self.clear(unit, bits::BLOCKED);
            self.totals.migrated[job.to] += bytes;
            self.place(unit, job.to);
            self.memory.give(from, bytes);
        }
        for unit in self.space.within(job.order.page) {
            self.clear(unit, bits::ORDERED);
        }
        let verdict = Verdict::Moved { shadow: false };
        self.end_protected(job.order, at, verdict, Some(job.commit_ns));
        0.0
    }

    /// A write ran into a page that is being copied: it waits until that is done.
    #[expect(clippy::cast_precision_loss, reason = "a short time")]
    pub(crate) fn write_waits(&mut self, program: usize, at: u64) {
        let until = self.protected.as_ref().map_or(at, |p| p.until);
        self.totals.writes_waited += 1.0;
        let wait = until.saturating_sub(at) as f64;
        self.charge(
            program,
            Charge::Stall,
            wait + self.costs.write_protect_fault_ns,
        );
    }
}
