// SPDX-License-Identifier: MIT OR Apache-2.0
//! How full the fast node is, in 1/10,000, as DAMON's goals are told it. Pure but for reading.
//!
//! The kernel's own metrics (`node_mem_used_bp`, `node_mem_free_bp`) are of all memory of a node. On a node of 250 MiB
//! that means nothing: the allocator keeps more than 0.3 and 0.5 % of it back, so it would never be full and never short, and
//! nothing would be demoted. What we tell is of the memory that the allocator gives out: its zones' `low` marks, where
//! ordinary allocations stop, and reserves for lower zones are neither free nor there.

use std::fs;

use anyhow::Context;

/// 100 %.
const ALL: u64 = 10_000;

/// Of a node, in 1/10,000 of what can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) used: u64,
    pub(super) free: u64,
}

impl Fill {
    /// Of a node now.
    pub(super) fn read(node: usize) -> anyhow::Result<Self> {
        let path = "/proc/zoneinfo";
        let text = fs::read_to_string(path).with_context(|| format!("Cannot read {path}"))?;
        Self::parse(&text, node).with_context(|| format!("{path} has no memory of node {node}"))
    }

    /// From the text of `/proc/zoneinfo`.
    fn parse(text: &str, node: usize) -> Option<Self> {
        let (mut here, mut free, mut kept) = (false, 0_u64, 0_u64);
        let (mut usable, mut unused) = (0_u64, 0_u64);
        for line in text.lines() {
            let (key, value) = line.trim().split_once(' ').unwrap_or_default();
            let number = || value.trim().parse::<u64>().unwrap_or(0);
            match key {
                "Node" => here = value.split(',').next()?.parse() == Ok(node),
                "pages" if here => free = value.trim().strip_prefix("free")?.trim().parse().ok()?,
                "low" if here => kept = number(),
                "managed" if here => usable += number(),
                // The last line of a zone that is about its size.
                "protection:" if here => {
                    kept += reserve(value);
                    usable = usable.saturating_sub(kept);
                    unused += free.saturating_sub(kept);
                    (free, kept) = (0, 0);
                }
                _ => {}
            }
        }
        let free = (unused * ALL).checked_div(usable)?.min(ALL);
        let used = ALL - free;
        Some(Self { used, free })
    }
}

/// The most that a zone keeps for those who cannot use a higher one, from `(0, 0, 120, 120, 0)`.
fn reserve(list: &str) -> u64 {
    let numbers = list.trim_matches(|c| c == '(' || c == ')').split(',');
    let numbers = numbers.filter_map(|number| number.trim().parse().ok());
    numbers.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(node: usize, free: u64, low: u64, managed: u64, reserve: u64) -> String {
        format!(
            "Node {node}, zone   Normal\n  per-node stats\n      nr_free 3\n  pages free     {free}\n        boost    0\n        \
             min      3\n        low      {low}\n        spanned  70000\n        managed  {managed}\n        \
             protection: (0, 0, {reserve}, 0)\n      nr_free_pages 8\n  pagesets\n    cpu: 0\n              count:    5\n"
        )
    }

    #[test]
    fn what_the_allocator_keeps_is_neither_free_nor_there() {
        let text =
            zone(0, 300, 100, 1000, 100) + &zone(0, 500, 100, 1300, 0) + &zone(1, 7, 0, 9, 0);
        // 800 and 1,200 usable, of them 100 and 400 free.
        let fill = Fill {
            used: 7_500,
            free: 2_500,
        };
        assert_eq!(Fill::parse(&text, 0), Some(fill));
        let full = zone(0, 90, 100, 1000, 0);
        let fill = Fill {
            used: 10_000,
            free: 0,
        };
        assert_eq!(Fill::parse(&full, 0), Some(fill), "below the mark");
        assert_eq!(Fill::parse(&text, 2), None);
    }

    #[test]
    fn this_machine_has_memory_in_use() {
        let fill = Fill::read(0).expect("a node");
        assert!(fill.used > 0 && fill.used + fill.free == ALL, "{fill:?}");
    }
}
