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

/// Counts an access of a page that was cooled, and classifies it. Whether the clock advances: the page
/// has reached the cooling threshold.
pub(super) fn count(meta: &mut Meta, write: bool, params: &Params) -> (Seat, bool) {
    if write {
        meta.set_writes((meta.writes() + 1).min(COUNT_MAX));
    } else {
        meta.set_reads((meta.reads() + 1).min(COUNT_MAX));
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
    (
        seat,
        meta.reads() + meta.writes() >= params.cooling_threshold,
    )
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
        assert_eq!(sampled(17, 0).1, 0);
        assert_eq!(sampled(10, 8).1, 1);
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
    fn the_clock_may_turn_round() {
        let params = Params::default();
        let (mut meta, _) = sampled(8, 0);
        meta.set_clock(CLOCK_TURN - 1);
        cool(&mut meta, 0, &params);
        assert_eq!((meta.reads(), meta.clock(), meta.hot()), (4, 0, false));
    }
}
