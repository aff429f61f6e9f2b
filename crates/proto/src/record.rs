// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records in the rings: commands to the agent, reports from it.
//!
//! Four words each. Word 0: kind (bits 0-7), detail (8-15), node (16-31), page shift (32-39),
//! flags (40-47). Word 1: sequence number. Word 2: address. Word 3: partner address, count, or
//! time inaccessible in ns, or when it was armed.

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_core::Range;
use thiserror::Error;

/// Words of a record.
pub const RECORD_WORDS: usize = 4;
/// A record on the wire.
pub type Words = [u64; RECORD_WORDS];

const FLAG_SHADOW: u64 = 1 << 40;
const FLAG_COPY: u64 = 1 << 41;

/// Why a record was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A kind this version does not know.
    #[error("Unknown record kind {0}")]
    Kind(u8),
    /// A detail this version does not know.
    #[error("Unknown detail {detail} in a record of kind {kind}")]
    Detail {
        /// The record's kind.
        kind: u8,
        /// What it said.
        detail: u8,
    },
    /// A range that ends before it starts.
    #[error("Range from {0:#x} to {1:#x}")]
    Range(u64, u64),
    /// Not a page size.
    #[error("Unknown page shift {0}")]
    PageShift(u8),
}

/// What the agent shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Move the page to `node` by a transaction; keep the old page as shadow if asked.
    Promote {
        /// Target node.
        node: NodeId,
        /// Keep the old page as shadow.
        keep_shadow: bool,
    },
    /// Move the page to `node`: onto its shadow without a copy where it has a valid one.
    Demote {
        /// Target node.
        node: NodeId,
        /// Where it has none: by a transaction, else it stays and the answer is
        /// [`Outcome::NoShadow`].
        copy: bool,
    },
    /// Swap the frames of two pages of one size.
    Exchange {
        /// The other page.
        with: Addr,
    },
    /// Drop the page's shadow, if it has one.
    DropShadow,
    /// Drop so many shadows, oldest first (all for `u64::MAX`).
    ReclaimShadows {
        /// How many.
        count: u64,
    },
    /// Take the access from the page, once: the next one faults and goes on. The answer is [`Report::Armed`], or why
    /// not.
    Arm,
    /// Answer when everything before is done.
    Ping,
}

/// An [`Op`] on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// Echoed by the report; never 0.
    pub seq: u64,
    /// What to do.
    pub op: Op,
    /// The page (ignored by `ReclaimShadows` and `Ping`).
    pub addr: Addr,
    /// Its size.
    pub size: PageSize,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Outcome {
    /// Done; for a page operation the page is now where it was sent.
    Done = 1,
    /// Demoted onto its shadow, without a copy.
    ShadowHit = 2,
    /// Done, but a write slipped in behind the commit and the shadow was dropped.
    DoneShadowStale = 3,
    /// Aborted: the program wrote to the page during the copy. Nothing changed; retry later.
    Dirtied = 4,
    /// Refused by the kernel for now: shared after fork, pinned, or under other work.
    Busy = 5,
    /// Nothing is mapped there (any more).
    Gone = 6,
    /// The target node has no free memory.
    NoMemory = 7,
    /// Not memory that transactions can handle (file, shared, locked, read-only, special, own).
    NotManaged = 8,
    /// The agent is shutting down or never could.
    Unavailable = 9,
    /// The kernel said something unexpected; the page is where it was. Errno is in the report.
    Failed = 10,
    /// It has no shadow that is still true, and was not to be copied. Nothing changed.
    NoShadow = 11,
}

impl Outcome {
    /// All of them, for tables.
    pub const ALL: [Self; 11] = [
        Self::Done,
        Self::ShadowHit,
        Self::DoneShadowStale,
        Self::Dirtied,
        Self::Busy,
        Self::Gone,
        Self::NoMemory,
        Self::NotManaged,
        Self::Unavailable,
        Self::Failed,
        Self::NoShadow,
    ];

    /// Whether the page is at its target now.
    #[must_use]
    pub const fn moved(self) -> bool {
        matches!(self, Self::Done | Self::ShadowHit | Self::DoneShadowStale)
    }
}

