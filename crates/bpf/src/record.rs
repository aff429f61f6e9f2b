// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records that cross from the BPF program, and their decoding.
//!
//! `bpf/hint_faults.h` defines the format; the offsets here repeat the ones it asserts. Pure: the
//! ring, the maps and libbpf are [`crate::driver`]'s business.

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_core::Range;
use thiserror::Error;

/// Size of every record.
pub const WIRE_BYTES: usize = 48;

const KIND_SCAN: u8 = 1;
const KIND_FAULT: u8 = 2;
const KIND_FORK: u8 = 3;
const KIND_EXEC: u8 = 4;
const KIND_EXIT: u8 = 5;
const FLAG_WRITE: u8 = 1;
const FLAG_MIGRATED: u8 = 2;
pub(crate) const NO_NODE: u16 = 0xffff;

/// An access to a page that the scanner had marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: u32,
    /// The processor it ran on.
    pub cpu: u32,
    /// The node of that processor.
    pub cpu_node: Option<NodeId>,
    /// The address it touched, to the byte.
    pub addr: Addr,
    /// Where the page is (after the fault, if the kernel moved it).
    pub node: Option<NodeId>,
    /// Base pages the fault made accessible again: 1, 512, or a multi-size huge page's.
    pub pages: u16,
    /// Whether it was a write.
    pub write: bool,
    /// Whether the kernel moved the page in this fault by itself.
    pub migrated: bool,
    /// When.
    pub time: Nanos,
    /// How long the kernel had been at it then.
    pub took: Nanos,
}

/// What the BPF program saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The scanner begins to mark a range.
    Scan {
        /// The process.
        pid: Pid,
        /// What is marked. Pages that already are marked stay as they were.
        range: Range,
        /// When, before the first page is marked.
        time: Nanos,
    },
    /// A hint fault.
    Fault(Fault),
    /// A followed process has a child, which is managed from now on.
    Fork {
        /// The parent.
        parent: Pid,
        /// The child.
        child: Pid,
        /// When.
        time: Nanos,
    },
    /// A managed process replaced its address space.
    Exec {
        /// The process.
        pid: Pid,
        /// When.
        time: Nanos,
    },
    /// The last thread of a managed process ended; it is managed no more.
    Exit {
        /// The process.
        pid: Pid,
        /// When.
        time: Nanos,
    },
}

/// Why a record was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Cut off, or of another build.
    #[error("Record has {got} bytes, expected {WIRE_BYTES}")]
    Length {
        /// What it has.
        got: usize,
    },
    /// Not one of ours.
    #[error("Unknown record kind {0}")]
    Kind(u8),
    /// Ends before it starts.
    #[error("Scan of {start:#x} ends at {end:#x}, before it starts")]
    Range {
        /// Its start.
        start: u64,
        /// Its end.
        end: u64,
    },
    /// No fault makes that many pages accessible.
    #[error("Fault covers {0} pages, expected 1 to 512")]
    Pages(u16),
}

/// Decodes one record.
///
/// # Errors
///
/// Where the bytes cannot have come from the program this was built with.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let wire: &[u8; WIRE_BYTES] = bytes
        .try_into()
        .map_err(|_| DecodeError::Length { got: bytes.len() })?;
    let time = Nanos(u64_at(wire, 0));
    let (start, end) = (u64_at(wire, 8), u64_at(wire, 16));
    let pid = Pid(u32_at(wire, 24));
    match wire[44] {
        KIND_SCAN if end < start => Err(DecodeError::Range { start, end }),
        KIND_SCAN => Ok(Record::Scan {
            pid,
            range: Range {
                start: Addr(start),
                end: Addr(end),
            },
            time,
        }),
        KIND_FAULT => decode_fault(wire, pid, time).map(Record::Fault),
        KIND_FORK => Ok(Record::Fork {
            parent: Pid(u32_at(wire, 32)),
            child: pid,
            time,
        }),
        KIND_EXEC => Ok(Record::Exec { pid, time }),
        KIND_EXIT => Ok(Record::Exit { pid, time }),
        other => Err(DecodeError::Kind(other)),
    }
}

fn decode_fault(wire: &[u8; WIRE_BYTES], pid: Pid, time: Nanos) -> Result<Fault, DecodeError> {
    let node = |at| Some(u16_at(wire, at)).filter(|node| *node != NO_NODE);
    let pages = u16_at(wire, 42);
    if !(1..=512).contains(&pages) {
        return Err(DecodeError::Pages(pages));
    }
    Ok(Fault {
        pid,
        tid: u32_at(wire, 28),
        cpu: u32_at(wire, 36),
        cpu_node: node(46).map(NodeId),
        addr: Addr(u64_at(wire, 8)),
        node: node(40).map(NodeId),
        pages,
        write: wire[45] & FLAG_WRITE != 0,
        migrated: wire[45] & FLAG_MIGRATED != 0,
        time,
        took: time.since(Nanos(u64_at(wire, 16))),
    })
}

pub(crate) fn u16_at(wire: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([wire[at], wire[at + 1]])
}

pub(crate) fn u32_at(wire: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&wire[at..at + 4]);
    u32::from_ne_bytes(word)
}

