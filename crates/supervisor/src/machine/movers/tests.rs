// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders and their ends, with an agent that is this process.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use terrace_core::Addr;
use terrace_core::Measurement;
use terrace_core::NodeId;
use terrace_core::Tiers;
use terrace_mover::agent::Terms;
use terrace_mover::greeting::Greeting;
use terrace_mover::greeting::Progress;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_proto::features;
use terrace_sys::unix_channel::Channel;
use terrace_sys::unix_channel::Listener;

use super::*;

/// An agent that takes orders from this process, and answers none.
fn agent(commit: Commit) -> (Channel, AgentLink) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listener = Listener::bind(Path::new(&path)).expect("listening");
    let peer = Channel::connect(&path).expect("connected");
    let hello = terrace_proto::Hello {
        pid: 0,
        features: features::TRANSACTIONS | features::SHADOWS | features::ARMS,
        errno: 0,
        arena_start: 0,
        arena_end: 0,
    };
    peer.send(&hello.encode(), &[]).expect("sent");
    let terms = Terms {
        copy_workers: 1,
        batch_pages: 1,
        commit,
        copy_threads: 1,
        streaming: false,
    };
    let channel = listener.accept().expect("accepted");
    let greeting = Greeting::new(channel, Nanos::ZERO).expect("known");
    match greeting.advance(Nanos::ZERO, terms) {
        Progress::Done(link) => (peer, link),
        other => panic!("{other:?}"),
    }
}

fn movers() -> (Channel, Movers, Engine) {
    let (peer, link) = agent(Commit::Copy);
    let mut movers = Movers::new(MovePagesMover::start().expect("a mover"));
    movers.links.insert(link.pid(), link);
    let tiers = Tiers::new(Vec::new());
    let mut settings = terrace_policy::Settings::new("none", BTreeMap::new());
    let policy =
        terrace_policy::with_settings("none", &terrace_policy::Host::new(tiers), &mut settings);
    (peer, movers, Engine::new(policy.expect("a preset")))
}

fn promote(movers: &mut Movers, pid: Pid, number: u64) {
    let page = PageRef {
        pid,
        addr: Addr(number << 12),
        size: PageSize::Base4K,
    };
    let migration = Migration::Promote {
        to: NodeId(0),
        keep_shadow: true,
    };
    movers
        .migrate(Nanos(3), page, migration, None)
        .expect("taken on");
}

#[test]
fn an_order_is_ended_by_whom_it_was_given_to() {
    let (_peer, mut movers, mut engine) = movers();
    let (me, other) = (Pid(std::process::id()), Pid(1));
    let (now, room) = (Nanos::ZERO, &mut CacheRoom::default());
    promote(&mut movers, me, 1);
    assert_eq!(movers.reclaim_shadows(4096), Ok(()));
    let end = |seq| End {
        seq,
        outcome: Outcome::Done,
        inaccessible: Nanos(5),
    };
    for from in [Reporter::Agent(other), Reporter::MovePages] {
        for seq in [1, 2] {
            assert_eq!(movers.ended(now, from, end(seq), room, &mut engine), None);
        }
    }
    assert_eq!((movers.in_flight(), movers.reclaims.len()), (1, 1));
    let mine = Reporter::Agent(me);
    assert_eq!(movers.ended(now, mine, end(9), room, &mut engine), None);
    movers.reclaimed(other, 2, 7, &mut engine);
    movers.reclaimed(me, 1, 7, &mut engine);
    assert_eq!((movers.in_flight(), movers.reclaims.len()), (1, 1));
    movers.reclaimed(me, 2, 7, &mut engine);
    assert_eq!(engine.stats().shadows_reclaimed, 7);
    let page = movers.ended(now, mine, end(1), room, &mut engine);
    assert_eq!(page.map(|(page, _)| page.pid), Some(me));
    assert_eq!((movers.in_flight(), movers.reclaims.len()), (0, 0));
    assert_eq!(movers.open.get(&me), Some(&0));
    assert_eq!(movers.ended(now, mine, end(1), room, &mut engine), None);
}

