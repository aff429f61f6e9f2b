// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages are split from outside ([`terrace_sys::advise::split`]); what visits to base pages take more here is measured before the
//! first is, and what splitting takes with the first.

use std::time::Instant;

use rustix::io::Errno;
use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_policy::Event;
use terrace_policy::Refusal;
use terrace_policy::Served;
use terrace_sys::advise;
use terrace_sys::own_memory::pages_to_spare;
use terrace_sys::process::PidFd;
use terrace_sys::walk;

/// Memory to measure on, at most: 32 MiB, more than a processor remembers the translations of, twice.
const MEASURED_PAGES: u64 = 1 << 13;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Splitting {
    walk: Option<Nanos>,
    /// What splitting took the first time.
    took: Option<Nanos>,
    told: bool,
}

impl Splitting {
    /// Splits it, if it is one, is there and nobody holds it.
    pub(super) fn split(&mut self, page: PageRef) -> Served {
        if page.size != PageSize::Huge2M {
            return Err(Refusal::Unknown);
        }
        self.walk.get_or_insert_with(measure);
        let Ok(process) = PidFd::open(page.pid) else {
            return Ok(());
        };
        let begun = Instant::now();
        match advise::split(&process, page.addr) {
            Err(Errno::PERM | Errno::NOSYS) => Err(Refusal::Denied),
            Ok(()) => {
                self.took.get_or_insert_with(|| begun.elapsed().into());
                Ok(())
            }
            // Gone, or locked: nobody's who asked.
            Err(_) => Ok(()),
        }
    }

    /// What both take, once.
    pub(super) fn tell(&mut self) -> Option<Event> {
        let (walk, split) = self.walk.zip(self.took).filter(|_| !self.told)?;
        self.told = true;
        Some(Event::Parts { walk, split })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a short time"
)]
fn measure() -> Nanos {
    let more = walk::measure(pages_to_spare(MEASURED_PAGES)).unwrap_or(0.0);
    Nanos(more.round() as u64)
}
