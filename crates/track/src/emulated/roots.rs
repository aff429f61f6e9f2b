// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose samples are whose: page-table roots and the processes they belong to. Pure: the caller asks
//! the kernel where this says so.
//!
//! The emulator sees a processor's page-table root, not a process. A root is enrolled once: of a
//! sample with an unknown root, each tracked process is asked whether that virtual address is that
//! physical one in it, as a page of its own; the one that confirms has the root. One sample in
//! [`SPOT_CHECK`] of an enrolled root is checked the same way. A check fails rightly where the page has moved
//! since, so one failure means nothing; [`MISMATCHES`] in a row, and the root's process is asked for
//! anew: the kernel has given the root's page to somebody else.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::Pid;

/// One in so many samples of an enrolled root is checked against the page map.
pub const SPOT_CHECK: u32 = 16;
/// So many failed checks in a row end an enrolment.
pub const MISMATCHES: u32 = 8;
/// How long a root that nobody claimed is left alone, at first; twice as long each time, up to
/// [`PATIENCE_MAX`].
const PATIENCE: Nanos = Nanos::from_millis(20);
const PATIENCE_MAX: Nanos = Nanos::from_secs(2);
/// Roots remembered; of more, those nobody claimed are forgotten.
const ROOTS_MAX: usize = 1024;

/// What to do with a sample of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// It is this process's.
    Of(Pid),
    /// It is this process's; check it, and tell by [`Roots::checked`].
    Check(Pid),
    /// Ask all tracked processes, and tell by [`Roots::enrol`] or [`Roots::refused`].
    Whose,
    /// Nobody's we track.
    Foreign,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Enrolled {
        pid: Pid,
        until_check: u32,
        failed: u32,
    },
    Foreign {
        until: Nanos,
        patience: Nanos,
    },
}

/// The roots seen.
#[derive(Debug, Default)]
pub struct Roots {
    roots: BTreeMap<u64, State>,
}

impl Roots {
    /// A sample with that root came.
    pub fn ask(&mut self, root: u64, now: Nanos) -> Ask {
        match self.roots.get_mut(&root) {
            None => Ask::Whose,
            Some(State::Foreign { until, .. }) if now < *until => Ask::Foreign,
            Some(State::Foreign { .. }) => Ask::Whose,
            Some(State::Enrolled {
                pid, until_check, ..
            }) => {
                *until_check -= 1;
                if *until_check > 0 {
                    return Ask::Of(*pid);
                }
                *until_check = SPOT_CHECK;
                Ask::Check(*pid)
            }
        }
    }

    /// This process confirmed a sample with that root. Gives the roots it had before: it has
    /// another address space now.
    pub fn enrol(&mut self, root: u64, pid: Pid) -> usize {
        let before = self.roots.len();
        self.roots.retain(|known, state| {
            *known == root || !matches!(state, State::Enrolled { pid: of, .. } if *of == pid)
        });
        let replaced = before - self.roots.len();
        self.roots.insert(
            root,
            State::Enrolled {
                pid,
                until_check: SPOT_CHECK,
                failed: 0,
            },
        );
        replaced
    }

    /// No tracked process confirmed a sample with that root.
    pub fn refused(&mut self, root: u64, now: Nanos) {
        if self.roots.len() >= ROOTS_MAX {
            self.roots
                .retain(|_, state| matches!(state, State::Enrolled { .. }));
        }
        let patience = match self.roots.get(&root) {
            Some(State::Foreign { patience, .. }) => Nanos((patience.0 * 2).min(PATIENCE_MAX.0)),
            _ => PATIENCE,
        };
        let until = now + patience;
        self.roots.insert(root, State::Foreign { until, patience });
    }

    /// How a check of an enrolled root went. Gives whether it is enrolled still.
    pub fn checked(&mut self, root: u64, confirmed: bool) -> bool {
        let Some(State::Enrolled { failed, .. }) = self.roots.get_mut(&root) else {
            return false;
        };
        *failed = if confirmed { 0 } else { *failed + 1 };
        if *failed >= MISMATCHES {
            self.roots.remove(&root);
            return false;
        }
        true
    }

    /// A process came: what nobody claimed may be its.
    pub fn came(&mut self) {
        self.roots
            .retain(|_, state| matches!(state, State::Enrolled { .. }));
    }

    /// A process went.
    pub fn went(&mut self, pid: Pid) {
        self.roots
            .retain(|_, state| !matches!(state, State::Enrolled { pid: of, .. } if *of == pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(10);
    const A: Pid = Pid(7);
    const B: Pid = Pid(8);

    #[test]
    fn one_sample_in_sixteen_is_checked() {
        let mut roots = Roots::default();
        assert_eq!(roots.ask(1, NOW), Ask::Whose);
        assert_eq!(roots.enrol(1, A), 0);
        let asked: Vec<Ask> = (0..160).map(|_| roots.ask(1, NOW)).collect();
        assert_eq!(
            asked.iter().filter(|ask| **ask == Ask::Check(A)).count(),
            10
        );
        assert_eq!(asked.iter().filter(|ask| **ask == Ask::Of(A)).count(), 150);
    }

    #[test]
    fn failures_in_a_row_end_an_enrolment_and_single_ones_do_not() {
        let mut roots = Roots::default();
        roots.enrol(1, A);
        for _ in 0..10 {
            for _ in 1..MISMATCHES {
                assert!(roots.checked(1, false));
            }
            assert!(roots.checked(1, true));
        }
        for left in (0..MISMATCHES).rev() {
            assert_eq!(roots.checked(1, false), left > 0);
        }
        assert_eq!(roots.ask(1, NOW), Ask::Whose);
        assert!(!roots.checked(1, true), "not enrolled any more");
    }

    #[test]
    fn what_nobody_claims_is_asked_for_ever_less_often() {
        let mut roots = Roots::default();
        let mut asked = 0;
        for ms in 0..10_000 {
            let now = NOW + Nanos::from_millis(ms);
            if roots.ask(1, now) == Ask::Whose {
                asked += 1;
                roots.refused(1, now);
            }
        }
        assert!((8..16).contains(&asked), "{asked}");
        roots.came();
        assert_eq!(roots.ask(1, NOW), Ask::Whose);
    }

    #[test]
    fn a_process_has_one_root_and_loses_it_with_its_end() {
        let mut roots = Roots::default();
        roots.enrol(1, A);
        roots.enrol(2, B);
        assert_eq!(roots.enrol(3, A), 1, "an exec");
        assert_eq!(roots.ask(1, NOW), Ask::Whose);
        assert_eq!(roots.ask(3, NOW), Ask::Of(A));
        roots.went(A);
        assert_eq!(roots.ask(3, NOW), Ask::Whose);
        assert_eq!(roots.ask(2, NOW), Ask::Of(B));
    }

    #[test]
    fn foreign_roots_do_not_pile_up() {
        let mut roots = Roots::default();
        roots.enrol(1 << 40, A);
        for root in 0..5_000 {
            roots.refused(root, NOW);
        }
        assert!(roots.roots.len() <= ROOTS_MAX + 1);
        assert_eq!(roots.ask(1 << 40, NOW), Ask::Of(A));
    }
}
