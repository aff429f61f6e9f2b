// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accessed bits of more memory than the budget pays for in a pass of the length asked for: longer passes over all
//! of it, or passes of that length over a share of it in turn. Both see a page equally often, for the same price;
//! which of them tells more of it? Prints the table of `docs/accessed-bits.md`.

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::Range;
use terrace_core::ladder;
use terrace_lab::trackers::heat::Heat;
use terrace_lab::trackers::score::Score;

const PAGES: u32 = 20_000;
/// One share in so many.
const SHARES: u32 = 8;
const ASKED: f64 = 1.0;
/// Turns of each share.
const TURNS: f64 = 12.0;
/// `docs/accessed-bits.md`: what a page takes, ns.
const CLEAR_NS: f64 = 60.0;
const READ_NS: f64 = 2.5;

struct Random(u64);

impl Random {
    /// Time until the next access at that rate, s.
    fn idle(&mut self, rate: f64) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let upper = u32::try_from(self.0 >> 32).expect("32 bits");
        -(1.0 - f64::from(upper) / 4_294_967_296.0).ln() / rate
    }
}

fn rungs(pass: f64) -> Vec<f64> {
    let pass = Nanos::from(std::time::Duration::from_secs_f64(pass));
    let rungs = ladder(Nanos::from_millis(1), pass).into_iter();
    rungs
        .map(|rung| std::time::Duration::from(rung).as_secs_f64())
        .collect()
}

/// What a page takes in a pass of that length, ns.
fn price(pass: f64) -> f64 {
    let readings = u32::try_from(rungs(pass).len()).expect("a dozen");
    CLEAR_NS + f64::from(readings) * READ_NS
}

/// Zipfian accesses to each page a second, so many seconds apart in the mean.
fn rates(mean_period: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=PAGES)
        .map(|rank| f64::from(rank).powf(-0.99))
        .collect();
    let sum: f64 = weights.iter().sum();
    let each = weights.iter();
    each.map(|weight| weight / sum * f64::from(PAGES) / mean_period)
        .collect()
}

/// So many passes of that length over each page.
fn watch(rates: &[f64], pass: f64, passes: u32, random: &mut Random) -> Score {
    let (rungs, mut heat) = (
        rungs(pass),
        Heat::new(Range {
            start: Addr(0),
            end: Addr(u64::from(PAGES) * 4096),
        }),
    );
    for _ in 0..passes {
        for (page, rate) in rates.iter().enumerate() {
            let idle = random.idle(*rate);
            match rungs.iter().position(|rung| *rung >= idle) {
                Some(0) => heat.add(page, 1.0, rungs[0] / 2.0),
                Some(at) => heat.add(page, 1.0, f64::midpoint(rungs[at - 1], rungs[at])),
                None => heat.add(page, 0.0, pass),
            }
        }
    }
    Score::of(rates, &heat.said())
}

#[test]
fn a_longer_pass_says_more_than_a_share_in_turn() {
    let turn = ASKED * f64::from(SHARES);
    // The longer ladder has three more readings, so it is paid for by still longer passes.
    let long = turn * price(turn) / price(ASKED);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    println!(
        "pass of {ASKED} s over an eighth in turn, or of {long:.1} s over all, for {:.0} s",
        turn * TURNS
    );
    for mean_period in [0.1, 1.0, 10.0, 100.0] {
        let rates = rates(mean_period);
        let shares = watch(&rates, ASKED, 12, &mut random);
        let whole = watch(&rates, long, 11, &mut random);
        println!(
            "mean period {mean_period} s: in turn recall {:.2?}, rank {:.3}, coldest {:.2}; all recall {:.2?}, rank {:.3}, coldest {:.2}",
            shares.recall,
            shares.rank.expect("pages differ"),
            shares.cold,
            whole.recall,
            whole.rank.expect("pages differ"),
            whole.cold,
        );
        assert!(whole.rank.unwrap_or(0.0) + 0.01 > shares.rank.unwrap_or(1.0));
        for (whole, shares) in whole.recall.iter().zip(&shares.recall) {
            assert!(whole + 0.02 > *shares, "{whole} {shares}");
        }
        if mean_period >= 10.0 {
            assert!(whole.rank.unwrap_or(0.0) > shares.rank.unwrap_or(1.0) + 0.1);
        }
    }
    assert!(
        (TURNS * turn / long - 11.0).abs() < 0.5,
        "as long as the other"
    );
}
