// SPDX-License-Identifier: MIT OR Apache-2.0
//! Before a transaction: looks at the pages, and gets each a frame on its target node.
//!
//! What is seen here can change at once; it only saves work. The kernel decides when the page
//! moves.

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_sys::arena;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;
use terrace_sys::pagemap::PageKind;

use crate::ops::item::Item;
use crate::ops::stage::Kind;
use crate::ops::stage::Source;
use crate::ops::stage::Stage;
use crate::state::agent::Agent;
use crate::state::agent::frame;

/// Pages so near each other, in bytes, are looked at in one call.
const NEAR: u64 = 64 << 10;

impl Agent {
    /// Ends items whose page is not there, is at its target, is not of the size said, or is shared with a child.
    pub(crate) fn look(&self, items: &mut [Item]) {
        self.look_unless(items, |item| {
            (self.many_nodes && item.from == item.order.node).then_some(Outcome::Done)
        });
    }

    /// Ends items whose page is not there, not of the size said or shared with a child, or for which `arrived` says so.
    pub(crate) fn look_unless(
        &self,
        items: &mut [Item],
        arrived: impl Fn(&Item) -> Option<Outcome>,
    ) {
        let addrs: Vec<u64> = items.iter().map(|item| item.order.addr).collect();
        let Ok(statuses) = move_pages::query(Target::Own, &addrs) else {
            return;
        };
        for (item, status) in items.iter_mut().zip(statuses) {
            if !item.is_open() {
                continue;
            }
            match status {
                PageStatus::On(node) => {
                    item.from = node;
                    if let Some(outcome) = arrived(item) {
                        item.end(outcome);
                    }
                }
                PageStatus::Busy => item.end(Outcome::Busy),
                // Never touched, on a swap device, or the page of zeros: nothing to gain.
                _ => item.end(Outcome::Gone),
            }
        }
        self.look_at_sizes(items);
        self.look_for_sharers(items);
    }

    /// Ends items whose page a forked child shares. The kernel refuses to move such a page; copying it first would
    /// give the parent one of its own.
    fn look_for_sharers(&self, items: &mut [Item]) {
        let in_a_row = |one: &Item, next: &Item| {
            one.order.size == PageSize::Base4K && one.order.end() == next.order.addr
        };
        for run in items.chunk_by_mut(in_a_row) {
            let pages = self.pagemap.flags(run[0].order.addr, run.len());
            for (item, page) in run.iter_mut().zip(pages) {
                if item.is_open() && page.present && !page.exclusive {
                    item.end(Outcome::Busy);
                }
            }
        }
    }

    /// One look at the page tables for items that lie near each other.
    fn look_at_sizes(&self, items: &mut [Item]) {
        let mut at = 0;
        while at < items.len() {
            let start = items[at].order.addr;
            let mut end = items[at].order.end();
            let mut behind = at + 1;
            while let Some(next) = items.get(behind)
                && next.order.addr >= start
                && next.order.addr <= end + NEAR
            {
                end = end.max(next.order.end());
                behind += 1;
            }
            let group = &mut items[at..behind];
            let mut fits = vec![false; group.len()];
            let seen = self.pagemap.scan(start, end, |run| {
                for (item, fit) in group.iter().zip(&mut fits) {
                    let inside = (run.start..run.end).contains(&item.order.addr);
                    let PageKind { huge, zero, .. } = run.kind;
                    *fit |= inside && !zero && huge == (item.order.size == PageSize::Huge2M);
                }
            });
            for (item, fit) in group.iter_mut().zip(fits) {
                if !fit || seen.is_err() {
                    item.end(Outcome::NotManaged);
                }
            }
            at = behind;
        }
    }

    /// Gets every open item a frame on its node; without one it ends with `NoMemory`.
    pub(crate) fn stage(&self, items: &mut [Item]) {
        while let Some(first) = items.iter().find(|item| item.is_open()) {
            let (size, node) = (first.order.size, first.order.node);
            let same = |item: &Item| item.is_open() && item.order.node == node;
            let want = items.iter().filter(|item| same(item)).count();
            let mut frames = self.pooled_frames(size, node, want);
            if frames.is_empty() {
                frames = self
                    .fresh_frames(size, node, want as u64)
                    .unwrap_or_default();
            }
            let none = frames.is_empty();
            let mut frames = frames.into_iter();
            for item in items.iter_mut().filter(|item| same(item)) {
                if none {
                    item.end(Outcome::NoMemory);
                } else if let Some(addr) = frames.next() {
                    let kind = Kind::Copied;
                    item.stage = Stage::Staged(Source { addr, kind });
                }
            }
        }
    }

    fn pooled_frames(&self, size: PageSize, node: NodeId, want: usize) -> Vec<u64> {
        let mut state = self.state.lock();
        let mut frames = state.frames.take_pooled(size, node, want);
        if size == PageSize::Huge2M {
            frames.retain(|addr| {
                let whole = self.pagemap.kind(*addr).is_ok_and(|kind| kind.huge);
                if !whole {
                    // Torn on its way: of no use as a whole.
                    state.frames.renew(size, *addr);
                }
                whole
            });
        }
        frames
    }

    /// New pages on the node, at most `want` in a row; `ENOMEM` where it has none.
    fn fresh_frames(&self, size: PageSize, node: NodeId, want: u64) -> Result<Vec<u64>, Errno> {
        let (start, count) = self.state.lock().frames.take_staging(size, node, want)?;
        let bytes = size.bytes();
        let all: Vec<u64> = (0..count).map(|n| start + n * bytes).collect();
        let (populated, touched) = match size {
            PageSize::Base4K => (arena::populate(start, count * bytes), all.len()),
            _ => (Ok(()), self.populate_huge(&all, node)),
        };
        let statuses = move_pages::query(Target::Own, &all).unwrap_or_default();
        let mut good = Vec::new();
        let mut state = self.state.lock();
        for addr in &all[touched..] {
            state.frames.give_empty(size, *addr);
        }
        for (at, addr) in all.iter().enumerate().take(touched) {
            let status = statuses.get(at).copied();
            let whole =
                size == PageSize::Base4K || self.pagemap.kind(*addr).is_ok_and(|kind| kind.huge);
            match status {
                Some(PageStatus::On(on)) if on == node && whole => good.push(*addr),
                // The node is full and another helped out.
                Some(PageStatus::On(on)) if whole && size == PageSize::Base4K => {
                    state.frames.release(size, frame(*addr, on));
                }
                _ if size != PageSize::Base4K => state.frames.renew(size, *addr),
                _ => state.frames.give_empty(size, *addr),
            }
        }
        if good.is_empty() {
            return Err(populated.err().unwrap_or(Errno::NOMEM));
        }
        Ok(good)
    }

    /// Takes in a huge page at each address, up to the first where the node has none; how many were
    /// touched. By their first bytes: where no huge page is to be had, the kernel would fill all of
    /// the range with base pages, to no end.
    fn populate_huge(&self, addrs: &[u64], node: NodeId) -> usize {
        let got = |addr: u64| {
            let there = arena::populate(addr, PageSize::Base4K.bytes());
            there.is_ok()
                && self.pagemap.kind(addr).is_ok_and(|kind| kind.huge)
                && move_pages::query(Target::Own, &[addr])
                    .is_ok_and(|on| on == [PageStatus::On(node)])
        };
        let good = addrs.iter().take_while(|addr| got(**addr)).count();
        addrs.len().min(good + 1)
    }
}
