// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

const HORIZON: Nanos = Nanos::from_secs(600);
/// 4 GiB, on two processors: a pass at 5 % takes 15.7 s, at 1 % 78.6 s.
const SOME: Wanted = Wanted {
    pages: (1_u32 << 20) as f64,
    runs: 2.0,
};

/// The kernel's scanner, which arms as it is asked, but no less than 2 MiB each tenth of a second.
struct Clock {
    arming: Arming,
    now: Nanos,
    asked: Nanos,
    least: f64,
    /// Pages that were armed, and what their hint faults took at most, s.
    armed: f64,
    took: f64,
}

impl Clock {
    fn new() -> Self {
        Self {
            arming: Arming::new(true),
            now: Nanos::from_secs(1),
            asked: Nanos::MAX,
            least: 5_120.0,
            armed: 0.0,
            took: 0.0,
        }
    }

    fn look(&mut self, wanted: Option<Wanted>) {
        if let Some(pass) = self.arming.next(self.now, wanted, HORIZON) {
            self.asked = pass;
        }
    }

    /// So long goes by, in which a plan is made each second.
    fn run(&mut self, seconds: u64, wanted: Option<Wanted>) {
        let step = Nanos::from_millis(100);
        for at in 0..seconds * 10 {
            if at % 10 == 0 || self.arming.at <= self.now {
                self.look(wanted);
            }
            self.now = self.now + step;
            if let Some(wanted) = wanted.filter(|_| self.asked < Nanos::MAX) {
                let asked = wanted.pages * 0.1 / self.asked.as_secs_f64();
                let armed = asked.max(self.least * 0.1);
                self.armed += armed;
                self.took += armed * FAULT_NS / 1e9;
                self.arming.armed(self.now, armed);
            }
        }
    }
}

#[test]
fn two_passes_tell_of_all_and_then_one_in_a_horizon() {
    let mut clock = Clock::new();
    clock.run(31, Some(SOME));
    assert_eq!(clock.asked.0 / 1_000_000, 15_728);
    clock.run(2, Some(SOME));
    assert_eq!(clock.asked, Nanos::MAX);
    let passes = clock.armed / SOME.pages;
    assert!((passes - 2.0).abs() < 0.05, "{passes}");
    clock.run(1_200, Some(SOME));
    let passes = clock.armed / SOME.pages;
    assert!((passes - 4.0).abs() < 0.1, "{passes}");
    // Of many pages a pass in a horizon is too much.
    let mut clock = Clock::new();
    let many = Wanted {
        pages: SOME.pages * 16.0,
        ..SOME
    };
    clock.run(2 * 252 + 1, Some(many));
    clock.run(1_258, Some(many));
    let passes = clock.armed / many.pages;
    assert!((passes - 3.0).abs() < 0.1, "{passes}");
}

#[test]
fn what_is_new_is_told_soon_once_the_last_is_paid_for() {
    let mut clock = Clock::new();
    clock.run(33, Some(SOME));
    let two = clock.armed;
    clock.arming.hurry();
    clock.run(110, Some(SOME));
    let passes = (clock.armed - two) / SOME.pages;
    assert!(passes < 0.25, "31.5 s at five times the share: {passes}");
    clock.run(50, Some(SOME));
    let passes = (clock.armed - two) / SOME.pages;
    assert!((2.0..2.4).contains(&passes), "{passes}");
    // Memory that has grown by more than what was told of.
    clock.run(200, Some(SOME));
    let more = |by: f64| {
        Some(Wanted {
            pages: SOME.pages * by,
            ..SOME
        })
    };
    clock.run(2, more(1.9));
    assert!(!clock.arming.short);
    clock.run(2, more(2.1));
    assert!(clock.arming.short);
}

#[test]
fn nothing_is_armed_where_nothing_is_wanted() {
    let mut clock = Clock::new();
    clock.run(5, None);
    assert_eq!((clock.asked, clock.armed), (Nanos::MAX, 0.0));
    clock.run(5, Some(SOME));
    assert!(clock.asked < HORIZON);
    clock.run(5, None);
    assert_eq!(clock.asked, Nanos::MAX);
    clock.run(25, Some(SOME));
    assert!(clock.arming.short);
    clock.run(3, Some(SOME));
    assert!(!clock.arming.short, "the rest of two passes");
    clock.arming.refused();
    clock.arming.armed(clock.now, 1e12);
    assert_eq!(clock.arming.at, Nanos::MAX);
}

#[test]
fn a_pass_is_as_long_as_hint_faults_are_measured_to_take() {
    let mut arming = Arming::new(true);
    arming.took(99_999, Nanos(99_999 * 3_000));
    let pass = arming.pass_at(SOME, BUSY_SHARE);
    assert_eq!(pass.0 / 100_000_000, 314);
}

proptest! {
    /// Whatever comes, hint faults take what two passes at the larger share take, and then the smaller one.
    #[test]
    fn they_take_no_more_than_their_share(
        steps in prop::collection::vec((1_u64..60, any::<bool>(), prop::option::weighted(0.9, 1_u32..9)), 1..40),
    ) {
        let mut clock = Clock::new();
        let mut most: f64 = 0.0;
        for (seconds, new, size) in steps {
            if new {
                clock.arming.hurry();
            }
            let pages = |size: u32| f64::from(size) * SOME.pages / 4.0;
            let wanted = size.map(|size| Wanted { pages: pages(size), ..SOME });
            most = most.max(size.map_or(0.0, pages));
            clock.run(seconds, wanted);
        }
        let time = clock.now.as_secs_f64();
        let all = most * FAULT_NS / 1e9;
        // Two passes at the beginning, others begun at the end, and what the kernel arms more than it is asked for.
        let least = clock.least * FAULT_NS / 1e9 * time;
        let share = (REST_SHARE * SOME.runs + all / HORIZON.as_secs_f64()) * time;
        prop_assert!(clock.took <= 4.5 * all + share + least, "{} s of {time}", clock.took);
    }
}