#[test]
fn who_answers_nothing_has_so_many_orders_and_no_more() {
    let (_peer, mut movers, mut engine) = movers();
    let me = Pid(std::process::id());
    let most = u64::try_from(ORDERS_MAX).expect("small");
    for number in 0..2 * most {
        promote(&mut movers, me, number);
        let _ = movers.reclaim_shadows(4096);
    }
    assert_eq!(movers.reclaim_shadows(4096), Err(Refusal::Busy));
    let by_agent = movers.outstanding.values();
    let by_agent = by_agent.filter(|o| o.by_agent).count();
    assert_eq!(by_agent + movers.reclaims.len(), ORDERS_MAX);
    movers.forget(Nanos::ZERO, me, &mut engine);
    assert!(movers.open.is_empty() && movers.reclaims.is_empty());
    assert_eq!(movers.reclaim_shadows(4096), Err(Refusal::Unserved));
}

#[test]
fn pages_are_armed_in_turns_and_leave_room_for_moves() {
    let (_peer, mut movers, mut engine) = movers();
    let me = Pid(std::process::id());
    assert!(movers.can_arm(me) && !movers.can_arm(Pid(1)));
    let half = u64::try_from(ORDERS_MAX / 2).expect("small");
    for number in 0..half + 9 {
        let page = PageRef {
            pid: me,
            addr: Addr(number << 12),
            size: PageSize::Base4K,
        };
        assert!(movers.arms.add(page));
    }
    let open = |movers: &Movers| movers.open.get(&me).map(|open| *open as u64);
    movers.flush();
    assert_eq!(open(&movers), Some(half));
    promote(&mut movers, me, 1);
    assert_eq!((movers.in_flight(), open(&movers)), (1, Some(half + 1)));
    let ended = (1..=2 * half).filter(|seq| movers.arm_ended(me, *seq).is_some());
    assert_eq!(ended.count() as u64, half);
    movers.flush();
    assert_eq!(open(&movers), Some(1 + 9), "the move and those that waited");
    movers.forget(Nanos::ZERO, me, &mut engine);
    movers.flush();
    assert_eq!((open(&movers), movers.arms.take_left()), (None, vec![me]));
}

#[test]
fn pages_change_places_in_one_process_with_an_agent_and_nowhere_else() {
    let (_peer, mut movers, mut engine) = movers();
    let (me, other) = (Pid(std::process::id()), Pid(1));
    let page = |pid, number: u64, size| PageRef {
        pid,
        addr: Addr(number << 21),
        size,
    };
    let (small, large) = (PageSize::Base4K, PageSize::Huge2M);
    let exchange = |movers: &mut Movers, page, with| {
        let to = NodeId(0);
        let migration = Migration::Exchange { to, with };
        movers
            .migrate(Nanos(3), page, migration, None)
            .expect("taken on");
    };
    exchange(&mut movers, page(me, 1, small), page(me, 2, small));
    assert_eq!(movers.refused().map(|end| end.seq), None);
    exchange(&mut movers, page(me, 1, small), page(other, 2, small));
    exchange(&mut movers, page(other, 1, small), page(other, 2, small));
    exchange(&mut movers, page(me, 1, small), page(me, 2, large));
    let room = &mut CacheRoom::default();
    for seq in [4, 3, 2] {
        let end = movers.refused().expect("nobody could take it on");
        assert_eq!((end.seq, end.outcome), (seq, Outcome::Busy));
        let ended = movers.ended(Nanos::ZERO, Reporter::MovePages, end, room, &mut engine);
        assert_eq!(ended, None);
    }
    assert_eq!((movers.in_flight(), engine.stats().refused_busy), (1, 3));
    let mine = Reporter::Agent(me);
    let end = |outcome| End {
        seq: 1,
        outcome,
        inaccessible: Nanos(5),
    };
    let ended = movers.ended(Nanos::ZERO, mine, end(Outcome::Done), room, &mut engine);
    assert_eq!(ended.map(|(page, _)| page.pid), Some(me));
    assert_eq!(engine.stats().exchanged_pairs, 1);
    // What an agent could not exchange `move_pages` cannot either.
    exchange(&mut movers, page(me, 1, small), page(me, 2, small));
    let end = End {
        seq: 5,
        ..end(Outcome::NotManaged)
    };
    assert_eq!(
        movers.ended(Nanos::ZERO, mine, end, room, &mut engine),
        None
    );
    assert_eq!((movers.in_flight(), engine.stats().lost), (0, 1));
}

/// Notes how migrations ended.
#[derive(Debug, Default)]
struct Ends(Arc<Mutex<Vec<Event>>>);

