// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one clock of the agent: monotonic nanoseconds, for how long a page was inaccessible.

/// Now.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
