// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved fast pages of each node (4.3): a promotion takes one and waits for nothing; below a mark the background
//! demotion (`kdemoted`) wakes and demotes in a batch what the reserve lacks.
//!
//! In user space no page can be held back: the reserve is memory of the node that was free at the start or that demotion
//! has freed, and that no promotion was given. Should somebody else take it, an allocation fails, and the reserve is empty.

use terrace_core::PageSize;

use super::params::Params;

/// Of one size.
#[derive(Debug, Clone, Copy, Default)]
struct Pages {
    here: u32,
    /// On their way from here.
    leaving: u32,
    /// Demotion is to go up to this level; woken.
    awake: Option<u8>,
    /// It has had what was free at the start.
    filled: bool,
}

/// One node's.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reserve {
    base: Pages,
    huge: Pages,
}

impl Reserve {
    const fn of(&mut self, size: PageSize) -> &mut Pages {
        match size {
            PageSize::Base4K => &mut self.base,
            _ => &mut self.huge,
        }
    }

    /// Bytes in reserve.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.base.here) * PageSize::Base4K.bytes()
            + u64::from(self.huge.here) * PageSize::Huge2M.bytes()
    }

    /// Pages of 4 KiB and of 2 MiB in reserve.
    pub(super) const fn pages(&self) -> (u32, u32) {
        (self.base.here, self.huge.here)
    }

    /// Takes one for a page that was accessed in so many rounds; false where none is left.
    pub(super) fn take(&mut self, size: PageSize, level: u8, params: &Params) -> bool {
        let low = match size {
            PageSize::Base4K => params.reserved_low,
            _ => params.reserved_huge_low,
        };
        let pages = self.of(size);
        let taken = pages.here > 0;
        pages.here = pages.here.saturating_sub(1);
        if pages.here < low {
            pages.awake = pages.awake.max(Some(level));
        }
        taken
    }

    /// The page that one was taken for did not come.
    pub(super) const fn put_back(&mut self, size: PageSize) {
        self.of(size).here += 1;
    }

    /// Somebody else has taken all.
    pub(super) const fn lost(&mut self, size: PageSize) {
        self.of(size).here = 0;
    }

    /// Takes what it lacks of so much free memory, once.
    pub(super) fn fill(&mut self, size: PageSize, room: u64, params: &Params) {
        let full = full(size, params);
        let pages = self.of(size);
        if !std::mem::replace(&mut pages.filled, true) {
            let lacking = full.saturating_sub(pages.here + pages.leaving);
            let fit = u32::try_from(room / size.bytes()).unwrap_or(u32::MAX);
            pages.here += lacking.min(fit);
        }
    }

    /// If it is awake: pages that it lacks, and the level that victims are to be under. Asleep from then on.
    pub(super) fn wanted(&mut self, size: PageSize, params: &Params) -> Option<(u32, u8)> {
        let full = full(size, params);
        let pages = self.of(size);
        let level = pages.awake.take()?;
        Some((full.saturating_sub(pages.here + pages.leaving), level))
    }

    /// So many pages of that size are being demoted for it.
    pub(super) const fn leaves(&mut self, size: PageSize, pages: u32) {
        self.of(size).leaving += pages;
    }

    /// They have left, or stay.
    pub(super) const fn left(&mut self, size: PageSize, pages: u32, moved: bool) {
        let of = self.of(size);
        of.leaving = of.leaving.saturating_sub(pages);
        if moved {
            of.here += pages;
        }
    }
}

/// Pages that are to be in reserve.
const fn full(size: PageSize, params: &Params) -> u32 {
    match size {
        PageSize::Base4K => params.reserved_pages,
        _ => params.reserved_huge,
    }
}
