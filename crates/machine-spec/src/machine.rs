// SPDX-License-Identifier: MIT OR Apache-2.0
//! One machine description: sockets, memory nodes and what each socket sees of each node.
//!
//! The same file serves the emulated machine (`lab/`) and, later, the simulator. [`Machine::load`]
//! reads it, [`Machine::parse`] is the pure half: text in, a checked [`Machine`] or a
//! [`MachineError`] that names file, line and mistake out.
//!
//! Units: latencies are nanoseconds, bandwidths bytes a second, capacities bytes. Invariants of a
//! checked machine: socket and node numbers count from 0 without a gap, every socket has a
//! processor, every pair of socket and node has exactly one path, no quantity is zero.
//!
//! What it does not do: it knows nothing of the kernel's idea of tiers, and draws no conclusion
//! from the numbers. Every view is kept, because which node is "fast" depends on the socket asked.

use std::fmt;
use std::path::Path;
use std::path::PathBuf;

use crate::machine_raw::Fault;
use crate::machine_raw::RawMachine;
use crate::machine_raw::line_of;

/// A checked machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub name: String,
    pub description: String,
    pub sockets: Vec<Socket>,
    pub nodes: Vec<Node>,
    /// Row by row: `paths[socket * nodes + node]`; use [`Machine::path`].
    paths: Vec<View>,
    /// How the lab emulates this machine; absent if it cannot.
    pub lab: Option<Lab>,
}

/// A processor package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    pub cpus: u32,
    pub llc: Cache,
}

/// A last-level cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    pub bytes: u64,
    pub ways: u32,
    pub line: u32,
}

/// A memory node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// The socket whose local memory this is; `None` for a node without processors.
    pub socket: Option<usize>,
    pub bytes: u64,
    /// Its size in the emulated machine, whose memory is real memory of the host.
    pub lab_bytes: Option<u64>,
    /// What it reads or writes at once, bytes: a lone cache line moves as much.
    pub block: u32,
}

/// What a node is made of. Descriptive only: speeds stand in the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Dram,
    Hbm,
    Cxl,
    Pmem,
}

/// What one socket sees of one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// As in the ACPI SLIT: 10 is local.
    pub distance: u8,
    pub read_ns: f64,
    pub write_ns: f64,
    /// Peak, all processors of the socket together.
    pub read_bandwidth: u64,
    pub write_bandwidth: u64,
    /// One processor reading or writing a single stream; at most the peak.
    pub stream_bandwidth: u64,
}

/// Settings of the emulated machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lab {
    /// All memory delays are multiplied by this, because the emulated processor is slower too.
    pub dilation: f64,
    /// Virtual processors of each socket.
    pub cpus: u32,
    pub llc: Cache,
    /// Guest memory below 4 GiB; the rest lies above, in `ZONE_NORMAL`.
    pub below_4g: u64,
}

/// Why a machine file was refused.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("Cannot read machine file {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}:{line}: {what}", path.display())]
    Invalid {
        path: PathBuf,
        line: usize,
        what: String,
    },
}

impl Machine {
    /// Reads and checks a machine file.
    ///
    /// # Errors
    ///
    /// [`MachineError::Read`] if it cannot be read, [`MachineError::Invalid`] if it has a mistake.
    pub fn load(path: &Path) -> Result<Self, MachineError> {
        let text = std::fs::read_to_string(path).map_err(|source| MachineError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Checks the text of a machine file; `path` is only named in errors.
    ///
    /// # Errors
    ///
    /// [`MachineError::Invalid`] with the line of the first mistake.
    pub fn parse(text: &str, path: &Path) -> Result<Self, MachineError> {
        let invalid = |at: usize, what: String| MachineError::Invalid {
            path: path.to_owned(),
            line: line_of(text, at),
            what,
        };
        let raw: RawMachine = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            invalid(at, error.message().to_owned())
        })?;
        raw.check().map_err(|Fault { at, what }| invalid(at, what))
    }

    pub(crate) fn assemble(
        (name, description): (String, String),
        sockets: Vec<Socket>,
        nodes: Vec<Node>,
        paths: Vec<View>,
        lab: Option<Lab>,
    ) -> Self {
        Self {
            name,
            description,
            sockets,
            nodes,
            paths,
            lab,
        }
    }

    /// What `socket` sees of `node`.
    ///
    /// # Panics
    ///
    /// If the machine has no such socket or node.
    #[must_use]
    pub fn path(&self, socket: usize, node: usize) -> &View {
        assert!(
            node < self.nodes.len(),
            "node {node} of {}",
            self.nodes.len()
        );
        &self.paths[socket * self.nodes.len() + node]
    }

    /// Distance between two nodes as the ACPI SLIT has it. From a node with processors it is what
    /// they see; between two nodes without, the way over the nearest socket.
    #[must_use]
    pub fn distance(&self, from: usize, to: usize) -> u8 {
        if from == to {
            return 10;
        }
        match (self.nodes[from].socket, self.nodes[to].socket) {
            (Some(socket), _) if self.is_home(socket, from) => self.path(socket, to).distance,
            (_, Some(socket)) if self.is_home(socket, to) => self.path(socket, from).distance,
            _ => (0..self.sockets.len())
                .map(|socket| {
                    let sum = u16::from(self.path(socket, from).distance)
                        + u16::from(self.path(socket, to).distance);
                    u8::try_from(sum.saturating_sub(10).min(254)).unwrap_or(254)
                })
                .min()
                .unwrap_or(254),
        }
    }

    /// True if the processors of `socket` belong to `node`: the first node attached to it.
    #[must_use]
    pub fn is_home(&self, socket: usize, node: usize) -> bool {
        self.home(socket) == Some(node)
    }

    /// The node the processors of `socket` belong to.
    #[must_use]
    pub fn home(&self, socket: usize) -> Option<usize> {
        self.nodes
            .iter()
            .position(|node| node.socket == Some(socket))
    }

    /// The nodes as `socket` ranks them, lowest read latency first.
    #[must_use]
    pub fn ranking(&self, socket: usize) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.nodes.len()).collect();
        nodes.sort_by(|&a, &b| {
            self.path(socket, a)
                .read_ns
                .total_cmp(&self.path(socket, b).read_ns)
                .then(a.cmp(&b))
        });
        nodes
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dram => "dram",
            Self::Hbm => "hbm",
            Self::Cxl => "cxl",
            Self::Pmem => "pmem",
        })
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
