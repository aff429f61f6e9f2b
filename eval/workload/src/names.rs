// SPDX-License-Identifier: MIT OR Apache-2.0
//! All workloads by name, and from a name to the file that defines it.

use crate::Workload;
use crate::WorkloadError;
use crate::graph;
use crate::gups;
use crate::memtier;
use crate::micro;
use crate::mix;
use crate::nomad;
use crate::pmbench;
use crate::restless;
use crate::sizes::Parameters;
use crate::tpcc;
use crate::ycsb;

/// A workload in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Where it is from.
    pub source: &'static str,
}

const fn about(name: &'static str, source: &'static str, what: &'static str) -> About {
    About { name, what, source }
}

/// All workloads.
pub const WORKLOADS: [About; COUNT] = [
    about(
        "gups-uniform",
        "HeMem 5.1",
        "updates of words, all pages alike",
    ),
    about(
        "gups",
        "HeMem 5.1",
        "updates of words, 90 % in a hot set that stays",
    ),
    about(
        "gups-moving",
        "HeMem 5.1",
        "gups of which a quarter of the hot set moves once",
    ),
    about(
        "gups-crossed",
        "ours",
        "gups, a hot set for each thread, on the wrong socket at first",
    ),
    about(
        "gups-writeskew",
        "HeMem 5.1",
        "gups with a hot set half write-only, half read-only",
    ),
    about(
        "zipf",
        "ours",
        "words of zipfian pages, half reads, half updates",
    ),
    about(
        "pmbench",
        "Chrono 5.1.1",
        "bell curve over every second page, in processes",
    ),
    about(
        "pmbench-groups",
        "Chrono 5.1.3",
        "processes of falling access rates",
    ),
    about(
        "memtier",
        "Chrono 5.3",
        "key-value store: bell curve over keys in order",
    ),
    about(
        "nomad-small-read",
        "Nomad 4.1",
        "zipfian reads, fits the fast node, starts slow",
    ),
    about("nomad-small-write", "Nomad 4.1", "the same, writes"),
    about(
        "nomad-small-paper-read",
        "Nomad 4.1",
        "zipfian reads, fits the fast node, first touch",
    ),
    about("nomad-small-paper-write", "Nomad 4.1", "the same, writes"),
    about(
        "nomad-medium-read",
        "Nomad 4.1",
        "zipfian reads, just over the fast node",
    ),
    about("nomad-medium-write", "Nomad 4.1", "the same, writes"),
    about(
        "nomad-large-read",
        "Nomad 4.1",
        "zipfian reads, twice the fast node",
    ),
    about("nomad-large-write", "Nomad 4.1", "the same, writes"),
    about(
        "ycsb-a",
        "YCSB, Nomad 4.2",
        "key-value store: 50 % reads, 50 % updates, zipfian",
    ),
    about(
        "ycsb-b",
        "YCSB",
        "key-value store: 95 % reads, 5 % updates, zipfian",
    ),
    about("ycsb-c", "YCSB", "key-value store: reads, zipfian"),
    about(
        "ycsb-d",
        "YCSB",
        "key-value store: 95 % reads of the latest, 5 % inserts",
    ),
    about("ycsb-e", "YCSB", "key-value store: 95 % scans, 5 % inserts"),
    about(
        "ycsb-f",
        "YCSB",
        "key-value store: 50 % reads, 50 % read-modify-writes",
    ),
    about(
        "bfs",
        "MTM Table 2",
        "breadth-first search on a Kronecker graph",
    ),
    about(
        "graph500",
        "AutoTiering 5.1",
        "bfs in memory that the list of its edges has filled",
    ),
    about(
        "bc",
        "HeMem 5.2.3",
        "betweenness centrality on a Kronecker graph",
    ),
    about("pagerank", "Nomad 4.2", "PageRank on a Kronecker graph"),
    about(
        "scan",
        "Nomad Table 3",
        "reads of whole pages in order, again and again",
    ),
    about(
        "phases",
        "ours",
        "gups whose hot set jumps between four regions",
    ),
    about(
        "drifting",
        "ours",
        "gups whose hot set moves on a little every second",
    ),
    about(
        "alternating",
        "ours",
        "gups whose hot set jumps to and fro every 3 s",
    ),
    about(
        "sparse",
        "ours",
        "updates of one page of each 2 MiB, and some of all",
    ),
    about(
        "tpcc",
        "HeMem 5.2.1",
        "the rows of TPC-C's transactions; orders grow",
    ),
    about("mix", "ours", "several workloads at once: of=gups+scan"),
];

const COUNT: usize = 34;

/// The names of [`WORKLOADS`].
pub const NAMES: [&str; COUNT] = {
    let mut names = [""; COUNT];
    let mut index = 0;
    while index < COUNT {
        names[index] = WORKLOADS[index].name;
        index += 1;
    }
    names
};

pub(crate) fn build(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    match parameters.workload() {
        "gups-uniform" => gups::uniform(parameters),
        "gups" => gups::hot_set(parameters),
        "gups-moving" => gups::moving(parameters),
        "gups-crossed" => gups::crossed(parameters),
        "gups-writeskew" => gups::write_skew(parameters),
        "zipf" => micro::zipf(parameters),
        "scan" => micro::scan(parameters),
        "phases" => micro::phases(parameters),
        "drifting" => restless::drifting(parameters),
        "alternating" => restless::alternating(parameters),
        "sparse" => restless::sparse(parameters),
        "pmbench" => pmbench::normal(parameters),
        "pmbench-groups" => pmbench::groups(parameters),
        "memtier" => memtier::build(parameters),
        "bfs" => graph::bfs(parameters),
        "graph500" => graph::graph500(parameters),
        "bc" => graph::bc(parameters),
        "pagerank" => graph::pagerank(parameters),
        "tpcc" => tpcc::build(parameters),
        "mix" => mix::build(parameters),
        name if name.starts_with("ycsb-") => ycsb::build(parameters),
        _ => nomad::build(parameters),
    }
}
