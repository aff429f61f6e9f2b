// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread time that programs pay bit by bit.

/// What one program pays evenly until then, ns.
#[derive(Debug)]
struct Part {
    program: usize,
    ns: f64,
    until: u64,
}

/// What is still to be paid.
#[derive(Debug, Default)]
pub(crate) struct Spread(Vec<Part>);

impl Spread {
    pub(crate) fn add(&mut self, program: usize, ns: f64, until: u64) {
        self.0.push(Part { program, ns, until });
    }

    /// What is due in a step that long becomes debt, by program.
    #[expect(clippy::cast_precision_loss, reason = "times below 2^53 ns")]
    pub(crate) fn pay(&mut self, now: u64, step: u64, debt: &mut [f64]) {
        self.0.retain_mut(|part| {
            let left = part.until.saturating_sub(now);
            let is_last = left <= step;
            let due = if is_last {
                part.ns
            } else {
                part.ns * step as f64 / left as f64
            };
            debt[part.program] += due;
            part.ns -= due;
            !is_last
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_paid_and_as_much_in_each_step() {
        let mut spread = Spread::default();
        spread.add(1, 500.0, 45);
        spread.add(0, 7.0, 3);
        let mut paid = Vec::new();
        for now in (0..60).step_by(10) {
            let mut debt = [0.0; 2];
            spread.pay(now, 10, &mut debt);
            paid.push(debt.map(f64::round));
        }
        let of = |program: usize| paid.iter().map(|debt| debt[program]).collect::<Vec<_>>();
        assert_eq!(of(0), [7.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(1), [111.0, 111.0, 111.0, 111.0, 56.0, 0.0]);
        assert!(spread.0.is_empty());
    }
}
