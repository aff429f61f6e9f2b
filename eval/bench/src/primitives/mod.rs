// SPDX-License-Identifier: MIT OR Apache-2.0
//! What basic things cost on the machine this runs on, in nanoseconds.
//!
//! `terrace bench primitives` prints it, the simulator takes it ([`report`]), and `terrace-lab
//! calibrate` divides what it gives in the guest by what it gives on the host. It measures whatever
//! time the machine shows it: in the guest that includes the memory delays. Each figure of a round
//! is a mean over some thousand repetitions; of several rounds the median counts. None is a limit
//! to test against.
//!
//! * [`report`]: figures as JSON and as a table, and the simulator's costs made of them.
//! * `basic` (processor, faults, marking), `memory` (copies, latency, migration), `uffd`,
//!   `shootdown`, `sampling`, `hint`: the measurements. [`command`] is the command line.

mod basic;
mod command;
mod hint;
mod memory;
mod region;
pub mod report;
mod sampling;
mod shootdown;
mod uffd;

use std::time::Instant;

use rustix::io::Errno;
use serde::Deserialize;
use serde::Serialize;
use terrace_core::NodeId;
use terrace_sys::mempolicy;
use terrace_sys::mempolicy::Policy;

pub use command::command;
use region::Region;

/// Pages of a region: 16 MiB, well over the lab's last-level cache.
const PAGES: usize = 4096;
/// Pages of a batch.
const BATCH: usize = 512;

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// A key that stays: `syscall`, `read_node_1`.
    pub what: String,
    /// What was measured.
    pub about: String,
    /// Median of the rounds, ns; none where it cannot be measured here.
    pub ns: Option<f64>,
    /// Least and most of the rounds, ns.
    pub spread: Option<(f64, f64)>,
    /// Of a copy: megabytes a second.
    pub mb_per_s: Option<f64>,
    /// Why there is none.
    pub why: Option<String>,
}

/// Why something could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The kernel refused a call.
    #[error("The kernel refuses: {0}")]
    Kernel(#[from] Errno),
    /// Something else.
    #[error("{0}")]
    Refused(String),
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The memory nodes, the fastest first.
    pub nodes: Vec<NodeId>,
    /// Rounds; the median counts.
    pub rounds: usize,
    /// Pages that random reads go over: more than the last-level cache holds.
    pub read_pages: usize,
    /// Measure hint faults, for which kernel settings are changed and put back.
    pub hint_faults: bool,
}

impl Options {
    /// One round over small regions, for the emulated machine and for what is compared with it.
    #[must_use]
    pub fn small(nodes: u16) -> Self {
        Self {
            nodes: (0..nodes.max(1)).map(NodeId).collect(),
            rounds: 1,
            read_pages: PAGES,
            hint_faults: true,
        }
    }

    fn fastest(&self) -> NodeId {
        self.nodes.first().copied().unwrap_or_default()
    }

    fn slowest(&self) -> NodeId {
        self.nodes.last().copied().unwrap_or_default()
    }

    fn several_nodes(&self) -> Result<(), Why> {
        if self.nodes.len() > 1 {
            return Ok(());
        }
        Err(Why::Refused("the machine has one memory node".to_owned()))
    }
}

/// One round's value, and what it is.
#[derive(Debug)]
struct Value {
    what: String,
    about: String,
    ns: Result<f64, Why>,
    /// Bytes that were copied in that time.
    bytes: Option<usize>,
}

fn value(what: &str, about: &str, ns: Result<f64, Why>) -> Value {
    Value {
        what: what.to_owned(),
        about: about.to_owned(),
        ns,
        bytes: None,
    }
}

/// Mean nanoseconds of one of `count` things done by `work`.
fn mean<E>(count: usize, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    work()?;
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let count = count as f64;
    Ok(start.elapsed().as_secs_f64() * 1e9 / count)
}

/// A populated region whose pages are on a node, and which has no policy of its own.
fn on_node(node: NodeId, pages: usize) -> Result<Region, Why> {
    // A machine without NUMA has one node and needs no policy.
    if mempolicy::set_mempolicy(&Policy::Preferred(node)).is_err() && node != NodeId(0) {
        return Err(Why::Refused(format!("there is no node {node}")));
    }
    let region = Region::populated(pages);
    // Fails only where the call before did.
    let _ = mempolicy::set_mempolicy(&Policy::Default);
    Ok(region?)
}

fn round(options: &Options) -> Vec<Value> {
    let mut values = basic::measure();
    values.extend(shootdown::measure());
    values.extend(memory::measure(options));
    values.extend(uffd::measure());
    values.extend(sampling::measure());
    let hint = if options.hint_faults {
        options
            .several_nodes()
            .and_then(|()| hint::fault(options.slowest()))
    } else {
        Err(Why::Refused("not asked for (--hint-faults)".to_owned()))
    };
    let about = "hint fault on a page of the slowest node, without a migration";
    values.push(value("hint_fault", about, hint));
    values
}

/// Measures everything. What cannot be measured here is in the list, with the reason.
#[must_use]
pub fn measure(options: &Options) -> Vec<Figure> {
    let rounds: Vec<Vec<Value>> = (0..options.rounds.max(1)).map(|_| round(options)).collect();
    (0..rounds[0].len())
        .map(|at| {
            let values: Vec<&Value> = rounds.iter().filter_map(|round| round.get(at)).collect();
            figure(&values)
        })
        .collect()
}

fn figure(rounds: &[&Value]) -> Figure {
    let first = rounds[0];
    let mut times: Vec<f64> = rounds
        .iter()
        .filter_map(|v| v.ns.as_ref().ok().copied())
        .collect();
    times.sort_by(f64::total_cmp);
    let ns = times.get(times.len() / 2).copied();
    let why = rounds.iter().find_map(|v| v.ns.as_ref().err());
    #[expect(clippy::cast_precision_loss, reason = "bytes of a page")]
    let mb_per_s = first.bytes.zip(ns).map(|(b, ns)| b as f64 * 1e3 / ns);
    Figure {
        what: first.what.clone(),
        about: first.about.clone(),
        ns,
        spread: times.first().copied().zip(times.last().copied()),
        mb_per_s,
        why: why.filter(|_| ns.is_none()).map(ToString::to_string),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_and_a_failed_round_does_not() {
        let of = |ns| value("a", "", ns);
        let none = || Err(Why::Kernel(Errno::PERM));
        let rounds = [of(Ok(3.0)), of(none()), of(Ok(1.0)), of(Ok(9.0))];
        let all: Vec<&Value> = rounds.iter().collect();
        let found = figure(&all);
        assert_eq!((found.ns, found.spread), (Some(3.0), Some((1.0, 9.0))));
        assert_eq!(found.why, None);
        let lost = figure(&all[1..2]);
        assert_eq!((lost.ns, lost.spread), (None, None));
        assert!(lost.why.is_some_and(|why| why.contains("not permitted")));
    }
}
