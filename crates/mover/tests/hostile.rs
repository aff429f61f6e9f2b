// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer that speaks the agent's protocol and means no good: whatever it does to what it shares, no call waits,
//! and what it sends is taken by the measure.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use rustix::fs::OFlags;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_mover::agent::AgentLink;
use terrace_mover::agent::REPORTS;
use terrace_mover::agent::Terms;
use terrace_mover::agent::WINDOW;
use terrace_mover::greeting::Greeting;
use terrace_mover::greeting::PATIENCE;
use terrace_mover::greeting::Progress;
use terrace_proto::Command;
use terrace_proto::Commit;
use terrace_proto::Hello;
use terrace_proto::Notice;
use terrace_proto::Op;
use terrace_proto::Report;
use terrace_proto::WELCOME_BYTES;
use terrace_proto::Welcome;
use terrace_proto::features;
use terrace_sys::ringer::Ringer;
use terrace_sys::shm::Mapped;
use terrace_sys::shm::SharedFile;
use terrace_sys::unix_channel::Channel;
use terrace_sys::unix_channel::Listener;

const TERMS: Terms = Terms {
    copy_workers: 1,
    batch_pages: 32,
    commit: Commit::Copy,
    copy_threads: 1,
    streaming: false,
};

/// The peer, and what was accepted of it.
fn connected() -> (Channel, Greeting) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listener = Listener::bind(Path::new(&path)).expect("listening");
    let peer = Channel::connect(&path).expect("connected");
    let greeting = Greeting::new(listener.accept().expect("accepted"), Nanos::ZERO);
    (peer, greeting.expect("the kernel knows who"))
}

fn hello() -> Vec<u8> {
    let hello = Hello {
        pid: std::process::id(),
        features: features::TRANSACTIONS,
        errno: 0,
        arena_start: 0,
        arena_end: 0,
    };
    hello.encode().to_vec()
}

/// A peer that has been taken for an agent, with what it was given.
struct Peer {
    _channel: Channel,
    memory: Mapped,
    ring_words: usize,
    bells: [OwnedFd; 2],
}

fn agent() -> (Peer, AgentLink) {
    let (channel, greeting) = connected();
    channel.send(&hello(), &[]).expect("sent");
    let Progress::Done(link) = greeting.advance(Nanos::ZERO, TERMS) else {
        panic!("a whole hello");
    };
    let mut answer = [0; WELCOME_BYTES];
    let fds = channel.receive(&mut answer).expect("an answer");
    let welcome = Welcome::decode(&answer).expect("a welcome");
    let [memory, wake, tell] = <[OwnedFd; 3]>::try_from(fds).expect("three");
    let memory = SharedFile::from_fd(memory).and_then(|file| file.map());
    let peer = Peer {
        _channel: channel,
        memory: memory.expect("mapped"),
        ring_words: usize::try_from(welcome.ring_bytes / 8).expect("small"),
        bells: [wake, tell],
    };
    (peer, link)
}

impl Peer {
    fn store(&self, word: usize, value: u64) {
        self.memory.words()[word].store(value, Ordering::Release);
    }

    /// Descriptors that it shares wait from now on.
    fn make_waiting(&self) {
        for bell in &self.bells {
            let flags = rustix::fs::fcntl_getfl(bell).expect("flags");
            rustix::fs::fcntl_setfl(bell, flags - OFlags::NONBLOCK).expect("set");
        }
    }
}