impl Policy for Ends {
    fn name(&self) -> &'static str {
        "ends"
    }
    fn observe(&mut self, _now: Nanos, event: &Event) {
        self.0.lock().expect("one thread").push(*event);
    }
    fn tick(&mut self, _now: Nanos) {}
    fn poll_action(&mut self) -> Option<Action> {
        None
    }
    fn next_deadline(&self) -> Nanos {
        Nanos::MAX
    }
    fn counters(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

#[test]
fn an_end_tells_by_what_and_how_long() {
    let (_peer, mut movers, _) = movers();
    let ends = Ends::default();
    let told = Arc::clone(&ends.0);
    let mut engine = Engine::new(Box::new(ends));
    let me = Pid(std::process::id());
    let room = &mut CacheRoom::default();
    // The agent does the first; the second it cannot, and `move_pages` does.
    (1..3).for_each(|number| promote(&mut movers, me, number));
    let mut end = |at, from, seq, outcome| {
        let end = End {
            seq,
            outcome,
            inaccessible: Nanos(5),
        };
        movers.ended(Nanos(at), from, end, room, &mut engine);
    };
    end(103, Reporter::Agent(me), 1, Outcome::Done);
    end(104, Reporter::Agent(me), 2, Outcome::NotManaged);
    end(203, Reporter::MovePages, 2, Outcome::Done);
    let told = told.lock().expect("one thread");
    let told = told.iter().map(|event| match *event {
        Event::Ended {
            mechanism,
            took,
            inaccessible,
            verdict,
            ..
        } => (mechanism, took.0, inaccessible.0, verdict),
        other => panic!("{other:?}"),
    });
    let told: Vec<_> = told.collect();
    let (yes, no) = (
        Verdict::Moved { shadow: true },
        Verdict::Moved { shadow: false },
    );
    let first = (Mechanism::CopyInCommit, 100, 5, yes);
    assert_eq!(told, [first, (Mechanism::MovePages, 200, 0, no)]);
    assert_eq!(engine.stats().inaccessible_ns.count, 1);
}

#[test]
fn a_mechanism_that_is_stated_is_the_agents_own_or_move_pages() {
    let own = [
        (Commit::Transaction, Mechanism::Transaction),
        (Commit::Copy, Mechanism::CopyInCommit),
        (Commit::Wait, Mechanism::WritersWait),
    ];
    let me = Pid(std::process::id());
    let to = NodeId(0);
    let page = |pid, size| PageRef {
        pid,
        addr: Addr(1 << 21),
        size,
    };
    let up = Migration::Promote {
        to,
        keep_shadow: true,
    };
    for (commit, its) in own {
        let (_peer, link) = agent(commit);
        let mut movers = Movers::new(MovePagesMover::start().expect("a mover"));
        movers.links.insert(link.pid(), link);
        // A shadow is of a base page, and what writers wait for is a huge one.
        let size = match commit {
            Commit::Wait => PageSize::Huge2M,
            _ => PageSize::Base4K,
        };
        let others = own.map(|(_, mechanism)| mechanism).into_iter();
        let others = others.filter(|other| *other != its);
        let never = [Mechanism::InFault, Mechanism::AdaptiveCopy];
        let never = never
            .into_iter()
            .chain([Mechanism::ParallelCopy, Mechanism::Exchange]);
        for mechanism in others.chain(never) {
            let served = movers.migrate(Nanos::ZERO, page(me, size), up, Some(mechanism));
            assert_eq!(served, Err(Refusal::Unserved), "{commit:?} {mechanism:?}");
        }
        let served = movers.migrate(Nanos::ZERO, page(Pid(1), size), up, Some(its));
        assert_eq!(served, Err(Refusal::Unserved), "it has no agent");
        assert_eq!(movers.in_flight(), 0);
        for (seq, mechanism) in (1..).zip([its, Mechanism::MovePages]) {
            let served = movers.migrate(Nanos::ZERO, page(me, size), up, Some(mechanism));
            assert_eq!(served, Ok(()), "{commit:?} {mechanism:?}");
            assert_eq!(movers.outstanding[&seq].mechanism, mechanism);
        }
        // So and not otherwise: what the agent cannot do is at its end.
        let order = movers.outstanding[&1];
        assert!(!order.is_for_move_pages(Outcome::NotManaged, true));
        let free = Outstanding {
            stated: false,
            ..order
        };
        assert!(free.is_for_move_pages(Outcome::NotManaged, true));
    }
}
