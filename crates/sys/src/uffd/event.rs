// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes `struct uffd_msg`. Pure but for the descriptor that a fork event carries.

use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use linux_raw_sys::general as abi;

/// Size of one event on the wire.
pub const EVENT_BYTES: usize = 32;
const _: () = assert!(size_of::<abi::uffd_msg>() == EVENT_BYTES);

const PAGEFAULT: u8 = 0x12;
const FORK: u8 = 0x13;
const REMAP: u8 = 0x14;
const REMOVE: u8 = 0x15;
const UNMAP: u8 = 0x16;
const FLAG_WRITE: u64 = 1;
const FLAG_WP: u64 = 2;

/// What the kernel tells.
#[derive(Debug)]
pub enum Event {
    /// A write met write protection. The thread waits.
    WriteProtected {
        /// The address, page aligned.
        addr: u64,
    },
    /// An access found no page. The thread waits.
    Missing {
        /// The address, page aligned.
        addr: u64,
        /// The access is a write.
        write: bool,
    },
    /// The process forked; the child's context. The forking thread waits until this was read.
    Fork(Option<OwnedFd>),
    /// A mapping was moved. The thread waits until this was read.
    Remap {
        /// Old start.
        from: u64,
        /// New start.
        to: u64,
        /// Length.
        len: u64,
    },
    /// Pages are about to be dropped: the thread waits until this was read and drops them *then*.
    Remove {
        /// First byte.
        start: u64,
        /// First byte behind.
        end: u64,
    },
    /// A range was unmapped. The thread waits until this was read.
    Unmap {
        /// First byte.
        start: u64,
        /// First byte behind.
        end: u64,
    },
    /// A kind this version does not know.
    Unknown(u8),
}

impl Event {
    /// Decodes one message.
    ///
    /// # Safety
    ///
    /// The bytes must come straight from [`super::Uffd::read`] and be decoded once: a fork event
    /// names a descriptor that this takes ownership of.
    #[must_use]
    pub unsafe fn decode(wire: &[u8; EVENT_BYTES]) -> Self {
        let [a, b, c] = [8, 16, 24].map(|at| u64_at(wire, at));
        match wire[0] {
            PAGEFAULT if a & FLAG_WP != 0 => Self::WriteProtected { addr: b & !0xfff },
            PAGEFAULT => Self::Missing {
                addr: b & !0xfff,
                write: a & FLAG_WRITE != 0,
            },
            FORK => Self::Fork(i32::try_from(a & 0xffff_ffff).ok().map(|fd| {
                // SAFETY: the kernel installed this descriptor for the reader of this message,
                // and the caller decodes it once.
                unsafe { OwnedFd::from_raw_fd(fd) }
            })),
            REMAP => Self::Remap {
                from: a,
                to: b,
                len: c,
            },
            REMOVE => Self::Remove { start: a, end: b },
            UNMAP => Self::Unmap { start: a, end: b },
            other => Self::Unknown(other),
        }
    }
}

fn u64_at(wire: &[u8; EVENT_BYTES], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&wire[at..at + 8]);
    u64::from_ne_bytes(raw)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Messages of every kind; no fork that names a descriptor, which would be taken.
        #[test]
        fn fuzz_uffd_events(
            kind in prop_oneof![15 => PAGEFAULT..=UNMAP, 1 => any::<u8>()],
            words in any::<[u64; 3]>(),
        ) {
            let [a, b, c] = words;
            let a = if kind == FORK { a | 0x8000_0000 } else { a };
            // SAFETY: a fork names no descriptor: the number is negative.
            let event = unsafe { Event::decode(&wire(kind, [a, b, c])) };
            match event {
                Event::WriteProtected { addr } | Event::Missing { addr, .. } => {
                    prop_assert!(kind == PAGEFAULT && addr % 4096 == 0 && b - addr < 4096);
                }
                Event::Fork(fd) => prop_assert!(kind == FORK && fd.is_none()),
                Event::Remap { from, to, len } => prop_assert_eq!((kind, from, to, len), (REMAP, a, b, c)),
                Event::Remove { start, end } => prop_assert_eq!((kind, start, end), (REMOVE, a, b)),
                Event::Unmap { start, end } => prop_assert_eq!((kind, start, end), (UNMAP, a, b)),
                Event::Unknown(other) => prop_assert!(other == kind && !(PAGEFAULT..=UNMAP).contains(&kind)),
            }
        }
    }

    fn wire(kind: u8, words: [u64; 3]) -> [u8; EVENT_BYTES] {
        let mut out = [0; EVENT_BYTES];
        out[0] = kind;
        for (at, word) in words.into_iter().enumerate() {
            out[8 + at * 8..16 + at * 8].copy_from_slice(&word.to_ne_bytes());
        }
        out
    }

    #[test]
    fn kinds_are_told_apart() {
        // SAFETY: none of these names a descriptor.
        let decode = |kind, words| unsafe { Event::decode(&wire(kind, words)) };
        assert!(matches!(
            decode(PAGEFAULT, [3, 0x1234, 0]),
            Event::WriteProtected { addr: 0x1000 }
        ));
        assert!(matches!(
            decode(PAGEFAULT, [1, 0x5000, 0]),
            Event::Missing {
                addr: 0x5000,
                write: true
            }
        ));
        assert!(matches!(
            decode(PAGEFAULT, [0, 0x5000, 0]),
            Event::Missing { write: false, .. }
        ));
        assert!(matches!(
            decode(REMAP, [1, 2, 3]),
            Event::Remap {
                from: 1,
                to: 2,
                len: 3
            }
        ));
        assert!(matches!(
            decode(REMOVE, [1, 2, 0]),
            Event::Remove { start: 1, end: 2 }
        ));
        assert!(matches!(
            decode(UNMAP, [1, 2, 0]),
            Event::Unmap { start: 1, end: 2 }
        ));
        assert!(matches!(decode(0x77, [1, 2, 0]), Event::Unknown(0x77)));
    }
}
