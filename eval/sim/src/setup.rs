// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is simulated.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde::Serialize;
use terrace_core::PageSize;
use terrace_machine_spec::machine::Machine;
use terrace_policy::Misfit;
use terrace_policy::Mover;
use terrace_policy::Share;
use terrace_policy::TrackerKind;
use terrace_workload::Workload;
use thiserror::Error;

use crate::Costs;

/// How time goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Every visit is played.
    Exact,
    /// Faults, aborts and accessed bits are drawn from the pages' rates.
    #[default]
    Rate,
}

/// One simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The machine.
    pub machine: Machine,
    /// Take the machine's `[lab]` sizes, cache and processors. Goes with [`Costs::lab`].
    pub lab: bool,
    /// Costs.
    pub costs: Costs,
    /// What runs.
    pub workload: Workload,
    /// The preset or baseline, one of [`crate::systems`].
    pub system: String,
    /// Its parameters by name; times in ns or as text (`"1s"`).
    pub params: toml::Table,
    /// Where a preset learns of accesses: all of these together, as `terrace run --tracker` has it.
    pub trackers: Vec<TrackerKind>,
    /// Who moves a preset's pages.
    pub mover: Mover,
    /// Simulated seconds.
    pub seconds: f64,
    /// Of all draws, and of where the workload's hot pages are.
    pub seed: u64,
    /// How time goes on.
    pub engine: EngineKind,
    /// What memory is mapped with; the rest that does not fill a page, with smaller ones.
    pub page_size: PageSize,
    /// Another page size for ranges of base pages of a program, by its name. What is not named has
    /// `page_size`.
    pub mappings: BTreeMap<String, Vec<(Range<u32>, PageSize)>>,
    /// Sizes of nodes, bytes, where they shall be smaller than the machine's: as if the rest were not
    /// there. For sweeps of the fast tier's size.
    pub free: BTreeMap<usize, u64>,
    /// Bytes of a node that the kernel and others hold before the programs start.
    pub reserved: BTreeMap<usize, u64>,
    /// The kernel's `vm.min_free_kbytes`, in bytes; what it computes without huge pages where absent.
    pub min_free: Option<u64>,
    /// How long a placement of `oracle` stays, seconds. It is made anew at a phase change, too.
    pub window_s: f64,
    /// Whether there is a last-level cache.
    pub cache: bool,
    /// What programs have beside others, by name. Only for a system that heeds it (HeMem 5.2.2: priority 0 is none and all
    /// above is alike).
    pub shares: BTreeMap<String, Share>,
    /// Programs run on the sockets in turn, else all on the first. The policy's tiers are the first
    /// socket's.
    pub spread: bool,
}

impl Setup {
    /// With the papers' costs, the default policy, the rate engine, base pages, seed 1, 60 s.
    #[must_use]
    pub fn new(machine: Machine, workload: Workload) -> Self {
        Self {
            machine,
            lab: false,
            costs: Costs::papers(),
            workload,
            system: terrace_policy::DEFAULT.name.to_owned(),
            params: toml::Table::new(),
            trackers: vec![TrackerKind::Auto],
            mover: Mover::Auto,
            seconds: 60.0,
            seed: 1,
            engine: EngineKind::default(),
            page_size: PageSize::Base4K,
            mappings: BTreeMap::new(),
            free: BTreeMap::new(),
            reserved: BTreeMap::new(),
            min_free: None,
            window_s: 10.0,
            cache: true,
            shares: BTreeMap::new(),
            spread: false,
        }
    }

    /// The same, if so with the programs spread over the sockets, and the threads that have pages of their own: a simulated
    /// program runs on one.
    #[must_use]
    pub fn with_spread(self, spread: bool) -> Self {
        if !spread {
            return self;
        }
        Self {
            workload: self.workload.by_thread(),
            spread: true,
            ..self
        }
    }
}

/// Why a set-up cannot be simulated. All of these are the user's to mend.
#[derive(Debug, Error)]
pub enum SimError {
    /// No system has that name.
    #[error("Unknown system '{0}'; there are: {list}", list = crate::systems().join(", "))]
    System(String),
    /// A system that comes later.
    #[error("System '{0}' is not built yet; there are: {list}", list = crate::systems().join(", "))]
    NotBuilt(String),
    /// The system has no parameter of that name.
    #[error("System '{system}' has no parameter '{name}'; it has: {known}")]
    Parameter {
        /// The system.
        system: String,
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A parameter of a preset.
    #[error(transparent)]
    Preset(#[from] terrace_policy::PolicyError),
    /// A parameter's value does not fit.
    #[error("Parameter {name} of '{system}' cannot be {value}; give {wanted}")]
    Value {
        /// The system.
        system: String,
        /// The parameter.
        name: String,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// A system that needs two tiers.
    #[error("System '{0}' needs a fast and a slow tier, and this machine has one")]
    OneTier(String),
    /// Trackers and mover that do not go with the preset.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// A tracker or a mover for a baseline.
    #[error(
        "System '{0}' is no preset: it looks at no accesses and has no mover; leave tracker and mover out"
    )]
    NoParts(String),
    /// More memory than there is.
    #[error("{what} needs {bytes} bytes, and the machine has {free} free; give less")]
    TooLarge {
        /// What.
        what: String,
        /// How much it needs.
        bytes: u64,
        /// How much there is.
        free: u64,
    },
    /// More free memory than a node has.
    #[error("Node {node} of '{machine}' has {bytes} bytes; it cannot have {free}")]
    Free {
        /// The machine.
        machine: String,
        /// The node.
        node: usize,
        /// Its size.
        bytes: u64,
        /// What was asked.
        free: u64,
    },
    /// No such node.
    #[error("'{machine}' has no node {node}; it has 0 to {last}")]
    Node {
        /// The machine.
        machine: String,
        /// What was asked.
        node: usize,
        /// The last one.
        last: usize,
    },
    /// A machine without `[lab]`.
    #[error("'{0}' has no [lab] section; leave the lab's view out")]
    NoLab(String),
    /// A priority, floor or ceiling for a program there is not.
    #[error("Priority, floor, ceiling: no program '{name}'; there are: {known}")]
    Share {
        /// What was named.
        name: String,
        /// What there is.
        known: String,
    },
    /// A priority under a system that has none.
    #[error("System '{0}' knows no priorities; of the presets these do: {list}",
        list = terrace_policy::Preset::names_of(|preset| preset.priorities))]
    NoPriorities(String),
    /// A floor or a ceiling under a system that has none.
    #[error("System '{0}' knows no floors and ceilings; of the presets these do: {list}",
        list = terrace_policy::Preset::names_of(|preset| preset.limits))]
    NoLimits(String),
    /// A floor above the ceiling.
    #[error("Program '{0}': its floor is above its ceiling")]
    Floor(String),
    /// A mapping that names no program, or pages it does not have.
    #[error("Page sizes: {0}")]
    Mapping(String),
    /// A time that is none.
    #[error("{0} seconds cannot be simulated; give a number from 0.01 to 1000000")]
    Seconds(f64),
    /// Too many pages or nodes for the simulator.
    #[error("{0}")]
    Limit(String),
}
