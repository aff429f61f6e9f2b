// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page's class: its estimated access rate, in one byte.
//!
//! Level `l > 0` stands for `2^((l - 1) / 8 - 12)` visits a second, eight levels an octave; level 0 for
//! a page of which nothing is known. Two levels are a class of the matrix.

/// Classes of the matrix.
pub(super) const CLASSES: usize = 128;
/// A byte's values.
pub(super) const LEVELS: usize = 256;
const LOWEST_OCTAVE: f64 = -12.0;
/// Levels of an octave.
pub(super) const PER_OCTAVE: f64 = 8.0;

/// A page's level; 0 is unknown.
pub(super) type Level = u8;

/// Visits a second that a level stands for.
pub(super) fn rate_of(level: Level) -> f64 {
    if level == 0 {
        return 0.0;
    }
    (f64::from(level - 1) / PER_OCTAVE + LOWEST_OCTAVE).exp2()
}

/// The level of a rate.
pub(super) fn level_of(rate: f64) -> Level {
    nearest((rate.max(1e-30).log2() - LOWEST_OCTAVE) * PER_OCTAVE + 1.0)
}

/// The level that is so many above one that is known.
pub(super) fn moved(level: Level, by: f64) -> Level {
    nearest(f64::from(level) + by)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded to a byte before"
)]
fn nearest(level: f64) -> Level {
    level.round().clamp(1.0, 255.0) as u8
}

/// The class of a level.
pub(super) const fn class_of(level: Level) -> usize {
    level as usize / 2
}

/// The middle of a class, visits a second.
pub(super) fn class_rate(class: usize) -> f64 {
    let level = u8::try_from((class * 2).min(LEVELS - 1)).unwrap_or(u8::MAX);
    rate_of(level.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_rates_are_inverse() {
        for level in 1..=u8::MAX {
            assert_eq!(level_of(rate_of(level)), level);
        }
        assert_eq!(level_of(0.0), 1);
        assert!(rate_of(255) > 500_000.0 && rate_of(1) < 0.001);
        assert!((0..CLASSES - 1).all(|k| class_rate(k) <= class_rate(k + 1)));
    }
}
