// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a perf ring, taken apart. Pure: bytes in, values out, whatever the bytes are.
//!
//! Contract: `enum perf_event_type` in `linux/perf_event.h`. A record is a header of 8 bytes (kind,
//! flags, length with the header) and a body in the machine's byte order; a sample's body is the
//! fields that were asked for, in an order that the header fixes. Other records end with some of
//! those fields (`sample_id_all`, which [`super::EventSpec`] always sets). Kinds that nobody asked
//! for are [`Record::Other`].
//!
//! A record that is shorter than its fields is [`Malformed`]; bytes behind the fields are left
//! alone, as kernels may add to a record.

use thiserror::Error;

use super::data_source::DataSource;

/// Of the header, and of the least record.
pub const HEADER_BYTES: usize = 8;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const UNTHROTTLE: u32 = 6;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;

/// `PERF_RECORD_MISC_CPUMODE_MASK` and the user's value.
const MODE_MASK: u16 = 7;
const MODE_USER: u16 = 2;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const MISC_EXEC: u16 = 1 << 13;

/// What a sample holds: bits of `enum perf_event_sample_format`, of those that [`Layout`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields(u64);

impl Fields {
    /// The instruction.
    pub const IP: Self = Self(1);
    /// Process and thread.
    pub const TID: Self = Self(1 << 1);
    /// The kernel's local clock, ns.
    pub const TIME: Self = Self(1 << 2);
    /// The address accessed.
    pub const ADDR: Self = Self(1 << 3);
    /// The processor.
    pub const CPU: Self = Self(1 << 7);
    /// The period it was sampled with.
    pub const PERIOD: Self = Self(1 << 8);
    /// What the access cost.
    pub const WEIGHT: Self = Self(1 << 14);
    /// What served it.
    pub const DATA_SOURCE: Self = Self(1 << 15);
    /// The event, where several share a ring.
    pub const IDENTIFIER: Self = Self(1 << 16);
    /// The physical address.
    pub const PHYS_ADDR: Self = Self(1 << 19);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` are there.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// As the kernel takes them.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Bytes of a sample of these, with its header: each field is one word.
    #[must_use]
    pub const fn sample_bytes(self) -> usize {
        HEADER_BYTES + 8 * self.0.count_ones() as usize
    }
}

/// How the samples of a ring are laid out; the same for all events that write to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout(pub Fields);

/// A sampled event. What was not asked for is 0 or `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// The event ([`super::Event::id`]).
    pub id: u64,
    /// The instruction.
    pub ip: u64,
    /// The process; in the pid namespace of who opened the event, 0 for one outside of it.
    pub pid: u32,
    /// The thread, likewise.
    pub tid: u32,
    /// The kernel's local clock, ns; not `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The address accessed; 0 where the PMU had none.
    pub addr: u64,
    /// The processor.
    pub cpu: u32,
    /// The period.
    pub period: u64,
    /// What the access cost, in the PMU's unit.
    pub weight: u64,
    /// What served it.
    pub source: Option<DataSource>,
    /// The physical address; `None` where the kernel found none.
    pub phys: Option<u64>,
    /// Whether the processor was in user mode.
    pub user: bool,
}

/// A task that begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// The process.
    pub pid: u32,
    /// Its parent; the process itself where a thread begins or ends.
    pub parent: u32,
    /// The thread.
    pub tid: u32,
    /// The kernel's local clock, ns.
    pub time: u64,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A sample.
    Sample(Sample),
    /// Records that found no room in the ring.
    Lost {
        /// The event.
        id: u64,
        /// How many.
        lost: u64,
    },
    /// Samples that the PMU itself lost.
    LostSamples {
        /// How many.
        lost: u64,
    },
    /// The kernel stopped an event because it came too often.
    Throttled {
        /// The event.
        id: u64,
    },
    /// It goes on.
    Unthrottled {
        /// The event.
        id: u64,
    },
    /// A thread or process began.
    Fork(Task),
    /// A thread or process ended.
    Exit(Task),
    /// A process runs another program.
    Exec {
        /// The process.
        pid: u32,
        /// The kernel's local clock, ns; 0 where [`Fields::TIME`] was not asked for.
        time: u64,
    },
    /// A kind nobody asked for.
    Other(u32),
}

