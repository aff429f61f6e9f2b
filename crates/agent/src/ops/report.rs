// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report ring's end in the agent: several producers behind a lock of their own.
//!
//! Every command gets its report, so a full ring is waited for (outside the state lock); a notice
//! that finds it full is dropped and counted by the ring.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rustix::io::Errno;
use terrace_proto::Notice;
use terrace_proto::Report;
use terrace_proto::ring::Ring;
use terrace_sys::eventfd::EventFd;

use crate::state::lock::Lock;

/// Records kept free for answers: notices stop short of the end.
const KEEP_FREE: u64 = 64;

/// Where reports go.
#[derive(Debug)]
pub(crate) struct Reports {
    ring: Lock<Ring<'static>>,
    bell: EventFd,
}

impl Reports {
    /// # Errors
    ///
    /// `EINVAL` where the memory does not hold one record.
    pub(crate) fn new(words: &'static [AtomicU64], bell: EventFd) -> Result<Self, Errno> {
        let ring = Ring::new(words).ok_or(Errno::INVAL)?;
        Ok(Self {
            ring: Lock::new(ring),
            bell,
        })
    }

    /// Reports a command's end; waits while the ring is full, until `give_up`.
    pub(crate) fn ended(&self, report: Report, give_up: impl Fn() -> bool) {
        let record = report.encode();
        loop {
            {
                let ring = self.ring.lock();
                if ring.len() < ring.capacity() {
                    let _ = ring.push(&record);
                    return;
                }
            }
            if give_up() {
                return;
            }
            self.bell.ring();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Tells something unasked, if there is room.
    pub(crate) fn notice(&self, notice: Notice) {
        let ring = self.ring.lock();
        if ring.len() + KEEP_FREE.min(ring.capacity() / 2) < ring.capacity() {
            let _ = ring.push(&Report::Notice(notice).encode());
        }
    }

    /// Rings the supervisor's bell.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }
}
