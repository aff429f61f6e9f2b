// SPDX-License-Identifier: MIT OR Apache-2.0
//! A zone of the layout cut into pages, mapped as they are needed.

use rustix::io::Errno;
use terrace_core::PageSize;

use crate::state::extents::Extents;
use crate::state::layout::Zone;

/// Bytes made usable at a time.
const GROW: u64 = 4 << 20;

/// A zone cut into pages.
#[derive(Debug)]
pub(super) struct Area {
    zone: Zone,
    size: PageSize,
    extents: Extents,
    usable: u64,
}

impl Area {
    pub(super) const fn new(zone: Zone, size: PageSize) -> Self {
        Self {
            zone,
            size,
            extents: Extents::new(zone.len / size.bytes()),
            usable: 0,
        }
    }

    /// Empty addresses, at most `want` pages in a row: (first address, pages). `grow` makes a part usable.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where the zone is full; those of `grow`.
    pub(super) fn take(
        &mut self,
        want: u64,
        mut grow: impl FnMut(Zone) -> Result<(), Errno>,
    ) -> Result<(u64, u64), Errno> {
        let (first, count) = self.extents.take(want).ok_or(Errno::NOMEM)?;
        let needed = self.extents.grown_to() * self.size.bytes();
        while self.usable < needed {
            let len = GROW.min(self.zone.len - self.usable);
            let part = Zone {
                start: self.zone.start + self.usable,
                len,
            };
            if let Err(error) = grow(part) {
                for page in first..first + count {
                    self.extents.give(page);
                }
                return Err(error);
            }
            self.usable += len;
        }
        Ok((self.zone.start + first * self.size.bytes(), count))
    }

    pub(super) const fn contains(&self, addr: u64) -> bool {
        self.zone.contains(addr)
    }

    /// The page at the address is empty again.
    pub(super) fn give(&mut self, addr: u64) {
        self.extents
            .give((addr - self.zone.start) / self.size.bytes());
    }
}
