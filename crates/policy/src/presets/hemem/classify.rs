// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a sample makes of a page (HeMem 3.1, "Data classification"): counts, cooling, hot and cold.

use super::Params;
use super::table::CLOCK_TURN;
use super::table::COUNT_MAX;
use super::table::Meta;

/// To which end of its list a page goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    /// Where it is, if its list is the same; else to the back.
    Keep,
    /// To the back, also of the list it is in.
    Back,
    /// To the front.
    Front,
}

/// Halves the counts once for every turn of the clock that the page has missed, and says what that
/// makes of it: cold once its counts are below the thresholds; but a write-heavy page that is none any
/// more gets a second chance on its hot list (3.3).
pub(super) fn cool(meta: &mut Meta, clock: u16, params: &Params) -> Seat {
    let missed = (clock + CLOCK_TURN - meta.clock()) % CLOCK_TURN;
    let mut seat = Seat::Keep;
    // After six halvings all counts are 0, after two more turns the page is cold.
    for _ in 0..missed.min(8) {
        meta.set_reads(meta.reads() / 2);
        meta.set_writes(meta.writes() / 2);
        if meta.heavy() {
            if meta.writes() < params.hot_write_threshold {
                meta.set_heavy(false);
                seat = Seat::Back;
            }
        } else if meta.hot()
            && meta.reads() < params.hot_read_threshold
            && meta.writes() < params.hot_write_threshold
        {
            meta.set_hot(false);
        }
    }
    meta.set_clock(clock);
    seat
}

/// Counts an access of a page that was cooled, and classifies it. Whether the clock advances: the count
/// that grew has reached the cooling threshold ("separate counters for reads and writes").
pub(super) fn count(meta: &mut Meta, write: bool, params: &Params) -> (Seat, bool) {
    let before = if write { meta.writes() } else { meta.reads() };
    let grown = (before + 1).min(COUNT_MAX);
    if write {
        meta.set_writes(grown);
    } else {
        meta.set_reads(grown);
    }
    let mut seat = Seat::Keep;
    if !meta.heavy() && meta.writes() >= params.hot_write_threshold {
        meta.set_heavy(true);
        meta.set_hot(true);
        seat = Seat::Front;
    } else if !meta.hot() && meta.reads() >= params.hot_read_threshold {
        meta.set_hot(true);
        seat = Seat::Back;
    }
    (seat, grown >= params.cooling_threshold)
}

/// Whether a hot page may take the place of a cold one; both are cooled up to now. A write-heavy page
/// is measured by its stores, another one by all, where a store weighs as much as the thresholds say.
pub(super) fn displaces(hot: Meta, cold: Meta, params: &Params) -> bool {
    let (load, store) = if hot.heavy() {
        (0, 1)
    } else {
        let weights = (params.hot_write_threshold, params.hot_read_threshold);
        (u32::from(weights.0), u32::from(weights.1))
    };
    let warmth = |meta: Meta| u32::from(meta.reads()) * load + u32::from(meta.writes()) * store;
    warmth(hot) >= warmth(cold) * u32::from(params.swap_ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(reads: u8, writes: u8) -> (Meta, u32) {
        let params = Params::default();
        let (mut meta, mut advances) = (Meta::default(), 0);
        for write in
            std::iter::repeat_n(false, reads.into()).chain(std::iter::repeat_n(true, writes.into()))
        {
            advances += u32::from(count(&mut meta, write, &params).1);
        }
        (meta, advances)
    }

    #[test]
    fn eight_loads_or_four_stores_are_hot_and_four_stores_write_heavy() {
        let classes = |reads, writes| {
            let (meta, _) = sampled(reads, writes);
            (meta.hot(), meta.heavy())
        };
        assert_eq!(classes(7, 3), (false, false));
        assert_eq!(classes(8, 0), (true, false));
        assert_eq!(classes(0, 4), (true, true));
        assert_eq!(sampled(17, 17).1, 0);
        assert_eq!(sampled(18, 0).1, 1);
        assert_eq!(sampled(0, 18).1, 1);
    }

    #[test]
    fn cooling_halves_and_gives_write_heavy_pages_a_second_chance() {
        let params = Params::default();
        let (mut meta, _) = sampled(9, 6);
        // 4 and 3: neither is enough, but it was write-heavy.
        assert_eq!(cool(&mut meta, 1, &params), Seat::Back);
        assert_eq!((meta.reads(), meta.writes()), (4, 3));
        assert_eq!((meta.hot(), meta.heavy()), (true, false));
        assert_eq!(cool(&mut meta, 2, &params), Seat::Keep);
        assert!(!meta.hot());
        // All at once comes to the same.
        let (mut at_once, _) = sampled(9, 6);
        assert_eq!(cool(&mut at_once, 2, &params), Seat::Back);
        assert_eq!(at_once, meta);
    }

    #[test]
    fn a_page_displaces_what_is_much_colder_by_its_class() {
        let params = Params::default();
        let displaces = |hot: (u8, u8), cold: (u8, u8)| {
            let (hot, cold) = (sampled(hot.0, hot.1).0, sampled(cold.0, cold.1).0);
            super::displaces(hot, cold, &params)
        };
        assert!(displaces((8, 0), (2, 0)) && !displaces((8, 0), (3, 0)));
        assert!(displaces((8, 0), (0, 1)) && !displaces((8, 0), (1, 1)));
        // A write-heavy page comes before whatever is only read.
        assert!(displaces((0, 4), (7, 1)) && !displaces((0, 4), (0, 2)));
        let any = Params {
            swap_ratio: 0,
            ..params
        };
        assert!(super::displaces(sampled(8, 0).0, sampled(7, 3).0, &any));
    }

    #[test]
    fn the_clock_may_turn_round() {
        let params = Params::default();
        let (mut meta, _) = sampled(8, 0);
        meta.set_clock(CLOCK_TURN - 1);
        cool(&mut meta, 0, &params);
        assert_eq!((meta.reads(), meta.clock(), meta.hot()), (4, 0, false));
    }
}