/// Something the agent tells unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The program wrote to a page with a shadow; the shadow is gone.
    ShadowDropped {
        /// The page.
        addr: Addr,
    },
    /// The program gave the range back (munmap, or madvise that drops its pages).
    Unmapped(Range),
    /// The program moved a mapping of `bytes` from one place to another.
    Remapped {
        /// Old start.
        from: Addr,
        /// New start.
        to: Addr,
    },
    /// Pages and time that fault answers have cost since the last such notice.
    Faults {
        /// Write-protection faults answered.
        write_protect: u64,
        /// Missing-page faults answered.
        missing: u32,
        /// Writes that waited because their page was being moved.
        writes_waited: u32,
    },
}

/// What a report says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportBody {
    /// A command's end; of `ReclaimShadows` where nothing was tried.
    Ended {
        /// Its sequence number.
        seq: u64,
        /// How.
        outcome: Outcome,
        /// The page.
        addr: Addr,
        /// How long the page was inaccessible; 0 where it was not moved.
        inaccessible: Nanos,
        /// errno of `Failed`, else 0.
        errno: u8,
    },
    /// A page is armed: the end of an `Arm`.
    Armed {
        /// Its sequence number.
        seq: u64,
        /// The page.
        addr: Addr,
        /// When its access was taken away, by the monotonic clock.
        since: Nanos,
    },
    /// The end of a `ReclaimShadows`.
    Reclaimed {
        /// Its sequence number.
        seq: u64,
        /// Shadow pages that were dropped.
        shadows: u64,
    },
    /// A notice.
    Notice(Notice),
}

/// One report.
pub type Report = ReportBody;

const K_PROMOTE: u8 = 1;
const K_DEMOTE: u8 = 2;
const K_EXCHANGE: u8 = 3;
const K_DROP: u8 = 4;
const K_RECLAIM: u8 = 5;
const K_PING: u8 = 6;
const K_ARM: u8 = 7;
const K_ENDED: u8 = 32;
const K_SHADOW_DROPPED: u8 = 33;
const K_UNMAPPED: u8 = 34;
const K_REMAPPED: u8 = 35;
const K_FAULTS: u8 = 36;
const K_RECLAIMED: u8 = 37;
const K_ARMED: u8 = 38;

fn byte(word: u64, at: u32) -> u8 {
    word.to_le_bytes()[(at / 8) as usize]
}

impl Command {
    /// As words.
    #[must_use]
    pub fn encode(&self) -> Words {
        let (kind, node, flags, partner) = match self.op {
            Op::Promote { node, keep_shadow } => (
                K_PROMOTE,
                node.0,
                if keep_shadow { FLAG_SHADOW } else { 0 },
                0,
            ),
            Op::Demote { node, copy } => (K_DEMOTE, node.0, if copy { FLAG_COPY } else { 0 }, 0),
            Op::Exchange { with } => (K_EXCHANGE, 0, 0, with.0),
            Op::DropShadow => (K_DROP, 0, 0, 0),
            Op::ReclaimShadows { count } => (K_RECLAIM, 0, 0, count),
            Op::Ping => (K_PING, 0, 0, 0),
            Op::Arm => (K_ARM, 0, 0, 0),
        };
        let head =
            u64::from(kind) | u64::from(node) << 16 | u64::from(self.size.shift()) << 32 | flags;
        [head, self.seq, self.addr.0, partner]
    }

