// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which fast pages to demote: the coldest first.
//!
//! The paper takes them from the tail of the kernel's inactive list. User space has no such list; it
//! has each page's hint faults. A page that is armed once a pass faults once a pass, however hot it
//! is; so the time since its last fault says little, until the page was armed after it and not
//! touched for some time ([`Pages::armed`] says when, chunk by chunk). Before that, the idle time that
//! the fault captured is what is known ([`idle`]).
//!
//! Order: the coldest first, to the class of idle time; of equally cold pages those with a shadow
//! first, since they cost no copy (3.2); the rest always in the same order, which is not promised.
//!
//! A list of [`ENOUGH`] is made when the last one has run out, at most four times a pass, by a
//! search of bounded work: each chunk of 2 MiB has a bound of how cold its pages can be
//! ([`Pages::ranks`]). The chunks with the coldest bounds are looked into, [`LOOKS`] at most, which
//! makes their bounds exact, until what was found is at least as cold as anything elsewhere can be.
//! Where that takes more looks, the list is shorter or empty, and the next search, [`AGAIN`] later,
//! goes on with sharper bounds.

use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;

use crate::pages::Armed;
use crate::pages::Meta;
use crate::pages::Pages;
use crate::pages::Place;
use crate::pages::Rank;
use crate::pages::State;
use crate::pages::class_idle;
use crate::pages::idle_class;

/// How the tracker arms.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// A page that was armed so long ago, and not touched since, is not in use.
    pub hold: Nanos,
    /// How long a pass takes now.
    pub period: Nanos,
}

/// How long a page has been idle. What was armed after it was last touched, and was not touched
/// since, has been idle for half of the time since that touch on the average. Of others the idle time that their last
/// fault captured is known. Of what has never faulted nothing is: it is taken for a little colder
/// than a page in use.
pub(crate) fn idle(meta: &Meta, armed: Armed, now: Nanos, pass: Pass) -> Nanos {
    let captured = match meta.idle_class {
        u8::MAX => pass.unknown(),
        class => class_idle(class),
    };
    idle_of(meta.last_ref(), captured, armed, now, pass)
}

impl Pass {
    const fn unknown(self) -> Nanos {
        Nanos(self.hold.0 * 2)
    }
}

/// Pages of a list.
const ENOUGH: usize = 4096;
/// Chunks looked into by one search: 4 MiB of metadata.
const LOOKS: usize = 1024;
/// An unfinished search goes on after so long. It looks into 2 GiB of base pages each time: without a
/// pause a full node of many gigabytes would keep the supervisor busy with nothing else.
const AGAIN: Nanos = Nanos::from_millis(20);
/// A class of idle time, and whether there is a shadow.
const KEYS: usize = 512;

/// How soon a page goes: the higher the sooner.
fn key(idle: Nanos, shadow: bool) -> usize {
    usize::from(idle_class(Some(idle))) * 2 + usize::from(shadow)
}

fn idle_of(last_ref: Nanos, captured: Nanos, armed: Armed, now: Nanos, pass: Pass) -> Nanos {
    if last_ref < armed.settled(now, pass.hold) {
        Nanos(now.since(last_ref).0 / 2).max(captured)
    } else {
        captured
    }
}

/// Candidates for demotion from one node, made at some time.
#[derive(Debug)]
struct List {
    node: NodeId,
    queue: VecDeque<PageRef>,
    made: Option<Nanos>,
    /// The search stopped for its bound of work or of places: there is more to find.
    unfinished: bool,
}

/// Candidates for demotion.
#[derive(Debug, Default)]
pub struct Victims {
    lists: Vec<List>,
    asked: usize,
}

impl Victims {
    /// Drops the lists: ages have changed.
    pub fn clear(&mut self) {
        for list in &mut self.lists {
            list.queue.clear();
        }
    }

    /// The coldest page that is still on the node and in no queue, with its idle time.
    pub fn coldest(
        &mut self,
        now: Nanos,
        pass: Pass,
        pages: &mut Pages,
        on: NodeId,
    ) -> Option<(PageRef, Nanos)> {
        self.asked = self
            .lists
            .iter()
            .position(|list| list.node == on)
            .unwrap_or_else(|| {
                self.lists.push(List {
                    node: on,
                    queue: VecDeque::new(),
                    made: None,
                    unfinished: false,
                });
                self.lists.len() - 1
            });
        let list = &mut self.lists[self.asked];
        if let Some(found) = list.first(now, pass, pages) {
            return Some(found);
        }
        let pause = if list.unfinished {
            AGAIN
        } else {
            Nanos(pass.period.0 / 4)
        };
        if list.made.is_some_and(|made| now.since(made) < pause) {
            return None;
        }
        list.search(now, pass, pages);
        list.first(now, pass, pages)
    }

