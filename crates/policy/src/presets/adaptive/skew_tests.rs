// SPDX-License-Identifier: MIT OR Apache-2.0
//! What parts are worth, and when that is believed.

use terrace_core::PageBits;

use super::*;
use crate::presets::adaptive::worth::GROUPS;

/// A chunk of base pages, so many of them of a class that saves 100 ns a second, all others 1.
fn chunk(hot: usize) -> Chunk {
    let mut chunk = Chunk::new(false, 0);
    chunk.present = PageBits::ALL;
    chunk.levels.fill(2);
    chunk.levels[..hot].fill(4);
    chunk
}

fn judge(chunk: &Chunk, price: f64, [walk, split]: [f64; 2]) -> Judged {
    let mut groups = vec![Group::default(); GROUPS];
    for (class, saves) in [(1, 1.0), (2, 100.0)] {
        groups[class].saves = saves;
        // Each access saves 50 ns.
        groups[class].load = saves / 50.0;
    }
    let terms = Terms {
        sides: [&groups, &groups],
        parts: &[0],
        rates: &[1.0; CLASSES],
        fast: &[0],
        price,
        moves: 0.0,
        split,
        walk,
    };
    terms.judge(chunk, 64.0)
}

#[test]
fn parts_are_worth_what_they_save_beyond_the_price() {
    let saves = 8.0 * 100.0 + 504.0;
    let of = |price, walk| judge(&chunk(8), price, [walk, 0.0]);
    let room = of(0.0, 0.0);
    assert_eq!((room.visits, room.taken_for), (512.0, 64.0));
    assert!((room.saves - saves).abs() < 1e-9 && room.gains.abs() < 1e-9);
    // The whole does not fit, and eight parts do.
    assert!((of(10.0, 0.0).gains - 8.0 * 90.0).abs() < 1e-9);
    // It does, and the others are in the way of better ones.
    let whole = saves - 512.0 * 2.0;
    assert!((of(2.0, 0.0).gains - (8.0 * 98.0 - whole)).abs() < 1e-9);
    // A visit that saves 50 ns takes 5 more.
    assert!((of(10.0, 5.0).gains - (8.0 * 90.0 - saves / 10.0)).abs() < 1e-9);
    // Splitting takes 0.5 a second.
    let dear = judge(&chunk(8), 10.0, [0.0, 0.5]);
    assert!((dear.gains - (8.0 * 90.0 - 0.5)).abs() < 1e-9);
}

#[test]
fn few_or_different_ones_are_not_believed() {
    let one = |gains: f64| Judged {
        saves: 10.0,
        gains,
        visits: 30.0,
        taken_for: 10.0,
    };
    assert_eq!(share(&[one(9.0); SAMPLE - 1]), None);
    assert_eq!(share(&[one(9.0); SAMPLE]), Some(0.9));
    assert_eq!(whole(&[one(9.0); SAMPLE]), 3.0);
    let mut mixed = [one(-1.0); SAMPLE];
    mixed[0] = one(9.0);
    // 2 of 80 in the mean, and 1.25 of 10 as its error.
    let share = share(&mixed).expect("enough");
    assert!((share - (0.025 - SURE * 0.125)).abs() < 1e-3, "{share}");
}
