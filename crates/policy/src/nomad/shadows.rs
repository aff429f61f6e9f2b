// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether shadows are worth keeping, by process.
//!
//! A shadow pays when its page is demoted before it is written. When it is written first, keeping
//! it cost a write-protection fault that user space had to answer. So each process's shadows are
//! counted: while most of them end by a write, new ones are kept for one promotion in
//! [`SAMPLE`] only, which is how a change of the program's mind is noticed.

use std::collections::BTreeMap;

use terrace_core::Pid;

/// One promotion in so many keeps a shadow while shadows do not pay.
pub const SAMPLE: u32 = 16;
/// Shadows counted before the first judgement, and after which older ones count half.
const WINDOW: u32 = 128;

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    kept: u32,
    written: u32,
    skipped: u32,
}

/// The accounts.
#[derive(Debug, Default)]
pub struct ShadowWorth {
    by_process: BTreeMap<Pid, Account>,
}

impl ShadowWorth {
    /// Whether the next promoted page of the process shall keep a shadow.
    pub fn keep_next(&mut self, pid: Pid) -> bool {
        let account = self.by_process.entry(pid).or_default();
        if account.kept < WINDOW / 4 || account.written * 2 <= account.kept {
            return true;
        }
        account.skipped += 1;
        account.skipped.is_multiple_of(SAMPLE)
    }

    /// A shadow was kept.
    pub fn kept(&mut self, pid: Pid) {
        let account = self.by_process.entry(pid).or_default();
        account.kept += 1;
        if account.kept >= WINDOW {
            account.kept /= 2;
            account.written /= 2;
        }
    }

    /// A shadow ended by a write.
    pub fn written(&mut self, pid: Pid) {
        let account = self.by_process.entry(pid).or_default();
        account.written = (account.written + 1).min(account.kept);
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

    fn promote(worth: &mut ShadowWorth, times: u32, written: bool) -> u32 {
        let mut kept = 0;
        for _ in 0..times {
            if worth.keep_next(PID) {
                kept += 1;
                worth.kept(PID);
                if written {
                    worth.written(PID);
                }
            }
        }
        kept
    }

    #[test]
    fn a_process_that_writes_keeps_few_and_one_that_reads_keeps_all() {
        let mut worth = ShadowWorth::default();
        assert_eq!(promote(&mut worth, 1000, false), 1000);
        let kept = promote(&mut worth, 10_000, true);
        assert!((10_000 / SAMPLE..1_000).contains(&kept), "{kept}");
        // It reads again: the samples show it.
        promote(&mut worth, 4_000, false);
        assert_eq!(promote(&mut worth, 100, false), 100);
    }
}
