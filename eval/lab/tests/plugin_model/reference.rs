// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory model as `docs/lab.md` and the head of `delay.c` have it: simple, slow, and from the machine
//! file's own figures. Times are ticks.

use terrace_lab::series::NodeCount;
use terrace_machine_spec::Machine;
use terrace_machine_spec::machine::Lab;

use crate::cache::Cache;
use crate::cache::Filter;
use crate::cache::Found;
use crate::cache::Writer;
use crate::prices::Price;
use crate::prices::prices;
use crate::trace::Access;
use crate::trace::Code;

/// Places for streams that a processor follows.
const STREAMS: usize = 16;
/// So many lines of a stream are delivered before they are used.
const AHEAD: u64 = 8;
const FOUR_GIB: u64 = 4 << 30;

/// What an access came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The node that served the miss; none if there was none.
    pub(crate) served: Option<usize>,
    /// The node that a dirty line was given back to.
    pub(crate) written: Option<usize>,
    /// When the processor goes on.
    pub(crate) until: u64,
}

#[derive(Debug)]
struct Processor {
    socket: usize,
    goes_on: u64,
    filter: Filter,
    /// The last line of each stream, in the streams' places.
    streams: Vec<Option<u64>>,
    /// How many streams were ever begun.
    begun: usize,
    /// When the engines for loads and stores have delivered their last line.
    delivered: [u64; 2],
}

/// Ticks that processors waited for a node.
#[derive(Debug, Clone, Copy, Default)]
struct Waited {
    all: u64,
    queue: u64,
}

/// How often what matters came up, so that a trace which tests nothing is seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) ignored: u64,
    pub(crate) filtered: u64,
    pub(crate) queued: u64,
    /// Lines of streams that were waited for, and that were there.
    pub(crate) late: u64,
    pub(crate) ahead: u64,
}

/// The machine, its processors and what they have been served.
#[derive(Debug)]
pub(crate) struct Reference {
    line: u64,
    below_4g: u64,
    ticks_per_ns: f64,
    node_ends: Vec<u64>,
    /// `[socket][node][load, store]`.
    prices: Vec<Vec<[Price; 2]>>,
    caches: Vec<Cache>,
    processors: Vec<Processor>,
    free_at: Vec<u64>,
    waited: Vec<Waited>,
    /// `delay_ns` and `queue_ns` are in `waited`.
    counts: Vec<NodeCount>,
    pub(crate) accesses: u64,
    pub(crate) hits: u64,
    pub(crate) seen: Seen,
}

impl Reference {
    pub(crate) fn new(machine: &Machine, lab: &Lab, ticks_per_ns: f64) -> Self {
        let cpus = usize::try_from(lab.cpus).unwrap();
        let sockets = machine.sockets.len();
        let processor = |cpu| Processor {
            socket: cpu / cpus,
            goes_on: 0,
            filter: Filter::default(),
            streams: vec![None; STREAMS],
            begun: 0,
            delivered: [0; 2],
        };
        let cache = |_| Cache::new(lab.llc.bytes, lab.llc.ways, lab.llc.line);
        let mut end = 0;
        let node_ends = machine.nodes.iter().map(|node| {
            end += node.lab_bytes.unwrap();
            end
        });
        Self {
            line: u64::from(lab.llc.line),
            below_4g: lab.below_4g,
            ticks_per_ns,
            node_ends: node_ends.collect(),
            prices: prices(machine, lab, ticks_per_ns),
            caches: (0..sockets).map(cache).collect(),
            processors: (0..sockets * cpus).map(processor).collect(),
            free_at: vec![0; machine.nodes.len()],
            waited: vec![Waited::default(); machine.nodes.len()],
            counts: vec![NodeCount::default(); machine.nodes.len()],
            accesses: 0,
            hits: 0,
            seen: Seen::default(),
        }
    }

    /// The node of a guest-physical address; none for a device's.
    fn node_of(&self, physical: u64) -> Option<usize> {
        let at = if physical < FOUR_GIB {
            Some(physical).filter(|&at| at < self.below_4g)?
        } else {
            physical - FOUR_GIB + self.below_4g
        };
        self.node_ends.iter().position(|&end| at < end)
    }

