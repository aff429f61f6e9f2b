// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the program's mappings are registered, and which may be.
//!
//! A mapping is registered when the first command for a page in it comes, and then as a whole:
//! registering a part would split it, and mremap(2) refuses a range that spans two mappings, so
//! the program would notice. What can be managed: private, anonymous, readable and writable, not
//! executable, not the main stack nor another thread's, not special, not ours, not what our threads' C
//! library stands on. Locked and merged (KSM) pages are refused by the kernel when they are to be moved.
//!
//! For missing pages too only once pages of it are to be out of place: from then on the first touch of an
//! empty page is answered by us.
//!
//! The record is an optimisation: a range missing in it is looked up and registered again, which
//! changes nothing; a range too much in it fails in the kernel, which is safe.

use std::collections::BTreeMap;

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_proto::Outcome;
use terrace_sys::procmaps::Mapping;
use terrace_sys::procmaps::MapsFile;
use terrace_sys::uffd::RwpUffd;
use terrace_sys::uffd::Uffd;

use crate::life::threads::Threads;
use crate::ops::memory;
use crate::state::layout::Layout;

/// Libraries whose zeroed data our threads use: a page of it must never be missing.
const UNDERNEATH: [&str; 7] = [
    "libc.so",
    "libc-",
    "ld-linux",
    "ld-musl",
    "libterrace",
    "libgcc_s",
    "libpthread",
];

/// What a range is registered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum For {
    /// Protection.
    Writes,
    /// Protection, and pages that are out of place.
    Absence,
}

/// The registered ranges.
#[derive(Debug)]
pub(crate) struct Ranges {
    by_start: BTreeMap<u64, (u64, For)>,
    own: [(u64, u64); 2],
}

impl Ranges {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            by_start: BTreeMap::new(),
            own: [(layout.start(), layout.end()), memory::own_image()],
        }
    }

    /// The registered range that holds all of `start..end`.
    pub(crate) fn holding(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        self.registered(start, end)
            .map(|(first, last, _)| (first, last))
    }

    fn registered(&self, start: u64, end: u64) -> Option<(u64, u64, For)> {
        let (first, (last, what)) = self.by_start.range(..=start).next_back()?;
        (*last >= end).then_some((*first, *last, *what))
    }

    /// Sees to it that the page's mapping is registered, for no less than that.
    ///
    /// # Errors
    ///
    /// The outcome for a page that cannot be.
    pub(crate) fn ensure(
        &mut self,
        uffd: &Uffd,
        (maps, threads): (&mut MapsFile, &Threads),
        (start, end): (u64, u64),
        what: For,
    ) -> Result<(), Outcome> {
        if self
            .registered(start, end)
            .is_some_and(|(_, _, has)| has >= what)
        {
            return Ok(());
        }
        let (first, last) = self.register(
            (maps, threads),
            (start, end),
            |first, len| uffd.register(first, len, what == For::Absence),
            |first, len| uffd.unregister(first, len),
        )?;
        self.unmap(first, last);
        self.by_start.insert(first, (last, what));
        Ok(())
    }

    /// Registers the page's mapping for [`crate::ops::arm`]. Not recorded: nothing tells what becomes of it, and the
    /// kernel says where a range is not registered any more.
    ///
    /// # Errors
    ///
    /// As [`Self::ensure`].
    pub(crate) fn register_for_arms(
        &self,
        uffd: &RwpUffd,
        from: (&mut MapsFile, &Threads),
        page: (u64, u64),
    ) -> Result<(), Outcome> {
        let register = |first, len| uffd.register(first, len);
        self.register(from, page, register, |first, len| {
            uffd.unregister(first, len)
        })
        .map(drop)
    }

    /// Registers the mapping of a page as a whole, if it can be managed; gives its range.
    fn register(
        &self,
        (maps, threads): (&mut MapsFile, &Threads),
        (start, end): (u64, u64),
        register: impl FnOnce(u64, u64) -> Result<(), Errno>,
        unregister: impl FnOnce(u64, u64) -> Result<(), Errno>,
    ) -> Result<(u64, u64), Outcome> {
        let mapping = self.manageable(maps, start, end)?;
        let (first, last) = (mapping.range.start.0, mapping.range.end.0);
        if threads.have_a_record_in(first, last) {
            return Err(Outcome::NotManaged);
        }
        match register(first, last - first) {
            Ok(()) => {}
            // The program uses userfaultfd itself there, or the kind is not supported.
            Err(Errno::BUSY | Errno::INVAL | Errno::PERM) => return Err(Outcome::NotManaged),
            Err(_) => return Err(Outcome::Failed),
        }
        // The program may have mapped something else there between the look and the call.
        match self.manageable(maps, start, end) {
            Ok(after) if after.range.start.0 <= first && after.range.end.0 >= last => {
                Ok((first, last))
            }
            _ => {
                let _ = unregister(first, last - first);
                Err(Outcome::Busy)
            }
        }
    }

    fn manageable(&self, maps: &mut MapsFile, start: u64, end: u64) -> Result<Mapping, Outcome> {
        let found = maps.find(Addr(start)).map_err(|_| Outcome::Failed)?;
        let mapping = found.ok_or(Outcome::Gone)?;
        let (first, last) = (mapping.range.start.0, mapping.range.end.0);
        let ours = self.own.iter().any(|(s, e)| first < *e && *s < last);
        let watched = crate::life::door::keeps_out_of(first, last);
        if ours || watched || !mapping.is_plain_anonymous() || last < end {
            return Err(Outcome::NotManaged);
        }
        let before = maps
            .find(Addr(first.saturating_sub(1)))
            .map_err(|_| Outcome::Failed)?;
        if before.is_some_and(|before| holds_us_up(&before.name)) {
            return Err(Outcome::NotManaged);
        }
        Ok(mapping)
    }

    /// The range is not registered any more, or not ours to say.
    pub(crate) fn unmap(&mut self, start: u64, end: u64) {
        while let Some((first, (last, what))) = self
            .by_start
            .range(..end)
            .next_back()
            .map(|(first, range)| (*first, *range))
            .filter(|(_, (last, _))| *last > start)
        {
            self.by_start.remove(&first);
            if first < start {
                self.by_start.insert(first, (start, what));
            }
            if last > end {
                self.by_start.insert(end, (last, what));
            }
        }
    }

    /// The range moved and stayed registered, at least for writes.
    pub(crate) fn follow(&mut self, from: u64, to: u64, len: u64) {
        let before = self.registered(from, from.saturating_add(1));
        let what = before.map_or(For::Writes, |(_, _, what)| what);
        self.unmap(from, from.saturating_add(len));
        self.unmap(to, to.saturating_add(len));
        self.by_start.insert(to, (to.saturating_add(len), what));
    }
}

