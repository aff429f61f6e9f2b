// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migration workers: each program's agent (transactions), and the kernel's (ordinary migration).
//!
//! A transaction (Nomad 3.1): protect, copy while the program goes on reading, then commit, during
//! which the page is inaccessible; a write during the copy aborts it. Pages of a batch are protected
//! and copied together and committed one after the other. Demotion of a page with a shadow on the
//! target is a commit without a copy (3.2). The ordinary way: the page is inaccessible from before the
//! copy until after it.
//!
//! As `terrace run` does it without options (`--commit copy`): a page that is to keep a shadow is moved by the kernel,
//! inaccessible while it is copied, so that no write aborts it; the shadow is a second copy. All others go the
//! ordinary way, but for demotions onto a shadow.
//!
//! Two pages that change places ([`Migration::Exchange`]) are inaccessible from before both copies until after them;
//! no memory is taken or given.
//!
//! Every order ends exactly once.

mod in_fault;
mod working;

use std::collections::VecDeque;

use terrace_core::PageRef;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Refusal;
use terrace_policy::Served;
use terrace_policy::Verdict;

use crate::world::End;
use crate::world::World;
use crate::world::bits;
use crate::world::node_of;
use crate::world::unit_of;

#[derive(Debug, Clone, Copy)]
struct Order {
    unit: u32,
    page: PageRef,
    migration: Migration,
    /// Where it is.
    from: usize,
    /// The other page of an exchange.
    with: Option<u32>,
    /// When it was given.
    since: u64,
}

/// One page of a job.
#[derive(Debug, Clone, Copy)]
struct Slot {
    order: Order,
    from: usize,
    to: usize,
    /// Onto its shadow: nothing is copied.
    remap: bool,
    dirtied: bool,
    /// Of the shootdown that pages which the kernel moves in one call have together.
    part: f64,
}

/// What a worker is at.
#[derive(Debug)]
enum Stage {
    /// All pages are being copied, and have been for so long.
    Copy { window: f64 },
    /// That page is being committed.
    Commit { index: usize },
}

#[derive(Debug)]
struct Job {
    slots: Vec<Slot>,
    stage: Stage,
    /// Utilisation that its copy adds: node and share.
    load: Vec<(usize, f64)>,
}

#[derive(Debug)]
struct Worker {
    /// Transactions, the kernel's migration with a shadow, or the kernel's migration.
    mechanism: Mechanism,
    queue: VecDeque<Order>,
    job: Option<Job>,
    next: u64,
}

/// All workers: one for each program, and the kernel's.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    pub(crate) next: u64,
}

impl Workers {
    pub(crate) fn new(programs: usize, commit_copies: bool) -> Self {
        let agent = if commit_copies {
            Mechanism::CopyInCommit
        } else {
            Mechanism::Transaction
        };
        let worker = |mechanism| Worker {
            mechanism,
            queue: VecDeque::new(),
            job: None,
            next: u64::MAX,
        };
        let mut workers: Vec<Worker> = (0..programs).map(|_| worker(agent)).collect();
        workers.push(worker(Mechanism::MovePages));
        Self {
            workers,
            next: u64::MAX,
        }
    }

    fn update(&mut self) {
        self.next = self
            .workers
            .iter()
            .map(|w| w.next)
            .min()
            .unwrap_or(u64::MAX);
    }
}

impl World {
    /// By what an order is carried out that is given now.
    fn mechanism(&self, page: PageRef, migration: Migration) -> Mechanism {
        let waits = match migration {
            Migration::Promote { .. } | Migration::Exchange { .. } => true,
            Migration::Demote { .. } => self.movement.demotes_in_fault,
        };
        if self.movement.synchronous && waits && self.in_fault.is_some() {
            Mechanism::InFault
        } else if matches!(migration, Migration::Exchange { .. }) {
            Mechanism::Exchange
        } else if !self.movement.transactions {
            Mechanism::MovePages
        } else if !self.movement.commit_copies {
            Mechanism::Transaction
        } else if self.shadowed(page, migration) {
            Mechanism::CopyInCommit
        } else {
            Mechanism::MovePages
        }
    }