    /// From words.
    ///
    /// # Errors
    ///
    /// Where the peer says something this version does not know.
    pub fn decode(words: &Words) -> Result<Self, DecodeError> {
        let [head, seq, addr, partner] = *words;
        let node = NodeId(u16::from_le_bytes([byte(head, 16), byte(head, 24)]));
        let op = match byte(head, 0) {
            K_PROMOTE => Op::Promote {
                node,
                keep_shadow: head & FLAG_SHADOW != 0,
            },
            K_DEMOTE => Op::Demote {
                node,
                copy: head & FLAG_COPY != 0,
            },
            K_EXCHANGE => Op::Exchange {
                with: Addr(partner),
            },
            K_DROP => Op::DropShadow,
            K_RECLAIM => Op::ReclaimShadows { count: partner },
            K_PING => Op::Ping,
            K_ARM => Op::Arm,
            other => return Err(DecodeError::Kind(other)),
        };
        let shift = byte(head, 32);
        let size = PageSize::from_shift(shift).ok_or(DecodeError::PageShift(shift))?;
        Ok(Self {
            seq,
            op,
            addr: Addr(addr),
            size,
        })
    }
}

impl ReportBody {
    /// As words.
    #[must_use]
    pub fn encode(&self) -> Words {
        match *self {
            Self::Ended {
                seq,
                outcome,
                addr,
                inaccessible,
                errno,
            } => {
                let detail = outcome as u8;
                let head = u64::from(K_ENDED) | u64::from(detail) << 8 | u64::from(errno) << 16;
                [head, seq, addr.0, inaccessible.0]
            }
            Self::Armed { seq, addr, since } => [u64::from(K_ARMED), seq, addr.0, since.0],
            Self::Reclaimed { seq, shadows } => [u64::from(K_RECLAIMED), seq, 0, shadows],
            Self::Notice(Notice::ShadowDropped { addr }) => {
                [u64::from(K_SHADOW_DROPPED), 0, addr.0, 0]
            }
            Self::Notice(Notice::Unmapped(range)) => {
                [u64::from(K_UNMAPPED), 0, range.start.0, range.end.0]
            }
            Self::Notice(Notice::Remapped { from, to }) => [u64::from(K_REMAPPED), 0, from.0, to.0],
            Self::Notice(Notice::Faults {
                write_protect,
                missing,
                writes_waited,
            }) => {
                let head = u64::from(K_FAULTS) | u64::from(writes_waited) << 32;
                [head, 0, write_protect, u64::from(missing)]
            }
        }
    }

