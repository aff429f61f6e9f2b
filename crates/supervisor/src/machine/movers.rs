// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which page goes to which mover, and what came of it.
//!
//! A process with an agent gets transactions; what the agent cannot handle (shared, locked,
//! read-only, file memory) and processes without one go by `move_pages`. Pages that are mapped by
//! several processes go by move_pages too, as in the paper (Nomad 3.3).
//!
//! Each order has a number and ends exactly once, also when its process goes away.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_mover::agent::AgentLink;
use terrace_mover::agent::ORDERS_MAX;
use terrace_mover::move_pages::MovePagesMover;
use terrace_mover::move_pages::Order;
use terrace_policy::Engine;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Refusal;
use terrace_policy::Served;
use terrace_policy::Verdict;
use terrace_proto::Command;
use terrace_proto::Commit;
use terrace_proto::Op;
use terrace_proto::Outcome;
use terrace_sys::ringer::Ringer;

use super::arms::Arms;
use super::cache_room::CacheRoom;
use super::orders::End;
use super::orders::Outstanding;
use super::orders::Reporter;

/// Movers, and the orders that have not ended.
#[derive(Debug)]
pub struct Movers {
    /// Connected agents.
    pub links: BTreeMap<Pid, AgentLink>,
    /// The mover by `move_pages`.
    pub move_pages: MovePagesMover,
    ringer: Ringer,
    outstanding: BTreeMap<u64, Outstanding>,
    /// How many of them each agent has.
    open: BTreeMap<Pid, usize>,
    reclaims: BTreeMap<u64, Pid>,
    /// Pages that agents are to arm.
    pub arms: Arms,
    seq: u64,
    /// Exchanges that nobody here can carry out; their ends are to be told.
    refused: Vec<u64>,
}

impl Movers {
    /// With that mover and no agents yet.
    #[must_use]
    pub fn new(move_pages: MovePagesMover) -> Self {
        Self {
            links: BTreeMap::new(),
            move_pages,
            ringer: Ringer::new(),
            outstanding: BTreeMap::new(),
            open: BTreeMap::new(),
            reclaims: BTreeMap::new(),
            arms: Arms::default(),
            seq: 0,
            refused: Vec::new(),
        }
    }

