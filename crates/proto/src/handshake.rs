// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first two messages of a connection.

use thiserror::Error;

/// Both sides must speak the same version; a supervisor refuses any other.
pub const PROTOCOL_VERSION: u32 = 5;
/// Size of [`Hello`] on the wire.
pub const HELLO_BYTES: usize = 48;
/// Size of [`Welcome`] on the wire.
pub const WELCOME_BYTES: usize = 32;

const MAGIC: u64 = u64::from_le_bytes(*b"terrace\x01");

/// What an agent can do, as bits of [`Hello::features`].
pub mod features {
    /// userfaultfd is open for kernel faults too, with MOVE and write protection.
    pub const TRANSACTIONS: u64 = 1;
    /// The kernel reports forks (needs `CAP_SYS_PTRACE`); else `pthread_atfork` quiesces.
    pub const EVENT_FORK: u64 = 1 << 1;
    /// Writes to protected pages wait for nobody (`UFFD_FEATURE_WP_ASYNC`), so pages can have shadows.
    pub const SHADOWS: u64 = 1 << 2;
    /// Pages can be armed (`UFFD_FEATURE_RWP_ASYNC`): their next access faults and goes on.
    pub const ARMS: u64 = 1 << 3;
}

/// Why a peer's first message was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// Not our protocol at all.
    #[error("Peer does not speak the agent protocol (magic {0:#x})")]
    Magic(u64),
    /// Ours, of another version.
    #[error(
        "Peer speaks protocol version {peer}, this is {PROTOCOL_VERSION}: use the libterrace.so of the same build"
    )]
    Version {
        /// The peer's version.
        peer: u32,
    },
}

/// The agent introduces itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Thread-group id of the program, in its own pid namespace.
    pub pid: u32,
    /// Bits of [`features`].
    pub features: u64,
    /// errno that kept transactions from working, 0 for none.
    pub errno: u32,
    /// Address range that holds the agent's own arenas: first byte.
    pub arena_start: u64,
    /// First byte behind the agent's arenas.
    pub arena_end: u64,
}

impl Hello {
    /// As sent.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        out[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
        out[8..12].copy_from_slice(&PROTOCOL_VERSION.to_ne_bytes());
        out[12..16].copy_from_slice(&self.pid.to_ne_bytes());
        out[16..24].copy_from_slice(&self.features.to_ne_bytes());
        out[24..28].copy_from_slice(&self.errno.to_ne_bytes());
        out[32..40].copy_from_slice(&self.arena_start.to_ne_bytes());
        out[40..48].copy_from_slice(&self.arena_end.to_ne_bytes());
        out
    }

    /// As received.
    ///
    /// # Errors
    ///
    /// Where the peer speaks something else.
    pub fn decode(wire: &[u8; HELLO_BYTES]) -> Result<Self, HandshakeError> {
        check(wire)?;
        Ok(Self {
            pid: u32_at(wire, 12),
            features: u64_at(wire, 16),
            errno: u32_at(wire, 24),
            arena_start: u64_at(wire, 32),
            arena_end: u64_at(wire, 40),
        })
    }
}

/// The supervisor's answer; the three descriptors travel with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// Bytes of one ring in the memfd, header included.
    pub ring_bytes: u64,
    /// How many copy workers the agent shall start, at least 1.
    pub copy_workers: u32,
    /// How many pages one transaction batch may hold, at least 1.
    pub batch_pages: u32,
    /// When pages are copied, and what writers do meanwhile.
    pub commit: Commit,
    /// Threads that copy one huge page together, at least 1.
    pub copy_threads: u8,
    /// Copy huge pages past the caches, by non-temporal stores.
    pub streaming: bool,
}

/// When the content of a page is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Commit {
    /// Before the commit, while the page stays accessible; a write aborts (Nomad 3.1).
    #[default]
    Transaction,
    /// By the kernel's own migration, for which everybody waits, the kernel included; a shadow is copied
    /// afterwards, while the page stays accessible.
    Copy,
    /// Base pages as in `Copy`, without shadows. Nobody who writes to a huge page while it is copied aborts
    /// it: the write waits for the commit (HeMem 3.4).
    Wait,
}

impl Commit {
    /// Each by its name on command lines.
    const NAMED: [(&str, Self); 3] = [
        ("copy", Self::Copy),
        ("transaction", Self::Transaction),
        ("wait", Self::Wait),
    ];