    /// From words.
    ///
    /// # Errors
    ///
    /// Where the peer says something this version does not know.
    pub fn decode(words: &Words) -> Result<Self, DecodeError> {
        let [head, seq, addr, value] = *words;
        let kind = byte(head, 0);
        Ok(match kind {
            K_ENDED => {
                let detail = byte(head, 8);
                let outcome = Outcome::ALL
                    .into_iter()
                    .find(|o| *o as u8 == detail)
                    .ok_or(DecodeError::Detail { kind, detail })?;
                Self::Ended {
                    seq,
                    outcome,
                    addr: Addr(addr),
                    inaccessible: Nanos(value),
                    errno: byte(head, 16),
                }
            }
            K_ARMED => Self::Armed {
                seq,
                addr: Addr(addr),
                since: Nanos(value),
            },
            K_RECLAIMED => Self::Reclaimed {
                seq,
                shadows: value,
            },
            K_SHADOW_DROPPED => Self::Notice(Notice::ShadowDropped { addr: Addr(addr) }),
            K_UNMAPPED if addr > value => return Err(DecodeError::Range(addr, value)),
            K_UNMAPPED => Self::Notice(Notice::Unmapped(Range {
                start: Addr(addr),
                end: Addr(value),
            })),
            K_REMAPPED => Self::Notice(Notice::Remapped {
                from: Addr(addr),
                to: Addr(value),
            }),
            K_FAULTS => Self::Notice(Notice::Faults {
                write_protect: addr,
                missing: u32::try_from(value).unwrap_or(u32::MAX),
                writes_waited: u32::try_from(head >> 32).unwrap_or(u32::MAX),
            }),
            other => return Err(DecodeError::Kind(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    use super::*;

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (any::<u16>(), any::<bool>()).prop_map(|(n, keep_shadow)| Op::Promote {
                node: NodeId(n),
                keep_shadow
            }),
            (any::<u16>(), any::<bool>()).prop_map(|(n, copy)| Op::Demote {
                node: NodeId(n),
                copy
            }),
            any::<u64>().prop_map(|a| Op::Exchange { with: Addr(a) }),
            Just(Op::DropShadow),
            any::<u64>().prop_map(|count| Op::ReclaimShadows { count }),
            Just(Op::Ping),
            Just(Op::Arm),
        ]
    }

    proptest! {
        #[test]
        fn commands_survive_the_ring(op in any_op(), seq in any::<u64>(), addr in any::<u64>(), huge in any::<bool>()) {
            let size = if huge { PageSize::Huge2M } else { PageSize::Base4K };
            let command = Command { seq, op, addr: Addr(addr), size };
            prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
        }

        /// Whatever a peer writes that looks like a report, decoding returns and never panics; what it accepts
        /// makes sense, and it can say it again.
        #[test]
        fn fuzz_reports(words in near(&[K_ENDED, K_SHADOW_DROPPED, K_UNMAPPED, K_REMAPPED, K_FAULTS, K_RECLAIMED, K_ARMED])) {
            match Report::decode(&words) {
                Ok(report) => {
                    prop_assert_eq!(Report::decode(&report.encode()), Ok(report));
                    if let Report::Notice(Notice::Unmapped(range)) = report {
                        prop_assert!(range.start <= range.end);
                    }
                    if let Report::Ended { outcome, .. } = report {
                        prop_assert_eq!(outcome as u8, byte(words[0], 8));
                    }
                }
                Err(DecodeError::Kind(kind)) => prop_assert!(kind != K_ENDED && kind != K_FAULTS),
                Err(DecodeError::Detail { kind, detail }) => {
                    prop_assert!(kind == K_ENDED && !(1..=11).contains(&detail));
                }
                Err(DecodeError::Range(start, end)) => prop_assert!(start > end),
                Err(DecodeError::PageShift(_)) => prop_assert!(false, "no report has a size"),
            }
        }

        #[test]
        fn fuzz_commands(words in near(&[K_PROMOTE, K_DEMOTE, K_EXCHANGE, K_DROP, K_RECLAIM, K_PING, K_ARM])) {
            match Command::decode(&words) {
                Ok(command) => {
                    prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
                    prop_assert_eq!(command.size.shift(), byte(words[0], 32));
                }
                Err(DecodeError::PageShift(shift)) => prop_assert!(![12, 21, 30].contains(&shift)),
                Err(error) => prop_assert!(matches!(error, DecodeError::Kind(_)), "{error}"),
            }
        }
    }

    /// Words whose head is right but for one part in eight or so, and whose others are often near each other.
    fn near(kinds: &'static [u8]) -> impl Strategy<Value = Words> {
        let kind = prop_oneof![15 => prop::sample::select(kinds), 1 => any::<u8>()];
        let detail = prop_oneof![15 => 1_u8..12, 1 => any::<u8>()];
        let shift = prop_oneof![15 => prop::sample::select(vec![12_u8, 21, 30]), 1 => any::<u8>()];
        let word = || prop_oneof![any::<u64>(), (0_u64..16).prop_map(|n| n << 12)];
        let rest = (any::<[u8; 5]>(), word(), word(), word());
        (kind, detail, shift, rest).prop_map(|(kind, detail, shift, (other, seq, a, b))| {
            let [low, high, flags, x, y] = other;
            let head = [kind, detail, low, high, shift, flags, x, y];
            [u64::from_le_bytes(head), seq, a, b]
        })
    }

    #[test]
    fn most_fuzzed_words_decode() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let decoded = (0..1000).filter(|_| {
            let words = near(&[K_ENDED, K_UNMAPPED]).new_tree(&mut runner);
            Report::decode(&words.expect("a value").current()).is_ok()
        });
        let share = decoded.count();
        assert!(share > 500, "{share} of 1000");
    }

    #[test]
    fn every_outcome_survives_the_ring() {
        for outcome in Outcome::ALL {
            let report = Report::Ended {
                seq: 3,
                outcome,
                addr: Addr(4096),
                inaccessible: Nanos(77),
                errno: 5,
            };
            assert_eq!(Report::decode(&report.encode()), Ok(report));
        }
    }
}
