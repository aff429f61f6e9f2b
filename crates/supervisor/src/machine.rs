// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's actions on Linux: which page goes to which mover, and what came of it.
//!
//! A process with an agent gets transactions; what the agent cannot handle (shared, locked,
//! read-only, file memory) and processes without one go by `move_pages`. Pages that are mapped by
//! several processes go the ordinary way too, as in the paper (Nomad 3.3).
//!
//! Each order has a number and ends exactly once, also when its process goes away.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_mover::agent::AgentLink;
use terrace_mover::ordinary::Order;
use terrace_mover::ordinary::OrdinaryMover;
use terrace_policy::Engine;
use terrace_policy::Machine;
use terrace_policy::Migration;
use terrace_policy::Reason;
use terrace_policy::ScanScope;
use terrace_policy::Verdict;
use terrace_policy::Way;
use terrace_proto::Command;
use terrace_proto::Commit;
use terrace_proto::Op;
use terrace_proto::Outcome;

use crate::cache_room::CacheRoom;

#[derive(Debug, Clone, Copy)]
struct Outstanding {
    page: PageRef,
    migration: Migration,
    way: Way,
}

/// Movers, and the orders that have not ended.
#[derive(Debug)]
pub struct LinuxMachine {
    /// Connected agents.
    pub links: BTreeMap<Pid, AgentLink>,
    /// The mover by `move_pages`.
    pub ordinary: OrdinaryMover,
    /// What the policy last asked to scan; taken by the session.
    pub scan_wanted: Option<(ScanScope, Nanos)>,
    /// First wait and length of the passes over accessed bits that the policy last asked for; taken by the
    /// session.
    pub read_wanted: Option<(Nanos, Nanos)>,
    /// Whether the policy asked for an inventory; taken by the session.
    pub inventory_wanted: bool,
    /// Where page cache counts as room.
    pub cache_room: CacheRoom,
    outstanding: BTreeMap<u64, Outstanding>,
    reclaims: BTreeMap<u64, Pid>,
    seq: u64,
}

/// What a mover said of an order.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// The order's number.
    pub seq: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// For transactions: how long the page was inaccessible, ns.
    pub inaccessible_ns: u64,
}