pub(crate) fn u64_at(wire: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&wire[at..at + 8]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The other direction, for the tests: what the BPF program writes.
    fn encode(record: &Record) -> [u8; WIRE_BYTES] {
        let mut wire = [0u8; WIRE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| wire[at..at + bytes.len()].copy_from_slice(bytes);
        put(40, &NO_NODE.to_ne_bytes());
        put(46, &NO_NODE.to_ne_bytes());
        let (kind, pid, time) = match *record {
            Record::Scan { pid, range, time } => {
                put(8, &range.start.0.to_ne_bytes());
                put(16, &range.end.0.to_ne_bytes());
                (KIND_SCAN, pid, time)
            }
            Record::Fault(f) => {
                put(8, &f.addr.0.to_ne_bytes());
                put(16, &(f.time.0 - f.took.0).to_ne_bytes());
                put(28, &f.tid.to_ne_bytes());
                put(36, &f.cpu.to_ne_bytes());
                put(40, &f.node.map_or(NO_NODE, |n| n.0).to_ne_bytes());
                put(46, &f.cpu_node.map_or(NO_NODE, |n| n.0).to_ne_bytes());
                put(42, &f.pages.to_ne_bytes());
                put(45, &[u8::from(f.write) | u8::from(f.migrated) << 1]);
                (KIND_FAULT, f.pid, f.time)
            }
            Record::Fork {
                parent,
                child,
                time,
            } => {
                put(32, &parent.0.to_ne_bytes());
                (KIND_FORK, child, time)
            }
            Record::Exec { pid, time } => (KIND_EXEC, pid, time),
            Record::Exit { pid, time } => (KIND_EXIT, pid, time),
        };
        put(0, &time.0.to_ne_bytes());
        put(24, &pid.0.to_ne_bytes());
        put(44, &[kind]);
        wire
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let fault = (
            any::<(u32, u32, u32, u64)>(),
            [(); 2].map(|()| proptest::option::of(0..NO_NODE)),
            1u16..=512,
            any::<(bool, bool, u64, u64)>(),
        )
            .prop_map(
                |(
                    (pid, tid, cpu, addr),
                    [node, cpu_node],
                    pages,
                    (write, migrated, time, took),
                )| {
                    Record::Fault(Fault {
                        pid: Pid(pid),
                        tid,
                        cpu,
                        cpu_node: cpu_node.map(NodeId),
                        addr: Addr(addr),
                        node: node.map(NodeId),
                        pages,
                        write,
                        migrated,
                        time: Nanos(time),
                        took: Nanos(took.min(time)),
                    })
                },
            );
        let other =
            (any::<(u32, u32, u64, u64, u64)>(), 0u8..4).prop_map(|((a, b, x, y, time), which)| {
                let (pid, time) = (Pid(a), Nanos(time));
                match which {
                    0 => Record::Scan {
                        pid,
                        range: Range {
                            start: Addr(x.min(y)),
                            end: Addr(x.max(y)),
                        },
                        time,
                    },
                    1 => Record::Fork {
                        parent: Pid(b),
                        child: pid,
                        time,
                    },
                    2 => Record::Exec { pid, time },
                    _ => Record::Exit { pid, time },
                }
            });
        prop_oneof![fault, other]
    }

    proptest! {
        #[test]
        fn every_record_survives_the_wire(record in any_record()) {
            prop_assert_eq!(decode(&encode(&record)), Ok(record));
        }

        /// Any bytes decode to what encodes back to the same meaning, or are refused.
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            match decode(&bytes) {
                Ok(record) => prop_assert_eq!(decode(&encode(&record)), Ok(record)),
                Err(DecodeError::Length { got }) => prop_assert_ne!(got, WIRE_BYTES),
                Err(_) => prop_assert_eq!(bytes.len(), WIRE_BYTES),
            }
        }

        /// Records that are right but for some bytes: what is accepted makes sense and means the same again.
        #[test]
        fn fuzz_records(
            record in any_record(),
            wrong in prop::collection::vec((0..WIRE_BYTES, any::<u8>()), 0..3),
            cut in prop_oneof![15 => Just(WIRE_BYTES), 1 => 0..WIRE_BYTES],
        ) {
            let mut wire = encode(&record);
            wrong.iter().for_each(|(at, byte)| wire[*at] = *byte);
            match decode(&wire[..cut]) {
                Ok(record) => {
                    prop_assert_eq!(decode(&encode(&record)), Ok(record));
                    match record {
                        Record::Scan { range, .. } => prop_assert!(range.start <= range.end),
                        Record::Fault(fault) => prop_assert!((1..=512).contains(&fault.pages)),
                        _ => {}
                    }
                }
                Err(DecodeError::Length { got }) => prop_assert!(got == cut && cut < WIRE_BYTES),
                Err(_) => prop_assert!(!wrong.is_empty()),
            }
        }
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        let mut wire = [0u8; WIRE_BYTES];
        assert_eq!(decode(&wire), Err(DecodeError::Kind(0)));
        wire[44] = KIND_FAULT;
        assert_eq!(decode(&wire), Err(DecodeError::Pages(0)));
        wire[44] = KIND_SCAN;
        wire[8] = 1;
        assert_eq!(decode(&wire), Err(DecodeError::Range { start: 1, end: 0 }));
        assert_eq!(decode(&wire[1..]), Err(DecodeError::Length { got: 47 }));
    }
}
