// SPDX-License-Identifier: MIT OR Apache-2.0
//! How busy the host was with other things during a run, and how fast its processors were.
//!
//! The emulator's rates are those of a host that has nothing else to do: a processor that is taken
//! away from it looks like a slow program. What others used is what `/proc/stat` says was used, less
//! what this process and its ended children used ([`HostLoad::others_since`] comes after the
//! emulator was waited for).
//!
//! A processor may be there and slow all the same: on a shared machine another guest on the same core
//! takes up to half of it, and nothing in `/proc` says so. [`Pace`] measures it.

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::ClockId;
use rustix::time::clock_gettime;

/// A moment on the host. In ticks of `/proc`, 100 a second on every kernel that Debian ships.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostLoad {
    busy: u64,
    idle: u64,
    own: u64,
}

impl HostLoad {
    /// Now; `None` where `/proc` does not say.
    pub(super) fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        Self::parse(&stat, &own)
    }

    fn parse(stat: &str, own: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal; guest time is in user already.
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            return None;
        };
        // The program's name, in parentheses, may hold anything; utime is the twelfth behind it,
        // then stime, and the same of children that were waited for.
        let fields: Vec<u64> = own
            .rsplit_once(") ")?
            .1
            .split(' ')
            .skip(11)
            .take(4)
            .map_while(|word| word.parse().ok())
            .collect();
        Some(Self {
            busy: user + nice + system + irq + softirq + steal,
            idle: idle + iowait,
            own: (fields.len() == 4).then(|| fields.iter().sum())?,
        })
    }

    /// Share of all processors that others used since then.
    pub(super) fn others_since(self) -> Option<f64> {
        Self::now()?.others(self)
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more")]
    fn others(self, earlier: Self) -> Option<f64> {
        let busy = self.busy.saturating_sub(earlier.busy);
        let all = busy + self.idle.saturating_sub(earlier.idle);
        let others = busy.saturating_sub(self.own.saturating_sub(earlier.own));
        (all > 0).then(|| others as f64 / all as f64)
    }
}

/// Steps of one measurement, a millisecond's worth or two.
const STEPS: u32 = 200_000;
/// Between two measurements.
const PAUSE: Duration = Duration::from_millis(500);

/// Measures how fast the host's processors are, as long as it lives.
#[derive(Debug)]
pub(super) struct Pace {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Pace {
    /// Begins.
    pub(super) fn measure() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut paces = Vec::new();
            while !told.load(Ordering::Relaxed) {
                paces.push(one_pace());
                thread::sleep(PAUSE);
            }
            paces
        });
        Self { stop, thread }
    }

    /// Ends; millions of steps of a fixed loop in a second of processor time, the median.
    pub(super) fn end(self) -> Option<f64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut paces = self.thread.join().ok()?;
        paces.sort_by(f64::total_cmp);
        paces.get(paces.len() / 2).copied()
    }
}

fn one_pace() -> f64 {
    // The thread's own time: being kept waiting is no lack of pace.
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            u32::try_from(time.tv_nsec).unwrap_or(0),
        )
    };
    let begin = now();
    // Several chains at once: one alone leaves units idle that another guest on the core would take.
    let mut chains = [1_u64, 2, 3, 5, 7, 11, 13, 17];
    for _ in 0..STEPS {
        for state in &mut chains {
            *state = state.rotate_left(5).wrapping_add(*state ^ 0x9e37_79b9) ^ (*state >> 3);
        }
        black_box(&mut chains);
    }
    f64::from(STEPS) / 1e6 / (now() - begin).as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_measured_and_its_thread_ends() {
        let pace = Pace::measure();
        thread::sleep(Duration::from_millis(50));
        assert!(pace.end().unwrap() > 0.0);
    }

    #[test]
    fn what_is_not_ours_is_others() {
        let own = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 10 20 30 40 20 0 1";
        let before = HostLoad::parse("cpu  100 0 50 850 0 0 0 0 0 0\ncpu0 1", own).unwrap();
        assert_eq!((before.busy, before.idle, before.own), (150, 850, 100));
        let later = HostLoad {
            busy: 150 + 80,
            idle: 850 + 20,
            own: 100 + 50,
        };
        assert_eq!(later.others(before), Some(0.3));
        assert_eq!(before.others(before), None, "no time has passed");
        assert_eq!(HostLoad::parse("cpu 1 2\n", own), None);
        assert!(HostLoad::now().is_some());
    }
}
