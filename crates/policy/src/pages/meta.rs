// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of one page, in 8 bytes; classes of idle times.
//!
//! Times are kept to 2^24 ns (16.8 ms) in 32 bits: enough for 2.2 years of the caller's clock.

use terrace_core::Nanos;
use terrace_core::NodeId;

pub(super) const NO_NODE: u8 = u8::MAX;
const TIME_SHIFT: u8 = 24;

/// Where a page stands in a policy's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum State {
    /// In no queue.
    #[default]
    Idle,
    /// Referenced once, waits for the second reference.
    Candidate,
    /// Chosen, waits for its migration.
    Pending,
    /// Its migration is under way.
    InFlight,
}

/// Metadata of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub(super) last_ref: u32,
    pub(super) node: u8,
    /// Heat of the last references: class of the captured idle time, see [`idle_class`].
    pub idle_class: u8,
    /// Its queue.
    pub state: State,
    bits: u8,
}

const _: () = assert!(size_of::<Meta>() == 8);

const SHADOW: u8 = 1;
const WRITTEN: u8 = 1 << 1;
const TURNED: u8 = 1 << 2;
const RETRIES_SHIFT: u8 = 4;

impl Default for Meta {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl Meta {
    pub(super) const UNKNOWN: Self = Self {
        last_ref: 0,
        node: NO_NODE,
        idle_class: u8::MAX,
        state: State::Idle,
        bits: 0,
    };

    pub(super) const fn is_known(&self) -> bool {
        self.node != NO_NODE
    }

    /// When the page was last seen accessed (or arrived), rounded down to 2^24 ns.
    #[must_use]
    pub const fn last_ref(&self) -> Nanos {
        unit_start(self.last_ref)
    }

    /// Notes an access.
    pub const fn touch(&mut self, now: Nanos) {
        self.last_ref = unit_of(now);
    }

    /// Where the page is, if known.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        if self.node == NO_NODE {
            None
        } else {
            Some(NodeId(self.node as u16))
        }
    }

    /// Notes where the page is. Nodes above 254 are not told apart (the kernel's limit is 1024,
    /// machines have at most some dozens).
    pub fn set_node(&mut self, node: NodeId) {
        self.node = node_byte(node);
    }

    const fn bit(self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    const fn set_bit(&mut self, bit: u8, on: bool) {
        if on {
            self.bits |= bit
        } else {
            self.bits &= !bit
        }
    }

    /// Whether a valid shadow is known.
    #[must_use]
    pub const fn shadow(&self) -> bool {
        self.bit(SHADOW)
    }

    /// Notes a shadow's coming or going.
    pub const fn set_shadow(&mut self, on: bool) {
        self.set_bit(SHADOW, on);
    }

    /// Whether the last access seen was a write.
    #[must_use]
    pub const fn written(&self) -> bool {
        self.bit(WRITTEN)
    }

    /// Notes what the last access was.
    pub const fn set_written(&mut self, on: bool) {
        self.set_bit(WRITTEN, on);
    }

    /// Whether the page was migrated before: moving it back would be a turn.
    #[must_use]
    pub const fn turned(&self) -> bool {
        self.bit(TURNED)
    }

    /// Notes a migration.
    pub const fn set_turned(&mut self, on: bool) {
        self.set_bit(TURNED, on);
    }

    /// Tries since the last success, at most 15.
    #[must_use]
    pub const fn retries(&self) -> u8 {
        self.bits >> RETRIES_SHIFT
    }

    /// Sets the tries.
    pub fn set_retries(&mut self, n: u8) {
        self.bits = (self.bits & ((1 << RETRIES_SHIFT) - 1)) | (n.min(15) << RETRIES_SHIFT);
    }
}

pub(super) const fn unit_start(unit: u32) -> Nanos {
    Nanos((unit as u64) << TIME_SHIFT)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "2^56 ns are 2.2 years, see above"
)]
pub(super) const fn unit_of(time: Nanos) -> u32 {
    (time.0 >> TIME_SHIFT) as u32
}

pub(super) fn node_byte(node: NodeId) -> u8 {
    u8::try_from(node.0).unwrap_or(NO_NODE).min(NO_NODE - 1)
}

/// Class of an idle time: eight per doubling of the time in microseconds, 0 for the hottest.
/// From half an hour on all are one class; unknown is colder still.
#[must_use]
pub fn idle_class(idle: Option<Nanos>) -> u8 {
    let Some(idle) = idle else { return u8::MAX };
    let micros = (idle.0 / 1_000).max(1);
    let octave = micros.ilog2();
    let eighth = if octave >= 3 {
        (micros >> (octave - 3)) & 7
    } else {
        (micros << (3 - octave)) & 7
    };
    u8::try_from(u64::from(octave) * 8 + eighth)
        .unwrap_or(u8::MAX)
        .min(u8::MAX - 1)
}

/// The shortest idle time of a class.
#[must_use]
pub const fn class_idle(class: u8) -> Nanos {
    let octave = class / 8;
    let eighth = (class % 8) as u64;
    let micros = if octave >= 3 {
        (8 + eighth) << (octave - 3)
    } else {
        (8 + eighth) >> (3 - octave)
    };
    Nanos(micros.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Classes keep the order of idle times, and are at most an eighth of a doubling wide.
        #[test]
        fn classes_keep_order(a in 1_000_u64..1 << 41, b in 1_000_u64..1 << 41) {
            let (ca, cb) = (idle_class(Some(Nanos(a))), idle_class(Some(Nanos(b))));
            if a <= b { prop_assert!(ca <= cb); } else { prop_assert!(cb <= ca); }
            let floor = class_idle(ca).0;
            prop_assert!(floor <= a, "{floor} > {a}");
            prop_assert!(a < floor + floor / 8 + 2_000 || floor < 8_000);
        }

        /// What is packed into the bytes comes out again, and nothing disturbs another.
        #[test]
        fn bits_do_not_mix(node in 0_u16..255, retries in 0_u8..16, on in any::<[bool; 3]>(), time in 0_u64..1 << 56) {
            let mut meta = Meta::default();
            meta.set_retries(retries);
            meta.set_shadow(on[0]);
            meta.set_written(on[1]);
            meta.set_turned(on[2]);
            meta.set_node(NodeId(node));
            meta.touch(Nanos(time));
            prop_assert_eq!([meta.shadow(), meta.written(), meta.turned()], on);
            prop_assert_eq!(meta.retries(), retries);
            prop_assert_eq!(meta.node(), Some(NodeId(node)));
            prop_assert!(meta.last_ref().0 <= time && time - meta.last_ref().0 < 1 << 24);
        }
    }

    #[test]
    fn unknown_idle_is_coldest() {
        assert_eq!(idle_class(None), u8::MAX);
        assert!(idle_class(Some(Nanos::from_secs(3600))) < u8::MAX);
    }

    #[test]
    fn a_node_beyond_the_byte_is_still_a_node() {
        let mut meta = Meta::default();
        assert_eq!(meta.node(), None);
        for beyond in [254, 255, 256, 1023] {
            meta.set_node(NodeId(beyond));
            assert_eq!(meta.node(), Some(NodeId(254)));
        }
    }
}
