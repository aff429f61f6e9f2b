// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it takes to learn from accessed bits here, in the supervisor's thread: taking readings in, planning by them. It is charged to
//! the pass that ends next, as what the reader's thread took: a policy that weighs what looking costs weighs all of it.

use terrace_core::Nanos;
use terrace_sys::clock;

/// Processor time of this thread that went into readings and was charged to no pass yet.
#[derive(Debug, Default)]
pub(super) struct Learning {
    spent: Nanos,
    /// What the thread had run when it began, while it does.
    since: Option<Nanos>,
}

impl Learning {
    pub(super) fn begin(&mut self) {
        self.since = Some(clock::thread_cpu_time());
    }

    pub(super) fn end(&mut self) {
        self.count();
        self.since = None;
    }

    /// A pass is over: all that was not charged yet.
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
        let (mut learning, ms) = (Learning::default(), Nanos::from_millis);
        let begun = clock::thread_cpu_time();
        learning.begin();
        work(ms(4));
        let first = learning.charge();
        work(ms(2));
        learning.end();
        work(ms(20));
        let second = learning.charge();
        assert!(first >= ms(4) && second >= ms(2));
        let all = clock::thread_cpu_time().since(begun);
        assert!(
            first + second + ms(20) <= all,
            "{first:?} {second:?} of {all:?}"
        );
        assert_eq!(learning.charge(), Nanos::ZERO);
    }
}
