// SPDX-License-Identifier: MIT OR Apache-2.0
//! How busy the host was with other things during a run.
//!
//! The emulator's rates are those of a host that has nothing else to do: a processor that is taken
//! away from it looks like a slow program. What others used is what `/proc/stat` says was used, less
//! what this process and its ended children used ([`HostLoad::others_since`] comes after the
//! emulator was waited for).
//!
//! How fast a processor is that was there: [`super::pace`].

use std::fs;

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

#[cfg(test)]
mod tests {
    use super::*;

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
