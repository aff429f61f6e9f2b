// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a policy believes of a process, and why it moves or rests: for people who ask (`terrace why`).
//!
//! Pages are base pages of 4 KiB, times ns but where a name says otherwise. All of it is what the policy decided by
//! last, not an account of what came of it.

use serde::Deserialize;
use serde::Serialize;
use terrace_core::Addr;

/// Of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Belief {
    /// What an access saves that the fast tier serves instead of the slow one, ns.
    pub saved_ns: f64,
    /// How many accesses that memory serves a visit of a page is taken for.
    #[serde(default = "one")]
    pub accesses_a_visit: f64,
    /// What moving a 4 KiB page costs, ns.
    pub move_base_ns: f64,
    /// What moving a 2 MiB page costs, ns.
    pub move_huge_ns: f64,
    /// How long a pass over its memory takes, s.
    pub pass_s: f64,
    /// Passes that were seen of it.
    pub passes: u32,
    /// How far ahead savings count, s.
    pub horizon_s: f64,
    /// How long ago it last did what nobody expected, s; absent where it never did.
    pub surprised_s: Option<f64>,
    /// What its moves have brought and taken; absent where nobody counted.
    #[serde(default)]
    pub ledger: Option<LedgerBelief>,
    /// What its huge pages are worth in parts; absent where none was split.
    #[serde(default)]
    pub split: Option<SplitBelief>,
    /// What it has beside other programs; absent where nothing was asked for.
    #[serde(default)]
    pub share: Option<ShareBelief>,
    /// Its memory by the sockets that access it, where hint faults told; the node's by its number.
    #[serde(default)]
    pub accessed_from: Vec<AccessedBelief>,
    /// Pages of about the same rate, the hottest first.
    pub classes: Vec<ClassBelief>,
    /// The last plan, for all processes together.
    pub plan: PlanBelief,
    /// The page that was asked about; absent where nothing is known of it.
    pub page: Option<PageBelief>,
}

/// What nothing was measured of.
const fn one() -> f64 {
    1.0
}

/// What a program has beside others, all of its processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareBelief {
    /// So many times more counts what it saves.
    pub priority: u32,
    /// What others do not push out of the fast tier, bytes.
    pub floor_bytes: u64,
    /// What may be in the fast tier, bytes; absent where that is all.
    pub ceiling_bytes: Option<u64>,
}

/// What moves have brought a process and taken, as far back as savings count ahead.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LedgerBelief {
    /// What its pages saved because they were not where they first were, less what those lost that gave room, ns.
    pub earned_ns: f64,
    /// What moves took, ns.
    pub spent_ns: f64,
    /// What the next ones may take, ns; less than 0 where its pages go back to where they first were.
    pub may_ns: f64,
}

/// What splitting huge pages brings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SplitBelief {
    /// Huge pages that were split and still are.
    pub pages: u64,
    /// What splitting adds to what a huge page saves, as a share of that and at least; absent where too few tell.
    pub adds: Option<f64>,
    /// What a visit to a base page takes more than one to a part of a huge page, ns.
    pub walk_ns: f64,
}

/// Of the pages of a class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClassBelief {
    /// Visits a second.
    pub rate: f64,
    /// Base pages of it in the fast tier.
    pub fast_pages: u64,
    /// Base pages of it elsewhere.
    pub slow_pages: u64,
    /// Visits a second of all of its pages, as counted.
    #[serde(default)]
    pub visits: f64,
    /// What one page of it, of 4 KiB or of 2 MiB, saves in the fast tier, as far ahead as savings count, ns.
    pub value_ns: f64,
}

/// Of the pages that one socket accesses mostly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessedBelief {
    /// The node of its processors.
    pub node: u16,
    /// Base pages.
    pub pages: u64,
}

/// What is to be moved, and what decides it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanBelief {
    /// Base pages that are to go up.
    pub up_pages: u64,
    /// Base pages that are to go down.
    pub down_pages: u64,
    /// What the moves save, less what they cost, ns.
    pub gain_ns: f64,
    /// The greatest saving of a base page of the slow tier, less its move, ns; absent where there is none.
    pub best_slow_ns: Option<f64>,
    /// The least saving of a base page of the fast tier, and its move, ns; absent where there is none.
    pub least_fast_ns: Option<f64>,
    /// Base pages that can go up before one must go down.
    pub room_pages: u64,
    /// Orders that have not ended.
    pub under_way: u64,
}

/// Of one page.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PageBelief {
    /// Where it begins.
    pub address: u64,
    /// Its size, bytes.
    pub bytes: u64,
    /// Whether it is in the fast tier.
    pub fast: bool,
    /// The node whose processors access its 2 MiB mostly; absent where those of several do, or nobody knows.
    #[serde(default)]
    pub accessed_from: Option<u16>,
    /// Visits a second; absent where nothing is known yet.
    pub rate: Option<f64>,
    /// What it saves in the fast tier, ns.
    pub value_ns: f64,
    /// What moving it costs, ns.
    pub move_ns: f64,
    /// It is in the last plan's list, or on its way.
    pub moving: bool,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Of which process.
    pub pid: terrace_core::Pid,
    /// And of which page in it.
    pub page: Option<Addr>,
}
