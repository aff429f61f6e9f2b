// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the host's processors are while a run lasts.
//!
//! A processor may be there and slow all the same: on a shared machine another guest on the same core
//! takes up to half of it, for seconds or minutes, and nothing in `/proc` says so. The emulator feels that
//! more than most: it runs much code, with branches that nobody can predict, over tables that just fit the
//! first cache. So a thread beside it does a little of each, twenty times a second on the processor
//! that the guest's first has, and notes how long it took: half a hundredth of that processor.
//!
//! What becomes of it: a line to the reader ([`super::table`]).

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use terrace_sys::clock::thread_cpu_time;

use crate::boot::processors;

/// Between two measurements of a quarter of a millisecond.
const PAUSE: Duration = Duration::from_millis(50);
/// Steps of each of the three loops.
const STEPS: u32 = 12_000;
/// Words of the table that is looked up: 32 KiB.
const WORDS: usize = 1 << 13;

/// Measures as long as it lives.
#[derive(Debug)]
pub(super) struct Pace {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Paces>,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Paces(pub(super) Vec<(Instant, f64)>);

impl Pace {
    /// Begins.
    pub(super) fn measure() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            processors::beside_the_first();
            let mut work = Work::new();
            let mut paces = Vec::new();
            while !told.load(Ordering::Relaxed) {
                paces.push((Instant::now(), work.pace()));
                thread::sleep(PAUSE);
            }
            Paces(paces)
        });
        Self { stop, thread }
    }

    /// Ends.
    pub(super) fn end(self) -> Paces {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

impl Paces {
    /// Millions of steps in a second of processor time, the mean of a while; `None` where nothing was
    /// measured in it.
    #[expect(clippy::cast_precision_loss, reason = "a mean needs no more")]
    pub(super) fn between(&self, from: Instant, to: Instant) -> Option<f64> {
        let first = self.0.partition_point(|&(at, _)| at < from);
        let end = self.0.partition_point(|&(at, _)| at < to);
        let during = self.0.get(first..end).filter(|found| !found.is_empty())?;
        Some(during.iter().map(|&(_, pace)| pace).sum::<f64>() / during.len() as f64)
    }
}

/// Three loops and what they work on.
struct Work {
    chains: [u64; 8],
    table: Box<[u32; WORDS]>,
    code: Vec<u8>,
    registers: [u64; 16],
}

impl Work {
    fn new() -> Self {
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let mut table = Box::new([0; WORDS]);
        table.fill_with(&mut random);
        Self {
            chains: [1, 2, 3, 5, 7, 11, 13, 17],
            table,
            code: (0..STEPS).map(|_| random().to_le_bytes()[1]).collect(),
            registers: [1; 16],
        }
    }

    /// The geometric mean of the three, so that each weighs the same.
    fn pace(&mut self) -> f64 {
        let loops: [fn(&mut Self); 3] = [Self::arithmetic, Self::lookups, Self::interpreter];
        let rates = loops.map(|work| {
            // The thread's own time: being kept waiting is no lack of pace.
            let begin = thread_cpu_time();
            work(self);
            let took = Duration::from_nanos(thread_cpu_time().since(begin).0);
            f64::from(STEPS) / 1e6 / took.as_secs_f64().max(1e-9)
        });
        rates.iter().product::<f64>().cbrt()
    }

    /// Several chains at once: one alone leaves units idle that another guest on the core would take.
    fn arithmetic(&mut self) {
        for _ in 0..STEPS {
            for state in &mut self.chains {
                *state = state.rotate_left(5).wrapping_add(*state ^ 0x9e37_79b9) ^ (*state >> 3);
            }
            black_box(&mut self.chains);
        }
    }

    fn lookups(&mut self) {
        let mut at = 1_u32;
        for step in 0..STEPS {
            let place = at.wrapping_mul(2_654_435_761).wrapping_add(step) as usize % WORDS;
            at = self.table[place].wrapping_add(step);
        }
        black_box(at);
    }

    #[expect(clippy::cast_possible_truncation, reason = "any of its bits will do")]
    fn interpreter(&mut self) {
        let registers = &mut self.registers;
        for &byte in &self.code {
            let (to, from) = (usize::from(byte >> 4), usize::from(byte >> 3 & 15));
            let value = registers[from];
            let place = value as usize % WORDS;
            match byte & 7 {
                0 => registers[to] = registers[to].wrapping_add(value),
                1 => registers[to] ^= value,
                2 => registers[to] = registers[to].rotate_left(3),
                3 => registers[to] = registers[to].wrapping_mul(31),
                4 => self.table[place] = registers[to] as u32,
                5 => registers[to] = registers[to].wrapping_add(u64::from(self.table[place])),
                6 if value & 1 == 1 => registers[to] = registers[to].wrapping_add(1),
                _ => registers[to] = !value,
            }
        }
        black_box(registers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_measured_and_its_thread_ends() {
        let begin = Instant::now();
        let pace = Pace::measure();
        thread::sleep(Duration::from_millis(100));
        let paces = pace.end();
        let now = Instant::now();
        assert!(paces.between(begin, now).unwrap() > 0.0);
        assert_eq!(paces.between(now, now + PAUSE), None);
        assert_eq!(Paces::default().between(begin, now), None);
    }

    #[test]
    fn a_mean_is_of_its_while_alone() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let paces = Paces(vec![
            (at(0), 1.0),
            (at(10), 2.0),
            (at(20), 4.0),
            (at(30), 9.0),
        ]);
        assert_eq!(paces.between(at(10), at(30)), Some(3.0));
    }
}
