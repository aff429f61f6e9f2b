// SPDX-License-Identifier: MIT OR Apache-2.0
//! The equations of 3.2 and 3.3.2, and that threshold and limit stay in range whatever happens.

use proptest::prelude::*;

use super::*;

const MINUTE: u64 = 60;
const MB: u64 = 1_000_000;

fn semi_auto() -> Tuning {
    Tuning::new(Params {
        tuning: TuningKind::SemiAuto,
        ..Params::default()
    })
}

/// Scan periods, with so much in each.
fn periods(tuning: &mut Tuning, from: u64, periods: &[Period]) {
    tuning.at(Nanos::from_secs(from));
    for (n, period) in (1..).zip(periods) {
        tuning.now = *period;
        tuning.at(Nanos::from_secs(from + n * MINUTE));
    }
}

fn enqueued(rate: u64) -> Period {
    Period {
        enqueued: rate * MINUTE,
        ..Period::default()
    }
}

#[test]
fn the_threshold_follows_the_enqueue_rate() {
    let mut tuning = semi_auto();
    // 200 MB/s for a limit of 100: r = 1/2, TH' = (1 - 1/2 + 1/2 * 1/2) TH.
    periods(&mut tuning, 1, &[enqueued(200 * MB)]);
    assert_eq!(tuning.threshold(), Nanos::from_millis(750));
    assert_eq!(tuning.rates(), (200 * MB, 0));
    periods(&mut tuning, 61, &[enqueued(100 * MB)]);
    assert_eq!(tuning.threshold(), Nanos::from_millis(750), "as wanted");
    periods(&mut tuning, 121, &[enqueued(50 * MB)]);
    assert_eq!(tuning.threshold(), Nanos::from_millis(1125));
    // Nothing at all, or hardly anything: twice as long, not more.
    periods(&mut tuning, 181, &[enqueued(0)]);
    assert_eq!(tuning.threshold(), Nanos::from_millis(2250));
    periods(&mut tuning, 241, &[enqueued(1)]);
    assert_eq!(tuning.threshold(), Nanos::from_millis(4500));
    // Not before a period is over.
    tuning.now = enqueued(500 * MB);
    tuning.at(Nanos::from_secs(320));
    assert_eq!(tuning.threshold(), Nanos::from_millis(4500));
}

#[test]
fn heat_maps_set_threshold_and_limit() {
    let mut tuning = Tuning::new(Params::default());
    let found = Overlap {
        cut: Nanos::from_millis(200),
        end: Nanos::from_millis(256),
        misplaced: 10.0,
        all: 40.0,
    };
    // A quarter of 240 MB in a minute.
    tuning.overlap(found, 240 * MB);
    assert_eq!(tuning.threshold(), Nanos::from_millis(600));
    assert_eq!((tuning.limit(), tuning.misplacement_percent()), (MB, 25));
    for _ in 0..20 {
        tuning.overlap(found, 240 * MB);
    }
    assert_eq!(tuning.threshold().0 / 1_000_000, 200);
    // Periods leave both alone.
    periods(&mut tuning, 1, &[enqueued(0), enqueued(900 * MB)]);
    assert_eq!(
        (tuning.threshold().0 / 1_000_000, tuning.limit()),
        (200, MB)
    );
}

#[test]
fn thrashing_halves_the_limit_while_it_lasts() {
    let mut tuning = semi_auto();
    let period = |promoted, thrashed| Period {
        promoted,
        thrashed,
        ..Period::default()
    };
    let limit = |tuning: &mut Tuning, from, of| {
        periods(tuning, from, &[of]);
        tuning.limit()
    };
    assert_eq!(
        limit(&mut tuning, 1, period(100, 20)),
        100 * MB,
        "20 % is not over"
    );
    assert_eq!(tuning.thrash_percent(), 20);
    assert_eq!(limit(&mut tuning, 61, period(100, 21)), 50 * MB);
    assert_eq!(limit(&mut tuning, 121, period(100, 90)), 25 * MB);
    assert_eq!(limit(&mut tuning, 181, period(0, 1)), 12_500_000);
    assert_eq!(tuning.thrash_percent(), 100);
    assert_eq!(limit(&mut tuning, 241, period(0, 0)), 100 * MB);
    for n in 0..200 {
        let _ = limit(&mut tuning, 301 + n * 60, period(0, 1));
    }
    assert_eq!(tuning.limit(), 0, "and no further");
}

fn any_period() -> impl Strategy<Value = Period> {
    let bytes = || prop_oneof![Just(0), 0..1_u64 << 20, any::<u64>()];
    (bytes(), bytes(), bytes(), bytes()).prop_map(|(enqueued, dequeued, promoted, thrashed)| {
        Period {
            enqueued,
            dequeued,
            promoted,
            thrashed,
        }
    })
}

proptest! {
    #[test]
    fn threshold_and_limit_stay_in_range(
        of in prop::collection::vec((any_period(), 0_u64..1 << 62, 0.0..1e9_f64, 0.0..1e9_f64, any::<bool>()), 1..60),
        delta_step in 0.01_f64..=1.0,
        cit_threshold in any::<u64>(),
        rate_limit in 1_u64..1 << 50,
        dcsc in any::<bool>(),
    ) {
        let tuning = if dcsc { TuningKind::Dcsc } else { TuningKind::SemiAuto };
        let cit_threshold = Nanos(cit_threshold);
        let params = Params { delta_step, cit_threshold, rate_limit, tuning, ..Params::default() };
        let mut tuning = Tuning::new(params);
        let mut most = rate_limit;
        for (n, (period, cut, misplaced, rest, look)) in (1..).zip(of) {
            periods(&mut tuning, n * MINUTE, &[period]);
            if dcsc && look {
                let found = Overlap { cut: Nanos(cut), end: Nanos(cut), misplaced, all: misplaced + rest + 1.0 };
                tuning.overlap(found, 1 << 40);
                most = (1 << 40) / MINUTE + 1;
            }
            let threshold = tuning.threshold();
            prop_assert!((FINEST..=COARSEST).contains(&threshold), "{threshold}");
            prop_assert!(tuning.limit() <= most);
            let _ = (tuning.rates(), tuning.thrash_percent(), tuning.misplacement_percent());
        }
    }
}
