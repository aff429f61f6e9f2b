// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine file as it is written, and the checks that turn it into a [`Machine`].
//!
//! Every value a check can refuse is [`Spanned`], so that the error can name its line. Checks stop
//! at the first mistake. The format is documented in `docs/lab.md`.

use serde::Deserialize;
use toml::Spanned;

use crate::machine::Cache;
use crate::machine::Kind;
use crate::machine::Lab;
use crate::machine::Machine;
use crate::machine::Node;
use crate::machine::Socket;
use crate::machine::View;

/// A mistake at a byte offset of the text.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) what: String,
}

type Checked<T> = Result<T, Fault>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMachine {
    name: Spanned<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    socket: Vec<Spanned<RawSocket>>,
    #[serde(default)]
    node: Vec<Spanned<RawNode>>,
    #[serde(default)]
    path: Vec<Spanned<RawPath>>,
    lab: Option<Spanned<RawLab>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSocket {
    id: Spanned<usize>,
    cpus: Spanned<u32>,
    llc: Spanned<RawCache>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCache {
    size: Spanned<String>,
    ways: u32,
    line: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    id: Spanned<usize>,
    kind: Kind,
    socket: Option<Spanned<usize>>,
    capacity: Spanned<String>,
    lab_capacity: Option<Spanned<String>>,
    block: Option<Spanned<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPath {
    socket: Spanned<usize>,
    node: Spanned<usize>,
    distance: Spanned<u8>,
    read_ns: Spanned<f64>,
    write_ns: Spanned<f64>,
    read_bandwidth: Spanned<String>,
    write_bandwidth: Spanned<String>,
    stream_bandwidth: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLab {
    dilation: Spanned<f64>,
    cpus: Spanned<u32>,
    llc: Spanned<RawCache>,
    below_4g: Option<Spanned<String>>,
}

/// Line of a byte offset, counted from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

fn fault<T>(at: usize, what: impl Into<String>) -> Checked<T> {
    Err(Fault {
        at,
        what: what.into(),
    })
}

fn at<T>(value: &Spanned<T>) -> usize {
    value.span().start
}

fn size(key: &str, text: &Spanned<String>) -> Checked<u64> {
    match text.get_ref().parse::<bytesize::ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size.as_u64()),
        _ => fault(
            at(text),
            format!("{key} is '{}', expected a size like 4GiB", text.get_ref()),
        ),
    }
}

fn bandwidth(key: &str, text: &Spanned<String>) -> Checked<u64> {
    let size = text
        .get_ref()
        .strip_suffix("/s")
        .and_then(|size| size.parse().ok());
    match size.map(|size: bytesize::ByteSize| size.as_u64()) {
        Some(rate) if rate > 0 => Ok(rate),
        _ => fault(
            at(text),
            format!("{key} is '{}', expected a rate like 20GB/s", text.get_ref()),
        ),
    }
}

fn time(key: &str, ns: &Spanned<f64>) -> Checked<f64> {
    let value = *ns.get_ref();
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    fault(
        at(ns),
        format!("{key} is {value}, expected nanoseconds above 0"),
    )
}

/// A node's block: by default a cache line.
fn block(raw: Option<&Spanned<u32>>) -> Checked<u32> {
    let Some(raw) = raw else { return Ok(64) };
    match *raw.get_ref() {
        bytes if bytes.is_power_of_two() && (64..=4096).contains(&bytes) => Ok(bytes),
        bytes => fault(
            at(raw),
            format!("block is {bytes}, expected a power of two, 64..4096"),
        ),
    }
}

fn count(key: &str, value: &Spanned<u32>) -> Checked<u32> {
    match *value.get_ref() {
        0 => fault(at(value), format!("{key} is 0, expected at least one")),
        more => Ok(more),
    }
}

impl RawCache {
    fn check(raw: &Spanned<Self>) -> Checked<Cache> {
        let Self {
            size: text,
            ways,
            line,
        } = raw.get_ref();
        let (ways, line) = (*ways, *line);
        let bytes = size("llc size", text)?;
        if !line.is_power_of_two() || !(16..=4096).contains(&line) {
            return fault(
                at(raw),
                format!("llc line is {line}, expected a power of two, 16..4096"),
            );
        }
        if !(1..=16).contains(&ways) {
            return fault(at(raw), format!("llc ways is {ways}, expected 1 to 16"));
        }
        let sets = bytes / u64::from(line) / u64::from(ways);
        if !sets.is_power_of_two() || sets * u64::from(line) * u64::from(ways) != bytes {
            return fault(
                at(text),
                format!(
                    "llc of {bytes} bytes, {ways} ways, lines of {line}: sets must be a power of two"
                ),
            );
        }
        Ok(Cache { bytes, ways, line })
    }
}

impl RawPath {
    fn check(&self) -> Checked<View> {
        let distance = *self.distance.get_ref();
        if !(10..=254).contains(&distance) {
            return fault(
                at(&self.distance),
                format!("distance is {distance}, expected 10 (local) to 254"),
            );
        }
        let read_bandwidth = bandwidth("read_bandwidth", &self.read_bandwidth)?;
        let write_bandwidth = bandwidth("write_bandwidth", &self.write_bandwidth)?;
        let stream_bandwidth = match &self.stream_bandwidth {
            Some(text) => bandwidth("stream_bandwidth", text)?,
            None => read_bandwidth.max(write_bandwidth),
        };
        Ok(View {
            distance,
            read_ns: time("read_ns", &self.read_ns)?,
            write_ns: time("write_ns", &self.write_ns)?,
            read_bandwidth,
            write_bandwidth,
            stream_bandwidth,
        })
    }
}

impl RawLab {
    fn check(&self) -> Checked<Lab> {
        let dilation = *self.dilation.get_ref();
        if !dilation.is_finite() || dilation < 1.0 {
            return fault(
                at(&self.dilation),
                format!("dilation is {dilation}, expected 1 or more"),
            );
        }
        Ok(Lab {
            dilation,
            cpus: count("lab cpus", &self.cpus)?,
            llc: RawCache::check(&self.llc)?,
            below_4g: match &self.below_4g {
                Some(text) => size("below_4g", text)?,
                None => 128 << 20,
            },
        })
    }
}

impl RawMachine {
    /// Checks everything and assembles the machine.
    pub(crate) fn check(self) -> Checked<Machine> {
        if self.name.get_ref().is_empty() {
            return fault(at(&self.name), "name is empty");
        }
        let sockets = self.sockets()?;
        let nodes = self.nodes(sockets.len())?;
        let paths = self.paths(sockets.len(), nodes.len())?;
        let lab = self
            .lab
            .as_ref()
            .map(|lab| lab.get_ref().check())
            .transpose()?;
        if let (Some(lab), Some(id)) = (
            &self.lab,
            nodes.iter().position(|node| node.lab_bytes.is_none()),
        ) {
            return fault(
                at(lab),
                format!("the file has [lab], but node {id} has no lab_capacity"),
            );
        }
        let names = (self.name.into_inner(), self.description);
        Ok(Machine::assemble(names, sockets, nodes, paths, lab))
    }

    fn sockets(&self) -> Checked<Vec<Socket>> {
        if self.socket.is_empty() {
            return fault(
                at(&self.name),
                "the machine has no [[socket]], so it has no CPUs",
            );
        }
        let mut sockets = Vec::new();
        for raw in &self.socket {
            let raw = raw.get_ref();
            let id = *raw.id.get_ref();
            if id != sockets.len() {
                return fault(
                    at(&raw.id),
                    format!("socket id is {id}, expected {}", sockets.len()),
                );
            }
            let cpus = count("cpus", &raw.cpus)?;
            sockets.push(Socket {
                cpus,
                llc: RawCache::check(&raw.llc)?,
            });
        }
        Ok(sockets)
    }

    fn nodes(&self, sockets: usize) -> Checked<Vec<Node>> {
        if self.node.is_empty() {
            return fault(
                at(&self.name),
                "the machine has no [[node]], so it has no memory",
            );
        }
        let mut nodes: Vec<Node> = Vec::new();
        for raw in &self.node {
            let raw = raw.get_ref();
            let id = *raw.id.get_ref();
            if id != nodes.len() {
                return fault(
                    at(&raw.id),
                    format!("node id is {id}, expected {}", nodes.len()),
                );
            }
            if let Some(socket) = &raw.socket
                && *socket.get_ref() >= sockets
            {
                return fault(
                    at(socket),
                    format!(
                        "node {id} is at socket {}, there are {sockets}",
                        socket.get_ref()
                    ),
                );
            }
            let lab = raw.lab_capacity.as_ref();
            nodes.push(Node {
                kind: raw.kind,
                socket: raw.socket.as_ref().map(|socket| *socket.get_ref()),
                bytes: size("capacity", &raw.capacity)?,
                lab_bytes: lab.map(|text| size("lab_capacity", text)).transpose()?,
                block: block(raw.block.as_ref())?,
            });
        }
        match (0..sockets).find(|&socket| !nodes.iter().any(|node| node.socket == Some(socket))) {
            Some(socket) => fault(
                at(&self.socket[socket]),
                format!("no node is at socket {socket}"),
            ),
            None => Ok(nodes),
        }
    }

    fn paths(&self, sockets: usize, nodes: usize) -> Checked<Vec<View>> {
        let mut views: Vec<Option<View>> = vec![None; sockets * nodes];
        for raw in &self.path {
            let raw = raw.get_ref();
            let (socket, node) = (*raw.socket.get_ref(), *raw.node.get_ref());
            if socket >= sockets {
                return fault(
                    at(&raw.socket),
                    format!("path from socket {socket}, there are {sockets}"),
                );
            }
            if node >= nodes {
                return fault(
                    at(&raw.node),
                    format!("path to node {node}, there are {nodes}"),
                );
            }
            if views[socket * nodes + node].replace(raw.check()?).is_some() {
                return fault(
                    at(&raw.socket),
                    format!("second path from socket {socket} to node {node}"),
                );
            }
        }
        for (index, view) in views.iter().enumerate() {
            if view.is_none() {
                let (socket, node) = (index / nodes, index % nodes);
                return fault(
                    at(&self.socket[socket]),
                    format!(
                        "no [[path]] from socket {socket} to node {node}: its distance, latency and bandwidth are missing"
                    ),
                );
            }
        }
        Ok(views.into_iter().flatten().collect())
    }
}