#[test]
fn who_says_nothing_or_half_of_it_is_not_waited_for() {
    let begun = Instant::now();
    let (_silent, greeting) = connected();
    let Progress::Waiting(greeting) = greeting.advance(Nanos::ZERO, TERMS) else {
        panic!("it has time");
    };
    assert!(matches!(
        greeting.advance(PATIENCE, TERMS),
        Progress::Refused(_)
    ));
    let (half, mut greeting) = connected();
    for part in hello().chunks(7) {
        let Progress::Waiting(waiting) = greeting.advance(Nanos(1), TERMS) else {
            panic!("not all was sent");
        };
        greeting = waiting;
        half.send(part, &[]).expect("sent");
    }
    assert!(matches!(
        greeting.advance(Nanos(1), TERMS),
        Progress::Done(_)
    ));
    let (stranger, greeting) = connected();
    stranger.send(&[7; 48], &[]).expect("sent");
    assert!(matches!(
        greeting.advance(Nanos(1), TERMS),
        Progress::Refused(_)
    ));
    let (gone, greeting) = connected();
    drop(gone);
    assert!(matches!(
        greeting.advance(Nanos(1), TERMS),
        Progress::Refused(_)
    ));
    assert!(begun.elapsed() < Duration::from_millis(900), "it waited");
}

#[test]
fn shared_descriptors_make_nobody_wait() {
    let (peer, mut link) = agent();
    peer.make_waiting();
    // Nothing has rung: read(2) would wait.
    link.silence(Nanos::ZERO);
    // The count is at its most: write(2) would wait.
    let most = (u64::MAX - 1).to_ne_bytes();
    rustix::io::write(&peer.bells[0], &most).expect("room");
    let command = Command {
        seq: 1,
        op: Op::Ping,
        addr: Addr(0),
        size: PageSize::Base4K,
    };
    assert!(link.submit(&command));
    link.flush(&Ringer::new());
}

#[test]
fn a_ring_that_is_never_empty_is_left_after_a_while() {
    let (peer, mut link) = agent();
    let ring = peer.ring_words;
    let notice = Report::Notice(Notice::Faults {
        write_protect: u64::MAX,
        missing: 0,
        writes_waited: 0,
    });
    let records = (ring - 24) / 4;
    for record in 0..records {
        for (at, word) in notice.encode().into_iter().enumerate() {
            peer.store(ring + 24 + record * 4 + at, word);
        }
    }
    let mut taken = 0;
    for round in 0..100_u64 {
        // Always full, from wherever the reader is by its own words.
        let head = peer.memory.words()[ring].load(Ordering::Acquire);
        peer.store(ring + 8, head.wrapping_add(records as u64));
        let now = Nanos(WINDOW.0 * round / 50);
        link.reports_each(now, |_| taken += 1).expect("they decode");
    }
    assert_eq!(taken, 2 * REPORTS, "two windows");
    assert!(link.deaf_until(Nanos(WINDOW.0 * 99 / 50)).is_some());
    assert_eq!(link.deaf_until(Nanos(WINDOW.0 * 4)), None);
}

#[test]
fn who_rings_without_end_is_not_heard_for_a_while() {
    let (_peer, mut link) = agent();
    let mut heard = 0;
    for at in 0..1_000 {
        let now = Nanos(at * WINDOW.0 / 1_000);
        if link.deaf_until(now).is_none() {
            link.silence(now);
            heard += 1;
        }
    }
    assert!((1..100).contains(&heard), "{heard} times in a window");
}

#[test]
fn positions_of_the_peer_are_not_believed() {
    let (peer, mut link) = agent();
    let ring = peer.ring_words;
    for (head, tail) in [(0, u64::MAX), (u64::MAX, 0), (1 << 50, 1 << 50)] {
        peer.store(ring, head);
        peer.store(ring + 8, tail);
        link.reports_each(Nanos::ZERO, |_| panic!("nothing was said"))
            .expect("nothing to decode");
    }
    // What it says of the ring that we fill: full, or not; never elsewhere than where we are.
    let command = |seq| Command {
        seq,
        op: Op::Ping,
        addr: Addr(0),
        size: PageSize::Base4K,
    };
    peer.store(8, 1 << 40);
    assert!(link.submit(&command(7)));
    assert_eq!(peer.memory.words()[24 + 1].load(Ordering::Acquire), 7);
    assert_eq!(peer.memory.words()[8].load(Ordering::Acquire), 1);
}
