// SPDX-License-Identifier: MIT OR Apache-2.0
//! What basic things cost on the machine this runs on, in nanoseconds: the same code measures the
//! guest and the host, and `terrace-lab calibrate` divides one by the other.
//!
//! It measures whatever time the machine shows it: in the guest that includes the memory delays.
//! Each figure is a mean over some thousand repetitions; none is a limit to test against.

use std::hint::black_box;
use std::time::Instant;

use rustix::io::Errno;
use serde::Deserialize;
use serde::Serialize;
use terrace_core::NodeId;
use terrace_sys::mempolicy;
use terrace_sys::mempolicy::Policy;
use terrace_sys::move_pages;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;
use terrace_sys::uffd::Events;
use terrace_sys::uffd::Uffd;

mod hint;
mod region;

use region::PAGE;
use region::Region;

/// Pages of a region: 16 MiB, well over the lab's last-level cache.
const PAGES: usize = 4096;
const BATCH: usize = 512;

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// A key that stays: `syscall`, `read_node_1`.
    pub what: String,
    pub ns: f64,
}

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("Cannot measure {what}: {source}")]
pub struct ProbeError {
    what: &'static str,
    source: Errno,
}

fn failed(what: &'static str) -> impl FnOnce(Errno) -> ProbeError {
    move |source| ProbeError { what, source }
}

/// Mean nanoseconds of one of `count` things done by `work`.
fn mean(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let count = count as f64;
    start.elapsed().as_secs_f64() * 1e9 / count
}

/// Measures everything. `nodes` are the memory nodes there are; with more than one, access by
/// node, migration and hint faults are measured, too.
///
/// # Errors
///
/// [`ProbeError`] names what the kernel refused.
pub fn measure(nodes: u16) -> Result<Vec<Cost>, ProbeError> {
    let mut costs = vec![("alu", alu()), ("syscall", syscall())];
    costs.push(("page_fault", page_fault()?));
    costs.push(("minor_fault", minor_fault()?));
    costs.push(("pte_marking", pte_marking()?));
    costs.push(("page_copy", page_copy(nodes)?));
    userfaultfd(&mut costs)?;
    if nodes > 1 {
        costs.push(("migrate_page", migrate(nodes - 1)?));
        costs.push(("hint_fault", hint::fault(NodeId(nodes - 1))?));
    }
    let mut costs: Vec<Cost> = costs
        .into_iter()
        .map(|(what, ns)| Cost {
            what: what.to_owned(),
            ns,
        })
        .collect();
    if nodes > 1 {
        for node in 0..nodes {
            let what = format!("read_node_{node}");
            costs.push(Cost {
                what,
                ns: random_reads(NodeId(node))?,
            });
        }
    }
    Ok(costs)
}

fn alu() -> f64 {
    let steps = 20_000_000;
    mean(steps, || {
        // Six dependent operations, which no compiler takes together.
        let mut x = black_box(1u64);
        for _ in 0..steps {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        black_box(x);
    })
}

fn syscall() -> f64 {
    let calls = 50_000;
    mean(calls, || {
        (0..calls).for_each(|_| _ = black_box(rustix::process::getppid()))
    })
}

/// First touch of an anonymous page: allocated, zeroed, mapped.
fn page_fault() -> Result<f64, ProbeError> {
    let region = Region::anonymous(PAGES).map_err(failed("page_fault"))?;
    Ok(mean(PAGES, || region.touch_all()))
}

/// Mapping a page that is in memory already: a fault without allocation or copy.
fn minor_fault() -> Result<f64, ProbeError> {
    let region = Region::cached_file(PAGES).map_err(failed("minor_fault"))?;
    Ok(mean(PAGES, || region.touch_all()))
}

/// Taking the access right from a mapped page, in one call for many: what a scanner does.
fn pte_marking() -> Result<f64, ProbeError> {
    let region = Region::populated(PAGES).map_err(failed("pte_marking"))?;
    let mut result = Ok(());
    let ns = mean(PAGES, || result = region.forbid());
    result.map_err(failed("pte_marking"))?;
    Ok(ns)
}

/// Copying a page in user space, from the slowest node to the fastest.
fn page_copy(nodes: u16) -> Result<f64, ProbeError> {
    let from = on_node(NodeId(nodes - 1)).map_err(failed("page_copy"))?;
    let to = on_node(NodeId(0)).map_err(failed("page_copy"))?;
    Ok(mean(PAGES, || to.copy_from(&from)))
}

/// A populated region whose pages are on a node, and which has no policy of its own.
fn on_node(node: NodeId) -> Result<Region, Errno> {
    // A machine without NUMA has one node and needs no policy.
    if mempolicy::set_mempolicy(&Policy::Preferred(node)).is_err() && node != NodeId(0) {
        return Err(Errno::NODEV);
    }
    let region = Region::populated(PAGES);
    // Fails only where the call before did.
    let _ = mempolicy::set_mempolicy(&Policy::Default);
    region
}

fn userfaultfd(costs: &mut Vec<(&'static str, f64)>) -> Result<(), ProbeError> {
    let uffd = Uffd::open(Events::None).map_err(failed("userfaultfd"))?;
    let app = Region::populated(PAGES).map_err(failed("uffd_protect"))?;
    let park = Region::anonymous(PAGES).map_err(failed("uffd_move"))?;
    for region in [&app, &park] {
        uffd.register(region.start(), region.bytes(), true)
            .map_err(failed("userfaultfd"))?;
    }
    for (protect, moving, pages) in [
        ("uffd_protect", "uffd_move", 1),
        ("uffd_protect_batched", "uffd_move_batched", BATCH),
    ] {
        let length = (pages * PAGE) as u64;
        let steps = || (0..PAGES / pages).map(|step| step as u64 * length);
        let mut result = Ok(());
        let ns = mean(PAGES, || {
            result = steps()
                .try_for_each(|at| uffd.write_protect(app.start() + at, length, true).map(drop));
        });
        result.map_err(failed("uffd_protect"))?;
        costs.push((protect, ns));
        // Out and back again: two moves a page.
        let ns = mean(2 * PAGES, || {
            result = steps().try_for_each(|at| {
                let (here, there) = (app.start() + at, park.start() + at);
                for (to, from) in [(there, here), (here, there)] {
                    // SAFETY: both ranges are whole pages of our regions, into which no
                    // reference points.
                    let moved = unsafe { uffd.move_pages(to, from, length, false) }?;
                    if moved.bytes != length {
                        return Err(Errno::BUSY);
                    }
                }
                Ok(())
            });
        });
        result.map_err(failed("uffd_move"))?;
        costs.push((moving, ns));
    }
    Ok(())
}

/// `move_pages(2)` from the slow node to the fast one, in batches.
fn migrate(slow: u16) -> Result<f64, ProbeError> {
    let region = on_node(NodeId(slow)).map_err(failed("migrate_page"))?;
    let pages: Vec<u64> = (0..PAGES as u64)
        .map(|page| region.start() + page * PAGE as u64)
        .collect();
    let mut result = Ok(());
    let ns = mean(PAGES, || {
        result = pages.chunks(BATCH).try_for_each(|batch| {
            move_pages::migrate(Target::Own, batch, NodeId(0), Sharing::OwnOnly).map(drop)
        });
    });
    result.map_err(failed("migrate_page"))?;
    Ok(ns)
}

/// One read at a random place of a region on a node.
fn random_reads(node: NodeId) -> Result<f64, ProbeError> {
    let region = on_node(node).map_err(failed("read_node"))?;
    let reads = 100_000;
    Ok(mean(reads, || region.read_randomly(reads)))
}
