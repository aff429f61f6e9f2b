// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual addresses, page sizes and pages of a managed process.

use std::fmt;

/// A process, by its id in the supervisor's pid namespace (its thread-group id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A virtual address in a managed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(pub u64);

impl Addr {
    /// The start of the page of `size` that holds this address.
    #[must_use]
    pub const fn align_down(self, size: PageSize) -> Self {
        Self(self.0 & !(size.bytes() - 1))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The sizes a page can have on x86-64 and on Arm with 4 KiB granule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PageSize {
    /// 4 KiB, a base page.
    #[default]
    Base4K,
    /// 2 MiB, a transparent huge page.
    Huge2M,
    /// 1 GiB.
    Giant1G,
}

impl PageSize {
    /// log2 of the size in bytes: 12, 21 or 30.
    #[must_use]
    pub const fn shift(self) -> u8 {
        match self {
            Self::Base4K => 12,
            Self::Huge2M => 21,
            Self::Giant1G => 30,
        }
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// How many base pages it covers.
    #[must_use]
    pub const fn base_pages(self) -> u64 {
        self.bytes() >> 12
    }

    /// The size with that log2, if there is one.
    #[must_use]
    pub const fn from_shift(shift: u8) -> Option<Self> {
        match shift {
            12 => Some(Self::Base4K),
            21 => Some(Self::Huge2M),
            30 => Some(Self::Giant1G),
            _ => None,
        }
    }
}

/// One page of one process: its first address and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRef {
    /// The process.
    pub pid: Pid,
    /// First address; a multiple of the size.
    pub addr: Addr,
    /// Size.
    pub size: PageSize,
}

/// A half-open range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// First address.
    pub start: Addr,
    /// First address behind it.
    pub end: Addr,
}

impl Range {
    /// Length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether `addr` lies inside.
    #[must_use]
    pub const fn contains(self, addr: Addr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }
}
