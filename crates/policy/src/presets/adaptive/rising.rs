// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates by class, by what was counted of each: they rise with the class, and are as many different ones as the counts tell apart.
//!
//! A page that was seen sooner is not accessed less: isotonic regression, by pooling neighbours (Ayer et al. 1955; with the exposures as
//! weights it is the likeliest of Poisson counts). Of the pools that gives, neighbours are one where that makes the description
//! shorter:
//!
//! ```text
//! sum over parts of  ln(n) / 2 - S ln(S / E)        S: sightings of a part, E: its exposure, n: sightings of all
//! ```
//!
//! half the logarithm of the observations for each rate (Schwarz 1978), less the logarithm of the likelihood. A policy that looks for the
//! greatest difference finds what chance made, and a hundredth of a rate in ten minutes pays for any move.

use super::classes::CLASSES;

/// Classes in a row that have one rate: their sightings, their exposure, s, and how many they are.
type Pool = ([f64; 2], usize);

const fn rate([seen, exposure]: [f64; 2]) -> f64 {
    seen / exposure
}

fn together(pools: &[Pool]) -> Pool {
    pools.iter().fold(([0.0; 2], 0), |all, one| {
        let sums = [all.0[0] + one.0[0], all.0[1] + one.0[1]];
        (sums, all.1 + one.1)
    })
}

/// Rates of classes in their order, by sightings and exposures, s.
pub(super) fn rising(counted: &[[f64; 2]; CLASSES]) -> [f64; CLASSES] {
    let parts = told_apart(&pooled(counted));
    let mut rates = parts
        .iter()
        .flat_map(|(sums, classes)| std::iter::repeat_n(rate(*sums), *classes));
    std::array::from_fn(|_| rates.next().unwrap_or_default())
}

/// Where rates fall, those classes together.
fn pooled(counted: &[[f64; 2]; CLASSES]) -> Vec<Pool> {
    let mut pools: Vec<Pool> = Vec::with_capacity(CLASSES);
    for one in counted {
        let mut last = (*one, 1);
        while let Some(before) = pools.pop_if(|(sums, _)| rate(*sums) >= rate(last.0)) {
            last = together(&[before, last]);
        }
        pools.push(last);
    }
    pools
}

/// A part that begins at some pool and goes on.
struct Begun {
    at: usize,
    /// What those before it take.
    before: f64,
    /// Its sightings and exposure so far, and with those before it what they take.
    sums: [f64; 2],
    length: f64,
}

/// The partition of least length, by what it takes up to each pool (Jackson et al. 2005). A part that with all that is before it takes more than
/// the best one so far never becomes part of it, as one is no likelier than two (Killick et al. 2012): of a hundred few are left.
fn told_apart(pools: &[Pool]) -> Vec<Pool> {
    let each = together(pools).0[0].max(1.0).ln() / 2.0;
    // Where the last part of the first so many pools begins, and those that it may be of more.
    let (mut begins, mut begun) = (vec![0], Vec::new());
    let mut before = 0.0;
    for (at, (pool, _)) in pools.iter().enumerate() {
        begun.push(Begun {
            at,
            before,
            sums: [0.0; 2],
            length: before,
        });
        let mut least = (f64::INFINITY, 0);
        for one in &mut begun {
            one.sums = [one.sums[0] + pool[0], one.sums[1] + pool[1]];
            one.length = one.before - likely(one.sums);
            if one.length < least.0 {
                least = (one.length, one.at);
            }
        }
        before = least.0 + each;
        begun.retain(|one| one.length < before);
        begins.push(least.1);
    }
    let (mut parts, mut end) = (Vec::new(), pools.len());
    while end > 0 {
        let begin = begins[end];
        parts.push(together(&pools[begin..end]));
        end = begin;
    }
    parts.reverse();
    parts
}

/// The logarithm of how likely a part's sightings are.
fn likely(sums: [f64; 2]) -> f64 {
    if sums[0] > 0.0 {
        sums[0] * rate(sums).ln()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each class is the least, over where it may end, of the greatest, over where it may begin, of the means of both.
    fn slow(counted: &[[f64; 2]; CLASSES], class: usize) -> f64 {
        let mean = |from: usize, to: usize| {
            let of = |i: usize| counted[from..=to].iter().map(|one| one[i]).sum::<f64>();
            of(0) / of(1)
        };
        let greatest = |to: usize| (0..=class).map(|from| mean(from, to)).fold(0.0, f64::max);
        (class..CLASSES).map(greatest).fold(f64::INFINITY, f64::min)
    }

    /// Of a part, where so many sightings were counted in all.
    fn length(part: Pool, all: f64) -> f64 {
        all.max(1.0).ln() / 2.0 - likely(part.0)
    }

    /// Of all ways to part them.
    fn least_length(pools: &[Pool]) -> f64 {
        let all = together(pools).0[0];
        let ways = 0..1_u32 << (pools.len() - 1);
        let lengths = ways.map(|cuts| {
            let mut parts = vec![vec![pools[0]]];
            for (at, pool) in pools.iter().enumerate().skip(1) {
                if cuts >> (at - 1) & 1 == 1 {
                    parts.push(Vec::new());
                }
                parts.last_mut().unwrap().push(*pool);
            }
            parts.iter().map(|part| length(together(part), all)).sum()
        });
        lengths.fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn it_is_the_isotonic_regression(
            counted in prop::collection::vec((0.1_f64..100.0, 0.1_f64..100.0), CLASSES),
        ) {
            let counted: Vec<[f64; 2]> = counted.into_iter().map(|(a, b)| [a, b]).collect();
            let counted: [[f64; 2]; CLASSES] = counted.try_into().unwrap();
            let pools = pooled(&counted);
            let rates = pools.iter().flat_map(|(sums, n)| std::iter::repeat_n(rate(*sums), *n));
            for (class, rate) in rates.enumerate() {
                prop_assert!((rate / slow(&counted, class) - 1.0).abs() < 1e-9, "{}", class);
            }
            prop_assert!(rising(&counted).is_sorted());
        }

        #[test]
        fn no_other_parts_are_shorter(
            counted in prop::collection::vec((0.0_f64..1000.0, 0.1_f64..100.0), 1..9),
        ) {
            let pools: Vec<Pool> = counted.into_iter().map(|(a, b)| ([a, b], 1)).collect();
            let parts = told_apart(&pools);
            let all = together(&pools).0[0];
            let own: f64 = parts.iter().map(|part| length(*part, all)).sum();
            prop_assert!((own - least_length(&pools)).abs() < 1e-6);
            prop_assert_eq!(together(&parts).1, pools.len());
        }
    }

    /// A thousand sightings each, as many more or fewer as chance makes them.
    #[test]
    fn what_chance_makes_is_one_rate_and_twice_as_much_another() {
        let mut dice = 1_u64;
        let mut chance = || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draws = (0..12).map(|n| (dice >> (8 + 4 * n) & 0xf) as f64 / 15.0);
            (draws.sum::<f64>() - 6.0) * 1000_f64.sqrt()
        };
        let counted = std::array::from_fn(|class| {
            let seen = if class < 100 { 1000.0 } else { 2000.0 };
            [seen + chance(), 10.0]
        });
        assert!(pooled(&counted).len() > 4);
        let rates = rising(&counted);
        let different = rates.windows(2).filter(|two| two[0] < two[1]).count();
        assert_eq!(
            (different, rates[99] < 110.0, rates[100] > 190.0),
            (1, true, true)
        );
    }
}