    /// The one of that name: copy, transaction, wait.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMED.iter().find(|(known, _)| *known == name);
        found.map(|(_, commit)| *commit)
    }

    /// Its name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::NAMED.iter().find(|(_, known)| *known == self);
        found.map_or("", |(name, _)| name)
    }
}

impl Welcome {
    /// As sent.
    #[must_use]
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut out = [0; WELCOME_BYTES];
        out[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
        out[8..12].copy_from_slice(&PROTOCOL_VERSION.to_ne_bytes());
        out[12..16].copy_from_slice(&self.copy_workers.to_ne_bytes());
        out[16..24].copy_from_slice(&self.ring_bytes.to_ne_bytes());
        out[24..28].copy_from_slice(&self.batch_pages.to_ne_bytes());
        out[28] = match self.commit {
            Commit::Transaction => 0,
            Commit::Copy => 1,
            Commit::Wait => 2,
        };
        out[29] = self.copy_threads;
        out[30] = u8::from(self.streaming);
        out
    }

    /// As received.
    ///
    /// # Errors
    ///
    /// Where the peer speaks something else.
    pub fn decode(wire: &[u8; WELCOME_BYTES]) -> Result<Self, HandshakeError> {
        check(wire)?;
        Ok(Self {
            ring_bytes: u64_at(wire, 16),
            copy_workers: u32_at(wire, 12),
            batch_pages: u32_at(wire, 24),
            commit: match wire[28] {
                0 => Commit::Transaction,
                1 => Commit::Copy,
                _ => Commit::Wait,
            },
            copy_threads: wire[29],
            streaming: wire[30] != 0,
        })
    }
}

fn check(wire: &[u8]) -> Result<(), HandshakeError> {
    let magic = u64_at(wire, 0);
    if magic != MAGIC {
        return Err(HandshakeError::Magic(magic));
    }
    match u32_at(wire, 8) {
        PROTOCOL_VERSION => Ok(()),
        peer => Err(HandshakeError::Version { peer }),
    }
}

fn u32_at(wire: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&wire[at..at + 4]);
    u32::from_ne_bytes(raw)
}

fn u64_at(wire: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&wire[at..at + 8]);
    u64::from_ne_bytes(raw)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// First messages that are right but for a byte, or not at all.
        #[test]
        fn fuzz_handshakes(
            mut wire in any::<[u8; HELLO_BYTES]>(),
            right in 0_u8..8,
            at in 0_usize..HELLO_BYTES,
            with in any::<u8>(),
        ) {
            if right > 0 {
                wire[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
                wire[8..12].copy_from_slice(&PROTOCOL_VERSION.to_ne_bytes());
            }
            if right == 1 {
                wire[at] = with;
            }
            let valid = u64_at(&wire, 0) == MAGIC && u32_at(&wire, 8) == PROTOCOL_VERSION;
            let hello = Hello::decode(&wire);
            prop_assert_eq!(hello.is_ok(), valid);
            if let Ok(hello) = hello {
                prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            }
            let mut short = [0; WELCOME_BYTES];
            short.copy_from_slice(&wire[..WELCOME_BYTES]);
            let welcome = Welcome::decode(&short);
            prop_assert_eq!(welcome.is_ok(), valid);
            if let Ok(welcome) = welcome {
                prop_assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
            }
        }
    }

    #[test]
    fn hello_survives_the_wire_and_strangers_are_refused() {
        let hello = Hello {
            pid: 7,
            features: 3,
            errno: 1,
            arena_start: 1 << 40,
            arena_end: 1 << 41,
        };
        let mut wire = hello.encode();
        assert_eq!(Hello::decode(&wire), Ok(hello));
        wire[8] = 9;
        assert_eq!(
            Hello::decode(&wire),
            Err(HandshakeError::Version { peer: 9 })
        );
        wire[0] = b'x';
        assert!(matches!(
            Hello::decode(&wire),
            Err(HandshakeError::Magic(_))
        ));
    }

    #[test]
    fn welcome_survives_the_wire() {
        for commit in [Commit::Transaction, Commit::Copy, Commit::Wait] {
            let welcome = Welcome {
                ring_bytes: 4096,
                copy_workers: 2,
                batch_pages: 64,
                commit,
                copy_threads: 4,
                streaming: commit == Commit::Wait,
            };
            assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
    }
}
