// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that the managed processes have on each node, for the cap that `--fast` puts on the fast tier.
//!
//! The kernel tells by `/proc/PID/numa_maps` (numa(7)), for which it walks all page tables: 6 to 14 ms a GiB. So a
//! thread of its own reads it, and rests 99 times as long as that took: it has at most 1 % of a processor, and
//! the event loop waits for nothing. What we have moved since the reading began is added by ourselves; what
//! programs have taken or given back since is known with the next.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::time::Duration;
use std::time::Instant;

use terrace_core::NodeId;
use terrace_core::Pid;

/// Shortest rest between two readings.
const REST_MIN: Duration = Duration::from_millis(200);
/// The rest is so many times the reading.
const REST_SHARE: u32 = 99;

type ByNode = BTreeMap<NodeId, u64>;

#[derive(Debug, Default)]
struct State {
    pids: Vec<Pid>,
    /// As last read; nothing before the first reading.
    read: Option<ByNode>,
    /// What we moved since: before the reading under way began, and while it goes on.
    moved: [BTreeMap<NodeId, i64>; 2],
}

/// What processes have where.
#[derive(Debug)]
pub struct Residency {
    state: Arc<Mutex<State>>,
    thread: std::thread::Thread,
}

impl Drop for Residency {
    fn drop(&mut self) {
        // It finds nobody who wants to know.
        self.thread.unpark();
    }
}

impl Residency {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Where no thread can be had.
    pub fn start() -> io::Result<Self> {
        Self::reading_by(resident)
    }

    fn reading_by(read: impl Fn(Pid) -> ByNode + Send + 'static) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let weak = Arc::downgrade(&state);
        let thread = std::thread::Builder::new()
            .name("terrace-resident".to_owned())
            .spawn(move || run(&weak, read))?;
        Ok(Self {
            state,
            thread: thread.thread().clone(),
        })
    }

    /// Whom to read of from now on.
    pub fn watch(&self, pids: impl Iterator<Item = Pid>) {
        let first = {
            let mut state = lock(&self.state);
            state.pids = pids.collect();
            state.read.is_none()
        };
        if first {
            self.thread.unpark();
        }
    }