impl LinuxMachine {
    /// With that mover and no agents yet.
    #[must_use]
    pub fn new(ordinary: OrdinaryMover) -> Self {
        Self {
            links: BTreeMap::new(),
            ordinary,
            scan_wanted: None,
            read_wanted: None,
            inventory_wanted: false,
            cache_room: CacheRoom::default(),
            outstanding: BTreeMap::new(),
            reclaims: BTreeMap::new(),
            seq: 0,
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
        self.ordinary.flush();
        for link in self.links.values_mut() {
            link.flush();
        }
    }

    fn send(&mut self, pid: Pid, command: &Command) -> bool {
        self.links
            .get_mut(&pid)
            .is_some_and(|link| link.can_transact() && link.submit(command))
    }

    /// Whether the agent shall copy the page to its new node, or the kernel. Without a shadow a
    /// transaction of a base page has a TLB shootdown of its own for nothing, where the kernel
    /// takes one for all pages of a call; it has the same way for cold pages in Nomad (3.2). With
    /// [`Commit::Wait`] the agent copies what is promoted, as writes shall wait and reads not.
    fn agent_copies(&self, page: PageRef, migration: Migration) -> bool {
        let commit = self.links.get(&page.pid).map(AgentLink::commit);
        let keeps = matches!(
            migration,
            Migration::Promote {
                keep_shadow: true,
                ..
            }
        );
        let promotes = matches!(migration, Migration::Promote { .. });
        page.size != PageSize::Base4K
            || keeps
            || commit == Some(Commit::Transaction)
            || commit == Some(Commit::Wait) && promotes
    }

    fn by_ordinary(&mut self, seq: u64, page: PageRef, migration: Migration) {
        self.outstanding.insert(
            seq,
            Outstanding {
                page,
                migration,
                way: Way::Ordinary,
            },
        );
        self.ordinary.submit(Order {
            seq,
            page,
            to: migration.target(),
            in_use: matches!(migration, Migration::Promote { .. }),
        });
    }

    /// A mover reported an end. Orders that a transaction cannot carry out go the ordinary way
    /// first; everything else is told to the engine. Gives the page if it was moved.
    pub fn ended(&mut self, now: Nanos, end: End, engine: &mut Engine) -> Option<PageRef> {
        if self.reclaims.remove(&end.seq).is_some() {
            engine.stats_mut().shadows_reclaimed += end.inaccessible_ns;
            return None;
        }
        let order = self.outstanding.remove(&end.seq)?;
        let by_transaction = order.way == Way::Transaction;
        let refused = match end.outcome {
            Outcome::NotManaged | Outcome::Unavailable | Outcome::Busy | Outcome::NoShadow => true,
            // No huge page is free there: the kernel makes one or moves its parts. Or there is room in
            // the page cache: for `move_pages` the kernel reclaims it, for the agent, which may not
            // insist on the node, it takes memory of another.
            Outcome::NoMemory => {
                order.page.size == PageSize::Huge2M
                    || self.cache_room.counts(order.migration.target())
            }
            _ => false,
        };
        if by_transaction && refused {
            self.by_ordinary(end.seq, order.page, order.migration);
            return None;
        }
        if end.outcome == Outcome::NoMemory {
            self.cache_room.failed(now, order.migration.target());
        }
        // 0: it was there already.
        if by_transaction && end.outcome.moved() && end.inaccessible_ns > 0 {
            engine.stats_mut().inaccessible(Nanos(end.inaccessible_ns));
        }
        if end.outcome == Outcome::DoneShadowStale {
            engine.stats_mut().shadows_stale += 1;
        }
        engine.ended(
            now,
            order.page,
            order.migration,
            verdict(order.migration, order.way, end.outcome),
            order.way,
        );
        end.outcome.moved().then_some(order.page)
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
        for seq in gone {
            let end = End {
                seq,
                outcome: Outcome::Gone,
                inaccessible_ns: 0,
            };
            let _ = self.ended(now, end, engine);
        }
    }
}

fn verdict(migration: Migration, way: Way, outcome: Outcome) -> Verdict {
    let keep = matches!(
        migration,
        Migration::Promote {
            keep_shadow: true,
            ..
        }
    );
    match outcome {
        Outcome::Done => Verdict::Moved {
            shadow: keep && way == Way::Transaction,
        },
        Outcome::DoneShadowStale => Verdict::Moved { shadow: false },
        Outcome::ShadowHit => Verdict::MovedOntoShadow,
        Outcome::Dirtied => Verdict::Dirtied,
        Outcome::Busy | Outcome::Failed => Verdict::Busy,
        Outcome::NoMemory => Verdict::NoMemory,
        Outcome::Gone | Outcome::NotManaged | Outcome::Unavailable | Outcome::NoShadow => {
            Verdict::Lost
        }
    }
}

impl Machine for LinuxMachine {
    fn migrate(&mut self, _now: Nanos, page: PageRef, migration: Migration, _reason: Reason) {
        let seq = self.next();
        let copies = self.agent_copies(page, migration);
        let (op, by_agent) = match migration {
            Migration::Promote { to, keep_shadow } => (
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
        };
        let by_agent = by_agent
            && self.send(
                page.pid,
                &Command {
                    seq,
                    op,
                    addr: page.addr,
                    size: page.size,
                },
            );
        if by_agent {
            self.outstanding.insert(
                seq,
                Outstanding {
                    page,
                    migration,
                    way: Way::Transaction,
                },
            );
        } else {
            self.by_ordinary(seq, page, migration);
        }
    }

    fn reclaim_shadows(&mut self, _now: Nanos, bytes: u64, _reason: Reason) {
        let pids: Vec<Pid> = self.links.keys().copied().collect();
        let share = bytes.div_ceil(4096).div_ceil(pids.len().max(1) as u64);
        for pid in pids {
            let seq = self.next();
            let page = PageRef {
                pid,
                addr: terrace_core::Addr(0),
                size: PageSize::Base4K,
            };
            let op = Op::ReclaimShadows { count: share };
            if self.send(
                pid,
                &Command {
                    seq,
                    op,
                    addr: page.addr,
                    size: page.size,
                },
            ) {
                self.reclaims.insert(seq, pid);
            }
        }
    }

    fn scan(&mut self, _now: Nanos, scope: ScanScope, period: Nanos) {
        self.scan_wanted = Some((scope, period));
    }

    fn read_accessed(&mut self, _now: Nanos, shortest: Nanos, pass: Nanos) -> bool {
        self.read_wanted = Some((shortest, pass));
        true
    }

    fn inventory(&mut self, _now: Nanos) {
        self.inventory_wanted = true;
    }
}
