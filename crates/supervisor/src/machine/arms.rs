// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that agents are to arm: which wait for their turn, which were sent, and whose agents have left. Pure.
//!
//! A policy orders some thousands at once. An agent has half of its orders for them at a time, as moves are to come
//! through beside; the others wait here.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_mover::agent::ORDERS_MAX;
use terrace_policy::Refusal;
use terrace_proto::Outcome;

/// Orders that an agent has at a time, where these are among them.
const AT_ONCE: usize = ORDERS_MAX / 2;
/// Pages that wait; as many as can be looked for.
const WAITING_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Arms {
    waiting: VecDeque<PageRef>,
    sent: BTreeMap<u64, PageRef>,
    left: Vec<Pid>,
}

impl Arms {
    /// One more; `false` where too many wait.
    #[must_use]
    pub fn add(&mut self, page: PageRef) -> bool {
        let room = self.waiting.len() < WAITING_MAX;
        if room {
            self.waiting.push_back(page);
        }
        room
    }

    /// Those that wait, each once; what is not sent is given back by [`Self::add`].
    pub fn take_waiting(&mut self) -> VecDeque<PageRef> {
        std::mem::take(&mut self.waiting)
    }

    /// Whether an agent that has so many orders can have one of these.
    #[must_use]
    pub const fn has_room(open: usize) -> bool {
        open < AT_ONCE
    }

    /// It was sent by that number.
    pub fn sent(&mut self, seq: u64, page: PageRef) {
        self.sent.insert(seq, page);
    }

    /// The page that an agent answers about; none where it was not asked, or another was.
    pub fn answered(&mut self, pid: Pid, seq: u64) -> Option<PageRef> {
        self.sent.get(&seq).filter(|page| page.pid == pid)?;
        self.sent.remove(&seq)
    }

    /// An agent has left: nothing is armed in its process any more.
    pub fn forget(&mut self, pid: Pid) {
        self.waiting.retain(|page| page.pid != pid);
        self.sent.retain(|_, page| page.pid != pid);
        self.left.push(pid);
    }

    /// Whose agents have left since the last call.
    pub fn take_left(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.left)
    }
}

/// What the policy is told where an agent did not arm a page.
#[must_use]
pub const fn refusal(outcome: Outcome) -> Refusal {
    match outcome {
        Outcome::Gone => Refusal::Unknown,
        Outcome::Busy | Outcome::NoMemory => Refusal::Busy,
        Outcome::NotManaged | Outcome::Unavailable => Refusal::Unserved,
        _ => Refusal::Denied,
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Addr;
    use terrace_core::PageSize;

    use super::*;

    fn page(pid: u32, n: u64) -> PageRef {
        PageRef {
            pid: Pid(pid),
            addr: Addr(n << 12),
            size: PageSize::Base4K,
        }
    }

    #[test]
    fn an_agent_answers_for_its_own_pages_and_once() {
        let mut arms = Arms::default();
        arms.sent(5, page(1, 7));
        assert_eq!(arms.answered(Pid(2), 5), None, "not its page");
        assert_eq!(arms.answered(Pid(1), 6), None, "not asked");
        assert_eq!(arms.answered(Pid(1), 5), Some(page(1, 7)));
        assert_eq!(arms.answered(Pid(1), 5), None);
    }

    #[test]
    fn who_leaves_takes_its_pages_along_and_is_told_of_once() {
        let mut arms = Arms::default();
        assert!(arms.add(page(1, 1)) && arms.add(page(2, 2)));
        arms.sent(5, page(1, 3));
        arms.forget(Pid(1));
        assert_eq!(arms.take_waiting(), [page(2, 2)]);
        assert_eq!(arms.answered(Pid(1), 5), None);
        assert_eq!((arms.take_left(), arms.take_left()), (vec![Pid(1)], vec![]));
    }

    #[test]
    fn orders_do_not_pile_up_without_end() {
        let mut arms = Arms::default();
        let taken = (0..WAITING_MAX as u64 + 9).filter(|n| arms.add(page(1, *n)));
        assert_eq!(taken.count(), WAITING_MAX);
        assert!(Arms::has_room(0) && !Arms::has_room(ORDERS_MAX));
    }
}
