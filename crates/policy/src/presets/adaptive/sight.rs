// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory as it is seen from where a page is accessed: what a read of each place takes, and which are the fastest.

use terrace_core::NodeId;

use super::accessors::ALL;
use super::accessors::Accessor;
use super::census::Census;
use super::latencies;
use super::latencies::Latencies;
use super::latencies::Reads;
use super::places::PLACES;
use super::places::Place;
use super::places::Places;

/// From one socket, or in the mean from all.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sight {
    /// What a read takes, by place.
    pub(super) reads: Reads,
    /// Which places are the fastest.
    fastest: [bool; PLACES],
}

impl Sight {
    pub(super) fn new(reads: Reads, places: &Places) -> Self {
        let (least, _) = latencies::ends(&reads, places);
        Self {
            reads,
            fastest: reads.map(|read| latencies::alike(read, least)),
        }
    }

    /// What an access saves at `to` that is served at `from` now, ns; less than 0 where it takes longer there.
    pub(super) fn saved_ns(&self, from: Place, to: Place) -> f64 {
        self.reads[from] - self.reads[to]
    }

    /// Whether no place is faster.
    pub(super) const fn is_fastest(&self, place: Place) -> bool {
        self.fastest[place]
    }

    /// Of these pages, those where no place is faster, base pages.
    pub(super) fn on_fastest(&self, pages: &Census) -> u64 {
        let places = pages.0.iter().flat_map(|size| size.iter().enumerate());
        let fast = places.filter(|(place, _)| self.is_fastest(*place));
        fast.map(|(_, pages)| pages.iter().sum::<u64>()).sum()
    }
}

/// A process's sights: the mean of where it may run, and where that is more than one socket each of them.
#[derive(Debug, Clone)]
pub(super) struct Sights(Vec<Sight>);

impl Sights {
    /// Of who runs on the processors of that node, or of several.
    pub(super) fn new(latencies: &Latencies, places: &Places, runs_on: Option<NodeId>) -> Self {
        let all = latencies.by_accessor(places, runs_on).into_iter();
        Self(all.map(|reads| Sight::new(reads, places)).collect())
    }

    /// As most of a page's accesses see it.
    pub(super) fn of(&self, accessor: Accessor) -> &Sight {
        let own = self.0.get(usize::from(accessor));
        own.unwrap_or(&self.0[usize::from(ALL)])
    }

    /// Whether sockets see it otherwise than their mean does.
    pub(super) fn differ(&self) -> bool {
        let mean = self.of(ALL).reads;
        let differs = |(own, mean): (&f64, &f64)| !latencies::alike(*own, *mean);
        self.0
            .iter()
            .any(|one| one.reads.iter().zip(&mean).any(differs))
    }
}
