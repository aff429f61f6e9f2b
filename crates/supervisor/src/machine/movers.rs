// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which page goes to which mover, and what came of it.
//!
//! A process with an agent gets transactions; what the agent cannot handle (shared, locked,
//! read-only, file memory) and processes without one go by `move_pages`. Pages that are mapped by
//! several processes go by move_pages too, as in the paper (Nomad 3.3).
//!
//! Each order has a number and ends exactly once, also when its process goes away.

use std::collections::BTreeMap;

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
use terrace_policy::Migration;
use terrace_policy::Refusal;
use terrace_policy::Served;
use terrace_policy::Verdict;
use terrace_policy::Way;
use terrace_proto::Command;
use terrace_proto::Commit;
use terrace_proto::Op;
use terrace_proto::Outcome;
use terrace_sys::ringer::Ringer;

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

    /// An agent has an order less.
    fn answered(&mut self, pid: Pid) {
        if let Some(open) = self.open.get_mut(&pid) {
            *open = open.saturating_sub(1);
        }
    }

    /// Whether who reports an end was given that order.
    fn is_of(&self, seq: u64, from: Reporter) -> bool {
        match (from, self.outstanding.get(&seq)) {
            (Reporter::Agent(pid), None) => self.reclaims.get(&seq) == Some(&pid),
            (Reporter::Agent(pid), Some(order)) => {
                order.way == Way::Transaction && order.page.pid == pid
            }
            (Reporter::MovePages, order) => order.is_some_and(|o| o.way == Way::Ordinary),
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

    fn by_move_pages(&mut self, seq: u64, page: PageRef, migration: Migration) {
        let order = Outstanding::new(page, migration, Way::Ordinary, false);
        self.outstanding.insert(seq, order);
        self.move_pages.submit(Order {
            seq,
            page,
            to: migration.target(),
            in_use: matches!(migration, Migration::Promote { .. }),
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
        if !self.is_of(end.seq, from) {
            return None;
        }
        if let Some(pid) = self.reclaims.remove(&end.seq) {
            self.answered(pid);
            return None;
        }
        let order = self.outstanding.remove(&end.seq)?;
        let by_transaction = order.way == Way::Transaction;
        if by_transaction {
            self.answered(order.page.pid);
        }
        let to = order.migration.target();
        if by_transaction && order.is_for_move_pages(end.outcome, cache_room.counts(to)) {
            self.by_move_pages(end.seq, order.page, order.migration);
            return None;
        }
        if end.outcome == Outcome::NoMemory {
            cache_room.failed(now, to);
        }
        if by_transaction && end.outcome.moved() && end.inaccessible > Nanos::ZERO {
            engine.inaccessible(end.inaccessible);
        }
        if end.outcome == Outcome::DoneShadowStale {
            engine.stats_mut().shadows_stale += 1;
        }
        let verdict = order.verdict(end.outcome);
        // Neither the agent nor `move_pages` says where the page was.
        engine.ended(now, order.page, order.migration, None, verdict, order.way);
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
        self.reclaims.retain(|_, of| *of != pid);
        let gone: Vec<u64> = self
            .outstanding
            .iter()
            .filter(|(_, o)| o.page.pid == pid && o.way == Way::Transaction)
            .map(|(seq, _)| *seq)
            .collect();
        engine.stats_mut().unanswered += gone.len() as u64;
        for order in gone.iter().filter_map(|seq| self.outstanding.remove(seq)) {
            let (page, migration) = (order.page, order.migration);
            engine.ended(now, page, migration, None, Verdict::Lost, order.way);
        }
        self.open.remove(&pid);
    }

    /// Gives an order to who shall carry it out; its end comes by [`Self::ended`].
    pub fn migrate(&mut self, page: PageRef, migration: Migration) {
        let seq = self.next();
        let copies = self.agent_moves(page, migration);
        let keep_shadow = self.keeps_shadow(page, migration);
        let (op, by_agent) = match migration {
            Migration::Promote { to, .. } => (
                Op::Promote {
                    node: to,
                    keep_shadow,
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
            Migration::Exchange { with, .. } => return self.exchange(seq, page, migration, with),
        };
        if by_agent && self.send(page.pid, &command(seq, op, page)) {
            let order = Outstanding::new(page, migration, Way::Transaction, keep_shadow);
            self.outstanding.insert(seq, order);
        } else {
            self.by_move_pages(seq, page, migration);
        }
    }

    /// Two pages of one process with an agent change places there. Otherwise the order ends at once, and nothing was moved.
    fn exchange(&mut self, seq: u64, page: PageRef, migration: Migration, with: PageRef) {
        let alike = page.pid == with.pid && page.size == with.size;
        let op = Op::Exchange { with: with.addr };
        let way = if alike && self.send(page.pid, &command(seq, op, page)) {
            Way::Transaction
        } else {
            self.refused.push(seq);
            Way::Ordinary
        };
        let order = Outstanding::new(page, migration, way, false);
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
