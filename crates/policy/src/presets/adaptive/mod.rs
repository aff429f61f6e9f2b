// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default: predicts what a page will do by what pages of its class did next.
//!
//! Accessed bits of all pages give each a class, its estimated rate; a pass later it is known what
//! class it is in then. These transitions, counted per process, say what a class is worth in fast
//! memory, and a page moves if that is more than the moves are measured to cost. There is no
//! threshold on heat: regression to the mean, scans and uniform access are all in the counts.
//! `docs/adaptive.md` has the figures.
//!
//! * `classes` (a page's byte), `estimate` (what an observation makes of it), `clock` (a program's own time),
//!   `transitions` (M and r; `matrix`: rows that are mostly 0), `first` and `mixture` (r by first waits), `rising` (as many rates as can be told apart), `accesses` and `response` (what a
//!   visit is), `value` (V), `lag` and `later` (what holds over eight passes, and what a place is worth until it can be changed again), `worth`
//!   (which of both), `latencies` and `costs` (as measured), `away` and `ledger` (what moves brought), `pace` (how often to look).
//! * `places` (where a page can be), `sides` (which of them are one in a plan), `plan` (between which pages change places),
//!   `balance` (how many accesses may), `select` and `take` (who does), `limits` (floors and ceilings of programs), `room`; `moves`
//!   carries a plan out (`queue`: what is planned, `under_way`: what is ordered, `stays`: what did not move), `early` does not wait for one; `skew` and `splitting` have huge pages
//!   split that are worth more in parts.
//! * `accessors` (which socket accesses a chunk), `arming` (hint faults that tell), `sight` (memory as it is seen from there).
//! * `chunk` and `chunks` hold what is known of pages, `process` what is known of a program (`programs`: they come); `learn` takes a reading
//!   in, `phase` and `settling` tell a new phase, `decide` ends a pass, `explain` says what is believed; `events` and this file tie them together.

mod accesses;
mod accessors;
mod arming;
mod away;
mod balance;
mod census;
mod chunk;
mod chunks;
mod classes;
mod clock;
mod costs;
mod decide;
mod early;
mod estimate;
mod events;
mod explain;
mod figures;
mod first;
mod lag;
mod latencies;
mod later;
mod learn;
mod ledger;
mod limits;
mod matrix;
mod mixture;
mod moves;
mod pace;
pub mod params;
mod phase;
mod places;
mod plan;
mod process;
mod programs;
mod queue;
mod response;
mod rising;
mod room;
mod select;
mod settling;
mod sides;
mod sight;
mod skew;
mod splitting;
mod stays;
mod steps;
mod take;
mod tally;
mod transitions;
mod under_way;
mod value;
mod worth;

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_core::Tiers;
use terrace_core::Views;

use crate::Capabilities;
use crate::Preset;
use crate::belief::PlanBelief;
use crate::event::Action;
use crate::event::Share;
use crate::kit::FreeMemory;
use crate::kit::pages::Key;
use crate::preset::Colour;
use arming::Arming;
use balance::Balance;
use chunks::Chunks;
use costs::Costs;
use latencies::Latencies;
use moves::Moves;
use pace::Pace;
pub use params::Params;
use places::Places;
use process::Process;
use sides::Sides;
use splitting::Splitting;
use steps::Steps;
use tally::Tally;

/// Figures of the policy itself.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    passes: u64,
    pages: u64,
    value_possible_ns: u64,
    swaps: u64,
    early: u64,
    surprises: u64,
    splits: u64,
    faults: u64,
}

/// The default: by what pages of a class did next.
pub static PRESET: Preset = Preset {
    name: "adaptive",
    title: "predicts a page by what pages of its class did next",
    paper: None,
    needs: Capabilities::ACCESSED_BITS,
    uses: Capabilities::LATENCIES,
    on_sockets: Capabilities::HINT_FAULTS,
    priorities: true,
    limits: true,
    colour: Colour {
        light: "#1f5fd6",
        dark: "#78a9ff",
    },
    help: params::HELP,
    dilated: params::dilated,
    build: |settings, host| {
        let params = Params::read(settings)?;
        Ok(Box::new(Adaptive::on(
            params,
            host.tiers.clone(),
            host.views.clone(),
        )))
    },
};

/// The policy's state.
#[derive(Debug)]
pub struct Adaptive {
    params: Params,
    latencies: Latencies,
    processes: BTreeMap<Pid, Process>,
    /// Who runs on the processors of one node.
    runs_on: BTreeMap<Pid, NodeId>,
    /// What processes have beside others, who was told of.
    shares: BTreeMap<Pid, Share>,
    chunks: Chunks,
    tiers: Tiers,
    places: Places,
    sides: Sides,
    balance: Balance,
    memory: FreeMemory,
    costs: Costs,
    moves: Moves,
    splitting: Splitting,
    pace: Pace,
    arming: Arming,
    asks: VecDeque<Action>,
    steps: Steps,
    /// Empty between readings.
    tally: Tally,
    /// When to plan, and by when at the latest.
    plan_at: Nanos,
    plan_by: Nanos,
    /// When to look at what passes under way have shown.
    look_at: Nanos,
    /// No other plan before, where processes end their passes one after the other.
    plan_again: Nanos,
    /// The pace does not change before.
    pace_at: Nanos,
    /// A process did what nobody expected since it changed last.
    surprised: bool,
    /// Ledgers are settled until then.
    settled_at: Nanos,
    /// Where the last plan stopped to take pages.
    cursor: Key,
    /// What decided the last plan.
    planned: PlanBelief,
    counters: Counters,
}

impl Adaptive {
    /// For a machine with these tiers.
    #[must_use]
    pub fn new(params: Params, tiers: Tiers) -> Self {
        let views = Views::of_tiers(&tiers);
        Self::on(params, tiers, views)
    }

    /// For a machine with these tiers, which processors of its nodes see so.
    #[must_use]
    pub fn on(params: Params, tiers: Tiers, views: Views) -> Self {
        let pace = Pace::new(&params);
        Self {
            places: Places::new(&tiers, &views),
            sides: Sides::default(),
            balance: Balance::default(),
            latencies: Latencies::new(tiers.clone(), views),
            processes: BTreeMap::new(),
            runs_on: BTreeMap::new(),
            shares: BTreeMap::new(),
            chunks: Chunks::default(),
            memory: FreeMemory::new(&tiers),
            tiers,
            costs: Costs::default(),
            moves: Moves::new(params.inflight_pages),
            splitting: Splitting::default(),
            asks: VecDeque::from([pace.asks()]),
            steps: Steps::default(),
            tally: Tally::default(),
            pace,
            arming: Arming::new(params.accessors),
            plan_at: Nanos::MAX,
            plan_by: Nanos::MAX,
            look_at: Nanos::MAX,
            plan_again: Nanos::ZERO,
            pace_at: Nanos::ZERO,
            surprised: false,
            settled_at: Nanos::MAX,
            cursor: (Pid(0), 0),
            planned: PlanBelief::default(),
            counters: Counters::default(),
            params,
        }
    }

    /// Asks for readings at the present pace.
    fn ask(&mut self) {
        self.asks.push_back(self.pace.asks());
    }
}

/// To whole ns, saturating.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and is not negative"
)]
const fn whole_ns(ns: f64) -> u64 {
    ns.max(0.0) as u64
}
