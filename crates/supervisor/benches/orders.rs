// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an order takes of the supervisor's own thread with the default policy: the decision, handing it to the mover, taking its end in.
//! Works on any machine: the policy is told that this program's memory is on a second node, so that the kernel finds pages where they
//! are to go, and what the kernel takes is the mover's thread's.
//!
//! `cargo bench -p terrace-supervisor --bench orders`; times are processor time. Counts of instructions, which are the same each
//! time: `valgrind --tool=callgrind` on the program that this builds.

use rustix::event::PollFd;
use rustix::event::PollFlags;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::Pid;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_policy::Capabilities;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_supervisor::machine::LinuxMachine;
use terrace_supervisor::tracking::Trackers;
use terrace_sys::clock;

const CHUNKS: u64 = 128;
const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const PASS: Nanos = Nanos::from_secs(1);
const PASSES: usize = 12;

fn tiers() -> Tiers {
    let node = |id, tier, ns| NodeInfo {
        id,
        tier: TierId(tier),
        capacity_bytes: 8 * CHUNKS * CHUNK_BYTES,
        cpus: Vec::new(),
        read_latency_ns: Some(ns),
        write_latency_ns: Some(ns),
        read_bandwidth_mbps: Some(20_000),
    };
    Tiers::new(vec![node(FAST, 0, 80), node(SLOW, 1, 250)])
}

/// Half of the pages, here and there.
fn hot() -> PageBits {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    PageBits(std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }))
}

/// All pages on the slow node; the hot ones were asked for soon, the others not at all.
fn pass(engine: &mut Engine, pid: Pid, start: u64, begin: Nanos) {
    let rung = Nanos::from_millis(4);
    let hot = hot();
    for last in [false, true] {
        for chunk in 0..CHUNKS {
            let reading = ChunkReading {
                pid,
                parts: 1,
                start: Addr(start + chunk * CHUNK_BYTES),
                ran: None,
                since: if last { rung } else { Nanos::ZERO },
                until: if last { PASS } else { rung },
                last,
                huge: false,
                present: PageBits::ALL,
                accessed: hot,
                fresh: if last { PageBits::NONE } else { hot },
                nodes: &[(SLOW, PageBits::ALL)],
            };
            engine.accessed(begin + reading.until, &reading);
        }
    }
    let over = Event::Watched {
        pid,
        parts: 1,
        pages: CHUNKS * 512,
        busy: Nanos::from_millis(1),
        lost: Nanos::ZERO,
    };
    engine.observe(begin + PASS, &over);
}

/// Tells that all of the fast node but a little is free.
fn tell_memory(engine: &mut Engine, now: Nanos) {
    for (node, part) in [(FAST, 7), (SLOW, 1)] {
        let total_bytes = 8 * CHUNKS * CHUNK_BYTES;
        let memory = NodeMemory {
            free_bytes: total_bytes / 8 * part,
            low_bytes: 0,
            high_bytes: 0,
            total_bytes,
        };
        engine.memory(now, node, memory);
    }
}

fn main() -> anyhow::Result<()> {
    let bytes = usize::try_from((CHUNKS + 1) * CHUNK_BYTES)?;
    let memory = vec![1_u8; bytes];
    let start = (memory.as_ptr() as u64).next_multiple_of(CHUNK_BYTES);
    let pid = Pid(std::process::id());
    let takes = Capabilities::empty();
    let mut machine = LinuxMachine::open(tiers(), takes, Trackers::default())?;
    let policy = terrace_policy::by_name("adaptive", &tiers())?;
    let mut engine = Engine::new(policy);
    let (mut took, mut begin) = (Nanos::ZERO, PASS);
    for _ in 0..PASSES {
        tell_memory(&mut engine, begin);
        pass(&mut engine, pid, start, begin);
        begin = begin + PASS + PASS;
        engine.tick(begin);
        let begun = clock::thread_cpu_time();
        loop {
            machine.pump(begin, &mut engine);
            let movers = &machine.managed.movers;
            if movers.in_flight() == 0 {
                break;
            }
            let mut bell = [PollFd::from_borrowed_fd(
                movers.move_pages.fd(),
                PollFlags::IN,
            )];
            rustix::event::poll(&mut bell, None)?;
            movers.move_pages.silence();
            machine.take_reports(begin, None, &mut engine);
        }
        took = took + clock::thread_cpu_time().since(begun);
    }
    let stats = engine.stats();
    println!(
        "{} orders took {} ns of the supervisor each",
        stats.ordered,
        took.0 / stats.ordered.max(1)
    );
    drop(memory);
    Ok(())
}