    pub(crate) fn access(&mut self, access: &Access) -> Outcome {
        let processor = &mut self.processors[access.cpu];
        let now = processor.goes_on.max(access.at);
        processor.goes_on = now;
        let nothing = Outcome {
            served: None,
            written: None,
            until: now,
        };
        // By its virtual line, before anybody asks whose memory it is.
        let line = access.address / self.line;
        let passes = processor.filter.passes(line, access.store);
        let Some(node) = self.node_of(access.physical) else {
            self.seen.ignored += 1;
            return nothing;
        };
        if let Some(width) = access.code.bulk_bytes() {
            let count = &mut self.counts[node];
            let bytes = if access.store {
                &mut count.kernel_write_bytes
            } else {
                &mut count.kernel_read_bytes
            };
            *bytes += width;
        }
        if !passes {
            self.seen.filtered += 1;
            return nothing;
        }
        self.shared(access, node, now)
    }

    /// An access that the last-level cache hears of.
    fn shared(&mut self, access: &Access, node: usize, now: u64) -> Outcome {
        let socket = self.processors[access.cpu].socket;
        let line = access.physical / self.line;
        let store = access.store.then(|| access.code.writer());
        let found = self.caches[socket].access(line, store);
        let program = access.code == Code::Program;
        self.accesses += u64::from(program);
        let Found::Miss(victim) = found else {
            self.hits += u64::from(program);
            return Outcome {
                served: None,
                written: None,
                until: now,
            };
        };
        let written = victim.map(|(line, writer)| self.write_back(socket, line, writer, now));
        let until = self.miss(access, node, line, now);
        self.processors[access.cpu].goes_on = until;
        Outcome {
            served: Some(node),
            written,
            until,
        }
    }

    fn write_back(&mut self, socket: usize, line: u64, writer: Writer, now: u64) -> usize {
        let node = self.node_of(line * self.line).expect("memory was cached");
        let count = &mut self.counts[node];
        count.writebacks += 1;
        count.writebacks_copy += u64::from(writer == Writer::Copy);
        count.writebacks_clear += u64::from(writer == Writer::Clear);
        let length = self.prices[socket][node][1].line;
        self.queue(node, now, length);
        node
    }

    /// Asks the node to move a line; how long until it begins.
    fn queue(&mut self, node: usize, now: u64, length: u64) -> u64 {
        let begins = self.free_at[node].max(now);
        self.free_at[node] = begins + length;
        begins - now
    }

    /// When the processor that missed goes on.
    fn miss(&mut self, access: &Access, node: usize, line: u64, now: u64) -> u64 {
        let socket = self.processors[access.cpu].socket;
        let way = usize::from(access.store);
        let price = self.prices[socket][node][way];
        let queue = self.queue(node, now, price.line);
        let processor = &mut self.processors[access.cpu];
        let stream = processor.follows(line);
        let service = if stream {
            let delivered = &mut processor.delivered[way];
            let starts = (*delivered).max(now - AHEAD * price.stream);
            *delivered = starts + price.stream;
            delivered.saturating_sub(now)
        } else {
            price.latency
        };
        let seen = &mut self.seen;
        seen.queued += u64::from(queue > 0);
        seen.late += u64::from(stream && service > 0);
        seen.ahead += u64::from(stream && service == 0);
        self.waited[node].queue += queue;
        self.waited[node].all += queue + service;
        self.count(access, node, stream);
        now + queue + service
    }

    fn count(&mut self, access: &Access, node: usize, stream: bool) {
        let count = &mut self.counts[node];
        let (loads, stores) = match access.code {
            Code::Program => (&mut count.loads, &mut count.stores),
            Code::Tiering => (&mut count.tiering_loads, &mut count.tiering_stores),
            Code::Copy | Code::Clear => (&mut count.kernel_loads, &mut count.kernel_stores),
        };
        *if access.store { stores } else { loads } += 1;
        count.stream += u64::from(stream && access.code == Code::Program);
    }

    /// Each node's counts, as a series has them.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "sums of ticks are below 2^52"
    )]
    pub(crate) fn counts(&self) -> Vec<NodeCount> {
        let ns = |ticks: u64| (ticks as f64 / self.ticks_per_ns).round_ties_even() as u64;
        let nodes = self.counts.iter().zip(&self.waited);
        let nodes = nodes.map(|(count, waited)| NodeCount {
            delay_ns: ns(waited.all),
            queue_ns: ns(waited.queue),
            ..*count
        });
        nodes.collect()
    }
}

impl Processor {
    /// Whether a line is the last one of a stream, or beside it: the first such place moves on to it.
    /// Any other line begins a stream, in the place whose turn it is.
    fn follows(&mut self, line: u64) -> bool {
        let beside = |place: &&mut Option<u64>| place.is_some_and(|last| last.abs_diff(line) <= 1);
        if let Some(place) = self.streams.iter_mut().find(beside) {
            *place = Some(line);
            return true;
        }
        self.streams[self.begun % STREAMS] = Some(line);
        self.begun += 1;
        false
    }
}
