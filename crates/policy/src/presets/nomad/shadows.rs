// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether shadows are worth keeping, by process.
//!
//! A shadow pays when its page is demoted before it is written. When it is written first, keeping
//! it cost a write-protection fault that user space had to answer. So each process's shadows are
//! counted: after the first few, and while most of them end by a write, new ones are kept for one
//! promotion in [`SAMPLE`] only, which is how a change of the program's mind is noticed. A shadow
//! that nobody has written to yet speaks for keeping more only when it has stayed so for
//! [`PROOF`]: in the rush of promotions at a program's start none has.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::Pid;

/// One promotion in so many keeps a shadow while shadows do not pay.
pub const SAMPLE: u32 = 16;
/// A shadow that is not written for so long, at least, has proven its worth.
pub const PROOF: Nanos = Nanos::from_secs(1);
/// Shadows kept before the first judgement.
const FIRST: u32 = 32;
/// Shadows after which older ones count half.
const WINDOW: u32 = 128;

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// Ordered before the first judgement.
    first: u32,
    /// Kept since `since`, and in the time before that.
    young: u32,
    middle: u32,
    since: Nanos,
    /// Kept before that.
    old: u32,
    written: u32,
    skipped: u32,
}

impl Account {
    fn age(&mut self, now: Nanos) {
        if now.since(self.since) < PROOF {
            return;
        }
        self.since = now;
        self.old += self.middle;
        self.middle = self.young;
        self.young = 0;
        while self.old >= WINDOW {
            self.old /= 2;
            self.written /= 2;
        }
    }

    const fn pays(&self) -> bool {
        self.old >= FIRST / 2 && self.written * 2 <= self.old
    }
}

/// The accounts.
#[derive(Debug, Default)]
pub struct ShadowWorth {
    by_process: BTreeMap<Pid, Account>,
}

impl ShadowWorth {
    /// Whether the next promoted page of the process shall keep a shadow.
    pub fn keep_next(&mut self, now: Nanos, pid: Pid) -> bool {
        let account = self.by_process.entry(pid).or_default();
        account.age(now);
        if account.first < FIRST {
            account.first += 1;
            return true;
        }
        if account.pays() {
            return true;
        }
        account.skipped += 1;
        account.skipped.is_multiple_of(SAMPLE)
    }

    /// A shadow was kept.
    pub fn kept(&mut self, pid: Pid) {
        self.by_process.entry(pid).or_default().young += 1;
    }

    /// A shadow ended by a write.
    pub fn written(&mut self, pid: Pid) {
        let account = self.by_process.entry(pid).or_default();
        account.written = (account.written + 1).min(account.old + account.middle + account.young);
    }

    /// The process is gone.
    pub fn forget(&mut self, pid: Pid) {
        self.by_process.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: Pid = Pid(1);

    /// So many promotions in so many milliseconds; how many kept a shadow.
    fn promote(worth: &mut ShadowWorth, from_ms: u64, ms: u64, each_ms: u32, written: bool) -> u32 {
        let mut kept = 0;
        for at in from_ms..from_ms + ms {
            for _ in 0..each_ms {
                if worth.keep_next(Nanos::from_millis(at), PID) {
                    kept += 1;
                    worth.kept(PID);
                    if written {
                        worth.written(PID);
                    }
                }
            }
        }
        kept
    }

    #[test]
    fn a_process_that_writes_keeps_few_and_one_that_reads_keeps_all() {
        let mut worth = ShadowWorth::default();
        let first = promote(&mut worth, 0, 1_000, 1, false);
        assert!((FIRST..200).contains(&first), "{first}");
        promote(&mut worth, 1_000, 3_000, 1, false);
        assert_eq!(promote(&mut worth, 4_000, 1_000, 1, false), 1_000);
        promote(&mut worth, 5_000, 5_000, 1, true);
        let kept = promote(&mut worth, 10_000, 10_000, 1, true);
        assert!((10_000 / SAMPLE / 2..1_000).contains(&kept), "{kept}");
        // It reads again: the samples show it.
        promote(&mut worth, 20_000, 20_000, 1, false);
        assert_eq!(promote(&mut worth, 40_000, 100, 1, false), 100);
    }

    #[test]
    fn a_rush_keeps_few_until_some_have_lasted() {
        let mut worth = ShadowWorth::default();
        let kept = promote(&mut worth, 0, 500, 20, false);
        assert!((10_000 / SAMPLE..1_000).contains(&kept), "{kept}");
    }
}
