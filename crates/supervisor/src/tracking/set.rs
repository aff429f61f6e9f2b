// SPDX-License-Identifier: MIT OR Apache-2.0
//! All trackers of a run, each asked for what it serves.
//!
//! Each tells of the processes that it tracks, and who comes and goes is heard of the first alone. The kernel's
//! own NUMA balancing is kept off where nothing has asked for hint faults, from when a page of theirs is seen on slow
//! memory or ordered to go there: until then it goes on bringing the memory of all programs of the machine to the socket
//! that they run on.

use std::os::fd::BorrowedFd;

use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_policy::Served;
use terrace_track::ChosenFaultTracker;
use terrace_track::TrackError;

use super::Tracking;
use crate::scanner::Quiet;

/// See the module.
#[derive(Debug, Default)]
pub struct Trackers {
    pub(super) all: Vec<Tracking>,
    /// The kernel's own NUMA balancing goes on beside us until we have something to do.
    pub(super) balancing: bool,
    /// Held until the end.
    pub(super) quiet: Option<Quiet>,
}

impl Trackers {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Tracking> {
        self.all.iter()
    }

    /// Each of them, and whether it is the one that says who comes and goes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Tracking, bool)> {
        let all = self.all.iter_mut().enumerate();
        all.map(|(at, one)| (one, at == 0))
    }

    /// Whether it matters that pages are seen on slow memory.
    #[must_use]
    pub const fn minds_slow(&self) -> bool {
        self.balancing
    }

    /// From now on the kernel's own balancing would move pages beside a policy that sees none of its hint faults.
    pub fn no_other_moves(&mut self) {
        if !std::mem::take(&mut self.balancing) {
            return;
        }
        // Who has the scanner has it arm nothing; that it cannot be stopped has been said.
        if self.scan(ScanScope::All, Nanos::MAX, 0) != Err(Refusal::Unserved) {
            return;
        }
        self.quiet = Quiet::keep().unwrap_or_else(|error| {
            tracing::warn!("The kernel's own balancing goes on beside us: {error}");
            None
        });
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Tracks a process with all of them.
    ///
    /// # Errors
    ///
    /// The first one's that refuses; the others track it.
    pub fn add(&mut self, pid: Pid, follow: bool) -> Result<(), TrackError> {
        let mut done = Ok(());
        for one in &mut self.all {
            done = done.and(one.add(pid, follow));
        }
        done
    }

    /// Readable when there is something to read, or much of it: of all, or of those that do not tell at once.
    pub fn fds(&self, all: bool) -> impl Iterator<Item = BorrowedFd<'_>> {
        let those = self.all.iter().filter(move |one| all || !one.tells());
        those.flat_map(Tracking::fds)
    }

    /// Whether all tell as soon as there is anything to read.
    #[must_use]
    pub fn tell(&self) -> bool {
        self.all.iter().all(Tracking::tells)
    }

    /// Arms pages; the largest process has so many bytes.
    ///
    /// # Errors
    ///
    /// Where none has hint faults, or the scanner cannot be set.
    pub fn scan(&mut self, scope: ScanScope, period: Nanos, largest: u64) -> Served {
        let asked = self
            .all
            .iter_mut()
            .map(|one| one.scan(scope, period, largest));
        let served = by_who_serves(asked);
        // From now on the scanner is on or off as the policy has it.
        self.balancing &= served.is_err();
        served
    }

    /// Reads accessed bits in passes of that length, one in so many of all memory.
    ///
    /// # Errors
    ///
    /// Where none does that.
    pub fn read(&self, shortest: Nanos, pass: Nanos, parts: u32) -> Served {
        by_who_serves(self.all.iter().map(|one| one.read(shortest, pass, parts)))
    }

    /// Whether one of them looks at named pages.
    #[must_use]
    pub fn looks(&self) -> bool {
        self.all.iter().any(Tracking::looks)
    }

    /// Looks at these pages, by the one that can.
    pub fn look(&self, pages: Vec<PageRef>) {
        if let Some(one) = self.all.iter().find(|one| one.looks()) {
            one.look(pages);
        }
    }

    /// Takes samples, or none.
    ///
    /// # Errors
    ///
    /// Where none takes any that can be held.
    pub fn sample(&mut self, on: bool) -> Served {
        by_who_serves(self.all.iter_mut().map(|one| one.sample(on)))
    }

    /// A page was moved by us.
    pub fn moved(&mut self, page: PageRef, now: Nanos) {
        self.all.iter_mut().for_each(|one| one.moved(page, now));
    }

    /// A range was unmapped.
    pub fn unmapped(&mut self, pid: Pid, range: Range) {
        self.all.iter_mut().for_each(|one| one.unmapped(pid, range));
    }

    /// The page is about to be armed by itself.
    ///
    /// # Errors
    ///
    /// Where no tracker tells of such pages, or it cannot of this one.
    pub fn order(&mut self, page: PageRef, now: Nanos) -> Served {
        let chosen = self.chosen().ok_or(Refusal::Unserved)?;
        chosen.order(page, now).map_err(|error| {
            tracing::warn!("Page {:#x} not armed: {error:#}", page.addr.0);
            Refusal::Denied
        })
    }

    /// It is armed since then.
    pub fn armed(&mut self, page: PageRef, since: Nanos) {
        if let Some(chosen) = self.chosen() {
            chosen.armed(page, since);
        }
    }

    /// It could not be armed.
    pub fn not_armed(&mut self, page: PageRef) {
        if let Some(chosen) = self.chosen() {
            chosen.refused(page);
        }
    }

    /// Nothing is armed by itself in a process any more.
    pub fn forget_armed(&mut self, pid: Pid) {
        if let Some(chosen) = self.chosen() {
            chosen.forget(pid);
        }
    }

    fn chosen(&mut self) -> Option<&mut ChosenFaultTracker> {
        self.all.iter_mut().find_map(Tracking::chosen)
    }

    /// As [`Tracking::resized`].
    pub fn resized(&mut self, largest: u64) {
        self.all.iter_mut().for_each(|one| one.resized(largest));
    }

    /// Stops looking, or goes on.
    pub fn pause(&mut self, paused: bool) {
        self.all.iter_mut().for_each(|one| one.pause(paused));
    }
}

/// The word of the first that serves it at all.
fn by_who_serves(mut asked: impl Iterator<Item = Served>) -> Served {
    let unserved = Err(Refusal::Unserved);
    asked.find(|one| *one != unserved).unwrap_or(unserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_it_answers_and_else_nobody_does() {
        let unserved = Err(Refusal::Unserved);
        let denied = Err(Refusal::Denied);
        let of = |all: &[Served]| by_who_serves(all.iter().copied());
        assert_eq!(of(&[]), unserved);
        assert_eq!(of(&[unserved, unserved]), unserved);
        assert_eq!(of(&[unserved, Ok(())]), Ok(()));
        assert_eq!(of(&[unserved, denied, Ok(())]), denied);
    }
}
