// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is migrated at the end of an interval, and where to (6).
//!
//! Over all regions of all tiers, the hottest bucket first: a region goes straight to the fastest tier of its
//! accessors that has room, or in which colder buckets make some. So once the hottest are all in the fastest tier,
//! the next go to the second, and so on. At most `N` bytes are promoted; of a region that is larger, a part.
//!
//! Who makes room is in the coldest buckets of that tier, always of a bucket below; it goes to the next tier down
//! that has room. Nothing in the coldest bucket of all is promoted.

use std::collections::BTreeMap;

use terrace_core::CHUNK_BYTES;
use terrace_core::NodeId;
use terrace_core::Pid;

use super::histogram::Histogram;
use super::regions::Region;
use super::views::Views;
use crate::event::Migration;
use crate::kit::FreeMemory;
use crate::kit::free_memory::HIGH;

/// A range that is to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) pid: Pid,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) from: NodeId,
    pub(super) migration: Migration,
    /// Base pages alone map it: each is ordered by itself.
    pub(super) base: bool,
}

/// What a plan is made of.
pub(super) struct Planner<'a> {
    pub(super) regions: &'a [(Pid, &'a Region)],
    pub(super) views: &'a Views,
    pub(super) memory: &'a FreeMemory,
    pub(super) histogram: &'a Histogram,
    /// Whether a range has orders under way.
    pub(super) busy: &'a dyn Fn(Pid, &Region) -> bool,
}

/// What a planner makes.
#[derive(Debug)]
pub(super) struct Plan {
    /// In order: who makes room before whom it is for.
    pub(super) moves: Vec<Move>,
    /// What it took to make it, bytes.
    pub(super) bytes: u64,
}

/// Victims of a node, the coldest first: those that are left, and where the first of them has come to.
#[derive(Debug, Default)]
struct Victims {
    order: Vec<(usize, u32)>,
    next: usize,
    /// Bytes of the next one that go already.
    taken: u64,
}

/// A plan in the making.
struct State {
    room: BTreeMap<NodeId, u64>,
    victims: BTreeMap<NodeId, Victims>,
    moves: Vec<Move>,
    /// By region: it is in the plan.
    planned: Vec<bool>,
}

impl State {
    fn bytes(&self) -> u64 {
        let victims = self.victims.values().map(|of| of.order.capacity());
        let victims = victims.sum::<usize>() * size_of::<(usize, u32)>();
        let moves = self.moves.capacity() * size_of::<Move>();
        (victims + moves + self.planned.capacity()) as u64
    }
}

impl Planner<'_> {
    /// Of so many bytes that are promoted at most.
    pub(super) fn plan(&self, promote_bytes: u64) -> Plan {
        let mut state = self.start();
        let mut left = promote_bytes;
        for (bucket, index) in self.histogram.hottest() {
            if bucket == 0 || left < CHUNK_BYTES.min(promote_bytes) {
                break;
            }
            let (pid, region) = self.regions[index as usize];
            let Some(from) = region.node else { continue };
            if state.planned[index as usize] || (self.busy)(pid, region) {
                continue;
            }
            let wanted = part(region, region.start, left);
            let view = self.views.of(region);
            for to in view.faster(from) {
                let bytes = self.make_room(&mut state, to, wanted, bucket);
                let bytes = part(region, region.start, bytes);
                if bytes == 0 {
                    continue;
                }
                if let Some(room) = state.room.get_mut(&to) {
                    *room -= bytes;
                }
                state.planned[index as usize] = true;
                state.moves.push(Move {
                    pid,
                    start: region.start,
                    end: region.start + bytes,
                    from,
                    migration: Migration::Promote {
                        to,
                        keep_shadow: false,
                    },
                    base: region.mapped == super::regions::Mapped::Base,
                });
                left -= bytes;
                break;
            }
        }
        Plan {
            bytes: self.bytes() + state.bytes(),
            moves: state.moves,
        }
    }

    fn bytes(&self) -> u64 {
        size_of_val(self.regions) as u64 + self.histogram.bytes()
    }

    fn start(&self) -> State {
        let nodes = self.views.nodes();
        let room = nodes.iter().map(|id| (*id, self.memory.room(*id, HIGH)));
        let mut victims: BTreeMap<NodeId, Victims> = BTreeMap::new();
        for (bucket, index) in self.histogram.coldest() {
            let (pid, region) = self.regions[index as usize];
            if let Some(node) = region.node
                && !(self.busy)(pid, region)
            {
                victims.entry(node).or_default().order.push((bucket, index));
            }
        }
        State {
            room: room.collect(),
            victims,
            moves: Vec::new(),
            planned: vec![false; self.regions.len()],
        }
    }

    /// Makes room on a node for so many bytes of a bucket; gives how many of them there are.
    fn make_room(&self, state: &mut State, on: NodeId, bytes: u64, bucket: usize) -> u64 {
        let mut room = state.room.get(&on).copied().unwrap_or(0);
        while room < bytes {
            let Some(victims) = state.victims.get_mut(&on) else {
                break;
            };
            let Some((colder, index)) = victims.order.get(victims.next).copied() else {
                break;
            };
            if colder >= bucket {
                break;
            }
            let (pid, region) = self.regions[index as usize];
            let (start, taken) = (region.start + victims.taken, victims.taken);
            if taken == 0 && state.planned[index as usize] || start >= region.end {
                victims.next += 1;
                victims.taken = 0;
                continue;
            }
            let goes = part(region, start, (bytes - room).max(CHUNK_BYTES));
            let view = self.views.of(region);
            let mut below = view.slower(on);
            let Some(to) = below.find(|id| state.room.get(id).is_some_and(|room| *room >= goes))
            else {
                break;
            };
            victims.taken += goes;
            state.planned[index as usize] = true;
            *state.room.entry(to).or_default() -= goes;
            room += goes;
            state.room.insert(on, room);
            state.moves.push(Move {
                pid,
                start,
                end: start + goes,
                from: on,
                migration: Migration::Demote { to },
                base: region.mapped == super::regions::Mapped::Base,
            });
        }
        room.min(bytes)
    }
}

/// Bytes of a region from an address on that may go, of so many: all, or up to a boundary of 2 MiB; of base pages
/// within 2 MiB, whole pages.
fn part(region: &Region, start: u64, bytes: u64) -> u64 {
    let all = region.end.saturating_sub(start);
    if bytes >= all {
        return all;
    }
    let end = (start + bytes) & !(CHUNK_BYTES - 1);
    if end > start {
        end - start
    } else if region.mapped == super::regions::Mapped::Base {
        bytes & !4095
    } else {
        0
    }
}
