// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates by class that rise with the class, by what was counted of each: isotonic regression, by pooling neighbours (Ayer et al.
//! 1955; with the exposures as weights it is the likeliest of Poisson counts).
//!
//! A page that was seen sooner is not accessed less. Where the counts say so, chance does, and a policy that looks for the greatest
//! difference finds it; those classes have one rate in common.

use super::classes::CLASSES;

/// Sightings over exposures, s, of classes in their order; where that falls, of those classes together.
pub(super) fn rising(counted: &[[f64; 2]; CLASSES]) -> [f64; CLASSES] {
    let rate = |[seen, exposure]: [f64; 2]| seen / exposure;
    // Classes that have one rate: what was counted of them, and how many they are.
    let mut pools: Vec<([f64; 2], usize)> = Vec::with_capacity(CLASSES);
    for one in counted {
        let mut last = (*one, 1);
        while let Some((sums, classes)) = pools.pop_if(|(sums, _)| rate(*sums) >= rate(last.0)) {
            last = ([sums[0] + last.0[0], sums[1] + last.0[1]], classes + last.1);
        }
        pools.push(last);
    }
    let mut rates = pools
        .iter()
        .flat_map(|(sums, classes)| std::iter::repeat_n(rate(*sums), *classes));
    std::array::from_fn(|_| rates.next().unwrap_or_default())
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn it_is_the_isotonic_regression(
            counted in prop::collection::vec((0.1_f64..100.0, 0.1_f64..100.0), CLASSES),
        ) {
            let counted: Vec<[f64; 2]> = counted.into_iter().map(|(a, b)| [a, b]).collect();
            let counted: [[f64; 2]; CLASSES] = counted.try_into().unwrap();
            let rates = rising(&counted);
            prop_assert!(rates.is_sorted());
            for (class, rate) in rates.iter().enumerate() {
                prop_assert!((rate / slow(&counted, class) - 1.0).abs() < 1e-9, "{}", class);
            }
        }
    }
}
