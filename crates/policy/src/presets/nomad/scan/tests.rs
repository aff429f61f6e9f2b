// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

const QUIET: PassView = PassView {
    armed: false,
    learned: false,
    full: false,
    contended: false,
    scarce: false,
    futile: false,
    pending: 0,
    waiting: 0,
    worth: 10,
    on_fast: 0,
    fast_pages: 1000,
};

#[test]
fn backs_off_when_quiet_and_comes_back_when_hot_pages_show() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
    let mut now = Nanos::ZERO;
    scan.faulted();
    for _ in 0..200 {
        now = now + Nanos::from_millis(500);
        let _ = scan.tick(now, QUIET);
    }
    assert_eq!(scan.period(), Nanos::from_secs(8));
    for _ in 0..11 {
        scan.promoted(Nanos::from_millis(100));
    }
    for _ in 0..11 * worth(Nanos::from_millis(100)) {
        scan.faulted();
    }
    now = now + Nanos::from_secs(8);
    let action = scan.tick(now, QUIET);
    assert_eq!(
        action,
        Some(Action::Scan {
            scope: ScanScope::Slow,
            period: Nanos::from_secs(1)
        })
    );
}

/// On a full tier a page is promoted that faults in two passes: the first two are no measure.
#[test]
fn passes_over_a_tier_that_has_just_filled_up_are_not_judged() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(64));
    let full = PassView {
        full: true,
        ..QUIET
    };
    let _ = scan.tick(Nanos::ZERO, QUIET);
    let mut periods = Vec::new();
    for second in 1..4 {
        (0..500).for_each(|_| scan.faulted());
        let _ = scan.tick(Nanos::from_secs(second), full);
        periods.push(scan.period());
    }
    assert_eq!(periods, [1, 1, 64].map(Nanos::from_secs));
    // With room again every pass is, until the tier is full once more.
    let _ = scan.tick(Nanos::from_secs(100), QUIET);
    assert_eq!(scan.passes_full, 0);
}

#[test]
fn a_pass_that_finds_nothing_is_followed_by_the_longest() {
    let shortly = Nanos::from_millis(500);
    for (promoted, idle, period) in [
        (0, shortly, 64),
        (10, Nanos::from_secs(10), 4),
        (50, shortly, 2),
    ] {
        let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(64));
        let _ = scan.tick(Nanos::ZERO, QUIET);
        (0..promoted).for_each(|_| scan.promoted(idle));
        (0..500).for_each(|_| scan.faulted());
        let _ = scan.tick(Nanos::from_secs(1), QUIET);
        assert_eq!(scan.period(), Nanos::from_secs(period), "{promoted}");
    }
}

#[test]
fn a_pass_takes_as_long_as_the_tracker_needs() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
    scan.set_floor(Nanos::from_secs(100));
    assert_eq!(scan.period(), Nanos::from_secs(100));
    let busy = PassView {
        pending: 1,
        ..QUIET
    };
    for second in 1..100 {
        assert_eq!(
            scan.tick(Nanos::from_secs(second), busy).is_some(),
            second == 1
        );
    }
    let _ = scan.tick(Nanos::from_secs(101), QUIET);
    assert_eq!(scan.period(), Nanos::from_secs(100));
}

const FULL: PassView = PassView {
    full: true,
    contended: true,
    ..QUIET
};

fn run(scan: &mut ScanControl, seconds: std::ops::Range<u64>, view: PassView) -> u64 {
    let armed = |second| {
        let _ = scan.tick(Nanos::from_secs(second), view);
        u64::from(scan.learning())
    };
    seconds.map(armed).sum()
}

#[test]
fn fast_pages_are_armed_while_cold_ones_are_wanted() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
    assert_eq!(run(&mut scan, 0..1, QUIET), 0);
    assert_eq!(run(&mut scan, 1..4, FULL), 3);
    assert!(!scan.ages_known());
    let learned = PassView {
        learned: true,
        ..FULL
    };
    assert_eq!(run(&mut scan, 4..100, learned), 0, "there are cold pages");
    assert!(scan.ages_known());
    let scarce = PassView {
        scarce: true,
        ..FULL
    };
    // Nothing is ever armed: each learning takes its 8 passes and the pass before, then a long pause.
    let armed = run(&mut scan, 100..200, scarce);
    assert!((9..=32).contains(&armed), "{armed}");
}

#[test]
fn learning_starts_when_what_waits_has_lost_an_eighth_of_its_price() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(1));
    assert_eq!(run(&mut scan, 0..1, QUIET), 0);
    // 600 faults a minute: 100 faults' worth after 10 s.
    let waits = PassView {
        waiting: 600,
        on_fast: 800,
        ..FULL
    };
    assert_eq!(run(&mut scan, 1..10, waits), 0);
    assert!(run(&mut scan, 10..13, waits) > 0);
}

