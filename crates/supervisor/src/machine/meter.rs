// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the supervisor's own thread spends on something, until that is charged to what it was for: taking readings in and planning by
//! them to the pass that ends next, giving orders and taking their ends in to the orders that end next. A policy that weighs what
//! looking and moving cost weighs all of it.

use terrace_core::Nanos;
use terrace_sys::clock;

/// Processor time of this thread that was charged to nothing yet.
#[derive(Debug, Default)]
pub(super) struct Meter {
    spent: Nanos,
    /// What the thread had run when it began, while it does.
    since: Option<Nanos>,
}

impl Meter {
    pub(super) fn begin(&mut self) {
        self.since = Some(clock::thread_cpu_time());
    }

    pub(super) fn end(&mut self) {
        self.count();
        self.since = None;
    }

    /// Ends what came to nothing.
    pub(super) fn discard(&mut self) {
        self.since = None;
    }

    /// All that was not charged yet.
    pub(super) fn charge(&mut self) -> Nanos {
        self.count();
        std::mem::take(&mut self.spent)
    }

    fn count(&mut self) {
        if let Some(since) = &mut self.since {
            let now = clock::thread_cpu_time();
            self.spent = self.spent + now.since(*since);
            *since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(time: Nanos) {
        let until = clock::thread_cpu_time() + time;
        while clock::thread_cpu_time() < until {}
    }

    #[test]
    fn what_is_spent_between_begin_and_end_is_charged_once() {
        let (mut meter, ms) = (Meter::default(), Nanos::from_millis);
        let begun = clock::thread_cpu_time();
        meter.begin();
        work(ms(4));
        let first = meter.charge();
        work(ms(2));
        meter.end();
        work(ms(20));
        let second = meter.charge();
        assert!(first >= ms(4) && second >= ms(2));
        let all = clock::thread_cpu_time().since(begun);
        assert!(
            first + second + ms(20) <= all,
            "{first:?} {second:?} of {all:?}"
        );
        assert_eq!(meter.charge(), Nanos::ZERO);
    }
}
