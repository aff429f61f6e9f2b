// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many accesses may change sides at once where these are loaded, so that reads come to take as long on both: Colloid
//! (SOSP '24, algorithm 1), whose binary search begins anew in small steps.
//!
//! ```text
//! p          accesses that side a serves, of those of a and b
//! low  = p   where a read of a takes less,   high = p   where it takes more
//! shift     <= |(low + high) / 2 - p|   once both are known;   0 where reads take as long (5 %)
//! shift     <= EPSILON, 2 EPSILON, 4 EPSILON ...   where high < low + EPSILON, until it is the other that takes less
//! ```
//!
//! A read takes longer as more are served there, so what would be saved by moving all that gains, as reads are now, is not: all
//! would go to and fro. Until a side has been seen to take longer that took less before, nothing says that load matters, and nothing
//! is held back. Where the search has come to its end and the load is another one, Colloid begins with all there is: then a fifth
//! of the accesses goes to and fro for what a hundredth would do.

use std::collections::BTreeMap;

use super::latencies::alike;
use super::places::Place;

/// Colloid's parameter (its section 4); the other one is [`super::latencies::ALIKE`].
const EPSILON: f64 = 0.01;

/// Of two sides.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Search {
    low: Option<f64>,
    high: Option<f64>,
    /// Each side has taken less than the other.
    loaded: bool,
    /// The last step of a search that begins anew.
    step: f64,
}

/// Of all pairs, by a place of each side.
#[derive(Debug, Default)]
pub(super) struct Balance(BTreeMap<(Place, Place), Search>);

/// What a side serves and what a read takes there.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Served {
    /// Accesses a second.
    pub(super) accesses: f64,
    pub(super) read_ns: f64,
}

impl Balance {
    /// Accesses a second that may change between two sides, which serve so many; the places are to be in the same order each time.
    pub(super) fn most(&mut self, between: (Place, Place), served: [Served; 2]) -> f64 {
        let [a, b] = served;
        let all = a.accesses + b.accesses;
        if all <= 0.0 {
            return f64::INFINITY;
        }
        let search = self.0.entry(between).or_default();
        let share = search.shift(a.accesses / all, [a.read_ns, b.read_ns]);
        share.map_or(f64::INFINITY, |share| share * all)
    }

    /// Whether load matters anywhere.
    pub(super) fn is_loaded(&self) -> bool {
        self.0.values().any(|search| search.loaded)
    }
}

impl Search {
    /// By how much `p` may change; absent where nothing says that load matters.
    fn shift(&mut self, p: f64, [a, b]: [f64; 2]) -> Option<f64> {
        if self.loaded && alike(a, b) {
            self.step = 0.0;
            return Some(0.0);
        }
        let (own, other) = if a < b {
            (&mut self.low, &mut self.high)
        } else {
            (&mut self.high, &mut self.low)
        };
        *own = Some(p);
        let between = |other: f64| if a < b { other - p } else { p - other };
        match *other {
            Some(other) if between(other) >= EPSILON => {
                (self.loaded, self.step) = (true, 0.0);
                Some(between(other) / 2.0)
            }
            None if !self.loaded => None,
            _ => {
                *other = None;
                self.loaded = true;
                self.step = (2.0 * self.step).clamp(EPSILON, 1.0);
                Some(self.step)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of two sides of which the first serves that share of `load`: each queues as it fills up.
    fn reads(p: f64, load: f64) -> [f64; 2] {
        let of = |unloaded: f64, used: f64| unloaded * (1.0 + used / (1.0 - used.min(0.99)));
        [of(100.0, load * p), of(150.0, load * (1.0 - p))]
    }

    /// Where `p` comes to, if all that gains goes as far as it may; and how far it went in all.
    fn after(search: &mut Search, from: f64, load: f64, plans: u32) -> (f64, f64) {
        let (mut p, mut moved) = (from, 0.0);
        for _ in 0..plans {
            let [a, b] = reads(p, load);
            let wanted: f64 = if a < b { 1.0 - p } else { p };
            let most = search.shift(p, [a, b]).unwrap_or(f64::INFINITY);
            let by = wanted.min(most);
            p += if a < b { by } else { -by };
            moved += by;
        }
        (p, moved)
    }

    #[test]
    fn where_load_does_not_matter_nothing_is_held_back() {
        let (p, moved) = after(&mut Search::default(), 0.0, 0.2, 1);
        assert!((p - 1.0).abs() < 1e-9 && (moved - 1.0).abs() < 1e-9);
        let (p, _) = after(&mut Search::default(), 0.0, 0.2, 20);
        assert!((p - 1.0).abs() < 1e-9);
    }

    #[test]
    fn loaded_sides_come_to_take_as_long() {
        for load in [0.9, 1.2, 1.6] {
            let mut search = Search::default();
            let (p, moved) = after(&mut search, 0.0, load, 12);
            let [a, b] = reads(p, load);
            assert!((a / b - 1.0).abs() < 0.12, "{load}: {a} and {b} at {p}");
            assert!(moved < 4.0, "{load}: {moved} to and fro");
            // From then on a hundredth at a time, if anything.
            let (_, moved) = after(&mut search, p, load, 12);
            assert!(moved < 12.0 * EPSILON + 1e-9, "{load}: {moved}");
        }
    }

    #[test]
    fn another_load_is_followed() {
        let mut search = Search::default();
        let (p, _) = after(&mut search, 0.0, 1.6, 12);
        let (more, _) = after(&mut search, p, 0.3, 20);
        assert!(more > 0.95, "{more} as the load is less");
        let (again, _) = after(&mut search, more, 1.6, 20);
        assert!((again - p).abs() < 0.03, "{again}, before {p}");
    }

    #[test]
    fn who_serves_nothing_holds_nothing_back() {
        let mut balance = Balance::default();
        let most = balance.most((0, 1), [Served::default(); 2]);
        assert!(most.is_infinite());
    }
}