#[test]
fn a_page_is_worth_more_the_shorter_it_is_idle() {
    assert_eq!(worth(Nanos::from_millis(100)), 60 - MIGRATION);
    assert_eq!(
        worth(Nanos::from_secs(1)),
        0,
        "it just pays for its migration"
    );
    assert_eq!(worth(Nanos::from_secs(100)), 0);
    assert_eq!(worth(Nanos::ZERO), WORTH_MAX - MIGRATION);
}

#[test]
fn nothing_is_armed_again_while_fast_pages_settle() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
    let slow = |action| {
        matches!(
            action,
            Some(Action::Scan {
                scope: ScanScope::Slow,
                ..
            })
        )
    };
    assert_eq!(run(&mut scan, 0..4, FULL), 4);
    let armed = PassView {
        armed: true,
        ..FULL
    };
    assert!(slow(scan.tick(Nanos::from_secs(4), armed)));
    assert!(scan.learning() && !scan.ages_known());
    assert!(scan.asked_since(Nanos::from_secs(5)).is_some());
    let learned = PassView {
        learned: true,
        ..armed
    };
    let _ = scan.tick(Nanos::from_secs(5), learned);
    assert!(!scan.learning() && scan.ages_known());
}

#[test]
fn learning_asks_for_what_is_found_at_its_start_too() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
    let full = PassView {
        full: true,
        ..QUIET
    };
    assert!(scan.tick(Nanos::from_secs(5), full).is_some());
    assert_eq!(scan.asked_since(Nanos::from_millis(5_900)), None);
    scan.found(Nanos::from_millis(5_400));
    scan.found(Nanos::from_millis(7_000));
    let asked = scan.asked_since(Nanos::from_millis(7_000));
    assert_eq!(asked, Some(Nanos::from_millis(5_400)));
}

#[test]
fn a_tier_that_is_full_at_the_start_is_learned_at_once() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
    let full = PassView {
        full: true,
        ..QUIET
    };
    scan.set_floor(Nanos::from_secs(10));
    assert_eq!(run(&mut scan, 0..30, full), 30);
    assert!(!scan.ages_known());
    // Nothing waits for room after that: which fast pages are cold doesn't matter.
    let learned = PassView {
        learned: true,
        ..full
    };
    assert_eq!(run(&mut scan, 30..60, learned), 0);
    assert!(scan.ages_known());
}

#[test]
fn a_program_that_has_not_begun_is_scanned_as_often_as_can_be() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(60));
    assert_eq!(run(&mut scan, 0..100, QUIET), 0);
    assert_eq!(scan.period(), Nanos::from_secs(1));
    scan.faulted();
    let _ = scan.tick(Nanos::from_secs(100), QUIET);
    let _ = scan.tick(Nanos::from_secs(101), QUIET);
    assert!(scan.period() > Nanos::from_secs(1));
}

/// When the n-th learning ends, all of `swapped` pages having been promoted before each but the first.
fn learnings(swapped: u64, in_use: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(64));
    let scarce = PassView {
        scarce: true,
        ..FULL
    };
    let mut ends = Vec::new();
    for second in 0..400 {
        let before = scan.learning();
        let learned = before && second % 2 == 0;
        if learned {
            for _ in 0..in_use(ends.len() as u64) {
                scan.faulted_fast(Some(Nanos::from_millis(100)));
            }
        }
        let _ = scan.tick(Nanos::from_secs(second), PassView { learned, ..scarce });
        if before && !scan.learning() {
            ends.push(second);
            (0..swapped).for_each(|_| scan.promoted(Nanos::from_millis(100)));
        }
    }
    ends
}

#[test]
fn learning_that_gains_nothing_is_repeated_ever_more_rarely() {
    let useful = learnings(100, |nth| 1000 + 50 * nth);
    let vain = learnings(100, |_| 1000);
    assert!(vain.len() < useful.len() / 2, "{vain:?} {useful:?}");
    let pauses: Vec<u64> = vain.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let last = pauses[pauses.len() - 1];
    assert!(pauses.is_sorted() && pauses[0] * 3 < last, "{pauses:?}");
}

#[test]
fn fast_pages_are_idle_as_their_rates_say() {
    let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(64));
    assert_eq!(run(&mut scan, 0..2, FULL), 2);
    assert_eq!(scan.usual_idle(), Nanos(u64::MAX), "nothing is known yet");
    // 100 and 10 accesses a second, and one that never was seen armed.
    for idle in [Some(10), Some(100), None] {
        scan.faulted_fast(idle.map(Nanos::from_millis));
    }
    let learned = PassView {
        learned: true,
        ..FULL
    };
    assert_eq!(run(&mut scan, 2..3, learned), 0);
    assert_eq!(scan.usual_idle(), Nanos(1_000_000_000_000 / 110));
}
