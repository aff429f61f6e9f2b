// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies by pair of nodes, latency by node, the kernel's migration.

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;

use super::BATCH;
use super::Options;
use super::PAGES;
use super::Value;
use super::Why;
use super::mean;
use super::on_node;
use super::region::PAGE;
use super::value;

const HUGE: usize = 2 << 20;

pub(super) fn measure(options: &Options) -> Vec<Value> {
    let mut values = Vec::new();
    let (slow, fast) = (options.slowest(), options.fastest());
    values.push(Value {
        bytes: Some(PAGE),
        ..value(
            "page_copy",
            "copying 4 KiB from the slowest node to the fastest",
            copy(slow, fast, PAGE),
        )
    });
    values.push(Value {
        bytes: Some(HUGE),
        ..value(
            "huge_copy",
            "copying 2 MiB from the slowest node to the fastest",
            copy(slow, fast, HUGE),
        )
    });
    for from in &options.nodes {
        for to in &options.nodes {
            for (name, piece) in [("page_copy", PAGE), ("huge_copy", HUGE)] {
                let what = format!("{name}_{from}_{to}");
                let about = format!("copying {} KiB from node {from} to {to}", piece / 1024);
                values.push(Value {
                    bytes: Some(piece),
                    ..value(&what, &about, copy(*from, *to, piece))
                });
            }
        }
    }
    values.push(value(
        "migrate_page",
        "move_pages(2) of a page from the slowest node to the fastest, 512 a call",
        options.several_nodes().and_then(|()| migrate(slow, fast)),
    ));
    for node in &options.nodes {
        let about = format!(
            "a dependent read at a random place of {} MiB on node {node}",
            options.read_pages >> 8
        );
        let ns = random_reads(*node, options.read_pages);
        values.push(value(&format!("read_node_{node}"), &about, ns));
    }
    values.push(value(
        "accessed_set",
        &format!(
            "first access to one of {} MiB of pages whose accessed bits were cleared, what it takes more",
            options.read_pages >> 8
        ),
        terrace_sys::set_again::measure(options.read_pages).map_err(Why::from),
    ));
    values
}

/// In user space, page after page.
fn copy(from: NodeId, to: NodeId, piece: usize) -> Result<f64, Why> {
    let from = on_node(from, PAGES)?;
    let to = on_node(to, PAGES)?;
    mean(PAGES * PAGE / piece, || {
        to.copy_from(&from, piece);
        Ok(())
    })
}

fn migrate(slow: NodeId, fast: NodeId) -> Result<f64, Why> {
    let region = on_node(slow, PAGES)?;
    let pages: Vec<u64> = (0..PAGES as u64)
        .map(|page| region.start() + page * PAGE as u64)
        .collect();
    let mut moved = 0;
    let ns = mean(PAGES, || {
        pages.chunks(BATCH).try_for_each(|batch| {
            let found = move_pages::migrate(Target::Own, batch, fast, Sharing::OwnOnly)?;
            moved += found.iter().filter(|s| **s == PageStatus::On(fast)).count();
            Ok::<(), Errno>(())
        })
    })?;
    if moved * 10 < PAGES * 9 {
        let text = format!("of {PAGES} pages only {moved} moved");
        return Err(Why::Refused(text));
    }
    Ok(ns)
}

fn random_reads(node: NodeId, pages: usize) -> Result<f64, Why> {
    let region = on_node(node, pages)?;
    let reads = 100_000;
    mean(reads, || {
        region.read_randomly(reads);
        Ok(())
    })
}