    /// Whether a shadow comes of it, or is there for it.
    fn shadowed(&self, page: PageRef, migration: Migration) -> bool {
        match migration {
            Migration::Promote { keep_shadow, .. } => keep_shadow,
            Migration::Demote { .. } => {
                unit_of(self, page).is_some_and(|unit| self.has(unit, bits::SHADOW))
            }
            Migration::Exchange { .. } => false,
        }
    }

    /// Takes an order from the policy. The kernel's worker is there whatever else is.
    pub(crate) fn order(
        &mut self,
        now: u64,
        page: PageRef,
        migration: Migration,
        stated: Option<Mechanism>,
    ) -> Served {
        let own = self.mechanism(page, migration);
        let exchange = matches!(migration, Migration::Exchange { .. });
        let served = match stated {
            None => true,
            Some(_) if exchange && !self.movement.exchange => false,
            Some(Mechanism::MovePages) => !exchange,
            Some(mechanism) => mechanism == own,
        };
        if !served {
            return Err(Refusal::Unserved);
        }
        self.take_on(now, page, migration, stated.unwrap_or(own));
        Ok(())
    }

    fn take_on(&mut self, now: u64, page: PageRef, migration: Migration, mechanism: Mechanism) {
        let unit = unit_of(self, page);
        let from = unit.map(|unit| self.node(unit));
        let refuse = |this: &mut Self, verdict| {
            this.ends.push_back(End {
                at: now,
                page,
                migration,
                from,
                verdict,
                mechanism,
                took: 0,
                inaccessible: None,
                busy: None,
            });
        };
        let (Some(unit), Some(to)) = (unit, node_of(self, migration.target())) else {
            refuse(self, Verdict::Lost);
            return;
        };
        if self.has(unit, bits::ORDERED) || self.node(unit) == to {
            refuse(self, Verdict::Busy);
            return;
        }
        let with = match migration {
            Migration::Exchange { with, .. } => match self.partner(unit, to, with) {
                Some(other) => Some(other),
                None => return refuse(self, Verdict::Busy),
            },
            Migration::Promote { .. } | Migration::Demote { .. } => None,
        };
        let order = Order {
            unit,
            page,
            migration,
            from: self.node(unit),
            with,
            since: now,
        };
        if mechanism == Mechanism::InFault {
            match with {
                Some(other) => self.exchange_in_fault(now, order, other, to),
                None => self.move_in_fault(now, order, to),
            }
            return;
        }
        for unit in [Some(unit), with].into_iter().flatten() {
            self.set(unit, bits::ORDERED);
        }
        let index = match mechanism {
            Mechanism::Transaction | Mechanism::CopyInCommit => self.program(unit),
            _ => self.workers.workers.len() - 1,
        };
        let worker = &mut self.workers.workers[index];
        worker.queue.push_back(order);
        if worker.job.is_none() && worker.next == u64::MAX {
            worker.next = now;
            self.workers.next = self.workers.next.min(now);
        }
    }

    /// The page on that node that another can change places with.
    fn partner(&self, unit: u32, to: usize, with: PageRef) -> Option<u32> {
        let other = unit_of(self, with).filter(|_| self.movement.exchange)?;
        let alike = self.space.bytes(unit) == self.space.bytes(other);
        let free = !self.has(other, bits::ORDERED) && self.node(other) == to;
        (alike && free).then_some(other)
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a page")]
    pub(crate) fn copy_load(
        &self,
        bytes: u64,
        ns: f64,
        from: usize,
        to: usize,
    ) -> [(usize, f64); 2] {
        let bandwidth = |f: fn(&crate::hardware::View) -> f64, node: usize| {
            let views = self.hardware.views.iter();
            views.map(|v| f(&v[node])).fold(0.0, f64::max)
        };
        let rate = bytes as f64 / ns;
        [
            (from, rate / bandwidth(|v| v.read_bw, from)),
            (to, rate / bandwidth(|v| v.write_bw, to)),
        ]
    }
}
