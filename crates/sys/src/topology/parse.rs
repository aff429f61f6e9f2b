// SPDX-License-Identifier: MIT OR Apache-2.0
//! The forms in which the kernel writes about nodes. Pure.

use std::collections::BTreeMap;

use terrace_core::NodeId;

/// Longest list that is believed: more than any kernel's `NR_CPUS`.
const LIST_MAX: usize = 1 << 16;

/// `0-3,8`, or nothing.
pub(crate) fn list(text: &str) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let count = usize::try_from(last.checked_sub(first)?).ok()?;
        if count + found.len() >= LIST_MAX {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

/// `10 21`.
pub(super) fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split_ascii_whitespace()
        .map(|w| w.parse().ok())
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meminfo {
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
    /// Page cache of the active list: used twice, or of the two youngest generations. 0 where the kernel does not say, as the rest.
    pub(super) active_file_bytes: u64,
    /// Page cache of the inactive one.
    pub(super) inactive_file_bytes: u64,
    /// Page cache (and shared memory) that a process maps.
    pub(super) mapped_bytes: u64,
    /// Page cache that must be written first, or is being written.
    pub(super) unwritten_bytes: u64,
}

/// `Node 0 MemTotal:  1000 kB` and so on.
pub(super) fn meminfo(text: &str) -> Option<Meminfo> {
    let field = |name: &str| {
        let rest = text
            .lines()
            .find_map(|l| l.split_once(name))
            .map(|(_, rest)| rest)?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    let unwritten = [" Dirty:", " Writeback:"].map(|name| field(name).unwrap_or(0));
    Some(Meminfo {
        total_bytes: field(" MemTotal:")?,
        free_bytes: field(" MemFree:")?,
        active_file_bytes: field(" Active(file):").unwrap_or(0),
        inactive_file_bytes: field(" Inactive(file):").unwrap_or(0),
        mapped_bytes: field(" Mapped:").unwrap_or(0),
        unwritten_bytes: unwritten[0].saturating_add(unwritten[1]),
    })
}

/// Whether reclaim goes by generations, of `/sys/kernel/mm/lru_gen/enabled`: bits in hexadecimal, the first of which
/// is the switch (Documentation/admin-guide/mm/multigen_lru.rst). Kernels without them have no such file.
pub(super) fn generations(text: &str) -> bool {
    let digits = text.trim().trim_start_matches("0x");
    u32::from_str_radix(digits, 16).is_ok_and(|bits| bits & 1 != 0)
}

/// A counter of `/proc/vmstat`, or a node's.
pub(crate) fn counter(vmstat: &str, name: &str) -> Option<u64> {
    let mut lines = vmstat.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(of, _)| *of == name)?.1.trim().parse().ok()
}

/// A node's watermarks, pages: of its free memory, what no page of a program gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Watermarks {
    pub(super) low_pages: u64,
    pub(super) high_pages: u64,
}

/// A zone as the kernel writes about it.
#[derive(Debug, Clone, Copy, Default)]
struct Zone {
    free_pages: u64,
    marks: Watermarks,
    managed: bool,
}

impl Zone {
    /// What is kept there for memory that has to be at low addresses (`lowmem_reserve_ratio`): who may take any page gets one of
    /// this zone only while so many more are free. What is free below that is out of reach.
    fn kept(self, protected: u64) -> Watermarks {
        let beyond = |mark: u64| protected.min(self.free_pages.saturating_sub(mark));
        Watermarks {
            low_pages: beyond(self.marks.low_pages),
            high_pages: beyond(self.marks.high_pages),
        }
    }
}

impl Watermarks {
    const fn add(&mut self, other: Self) {
        self.low_pages = self.low_pages.saturating_add(other.low_pages);
        self.high_pages = self.high_pages.saturating_add(other.high_pages);
    }
}

