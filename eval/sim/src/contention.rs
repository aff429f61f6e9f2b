// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throughput and queueing, found together.
//!
//! A program of `t` threads makes `x = t / c` visits a ns, where `c` is what one takes: computing,
//! cache hits, and for each miss its node's latency plus a wait. The wait at a node of utilisation
//! `u` is that of an M/D/1 queue, `s * u / (2 * (1 - u))`, with `s` the service time: a line at full
//! bandwidth plus a share of the latency (`queue_share`). `u` is what programs and copies use of the
//! bandwidth, so it depends on `x`. As `u` goes to 1 the wait grows without limit: no program gets
//! more than the bandwidth.
//!
//! The waits are found node by node: at each, `wait(u(w)) - w` falls as `w` grows, so it has one
//! root, which bisection finds; a few rounds over the nodes settle all.

use crate::hardware::Hardware;
use crate::hardware::NODES;
use crate::hardware::View;

/// Lines in flight of a stream: it waits so many times less for each.
const STREAM_DEPTH: f64 = 8.0;
const LINE: f64 = 64.0;

/// What one program does per visit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Load {
    /// Where its threads run.
    pub(crate) socket: usize,
    /// Threads that make progress.
    pub(crate) threads: f64,
    /// Ns of a visit without misses.
    pub(crate) fixed_ns: f64,
    /// Missed lines by node.
    pub(crate) reads: [f64; NODES],
    /// Missed lines of visits that write, by node.
    pub(crate) writes: [f64; NODES],
    /// Dirty lines given back, by node.
    pub(crate) writebacks: [f64; NODES],
    /// Which share of the missed lines comes with a stream.
    pub(crate) streamed: f64,
}

impl Load {
    /// That does nothing yet.
    pub(crate) const fn idle(socket: usize) -> Self {
        Self {
            socket,
            threads: 0.0,
            fixed_ns: 1.0,
            reads: [0.0; NODES],
            writes: [0.0; NODES],
            writebacks: [0.0; NODES],
            streamed: 0.0,
        }
    }

    /// What a line takes of a node's bandwidth. A line that follows none in a stream begins a block, which moves
    /// as a whole; those behind it share that.
    fn line_bytes(&self, view: &View) -> f64 {
        LINE.max(view.block * (1.0 - self.streamed))
    }
}

/// Waits and utilisation, kept from step to step.
#[derive(Debug, Clone)]
pub(crate) struct Contention {
    queue_share: f64,
    /// `[socket][node]`, ns a line.
    pub(crate) waits: Vec<[f64; NODES]>,
    /// By node, programs only.
    pub(crate) busy: [f64; NODES],
}

impl Contention {
    pub(crate) fn new(hardware: &Hardware, queue_share: f64) -> Self {
        Self {
            queue_share,
            waits: vec![[0.0; NODES]; hardware.views.len()],
            busy: [0.0; NODES],
        }
    }

    /// What a missed line costs a program on `socket`: by latency, and within a stream.
    pub(crate) fn line_ns(
        &self,
        hardware: &Hardware,
        socket: usize,
        node: usize,
        write: bool,
    ) -> [f64; 2] {
        let view = &hardware.views[socket][node];
        let wait = self.waits[socket][node];
        let latency = if write {
            view.update_ns()
        } else {
            view.read_ns
        };
        [
            latency + wait,
            (LINE / view.stream_bw).min(latency) + wait / STREAM_DEPTH,
        ]
    }

    /// Ns of a visit.
    pub(crate) fn visit_ns(&self, hardware: &Hardware, load: &Load) -> f64 {
        let mut ns = load.fixed_ns;
        for node in 0..hardware.nodes {
            for (lines, write) in [(load.reads[node], false), (load.writes[node], true)] {
                if lines > 0.0 {
                    let [single, stream] = self.line_ns(hardware, load.socket, node, write);
                    ns += lines * (single * (1.0 - load.streamed) + stream * load.streamed);
                }
            }
        }
        ns
    }

    /// Finds waits for these loads; `copies` is the utilisation of each node by migrations. Gives
    /// the visits a ns of each program.
    pub(crate) fn solve(
        &mut self,
        hardware: &Hardware,
        loads: &[Load],
        copies: &[f64; NODES],
    ) -> Vec<f64> {
        let sockets = hardware.views.len();
        for round in 0..12 {
            let mut change = 0.0_f64;
            for socket in 0..sockets {
                if !loads.iter().any(|load| load.socket == socket) {
                    continue;
                }
                for node in 0..hardware.nodes {
                    let before = self.waits[socket][node];
                    let after = self.settle(hardware, loads, copies, socket, node);
                    self.waits[socket][node] = after;
                    let scale = hardware.views[socket][node].read_ns + before;
                    change = change.max((after - before).abs() / scale);
                }
            }
            if round > 0 && change < 1e-4 {
                break;
            }
        }
        for node in 0..hardware.nodes {
            self.busy[node] = self.used(hardware, loads, node);
        }
        loads.iter().map(|load| self.rate(hardware, load)).collect()
    }

    fn rate(&self, hardware: &Hardware, load: &Load) -> f64 {
        load.threads / self.visit_ns(hardware, load)
    }

    /// Utilisation of a node by the programs, each line at the bandwidth its socket sees.
    fn used(&self, hardware: &Hardware, loads: &[Load], node: usize) -> f64 {
        loads
            .iter()
            .map(|load| {
                let view = &hardware.views[load.socket][node];
                let line = load.line_bytes(view);
                let read = (load.reads[node] + load.writes[node]) * line / view.read_bw;
                let written = load.writebacks[node] * line / view.write_bw;
                if read + written == 0.0 {
                    return 0.0;
                }
                self.rate(hardware, load) * (read + written)
            })
            .sum()
    }