/// Whether the mapping is of a library whose .bss follows it.
fn holds_us_up(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    name.starts_with('/') && UNDERNEATH.iter().any(|lib| file.starts_with(lib))
}

#[cfg(test)]
mod tests {
    use terrace_core::PageSize;

    use super::*;
    use crate::state::layout::Zone;

    #[test]
    fn ranges_are_cut_and_follow() {
        let layout = Layout::new().expect("address space");
        let mut ranges = Ranges::new(&layout);
        ranges.follow(0, 0x1000, 0x9000);
        assert_eq!(ranges.holding(0x2000, 0x3000), Some((0x1000, 0xa000)));
        ranges.unmap(0x4000, 0x5000);
        assert_eq!(ranges.holding(0x3000, 0x5000), None);
        assert_eq!(ranges.holding(0x5000, 0x6000), Some((0x5000, 0xa000)));
        ranges.follow(0x5000, 0x20000, 0x1000);
        assert_eq!(ranges.holding(0x5000, 0x6000), None);
        assert!(ranges.holding(0x20000, 0x21000).is_some());
        assert!(ranges.holding(0x6000, 0x7000).is_some());
    }

    #[test]
    fn our_own_memory_and_the_c_library_are_refused() {
        let layout = Layout::new().expect("address space");
        let ranges = Ranges::new(&layout);
        let mut maps = MapsFile::own().expect("/proc is mounted");
        let ours = layout.stage(PageSize::Base4K, 0).start;
        layout
            .commit(Zone {
                start: ours,
                len: 4096,
            })
            .expect("a page");
        assert_eq!(
            ranges.manageable(&mut maps, ours, ours + 4096).map(|_| ()),
            Err(Outcome::NotManaged)
        );
        assert!(holds_us_up("/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert!(!holds_us_up("/usr/bin/program"));
        let local = 0_u64;
        let here = (&raw const local).expose_provenance() as u64 & !0xfff;
        let mut stack = maps.all().expect("maps").into_iter();
        let main = stack.find(|m| m.name == "[stack]").expect("a main stack");
        let at = main.range.start.0;
        assert_eq!(
            ranges.manageable(&mut maps, at, at + 4096).map(|_| ()),
            Err(Outcome::NotManaged)
        );
        assert_ne!(here, at);
    }
}
