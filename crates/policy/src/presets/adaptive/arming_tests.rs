// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

const HORIZON: Nanos = Nanos::from_secs(600);
/// 4 GiB, on two processors: a pass at 5 % takes 81.8 s of ours, at 1 % 409 s.
const SOME: Wanted = Wanted {
    pages: (1_u32 << 20) as f64,
    huge: 0.0,
    all: (1_u32 << 20) as f64,
    slowest: (1_u32 << 19) as f64,
};

/// So many times as many pages.
fn more(by: f64) -> Option<Wanted> {
    Some(Wanted {
        pages: SOME.pages * by,
        all: SOME.all * by,
        slowest: SOME.slowest * by,
        ..SOME
    })
}

/// The kernel's scanner, which arms as it is asked, but no less than 2 MiB each tenth of a second.
struct Clock {
    arming: Arming,
    now: Nanos,
    asked: Nanos,
    least: f64,
    /// It arms nothing of that.
    deaf: bool,
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
            deaf: false,
            armed: 0.0,
            took: 0.0,
        }
    }

    /// Each page that is armed faults.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "few"
    )]
    fn faults(&mut self, armed: f64) {
        let faults = armed.ceil() as u32;
        self.arming.took(faults, Nanos(u64::from(faults) * 1_000));
    }

    fn look(&mut self, wanted: Option<Wanted>) {
        if let (Some(pass), _) = self.arming.next(self.now, wanted, HORIZON) {
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
            if let Some(wanted) = wanted.filter(|_| self.asked < Nanos::MAX && !self.deaf) {
                let asked = wanted.pages * 0.1 / self.asked.as_secs_f64();
                let armed = asked.max(self.least * 0.1);
                self.armed += armed;
                self.took += armed * SERVED_NS / 1e9;
                self.faults(armed);
                self.arming.armed(self.now, armed);
            }
        }
    }
}

#[test]
fn two_passes_tell_of_all_and_then_one_in_a_horizon() {
    let mut clock = Clock::new();
    clock.run(160, Some(SOME));
    assert_eq!(clock.asked.0 / 1_000_000, 81_788);
    clock.run(6, Some(SOME));
    assert_eq!(clock.asked, Nanos::MAX);
    let passes = clock.armed / SOME.pages;
    assert!((passes - 2.0).abs() < 0.05, "{passes}");
    clock.run(1_200, Some(SOME));
    let passes = clock.armed / SOME.pages;
    assert!((passes - 4.0).abs() < 0.1, "{passes}");
    // Of many pages a pass in a horizon is too much.
    let mut clock = Clock::new();
    clock.run(8 * 164 + 5, more(8.0));
    clock.run(8 * 409, more(8.0));
    let passes = clock.armed / SOME.pages / 8.0;
    assert!((passes - 3.0).abs() < 0.1, "{passes}");
}

#[test]
fn what_is_new_is_told_soon_once_the_last_is_paid_for() {
    let mut clock = Clock::new();
    clock.run(166, Some(SOME));
    let two = clock.armed;
    assert!(!clock.arming.short);
    clock.arming.hurry();
    clock.run(640, Some(SOME));
    let passes = (clock.armed - two) / SOME.pages;
    assert!(passes < 1.2, "164 s at five times the share: {passes}");
    clock.run(200, Some(SOME));
    let passes = (clock.armed - two) / SOME.pages;
    assert!((2.9..3.5).contains(&passes), "{passes}");
    // Memory that has grown by more than what was told of.
    clock.run(900, Some(SOME));
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
    // What those 5 s took is paid, and they begin anew.
    clock.run(17, Some(SOME));
    assert!(clock.arming.short);
    clock.arming.refused(Refusal::Denied);
    clock.look(Some(SOME));
    assert_eq!(clock.asked.0 / 1_000_000, 81_788);
    clock.arming.refused(Refusal::Unserved);
    clock.arming.armed(clock.now, 1e12);
    assert_eq!(clock.arming.at, Nanos::MAX);
}

#[test]
fn what_the_kernel_never_arms_ends_after_twice_the_time() {
    let mut clock = Clock::new();
    clock.deaf = true;
    clock.run(320, Some(SOME));
    assert!(clock.arming.short);
    clock.run(20, Some(SOME));
    assert!(!clock.arming.short);
    assert!(clock.asked > Nanos::from_secs(400), "{}", clock.asked);
}

#[test]
fn huge_pages_are_armed_eight_times() {
    let mut clock = Clock::new();
    let huge = Wanted {
        pages: 8_192.0,
        huge: 8_192.0,
        all: 8_192.0,
        slowest: 4_096.0,
    };
    clock.least = 1.0;
    clock.run(20, Some(huge));
    let passes = clock.armed / huge.pages;
    assert!((passes - 8.0).abs() < 0.2, "{passes}");
}

#[test]
fn a_pass_is_as_long_as_hint_faults_take_whoever_they_take_most() {
    let mut arming = Arming::new(true);
    arming.armed(Nanos::ZERO, 1e6);
    arming.took(1_000_000, Nanos(30_000_000_000));
    let of = |arming: &Arming, wanted| arming.pass_at(wanted, BUSY_SHARE).as_secs_f64();
    let pass = of(&arming, SOME);
    assert!((pass / 315.6 - 1.0).abs() < 0.01, "{pass}");
    // Of one of them that has half of it and runs on a tenth of a processor.
    let slow = Wanted {
        slowest: SOME.pages * 5.0,
        ..SOME
    };
    assert!((of(&arming, slow) / pass - 10.0).abs() < 0.01);
    // A tenth of what is armed is asked for.
    let few = Wanted {
        pages: SOME.pages / 10.0,
        ..SOME
    };
    assert!((of(&arming, few) / pass - 10.0).abs() < 0.01);
    // One in ten faults.
    let mut arming = Arming::new(true);
    arming.armed(Nanos::ZERO, 1e6);
    arming.took(100_000, Nanos(100_000_000));
    let pass = of(&arming, SOME);
    assert!((pass / 8.18 - 1.0).abs() < 0.01, "{pass}");
}

proptest! {
    /// Whatever comes, hint faults take what short passes at the larger share take, and then the smaller one.
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
            let wanted = size.and_then(|size| more(f64::from(size) / 4.0));
            most = most.max(wanted.map_or(0.0, |wanted| wanted.pages));
            clock.run(seconds, wanted);
        }
        let time = clock.now.as_secs_f64();
        // Two passes over all there was, and others that were begun at the end.
        let all = most * SERVED_NS / 1e9;
        let least = clock.least * SERVED_NS / 1e9 * time;
        let share = (REST_SHARE + all / HORIZON.as_secs_f64()) * time;
        prop_assert!(clock.took <= 4.5 * all + share + least, "{} s of {time}", clock.took);
    }
}
