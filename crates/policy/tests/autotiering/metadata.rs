// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the policy keeps of each page, on machines with several sockets.

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::presets::autotiering::Autotiering;
use terrace_policy::presets::autotiering::Params;

const CHUNKS: u32 = 300;

/// Fast nodes 0 and so on with processors, as many slow ones behind them.
fn views(sockets: u16) -> Views {
    let node = |id: u16| NodeInfo {
        id: NodeId(id),
        tier: TierId(id / sockets),
        capacity_bytes: 1 << 30,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    let cpus: Vec<NodeId> = (0..sockets).map(NodeId).collect();
    Views::new(
        &Tiers::new((0..2 * sockets).map(node).collect()),
        &cpus,
        &[],
    )
}

fn pages(of: impl Fn(usize) -> bool) -> PageBits {
    let mut pages = PageBits::NONE;
    (0..512)
        .filter(|page| of(*page))
        .for_each(|page| pages.set(page));
    pages
}

/// Bytes a page where the pages of each 2 MiB are on these nodes in turn, each accessed from the sockets in turn.
fn bytes_a_page(sockets: u16, on: &[u16]) -> f64 {
    let mut policy = Autotiering::new(Params::default(), views(sockets), true);
    let there = |at: usize| pages(|page| page % on.len() == at);
    let nodes: Vec<_> = (0..)
        .zip(on)
        .map(|(at, id)| (NodeId(*id), there(at)))
        .collect();
    for start in (0..CHUNKS).map(|chunk| Addr(u64::from(chunk) * CHUNK_BYTES)) {
        let accessed = pages(|page| page < 256);
        let reading = ChunkReading {
            pid: Pid(1),
            parts: 1,
            start,
            since: Nanos::ZERO,
            until: Nanos::from_secs(1),
            ran: None,
            last: true,
            huge: false,
            present: PageBits::ALL,
            accessed,
            fresh: accessed,
            nodes: &nodes,
        };
        policy.accessed(Nanos(1), &reading);
        for page in 0..512_usize {
            let cpu = u16::try_from(page % usize::from(sockets)).expect("a socket");
            let event = Event::HintFault {
                page: PageRef {
                    pid: Pid(1),
                    addr: Addr(start.0 + page as u64 * 4096),
                    size: PageSize::Base4K,
                },
                node: NodeId(on[page % on.len()]),
                write: false,
                idle: None,
                cpu_node: Some(NodeId(cpu)),
            };
            policy.observe(Nanos(2), &event);
        }
    }
    let figures = policy.counters();
    let found = figures
        .iter()
        .find(|(figure, _)| figure.name == "metadata_bytes");
    let (_, bytes) = found.expect("a figure");
    f64::from(u32::try_from(*bytes).expect("some MiB")) / f64::from(CHUNKS * 512)
}

#[test]
fn metadata_takes_at_most_four_bytes_a_page() {
    let cases: [(u16, &[u16]); 5] = [
        (2, &[0, 2]),
        (2, &[0, 1, 2, 3]),
        (3, &[0, 1, 2, 3, 4, 5]),
        (8, &[0, 8]),
        (8, &[0, 1, 2, 3, 8, 9, 10, 11]),
    ];
    for (sockets, on) in cases {
        let each = bytes_a_page(sockets, on);
        println!("{sockets} sockets, pages on {on:?}: {each:.2} bytes a page");
        assert!(
            (1.0..=4.0).contains(&each),
            "{each:.3} bytes a page, {sockets} sockets, pages on {on:?}"
        );
    }
}
