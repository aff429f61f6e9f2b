// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

const PRICE: Price = Price {
    busy: 60e6,
    lost: 0.0,
    runs: 1.0,
};
const SHOWN: Shown = Shown {
    saves: 0.0,
    spends: 0.0,
    price: PRICE,
    fast: 200_000,
    first: 20_000,
    chunks: 1_000,
    parts: 1,
    surprised: false,
    tries: false,
};

/// When the pass under way is over.
fn next(pace: &mut Pace, shown: Shown, params: &Params) {
    let now = pace.credit.at + pace.pass;
    pace.next(now, shown, params);
}

#[test]
fn rests_while_there_is_nothing_to_gain_and_wakes_up() {
    let params = Params::default();
    let mut pace = Pace::new(&params);
    for _ in 0..20 {
        next(&mut pace, SHOWN, &params);
    }
    let rest = pace.pass;
    assert!(pace.rests > 1 && PRICE.busy <= 0.01 * rest.0 as f64);
    let saves = 2.0 * PRICE.busy / rest.as_secs_f64();
    next(&mut pace, Shown { saves, ..SHOWN }, &params);
    assert_eq!(pace.pass, rest, "as much is waited for as looking costs");
    let saves = 2.5 * saves;
    next(&mut pace, Shown { saves, ..SHOWN }, &params);
    assert_eq!(pace.pass, Nanos(rest.0 / 2));
    next(
        &mut pace,
        Shown {
            surprised: true,
            ..SHOWN
        },
        &params,
    );
    assert_eq!(pace.pass, params.pass_min);
    next(&mut pace, SHOWN, &params);
    assert!(pace.pass > params.pass_min, "one such pass is worth it");
    let large = Price {
        busy: 1.6e9,
        ..PRICE
    };
    assert!(!pace.hurry(&large, &params) && pace.hurry(&PRICE, &params));
    assert_eq!(pace.pass, params.pass_min);
    assert!(!pace.hurry(&PRICE, &params));
}

/// Programs come all the time, or surprise, and each plan is said to save much: no more is spent than that share.
#[test]
fn who_hurries_again_and_again_gets_the_share_and_no_more() {
    let params = Params::default();
    for (busy, surprised) in [(0.1e9, false), (1.2e9, false), (1.2e9, true), (20e9, true)] {
        let price = Price { busy, ..PRICE };
        let shown = Shown {
            saves: 1e9,
            price,
            surprised,
            ..SHOWN
        };
        let mut pace = Pace::new(&params);
        let (mut spent, mut short) = (0.0, 0);
        for _ in 0..200 {
            short += u32::from(pace.pass == params.pass_min);
            next(&mut pace, shown, &params);
            pace.hurry(&price, &params);
            spent += busy;
            // What a pass of the longest takes that costs more than its share is not ours to save.
            let least = busy / ns(params.pass_max);
            let ramp = if busy <= Credit::ALL { 6.0 } else { 1.0 };
            let may = BUSY_SHARE.max(least) * ns(pace.credit.at) + Credit::ALL + ramp * busy;
            assert!(spent <= may, "{busy}: {spent} in {:?}", pace.credit.at);
        }
        assert_eq!(short > 1, busy < Credit::ALL, "{busy}: {short}");
    }
}

#[test]
fn a_sample_is_read_where_plans_move_nothing() {
    let params = Params::default();
    let mut pace = Pace::new(&params);
    let mut after = |shown: Shown, times: u32| {
        (0..times).for_each(|_| next(&mut pace, shown, &params));
        (pace.pass.as_secs_f64(), pace.parts)
    };
    // The pass becomes longer three times before it is the last one's length.
    assert_eq!(after(SHOWN, 3 + LAG - 1), (8.0, 1));
    assert_eq!(after(SHOWN, 1), (8.0, 8), "all in 64 s");
    let sample = Shown { parts: 8, ..SHOWN };
    assert_eq!(after(sample, 20), (8.0, 8));
    let few = Shown {
        chunks: 20,
        ..SHOWN
    };
    assert_eq!(after(few, 1), (8.0, 2), "a sample of ten chunks");
    assert_eq!(after(Shown { chunks: 7, ..SHOWN }, 1), (8.0, 1));
    // A plan of an eighth that moves for less than an eighth of what reading an eighth takes, and for more.
    let moves = |part: f64| Shown {
        spends: PRICE.busy * part,
        ..sample
    };
    assert_eq!(after(moves(0.9 / 64.0), 1), (8.0, 8));
    assert_eq!(after(moves(1.1 / 64.0), 1), (8.0, 1));
    assert_eq!(after(SHOWN, LAG - 1), (8.0, 1));
    assert_eq!(after(SHOWN, 1), (8.0, 8));
    let surprised = Shown {
        surprised: true,
        ..sample
    };
    assert_eq!(after(surprised, 1), (1.0, 1));
    let without = Params {
        sentinel: false,
        ..params
    };
    (0..20).for_each(|_| next(&mut pace, SHOWN, &without));
    assert_eq!(pace.parts, 1);
}

/// Ten times what the reader takes: the share counts that is of the programs' own time.
#[test]
fn what_programs_lose_is_a_share_of_what_they_run() {
    let params = Params::default();
    let rest = |runs| {
        let lost = 10.0 * PRICE.busy;
        let price = Price {
            lost,
            runs,
            ..PRICE
        };
        let mut pace = Pace::new(&params);
        (0..20).for_each(|_| next(&mut pace, Shown { price, ..SHOWN }, &params));
        pace.pass.as_secs_f64()
    };
    assert!(rest(1.0) >= 60.0 && rest(4.0) >= 15.0 && rest(4.0) < 60.0);
    assert_eq!(rest(64.0), rest(128.0), "the reader's own");
}

#[test]
fn looks_as_closely_as_tells_pages_apart() {
    let params = Params::default();
    let mut pace = Pace::new(&params);
    for _ in 0..20 {
        next(
            &mut pace,
            Shown {
                first: 150_000,
                ..SHOWN
            },
            &params,
        );
    }
    assert_eq!(pace.shortest, Nanos(params.shortest.0 / FINER));
    for _ in 0..20 {
        next(&mut pace, Shown { first: 0, ..SHOWN }, &params);
    }
    assert_eq!(pace.shortest, Nanos(params.shortest.0 * FINER));
}
