// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a running workload prints: one JSON object a line.
//!
//! `terrace-bench` writes these lines, the lab's comparison reads them. In the emulated machine each
//! [`Line::Second`] is also a mark in the access counts.

use serde::Deserialize;
use serde::Serialize;

/// A line of the output; the key says which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Memory is filled and placed; the run begins next.
    Ready(Ready),
    /// A second has passed.
    Second(Second),
    /// The run is over, memory is not checked yet.
    Total(Total),
    /// What checking all of memory found.
    Check(Check),
}

/// The memory before the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// The workload's name.
    pub workload: String,
    /// Resident set, bytes.
    pub bytes: u64,
    /// Working set, bytes.
    pub active_bytes: u64,
    /// Pages on each node, by its number, as the kernel says.
    pub pages_by_node: Vec<u64>,
    /// Share of the visits that would go to each node if nothing moved.
    pub share_by_node: Vec<f64>,
}

/// Progress. Seconds since the run began; operations since then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds.
    pub t: f64,
    /// Operations so far.
    pub ops: u64,
}

/// The whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Seconds.
    pub t: f64,
    /// Operations.
    pub ops: u64,
    /// Operations a second, over the whole run.
    pub ops_per_s: f64,
    /// Pages on each node at the end.
    pub pages_by_node: Vec<u64>,
    /// Share of the visits that go to each node where the pages are now.
    pub share_by_node: Vec<f64>,
}

/// The check of the memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Words read.
    pub words: u64,
    /// Updates that the run made.
    pub updates_made: u64,
    /// Updates that memory holds.
    pub updates_found: u64,
    /// Words that hold something else than they should, the first few.
    pub wrong: Vec<WrongWord>,
}

impl Check {
    /// Whether memory holds what was written, all of it and nothing else.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.wrong.is_empty() && self.updates_made == self.updates_found
    }
}

/// A word that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongWord {
    /// Its address in the program.
    pub address: u64,
    /// What it should hold.
    pub expected: u64,
    /// What it holds.
    pub found: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_wire() {
        let line = Line::Second(Second { t: 1.5, ops: 7 });
        let text = serde_json::to_string(&line).expect("plain data");
        assert_eq!(text, r#"{"second":{"t":1.5,"ops":7}}"#);
        assert_eq!(serde_json::from_str::<Line>(&text).expect("same"), line);
    }

    #[test]
    fn a_lost_update_or_a_wrong_word_fails_the_check() {
        let good = Check {
            words: 10,
            updates_made: 3,
            updates_found: 3,
            wrong: Vec::new(),
        };
        assert!(good.passed());
        let lost = Check {
            updates_found: 2,
            ..good.clone()
        };
        assert!(!lost.passed());
        let wrong = WrongWord {
            address: 4096,
            expected: 1,
            found: 0,
        };
        let bad = Check {
            wrong: vec![wrong],
            ..good
        };
        assert!(!bad.passed());
    }
}