    fn settle(
        &mut self,
        hardware: &Hardware,
        loads: &[Load],
        copies: &[f64; NODES],
        socket: usize,
        node: usize,
    ) -> f64 {
        let view = hardware.views[socket][node];
        let service = LINE / view.read_bw + self.queue_share * view.read_ns;
        let wait_of = |used: f64| {
            let used = used + copies[node].min(0.9);
            if used >= 1.0 {
                f64::INFINITY
            } else {
                service * used / (2.0 * (1.0 - used))
            }
        };
        let too_short = |wait: f64, this: &mut Self| {
            this.waits[socket][node] = wait;
            wait_of(this.used(hardware, loads, node)) > wait
        };
        if !too_short(0.0, self) {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, view.read_ns);
        while too_short(high, self) && high < 1e12 {
            low = high;
            high *= 4.0;
        }
        for _ in 0..30 {
            let middle = f64::midpoint(low, high);
            if too_short(middle, self) {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hardware() -> Hardware {
        hardware_of(include_str!("../../../machines/cxl-2tier.toml"))
    }

    fn hardware_of(text: &str) -> Hardware {
        let machine =
            terrace_machine_spec::Machine::parse(text, std::path::Path::new("cxl")).expect("fine");
        let sizes = terrace_workload::Sizes::fast_free(1 << 24);
        let workload = terrace_workload::Workload::named("gups", &sizes).expect("known");
        Hardware::new(&crate::Setup::new(machine, workload)).expect("fine")
    }

    fn load(threads: f64) -> Load {
        let mut load = Load::idle(0);
        load.threads = threads;
        load.fixed_ns = 10.0;
        load.reads[1] = 1.0;
        load
    }

    #[test]
    fn alone_a_thread_sees_little_more_than_the_latency() {
        let hardware = hardware();
        let mut contention = Contention::new(&hardware, 0.25);
        let x = contention.solve(&hardware, &[load(1.0)], &[0.0; NODES]);
        let view: View = hardware.views[0][1];
        assert!((1.0 / x[0] - view.read_ns - 10.0) / view.read_ns < 0.01);
    }

    #[test]
    fn many_threads_get_the_bandwidth_and_no_more() {
        let hardware = hardware();
        let mut contention = Contention::new(&hardware, 0.25);
        let mut last = 0.0;
        for threads in [1.0, 8.0, 64.0, 512.0, 4096.0] {
            let x = contention.solve(&hardware, &[load(threads)], &[0.0; NODES])[0];
            assert!(x * LINE < hardware.views[0][1].read_bw);
            assert!(x > last);
            last = x;
        }
        assert!(last * LINE > 0.98 * hardware.views[0][1].read_bw);
    }

    #[test]
    fn copies_take_their_part_of_the_bandwidth() {
        let hardware = hardware();
        let mut contention = Contention::new(&hardware, 0.25);
        let free = contention.solve(&hardware, &[load(512.0)], &[0.0; NODES])[0];
        let mut copies = [0.0; NODES];
        copies[1] = 0.5;
        let shared = contention.solve(&hardware, &[load(512.0)], &copies)[0];
        assert!((shared / free - 0.5).abs() < 0.05, "{}", shared / free);
    }

    #[test]
    fn the_wait_is_that_of_the_queue_at_the_utilisation_found() {
        let hardware = hardware();
        let mut contention = Contention::new(&hardware, 0.25);
        let x = contention.solve(&hardware, &[load(80.0)], &[0.0; NODES])[0];
        let view: View = hardware.views[0][1];
        let used = x * LINE / view.read_bw;
        let service = LINE / view.read_bw + 0.25 * view.read_ns;
        let wait = service * used / (2.0 * (1.0 - used));
        assert!((contention.waits[0][1] / wait - 1.0).abs() < 0.01);
    }

    /// HeMem, table 1: 32 GB/s of reads and 11.2 of writes, measured in blocks of 256 bytes (2.2); "accesses smaller
    /// than this size suffer". DRAM does not care: 107 and 80 GB/s.
    #[test]
    fn small_random_accesses_get_a_quarter_of_persistent_memory() {
        let hardware = hardware_of(include_str!("../../../machines/hemem.toml"));
        let gb_per_s = |node: usize, lines: f64, write: bool| {
            let mut load = Load::idle(0);
            (load.threads, load.fixed_ns) = (4096.0, 1.0);
            load.streamed = 1.0 - 1.0 / lines;
            if write {
                // As without a cache: what is written was not read before.
                load.writebacks[node] = lines;
                load.reads[0] = 1e-3;
                load.fixed_ns = 100.0 * 4096.0 / 1e4;
            } else {
                load.reads[node] = lines;
            }
            let mut contention = Contention::new(&hardware, 0.25);
            let x = contention.solve(&hardware, &[load], &[0.0; NODES])[0];
            (x * lines * LINE, contention.busy[node])
        };
        for (node, lines, expected) in [
            (1, 4.0, 32.0),
            (1, 1.0, 8.0),
            (1, 64.0, 32.0),
            (0, 1.0, 107.0),
        ] {
            let (got, _) = gb_per_s(node, lines, false);
            assert!((got / expected - 1.0).abs() < 0.03, "{node} {lines}: {got}");
        }
        for (lines, expected) in [(4.0, 11.2), (1.0, 2.8), (64.0, 11.2)] {
            // Nobody waits for what is given back: bandwidth used, at a rate that is given.
            let (rate, busy) = gb_per_s(1, lines, true);
            assert!(
                (rate / busy / expected - 1.0).abs() < 0.03,
                "{lines}: {rate} {busy}"
            );
        }
    }
}
