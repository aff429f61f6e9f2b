// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages to another node by the kernel's own migration, and copies of them as shadows.
//!
//! Problem: a page that is out of place is one that the kernel itself cannot wait for, where it writes a
//! thread's exit word, a priority-inheriting futex, or for a debugger. The kernel's migration has no such
//! moment: whoever wants the page waits, the kernel included. It gives the old frame away, though, which Nomad
//! keeps as the shadow (3.2).
//!
//! Approach: move_pages(2), many pages a call. Then, while everybody goes on, each page that is to have a
//! shadow is write-protected, copied to a frame on the node it came from, and if nobody wrote it meanwhile,
//! that is its shadow. The frame is marked as one that the kernel may take back ([`Agent::add_shadow`]):
//! shadows are the first to go when a node or a cgroup is short of memory.
//!
//! Shadows are of base pages: a write to a protected huge page would split its mapping.

use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;

use crate::ops::item::Item;
use crate::ops::item::Order;
use crate::ops::item::Wish;
use crate::ops::stage::Stage;
use crate::state::agent::Agent;
use crate::state::agent::State;
use crate::state::agent::frame;
use crate::state::ranges::For;

const BASE: u64 = PageSize::Base4K.bytes();
/// Shadows that one review looks at, at most.
const REVIEWED: usize = 4096;

impl Agent {
    /// Runs a batch; afterwards each item has an outcome.
    pub(crate) fn migrate_by_kernel(&self, items: &mut [Item]) {
        items.sort_unstable_by_key(|item| (item.order.node, item.order.addr));
        self.look(items);
        let mut open: Vec<&mut Item> = items.iter_mut().filter(|item| item.is_open()).collect();
        for group in open.chunk_by_mut(|a, b| a.order.node == b.order.node) {
            self.let_kernel_move(group);
        }
        self.keep_shadows_of(open);
    }

    /// One call for all pages of a node.
    fn let_kernel_move(&self, items: &mut [&mut Item]) {
        {
            // A shadow is of the node that its page leaves.
            let mut state = self.state.lock();
            for item in items.iter() {
                self.drop_shadows(&mut state, item.order.addr, item.order.end());
            }
        }
        let addrs: Vec<u64> = items.iter().map(|item| item.order.addr).collect();
        let node = items[0].order.node;
        match move_pages::migrate(Target::Own, &addrs, node, Sharing::OwnOnly) {
            Ok(statuses) => {
                for (item, status) in items.iter_mut().zip(statuses) {
                    item.end(outcome(node, status));
                }
            }
            Err(errno) => items.iter_mut().for_each(|item| item.end(errno)),
        }
    }

    /// Copies the pages that are to have a shadow; one that cannot have it has moved all the same.
    fn keep_shadows_of(&self, mut moved: Vec<&mut Item>) {
        moved.retain(|item| {
            item.order.wish == Wish::KeepShadow && item.outcome() == Some(Outcome::Done)
        });
        for item in &mut moved {
            item.stage = Stage::Ended(Outcome::DoneShadowStale.into());
        }
        moved.retain(|item| self.can_have_shadow(&item.order));
        let mut copies: Vec<Item> = moved.iter().map(|item| copy_of(item)).collect();
        self.stage(&mut copies);
        self.begin(&mut copies, For::Writes);
        self.copy(&mut copies);
        self.settle_copies(&mut copies);
        for (item, copy) in moved.into_iter().zip(copies) {
            if copy.outcome() == Some(Outcome::Done) {
                item.stage = copy.stage;
            }
        }
    }

    /// A copy of a page that nobody wrote since it was protected is its shadow.
    fn settle_copies(&self, copies: &mut [Item]) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.settle_dirty(state, copies);
        self.settle_written(state, copies);
        for copy in copies {
            let node = copy.order.node;
            copy.step(|stage| {
                let Stage::Admitted(page) = stage else {
                    return stage;
                };
                if let Some(entry) = state.pages.end(page.id) {
                    let shadow = frame(page.source.give_away(), node);
                    self.add_shadow(state, entry.addr, shadow);
                }
                Stage::Ended(Outcome::Done.into())
            });
        }
    }

    /// Drops some of the shadows whose page was written or whose frame the kernel took back: from
    /// `from` on; where to go on.
    pub(crate) fn review_shadows(&self, state: &mut State, from: u64) -> u64 {
        let some: Vec<(u64, u64)> = state.shadows.starting_at(from).take(REVIEWED).collect();
        let mut stale: Vec<u64> = Vec::new();
        for run in some.chunk_by(|(one, _), (next, _)| *next == one + BASE) {
            let flags = self.pagemap.flags(run[0].0, run.len());
            let unprotected = run
                .iter()
                .zip(flags)
                .filter(|(_, f)| !f.present || !f.write_protected);
            stale.extend(unprotected.map(|((page, _), _)| page));
        }
        let mut frames = some.clone();
        frames.sort_unstable_by_key(|(_, frame)| *frame);
        for run in frames.chunk_by(|(_, one), (_, next)| *next == one + BASE) {
            let flags = self.pagemap.flags(run[0].1, run.len());
            let taken = run.iter().zip(flags).filter(|(_, f)| !f.present);
            stale.extend(taken.map(|((page, _), _)| page));
        }
        for page in stale {
            self.drop_shadows(state, page, page + BASE);
        }
        match some.last() {
            Some((page, _)) if some.len() == REVIEWED => page + BASE,
            _ => 0,
        }
    }
}

/// A copy of a page that has moved, to the node that it came from.
fn copy_of(item: &Item) -> Item {
    Item::new(Order {
        node: item.from,
        wish: Wish::Move,
        ..item.order
    })
}

fn outcome(target: NodeId, status: PageStatus) -> Outcome {
    match status {
        PageStatus::On(node) if node == target => Outcome::Done,
        PageStatus::On(_) | PageStatus::Busy | PageStatus::Untried => Outcome::Busy,
        PageStatus::NotPresent | PageStatus::NotMapped => Outcome::Gone,
        PageStatus::NoMemory => Outcome::NoMemory,
        PageStatus::SharedByProcesses | PageStatus::Other(_) => Outcome::NotManaged,
    }
}
