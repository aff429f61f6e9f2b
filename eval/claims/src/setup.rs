// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a run's specification and its machine to what the simulator runs.
//!
//! `divide` makes everything smaller in the same proportion: nodes, free memory, last-level caches
//! and the sizes of the workload. Of those, a text that ends in `B` is a size in bytes, and
//! `vertices_log2` is a number of vertices; all else (threads, percentages, times) stays. Latency and
//! bandwidth stay too, so what takes a time in proportion to memory takes that much less.

use terrace_core::PageSize;
use terrace_core::parse_bytes;
use terrace_machine_spec::Machine;
use terrace_sim::Costs;
use terrace_sim::EngineKind;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;
use terrace_workload::WorkloadError;
use thiserror::Error;

use crate::claim::CostSource;
use crate::claim::Engine;
use crate::claim::RunSpec;

/// The size that is a logarithm.
const VERTICES_LOG2: &str = "vertices_log2";

/// Why a run cannot be set up.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The workload does not exist or cannot be of that size.
    #[error("{0}")]
    Workload(#[from] WorkloadError),
    /// A workload's size of a kind that there is not.
    #[error("Size {name} is neither a text nor a number")]
    Size {
        /// Its name.
        name: String,
    },
    /// More nodes named than there are.
    #[error("free names {given} nodes, but '{machine}' has {nodes}")]
    Nodes {
        /// The machine.
        machine: String,
        /// How many `free` names.
        given: usize,
        /// How many there are.
        nodes: usize,
    },
}

impl RunSpec {
    /// What to simulate, on `machine`, which is the one that [`RunSpec::machine`] names.
    ///
    /// # Errors
    ///
    /// For a workload, a size or a node that there is not.
    pub fn setup(&self, mut machine: Machine) -> Result<Setup, SetupError> {
        if self.free.len() > machine.nodes.len() {
            return Err(SetupError::Nodes {
                machine: machine.name,
                given: self.free.len(),
                nodes: machine.nodes.len(),
            });
        }
        let divide = u64::from(self.divide);
        for node in &mut machine.nodes {
            node.bytes /= divide;
        }
        for socket in &mut machine.sockets {
            let cache = &mut socket.llc;
            cache.bytes = (cache.bytes / divide).max(u64::from(cache.line * cache.ways));
        }
        let mut setup = Setup::new(machine, self.workload()?);
        setup.system.clone_from(&self.system);
        setup.params = self.params.clone();
        for (program, priority) in &self.priorities {
            setup.shares.entry(program.clone()).or_default().priority = *priority;
        }
        setup.trackers.clone_from(&self.trackers);
        setup.mover = self.mover;
        setup.seconds = self.seconds;
        setup.seed = self.seed;
        setup.engine = match self.engine {
            Engine::Exact => EngineKind::Exact,
            Engine::Rate => EngineKind::Rate,
        };
        setup.page_size = page_size(self.page_bytes);
        for (node, bytes) in self.free.iter().enumerate() {
            if let Some(bytes) = bytes {
                setup.free.insert(node, bytes / divide);
            }
        }
        setup.lab = self.costs == CostSource::Lab;
        setup.costs = match self.costs {
            CostSource::AsItIs => Costs::as_it_is(&self.system, self.mover),
            CostSource::Papers => Costs::papers(),
            CostSource::Hardware => Costs::hardware(),
            CostSource::Lab => Costs::lab(),
        };
        Ok(setup.with_spread(self.spread))
    }

    fn workload(&self) -> Result<Workload, SetupError> {
        let mut sizes = Sizes::paper();
        for (name, value) in &self.sizes {
            let text = self
                .size(name, value)
                .ok_or_else(|| SetupError::Size { name: name.clone() })?;
            sizes = sizes.with(&format!("{name}={text}"))?;
        }
        Ok(Workload::named(&self.workload, &sizes)?)
    }

    /// The divided size, as the workload reads it.
    fn size(&self, name: &str, value: &toml::Value) -> Option<String> {
        match value {
            toml::Value::String(text) if text.ends_with('B') => match parse_bytes(text) {
                Ok(bytes) => Some((bytes / u64::from(self.divide)).to_string()),
                Err(_) => Some(text.clone()),
            },
            toml::Value::String(text) => Some(text.clone()),
            toml::Value::Integer(log2) if name == VERTICES_LOG2 => {
                Some((log2 - i64::from(self.divide.ilog2())).to_string())
            }
            toml::Value::Integer(number) => Some(number.to_string()),
            toml::Value::Float(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

fn page_size(bytes: u64) -> PageSize {
    [PageSize::Huge2M, PageSize::Giant1G]
        .into_iter()
        .find(|size| size.bytes() == bytes)
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