    /// Takes the page that `coldest` gave.
    pub fn take(&mut self) {
        if let Some(list) = self.lists.get_mut(self.asked) {
            list.queue.pop_front();
        }
    }
}

impl List {
    /// The first that is as it was when the list was made.
    fn first(&mut self, now: Nanos, pass: Pass, pages: &Pages) -> Option<(PageRef, Nanos)> {
        let made = self.made?;
        while let Some(&page) = self.queue.front() {
            match pages.get(page) {
                Some(m)
                    if m.state == State::Idle
                        && m.node() == Some(self.node)
                        && m.last_ref() <= made =>
                {
                    return Some((page, idle(m, pages.armed_of(page), now, pass)));
                }
                _ => self.queue.pop_front(),
            };
        }
        None
    }

    fn search(&mut self, now: Nanos, pass: Pass, pages: &mut Pages) {
        self.made = Some(now);
        self.queue.clear();
        let bound = |rank: &Rank, armed: Armed| {
            let known = class_idle(rank.coldest());
            let captured = if rank.unknown() {
                known.max(pass.unknown())
            } else {
                known
            };
            let idle = idle_of(rank.oldest(), captured, armed, now, pass);
            key(idle, rank.shadow())
        };
        let (mut chunks, beyond) = coldest_chunks(pages, self.node, bound);
        chunks.sort_by_key(|(bound, _)| std::cmp::Reverse(*bound));

        // Look until enough pages are as cold as any that were not looked at can be.
        let mut found = [0_usize; KEYS];
        let (mut certain, mut level) = (0, KEYS);
        let mut looked = 0;
        for (bound_then, place) in &mut chunks {
            if *bound_then < level {
                certain += found[*bound_then..level].iter().sum::<usize>();
                level = *bound_then;
            }
            if certain >= ENOUGH {
                break;
            }
            let armed = pages.armed_at(*place);
            let rank = pages.look(*place, self.node, |meta| {
                if meta.state == State::Idle {
                    let key = key(idle(meta, armed, now, pass), meta.shadow());
                    found[key] += 1;
                    certain += usize::from(key >= level);
                }
            });
            looked += 1;
            *bound_then = bound(&rank, armed);
        }
        let next = chunks.get(looked).map(|(bound, _)| *bound).or(beyond);
        chunks.truncate(looked);
        let (mut floor, mut count) = (KEYS - 1, found[KEYS - 1]);
        while floor > next.unwrap_or(0) && count < ENOUGH {
            floor -= 1;
            count += found[floor];
        }
        self.unfinished = count < ENOUGH && next.is_some();
        self.take_from(&chunks, floor, now, pass, pages);
        // A full list is no reason to wait when it has been used up: there are more like these.
        self.unfinished |= self.queue.len() == ENOUGH;
    }

    fn take_from(
        &mut self,
        chunks: &[(usize, Place)],
        floor: usize,
        now: Nanos,
        pass: Pass,
        pages: &Pages,
    ) {
        let mut found = Vec::new();
        for (_, place) in chunks.iter().filter(|(bound, _)| *bound >= floor) {
            let armed = pages.armed_at(*place);
            for (page, meta) in pages.chunk(*place) {
                if meta.state == State::Idle && meta.node() == Some(self.node) {
                    let key = key(idle(meta, armed, now, pass), meta.shadow());
                    if key >= floor {
                        found.push((std::cmp::Reverse(key), page));
                    }
                }
            }
        }
        found.sort_unstable();
        found.truncate(ENOUGH);
        self.queue.extend(found.into_iter().map(|(_, page)| page));
    }
}

/// The chunks with the coldest bounds, [`LOOKS`] at most, in the order of addresses, and the
/// coldest bound that is not among them.
fn coldest_chunks(
    pages: &Pages,
    node: NodeId,
    bound: impl Fn(&Rank, Armed) -> usize,
) -> (Vec<(usize, Place)>, Option<usize>) {
    let mut counts = [0_usize; KEYS];
    for (place, rank) in pages.ranks(node) {
        counts[bound(rank, pages.armed_at(place))] += 1;
    }
    let mut floor = KEYS;
    let mut room = LOOKS;
    while floor > 0 && room > 0 {
        floor -= 1;
        room = room.saturating_sub(counts[floor]);
    }
    let above: usize = counts[floor + 1..].iter().sum();
    let mut of_floor = LOOKS - above;
    let mut chunks = Vec::new();
    for (place, rank) in pages.ranks(node) {
        let bound = bound(rank, pages.armed_at(place));
        if bound > floor {
            chunks.push((bound, place));
        } else if bound == floor && of_floor > 0 {
            of_floor -= 1;
            chunks.push((bound, place));
        }
    }
    let left_at_floor = above + counts[floor] > LOOKS;
    let below = if left_at_floor {
        Some(floor)
    } else {
        counts[..floor].iter().rposition(|count| *count > 0)
    };
    (chunks, below)
}

#[cfg(test)]
mod tests;
