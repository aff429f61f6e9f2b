// SPDX-License-Identifier: MIT OR Apache-2.0
//! The private filter of a processor and the last-level cache of a socket, as `docs/lab.md` and the head of
//! `llc.c` and of `l1_access` have them, with a list for each set that was ever used.

use std::collections::HashMap;

/// Whose store made a line dirty: for the counts of what is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    Program,
    Copy,
    Clear,
}

/// Virtual lines: 256 sets, of which each knows the two lines used last.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// Last used first: line, and whether it was stored to since it came.
    sets: HashMap<u64, Vec<(u64, bool)>>,
}

impl Filter {
    /// Whether the shared cache hears of the access: the line is not there, or this is its first store.
    pub(crate) fn passes(&mut self, line: u64, store: bool) -> bool {
        let set = self.sets.entry((line ^ line >> 6 ^ line >> 14) % 256);
        let lines = set.or_default();
        let known = lines.iter().position(|&(known, _)| known == line);
        let stored = known.is_some_and(|at| lines.remove(at).1);
        lines.insert(0, (line, stored || store));
        lines.truncate(2);
        known.is_none() || (store && !stored)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Way {
    line: Option<u64>,
    dirty: Option<Writer>,
    referenced: bool,
}

#[derive(Debug)]
struct Set {
    ways: Vec<Way>,
    hand: usize,
}

/// Physical lines, of a number of ways in each set, CLOCK replacement.
#[derive(Debug)]
pub(crate) struct Cache {
    ways: usize,
    sets: u64,
    used: HashMap<u64, Set>,
}

/// What became of an access.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Hit,
    /// With the dirty line that had to go for it, and who wrote that last.
    Miss(Option<(u64, Writer)>),
}

impl Cache {
    pub(crate) fn new(bytes: u64, ways: u32, line: u32) -> Self {
        Self {
            ways: usize::try_from(ways).unwrap(),
            sets: bytes / u64::from(line) / u64::from(ways),
            used: HashMap::new(),
        }
    }

    pub(crate) fn access(&mut self, line: u64, store: Option<Writer>) -> Found {
        let set = self.used.entry((line ^ line >> 12) % self.sets);
        let set = set.or_insert_with(|| Set {
            ways: vec![Way::default(); self.ways],
            hand: 0,
        });
        if let Some(way) = set.ways.iter_mut().find(|way| way.line == Some(line)) {
            way.referenced = true;
            way.dirty = store.or(way.dirty);
            return Found::Hit;
        }
        while set.ways[set.hand].referenced {
            set.ways[set.hand].referenced = false;
            set.hand = (set.hand + 1) % self.ways;
        }
        let new = Way {
            line: Some(line),
            dirty: store,
            referenced: false,
        };
        let old = std::mem::replace(&mut set.ways[set.hand], new);
        set.hand = (set.hand + 1) % self.ways;
        Found::Miss(old.line.zip(old.dirty))
    }
}