    /// Bytes on a node; nothing before the first reading.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Option<u64> {
        let state = lock(&self.state);
        let read = state.read.as_ref()?.get(&node).copied().unwrap_or(0);
        let moved = state.moved.iter().filter_map(|moved| moved.get(&node));
        Some(moved.fold(read, |sum, bytes| sum.saturating_add_signed(*bytes)))
    }

    /// We have moved so many bytes to a node, or away from it where it is less than none.
    pub fn moved(&self, node: NodeId, bytes: i64) {
        let mut state = lock(&self.state);
        let sum = state.moved[1].entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until nobody wants to know.
fn run(state: &Weak<Mutex<State>>, read: impl Fn(Pid) -> ByNode) {
    loop {
        let pids = {
            let Some(state) = state.upgrade() else { return };
            let mut state = lock(&state);
            if state.pids.is_empty() {
                None
            } else {
                // What is moved from now on may be in the reading or not: it is counted on top.
                let before = std::mem::take(&mut state.moved[1]);
                for (node, bytes) in before {
                    let sum = state.moved[0].entry(node).or_default();
                    *sum = sum.saturating_add(bytes);
                }
                Some(state.pids.clone())
            }
        };
        let begun = Instant::now();
        if let Some(pids) = pids {
            let mut sum = ByNode::new();
            for (node, bytes) in pids.into_iter().flat_map(&read) {
                *sum.entry(node).or_default() += bytes;
            }
            {
                let Some(state) = state.upgrade() else { return };
                let mut state = lock(&state);
                state.read = Some(sum);
                state.moved[0].clear();
            }
            rest(
                state,
                begun.elapsed().saturating_mul(REST_SHARE).max(REST_MIN),
            );
        } else {
            // Somebody to read of wakes us.
            std::thread::park_timeout(REST_MIN);
        }
    }
}

/// Until the time is over, or nobody wants to know.
fn rest(state: &Weak<Mutex<State>>, span: Duration) {
    let begun = Instant::now();
    while state.strong_count() > 0 && begun.elapsed() < span {
        std::thread::park_timeout(span.saturating_sub(begun.elapsed()));
    }
}

/// Bytes of a process by node. None where it is gone.
fn resident(pid: Pid) -> ByNode {
    let text = fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default();
    let mut sum = ByNode::new();
    for (node, bytes) in text.lines().flat_map(resident_of) {
        *sum.entry(node).or_default() += bytes;
    }
    sum
}

/// Of one line: a mapping.
fn resident_of(line: &str) -> Vec<(NodeId, u64)> {
    let words = line.split_ascii_whitespace();
    let size = words
        .clone()
        .find_map(|word| word.strip_prefix("kernelpagesize_kB="));
    let page_bytes = size.and_then(|kb| kb.parse().ok()).unwrap_or(4_u64) * 1024;
    let on = |word: &str| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        let pages: u64 = pages.parse().ok()?;
        Some((NodeId(node.parse().ok()?), pages.saturating_mul(page_bytes)))
    };
    words.filter_map(on).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;

    use super::*;

    const NODE: NodeId = NodeId(0);

    #[test]
    fn numa_maps_lines_count_by_node_and_page_size() {
        let line = "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4";
        let expected = [(NodeId(0), 4096), (NodeId(1), 8192)];
        assert_eq!(resident_of(line), expected);
        let huge = "7f00 default file=/Name=3 huge anon=1 N0=1 kernelpagesize_kB=2048";
        assert_eq!(resident_of(huge), [(NodeId(0), 2 << 20)]);
        assert!(resident_of("7f00 default N=1 Nx=2 N1=").is_empty());
    }

    /// A program of 2 GiB, whose numa_maps takes 20 ms: it is read once in two seconds and not five times in
    /// one, and who asks meanwhile does not wait.
    #[test]
    fn a_large_program_is_read_rarely_and_nobody_waits() {
        static READS: AtomicUsize = AtomicUsize::new(0);
        let cost = Duration::from_millis(20);
        let residency = Residency::reading_by(move |_| {
            READS.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(cost);
            ByNode::from([(NODE, 2 << 30)])
        });
        let residency = residency.expect("a thread");
        let begun = Instant::now();
        let (mut steps, mut waited) = (0, 0);
        while begun.elapsed() < Duration::from_millis(1500) {
            let step = Instant::now();
            residency.watch(std::iter::once(Pid(1)));
            let _ = residency.on(NODE);
            steps += 1;
            waited += usize::from(step.elapsed() >= cost / 2);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(residency.on(NODE), Some(2 << 30));
        let reads = READS.load(Ordering::Relaxed);
        assert_eq!(reads, 1, "readings in 1.5 s");
        // Others use this machine.
        assert!(waited * 20 < steps, "{waited} of {steps} steps waited");
    }

    #[test]
    fn what_we_move_counts_before_it_is_read() {
        let residency = Residency::reading_by(|_| ByNode::from([(NODE, 100)])).expect("a thread");
        assert_eq!(residency.on(NODE), None);
        residency.watch(std::iter::once(Pid(1)));
        while residency.on(NODE).is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        residency.moved(NODE, 4096);
        residency.moved(NodeId(1), -4096);
        assert_eq!(residency.on(NODE), Some(4196));
        assert_eq!(residency.on(NodeId(1)), Some(0));
        // Two readings later it is in what was read.
        let begun = Instant::now();
        while residency.on(NODE) != Some(100) {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn this_process_has_memory_and_one_that_is_gone_has_none() {
        let own: u64 = resident(Pid(std::process::id())).values().sum();
        assert!(own > 1 << 20, "{own}");
        assert!(resident(Pid(0)).is_empty());
    }
}