    /// Orders that have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.outstanding.len()
    }

    fn next(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Sends what was queued to the movers.
    pub fn flush(&mut self) {
        self.send_arms();
        self.move_pages.flush();
        for link in self.links.values_mut() {
            link.flush(&self.ringer);
        }
    }

    fn send(&mut self, pid: Pid, command: &Command) -> bool {
        let Some(link) = self.links.get_mut(&pid) else {
            return false;
        };
        let open = self.open.entry(pid).or_default();
        let sent = *open < ORDERS_MAX && link.can_transact() && link.submit(command);
        *open += usize::from(sent);
        sent
    }

    /// Whether there is an agent in that process that arms pages.
    #[must_use]
    pub fn can_arm(&self, pid: Pid) -> bool {
        self.links.get(&pid).is_some_and(AgentLink::arms)
    }

    /// Has agents arm the pages that wait for that, as many as they may.
    fn send_arms(&mut self) {
        for page in self.arms.take_waiting() {
            let open = self.open.get(&page.pid).copied().unwrap_or_default();
            if Arms::has_room(open) {
                let seq = self.next();
                if self.send(page.pid, &command(seq, Op::Arm, page)) {
                    self.arms.sent(seq, page);
                    continue;
                }
            }
            // As many as were there before.
            let _ = self.arms.add(page);
        }
    }

    /// The page that an agent was to arm by that number, if it was.
    pub fn arm_ended(&mut self, pid: Pid, seq: u64) -> Option<PageRef> {
        let page = self.arms.answered(pid, seq)?;
        self.answered(pid);
        Some(page)
    }

    /// An agent has an order less.
    fn answered(&mut self, pid: Pid) {
        if let Some(open) = self.open.get_mut(&pid) {
            *open = open.saturating_sub(1);
        }
    }

    /// Whether the promoted page is to have a shadow: if the policy wants it and the agent can. Huge pages
    /// have none, as the first write to a protected one would split it.
    fn keeps_shadow(&self, page: PageRef, migration: Migration) -> bool {
        let wanted = matches!(
            migration,
            Migration::Promote {
                keep_shadow: true,
                ..
            }
        );
        let link = self.links.get(&page.pid);
        wanted && page.size == PageSize::Base4K && link.is_some_and(AgentLink::keeps_shadows)
    }

    /// Whether the agent shall move the page, or the kernel from outside: the agent where the page keeps a
    /// shadow or goes by a transaction. [`Commit::Wait`] is about huge pages that are promoted.
    fn agent_moves(&self, page: PageRef, migration: Migration) -> bool {
        match self.links.get(&page.pid).map(AgentLink::commit) {
            Some(Commit::Transaction) => true,
            Some(Commit::Copy) => self.keeps_shadow(page, migration),
            Some(Commit::Wait) => {
                let promotes = matches!(migration, Migration::Promote { .. });
                promotes && page.size != PageSize::Base4K
            }
            None => false,
        }
    }

    /// How the agent of a process moves pages, as it was told to.
    fn of_agent(&self, pid: Pid) -> Option<Mechanism> {
        let link = self.links.get(&pid)?;
        Some(match link.commit() {
            Commit::Transaction => Mechanism::Transaction,
            Commit::Copy => Mechanism::CopyInCommit,
            Commit::Wait => Mechanism::WritersWait,
        })
    }

    /// Whether the page can be moved by that.
    fn serves(&self, page: PageRef, migration: Migration, mechanism: Mechanism) -> bool {
        let exchange = matches!(migration, Migration::Exchange { .. });
        let link = self.links.get(&page.pid);
        let able = link.is_some_and(AgentLink::can_transact);
        match mechanism {
            Mechanism::MovePages => !exchange,
            Mechanism::Exchange => exchange && able,
            _ => {
                let own = self.of_agent(page.pid) == Some(mechanism);
                own && able && !exchange && self.agent_moves(page, migration)
            }
        }
    }

    fn by_move_pages(&mut self, seq: u64, order: Outstanding) {
        let order = Outstanding {
            mechanism: Mechanism::MovePages,
            by_agent: false,
            shadow: false,
            ..order
        };
        self.outstanding.insert(seq, order);
        self.move_pages.submit(Order {
            seq,
            page: order.page,
            to: order.migration.target(),
        });
    }

    /// A mover reported an end. Orders that a transaction cannot carry out go by move_pages
    /// first; everything else is told to the engine. Gives the page if it was moved, and how. What is
    /// said of somebody else's orders is ignored.
    pub fn ended(
        &mut self,
        now: Nanos,
        from: Reporter,
        end: End,
        cache_room: &mut CacheRoom,
        engine: &mut Engine,
    ) -> Option<(PageRef, Migration)> {
        let order = match self.outstanding.entry(end.seq) {
            Entry::Occupied(order) if order.get().is_with(from) => order.remove(),
            Entry::Occupied(_) => return None,
            Entry::Vacant(_) => {
                // Or an agent says so of a reclaim.
                if let Reporter::Agent(pid) = from {
                    self.reclaimed(pid, end.seq, 0, engine);
                }
                return None;
            }
        };
        if order.by_agent {
            self.answered(order.page.pid);
        }
        let to = order.migration.target();
        if order.by_agent && order.is_for_move_pages(end.outcome, cache_room.counts(to)) {
            self.by_move_pages(end.seq, order);
            return None;
        }
        if end.outcome == Outcome::NoMemory {
            cache_room.failed(now, to);
        }
        if end.outcome == Outcome::DoneShadowStale {
            engine.stats_mut().shadows_stale += 1;
        }
        let verdict = order.verdict(end.outcome);
        engine.observe(now, &order.ended(now, verdict, end.inaccessible));
        end.outcome.moved().then_some((order.page, order.migration))
    }

    /// An agent has given back shadows. What is said of somebody else's orders, or of other ones, is ignored.
    pub fn reclaimed(&mut self, pid: Pid, seq: u64, shadows: u64, engine: &mut Engine) {
        if self.reclaims.get(&seq) == Some(&pid) {
            self.reclaims.remove(&seq);
            self.answered(pid);
            let reclaimed = &mut engine.stats_mut().shadows_reclaimed;
            *reclaimed = reclaimed.saturating_add(shadows);
        }
    }

    /// A process went away: its orders will not be answered any more.
    pub fn forget(&mut self, now: Nanos, pid: Pid, engine: &mut Engine) {
        self.links.remove(&pid);
        self.arms.forget(pid);
        self.reclaims.retain(|_, of| *of != pid);
        let gone: Vec<u64> = self
            .outstanding
            .iter()
            .filter(|(_, o)| o.page.pid == pid && o.by_agent)
            .map(|(seq, _)| *seq)
            .collect();
        engine.stats_mut().unanswered += gone.len() as u64;
        for order in gone.iter().filter_map(|seq| self.outstanding.remove(seq)) {
            engine.observe(now, &order.ended(now, Verdict::Lost, Nanos::ZERO));
        }
        self.open.remove(&pid);
    }

    /// Gives an order to who shall carry it out; its end comes by [`Self::ended`].
    ///
    /// # Errors
    ///
    /// Where the page cannot be moved by the mechanism that is stated, or its agent has as many orders as it may.
    pub fn migrate(
        &mut self,
        now: Nanos,
        page: PageRef,
        migration: Migration,
        stated: Option<Mechanism>,
    ) -> Served {
        if stated.is_some_and(|mechanism| !self.serves(page, migration, mechanism)) {
            return Err(Refusal::Unserved);
        }
        let seq = self.next();
        let mut order = Outstanding {
            page,
            migration,
            mechanism: self.of_agent(page.pid).unwrap_or(Mechanism::MovePages),
            by_agent: true,
            stated: stated.is_some(),
            shadow: self.keeps_shadow(page, migration),
            since: now,
        };
        let copies = self.agent_moves(page, migration);
        let (op, by_agent) = match migration {
            Migration::Promote { to, .. } => (
                Op::Promote {
                    node: to,
                    keep_shadow: order.shadow,
                },
                copies,
            ),
            // It may have a shadow; where it has none, the agent says so.
            Migration::Demote { to } => (
                Op::Demote {
                    node: to,
                    copy: copies,
                },
                true,
            ),
            Migration::Exchange { with, .. } => {
                order.mechanism = Mechanism::Exchange;
                self.exchange(seq, order, with);
                return Ok(());
            }
        };
        let by_agent = by_agent && stated != Some(Mechanism::MovePages);
        if by_agent && self.send(page.pid, &command(seq, op, page)) {
            self.outstanding.insert(seq, order);
        } else if by_agent && order.stated {
            return Err(Refusal::Busy);
        } else {
            self.by_move_pages(seq, order);
        }
        Ok(())
    }

    /// Two pages of one process with an agent change places there. Otherwise the order ends at once, and nothing was moved.
    fn exchange(&mut self, seq: u64, mut order: Outstanding, with: PageRef) {
        let page = order.page;
        let alike = page.pid == with.pid && page.size == with.size;
        let op = Op::Exchange { with: with.addr };
        order.by_agent = alike && self.send(page.pid, &command(seq, op, page));
        if !order.by_agent {
            self.refused.push(seq);
        }
        self.outstanding.insert(seq, order);
    }

    /// An order that nobody could take on.
    pub fn refused(&mut self) -> Option<End> {
        let seq = self.refused.pop()?;
        Some(End {
            seq,
            outcome: Outcome::Busy,
            inaccessible: Nanos::ZERO,
        })
    }

    /// Has every agent give back its share of so many bytes of shadows.
    ///
    /// # Errors
    ///
    /// Where there is no agent, or all have as many orders as they may.
    pub fn reclaim_shadows(&mut self, bytes: u64) -> Served {
        if self.links.is_empty() {
            return Err(Refusal::Unserved);
        }
        let before = self.reclaims.len();
        let pids: Vec<Pid> = self.links.keys().copied().collect();
        let share = bytes.div_ceil(4096).div_ceil(pids.len().max(1) as u64);
        for pid in pids {
            let seq = self.next();
            // No page is meant.
            let page = PageRef {
                pid,
                addr: Addr(0),
                size: PageSize::Base4K,
            };
            let op = Op::ReclaimShadows { count: share };
            if self.send(pid, &command(seq, op, page)) {
                self.reclaims.insert(seq, pid);
            }
        }
        if self.reclaims.len() == before {
            return Err(Refusal::Busy);
        }
        Ok(())
    }
}

const fn command(seq: u64, op: Op, page: PageRef) -> Command {
    Command {
        seq,
        op,
        addr: page.addr,
        size: page.size,
    }
}

#[cfg(test)]
mod tests;