/// A record that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("Record of kind {kind} has {bytes} bytes, too few for its fields")]
pub struct Malformed {
    /// Its kind.
    pub kind: u32,
    /// Its length.
    pub bytes: usize,
}

/// Words from the front.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*word))
    }

    fn task(&mut self) -> Option<Task> {
        let (pid, parent, tid) = (self.u32()?, self.u32()?, self.u32()?);
        self.u32()?;
        let time = self.u64()?;
        Some(Task {
            pid,
            parent,
            tid,
            time,
        })
    }
}

/// A record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// Bytes, with the header.
    pub size: u16,
}

impl Header {
    /// The first 8 bytes of a record.
    #[must_use]
    pub fn parse(bytes: [u8; HEADER_BYTES]) -> Self {
        let [k0, k1, k2, k3, m0, m1, s0, s1] = bytes;
        Self {
            kind: u32::from_ne_bytes([k0, k1, k2, k3]),
            misc: u16::from_ne_bytes([m0, m1]),
            size: u16::from_ne_bytes([s0, s1]),
        }
    }
}

impl Layout {
    /// The record that these bytes are, header included.
    ///
    /// # Errors
    ///
    /// Where there are fewer bytes than its kind has.
    pub fn parse(self, bytes: &[u8]) -> Result<Record, Malformed> {
        let malformed = |kind| Malformed {
            kind,
            bytes: bytes.len(),
        };
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(malformed(0));
        };
        let header = Header::parse(*header);
        let parsed = self.body(header, &mut Words(body));
        parsed.ok_or_else(|| malformed(header.kind))
    }

    fn body(self, header: Header, words: &mut Words<'_>) -> Option<Record> {
        Some(match header.kind {
            SAMPLE => Record::Sample(self.sample(header, words)?),
            LOST => Record::Lost {
                id: words.u64()?,
                lost: words.u64()?,
            },
            LOST_SAMPLES => Record::LostSamples { lost: words.u64()? },
            THROTTLE | UNTHROTTLE => {
                words.u64()?;
                let id = words.u64()?;
                if header.kind == THROTTLE {
                    Record::Throttled { id }
                } else {
                    Record::Unthrottled { id }
                }
            }
            FORK => Record::Fork(words.task()?),
            EXIT => Record::Exit(words.task()?),
            COMM if header.misc & MISC_EXEC != 0 => Record::Exec {
                pid: words.u32()?,
                time: self.trailing_time(words.0)?,
            },
            kind => Record::Other(kind),
        })
    }

    /// The time in the trailer of a record that is no sample: process and thread, time, processor,
    /// event, of those that were asked for.
    fn trailing_time(self, body: &[u8]) -> Option<u64> {
        if !self.0.has(Fields::TIME) {
            return Some(0);
        }
        let behind = [Fields::CPU, Fields::IDENTIFIER];
        let behind = behind.iter().filter(|field| self.0.has(**field)).count();
        let at = body.len().checked_sub(8 * (behind + 1))?;
        Words(&body[at..]).u64()
    }

    fn sample(self, header: Header, words: &mut Words<'_>) -> Option<Sample> {
        let has = |field| self.0.has(field);
        let mut sample = Sample {
            user: header.misc & MODE_MASK == MODE_USER,
            ..Sample::default()
        };
        if has(Fields::IDENTIFIER) {
            sample.id = words.u64()?;
        }
        if has(Fields::IP) {
            sample.ip = words.u64()?;
        }
        if has(Fields::TID) {
            (sample.pid, sample.tid) = (words.u32()?, words.u32()?);
        }
        if has(Fields::TIME) {
            sample.time = words.u64()?;
        }
        if has(Fields::ADDR) {
            sample.addr = words.u64()?;
        }
        if has(Fields::CPU) {
            sample.cpu = words.u32()?;
            words.u32()?;
        }
        if has(Fields::PERIOD) {
            sample.period = words.u64()?;
        }
        if has(Fields::WEIGHT) {
            sample.weight = words.u64()?;
        }
        if has(Fields::DATA_SOURCE) {
            sample.source = Some(DataSource(words.u64()?));
        }
        if has(Fields::PHYS_ADDR) {
            sample.phys = Some(words.u64()?).filter(|phys| *phys != 0);
        }
        Some(sample)
    }
}
