// SPDX-License-Identifier: MIT OR Apache-2.0
//! What moves have brought a process against what they took: it may owe a little, and what it earned.
//!
//! ```text
//! earned' = earned + (gain - loss of all * taken / taken by all) * time            ([`super::away`])
//! spent'  = spent + c for a page that comes into room, 2 c for one that changes places with another
//! may     = once + 1 % of its processor time + earned - spent            ns, what its next moves may take
//! once    = c for each of its pages
//! ```
//!
//! Moving each page once takes about as long as its first touch took the program, or less. Who takes room pays for the moves, and for what they lose who
//! gave it, so an unfriendly program stops alone. All of it fades as far back as savings count ahead: what was earned yesterday cannot be lost today.
//!
//! What it cannot bound is what is lost when pages that went down are asked for: that takes no move. It counts, and until
//! it is paid off pages go up only to where they first were. What a program loses to reading is the pace's ([`super::pace`]).

use super::away::Brings;
use super::select::Group;
use super::select::best_first;
use super::select::bringing;

/// Of the processor time, what may be owed.
const SHARE: f64 = 0.01;

/// The account of one process, ns.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Ledger {
    pub(super) earned: f64,
    pub(super) spent: f64,
    ran: f64,
}

impl Ledger {
    /// So much time went by, s, in which it ran on so many processors, and its own pages and those of all processes brought so much; what was
    /// before keeps so much of its weight.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    pub(super) fn settle(
        &mut self,
        (seconds, runs): (f64, f64),
        [own, all]: [Brings; 2],
        keep: f64,
    ) {
        let part = own.taken as f64 / all.taken.max(1) as f64;
        let came = (own.gain - all.loss * part) * seconds;
        self.earned = self.earned * keep + came;
        self.spent *= keep;
        self.ran = self.ran * keep + seconds * 1e9 * runs;
    }

    /// What its moves may take now, ns, where it may owe so much once.
    pub(super) fn may(&self, once: f64) -> f64 {
        once + SHARE * self.ran + self.earned - self.spent
    }

    /// A move is ordered that takes so long.
    pub(super) fn spend(&mut self, ns: f64) {
        self.spent += ns;
    }
}

/// Leaves of a process's pages that may go up those that moves may take so long for, who gain most first; so many come into room.
#[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
pub(super) fn afford(groups: &mut [Group], may: f64, mut room: u64) {
    let mut may = may.max(0.0);
    for index in best_first(groups) {
        let Group { pages, cost, .. } = groups[index];
        let into_room = bringing(pages.min(room), cost, may);
        may -= into_room as f64 * cost;
        let swapped = bringing(pages - into_room, 2.0 * cost, may);
        may -= swapped as f64 * 2.0 * cost;
        room -= into_room;
        groups[index].pages = into_room + swapped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONCE: f64 = 3e8;

    const fn brings(gain: f64, loss: f64, taken: u64) -> Brings {
        Brings { gain, loss, taken }
    }

    #[test]
    fn who_takes_room_pays_for_what_others_lose() {
        let (takes, gives) = (brings(5e6, 0.0, 300), brings(0.0, 2e6, 0));
        let (mut one, mut other) = (Ledger::default(), Ledger::default());
        let all = takes.and(gives);
        one.settle((10.0, 1.0), [takes, all], 1.0);
        other.settle((10.0, 1.0), [gives, all], 1.0);
        assert!((one.earned - 3e7).abs() < 1e-3, "{one:?}");
        assert!(other.earned.abs() < 1e-3, "{other:?}");
    }

    #[test]
    fn what_was_owed_once_comes_back_and_what_was_earned_goes() {
        let mut one = Ledger::default();
        one.spend(2.9e8);
        assert!((one.may(ONCE) - 1e7).abs() < 1e-3, "{one:?}");
        one.earned = 1e12;
        for _ in 0..100 {
            one.settle((100.0, 0.0), [Brings::default(); 2], 0.5);
        }
        assert!((one.may(ONCE) - ONCE).abs() < 1.0, "{one:?}");
    }

    #[test]
    fn who_gains_most_is_afforded_first() {
        let group = |place: f64| Group {
            pages: 10,
            place,
            cost: 3.0,
            ..Group::default()
        };
        let mut groups = [group(50.0), group(90.0), group(70.0)];
        afford(&mut groups, 100.0, 12);
        // 12 come into room for 36, 10 change places for 60.
        assert_eq!(groups.map(|group| group.pages), [2, 10, 10]);
        afford(&mut groups, -1.0, 12);
        assert_eq!(groups.map(|group| group.pages), [0; 3]);
    }

    proptest! {
        /// Whatever comes: who orders no move that takes more than it may never owes more than a little.
        #[test]
        fn it_never_spends_what_it_has_not(
            steps in prop::collection::vec((0.0_f64..20.0, 0.0_f64..64.0, 0.0_f64..1e9, prop::collection::vec(0.0_f64..1e7, 0..40)), 1..60),
            keep in 0.5_f64..=1.0,
        ) {
            let mut one = Ledger::default();
            // What is owed at most, and what came and went since the beginning.
            let (mut ran, mut gained, mut spent) = (0.0, 0.0, 0.0);
            for (seconds, runs, gain, moves) in steps {
                one.settle((seconds, runs), [brings(gain, 0.0, 1); 2], keep);
                ran += seconds * runs * 1e9;
                gained += gain * seconds;
                for ns in moves {
                    if ns <= one.may(ONCE) {
                        one.spend(ns);
                        spent += ns;
                    }
                    prop_assert!(one.spent <= ONCE + 0.01 * one.ran + one.earned + 1.0);
                }
                if keep == 1.0 {
                    prop_assert!(spent <= ONCE + 0.01 * ran + gained + 1.0);
                }
            }
        }
    }
}