/// Sums the zones of each node in `/proc/zoneinfo`. Zones without pages have watermarks, too
/// (`min_free_kbytes` is split over them), which mean nothing and are left out.
pub(super) fn zoneinfo(text: &str) -> BTreeMap<NodeId, Watermarks> {
    let mut nodes: BTreeMap<NodeId, Watermarks> = BTreeMap::new();
    let (mut node, mut zone) = (None, Zone::default());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            let number = rest.split(',').next().and_then(|n| n.trim().parse().ok());
            (node, zone) = (number.map(NodeId), Zone::default());
            continue;
        }
        let Some(node) = node else { continue };
        let (name, value) = named(line);
        match (name, value) {
            ("pages free", Some(pages)) => zone.free_pages = pages,
            ("low", Some(pages)) => zone.marks.low_pages = pages,
            ("high", Some(pages)) => zone.marks.high_pages = pages,
            // After the watermarks of its zone, and once.
            ("managed", Some(1..)) => {
                zone.managed = true;
                nodes.entry(node).or_default().add(zone.marks);
            }
            // Behind that. Who may take a page of any zone comes last.
            ("protection:", Some(pages)) if zone.managed => {
                nodes.entry(node).or_default().add(zone.kept(pages));
            }
            // Counters of the processors' lists follow, with the same names on newer kernels.
            ("pagesets", _) => zone = Zone::default(),
            _ => {}
        }
    }
    nodes
}

/// A name and the number at the end of its line.
fn named(line: &str) -> (&str, Option<u64>) {
    let line = line.trim();
    let end = line.find(|c: char| c.is_ascii_digit() || c == '(');
    let (name, rest) = line.split_at(end.unwrap_or(line.len()));
    let last = rest.rsplit(' ').next().unwrap_or_default();
    (name.trim(), last.trim_end_matches(')').parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(list(""), Some(vec![]));
        assert_eq!(list("3-1"), None);
        assert_eq!(list("0-4294967295"), None);
        assert_eq!(list("a"), None);
    }

    #[test]
    fn watermarks_are_summed_over_zones_with_pages() {
        let text = "Node 0, zone      DMA\n  per-node stats\n      nr_low 5\n  pages free     3712\n        \
            boost    0\n        min      190\n        low      237\n        high     284\n        \
            spanned  4095\n        present  3998\n        managed  3712\n        cma      0\n  \
            pagesets\n    cpu: 0\n              count:    0\n              high:     14\n\
            Node 0, zone  Movable\n  pages free     0\n        low      32\n        high     32\n        \
            managed  0\nNode 1, zone   Normal\n        low      7\n        high     9\n        managed 100\n";
        let nodes = zoneinfo(text);
        assert_eq!(
            nodes[&NodeId(0)],
            Watermarks {
                low_pages: 237,
                high_pages: 284
            }
        );
        assert_eq!(
            nodes[&NodeId(1)],
            Watermarks {
                low_pages: 7,
                high_pages: 9
            }
        );
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "nr_free_pages 12\nworkingset_activate_file_x 1\nworkingset_activate_file 7\n";
        assert_eq!(counter(text, "workingset_activate_file"), Some(7));
        assert_eq!(counter(text, "free_pages"), None);
    }

    #[test]
    fn what_is_kept_at_low_addresses_is_out_of_reach() {
        let zone = |name: &str, free: u32, kept: u32| {
            format!(
                "Node 0, zone {name}\n  pages free     {free}\n        min      31\n        low      38\n        \
                 high     45\n        managed  9000\n        protection: (0, 3018, {kept}, {kept})\n      nr_free_pages {free}\n  \
                 pagesets\n    cpu: 0\n              high:     14\n"
            )
        };
        // All that is free there, as much as is kept, and nothing.
        let all = zone("DMA", 3840, 8138) + &zone("DMA32", 7000, 5120) + &zone("Normal", 20, 0);
        let marks = zoneinfo(&all)[&NodeId(0)];
        assert_eq!(marks.high_pages, 3840 + (45 + 5120) + 45);
        assert_eq!(marks.low_pages, 3840 + (38 + 5120) + 38);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(Node [0-9]{1,2},|[a-z :]{1,8}|[0-9,\n -]{0,9}){0,40}") {
            let _ = (list(&text), numbers(&text), meminfo(&text), zoneinfo(&text));
        }
    }
}
