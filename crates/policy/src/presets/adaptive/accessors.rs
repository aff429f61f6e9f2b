// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which socket's processors access a chunk, by hint faults. Accessed bits do not say.
//!
//! ```text
//! p(c)   = (faults from c + 2) / (all faults + 2 * sockets)     as if each had had two before
//! mostly = c  where p(c) is nearer to 1 than to 1 / sockets,  else all
//! ```
//!
//! A chunk that all access alike is as far from one node of a tier as from the other, as is one that nothing was counted of: for it a read takes the
//! mean over all sockets ([`super::latencies`]). In between, what a read takes is wrong by a quarter of what sockets differ at most. A huge page has one fault in a pass,
//! so it takes four passes to be one of two sockets', and one in 8 that both access alike is taken for that until the next.

use terrace_core::Pid;

/// Sockets that are told apart; faults of others are not counted.
pub(super) const SOCKETS: usize = 8;

/// Whose accesses most of a chunk's are: all sockets', or from 1 on those of one.
pub(super) type Accessor = u8;

/// All sockets'.
pub(super) const ALL: Accessor = 0;

/// Pages of a process that are mostly accessed from the same.
pub(super) type Part = (Pid, Accessor);

/// What is counted of a chunk.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Accessors {
    faults: [u8; SOCKETS],
    mostly: Accessor,
}

impl Accessors {
    pub(super) const fn mostly(&self) -> Accessor {
        self.mostly
    }

    /// A new phase: what was counted is no more, and whose it was holds until others are counted.
    pub(super) const fn forget(&mut self) {
        self.faults = [0; SOCKETS];
    }

    /// A hint fault of a processor of that socket, of so many. Whose accesses most are then.
    #[expect(clippy::cast_possible_truncation, reason = "few sockets")]
    pub(super) fn accessed(mut self, socket: usize, sockets: usize) -> Self {
        let Some(fault) = self.faults.get_mut(socket) else {
            return self;
        };
        if *fault == u8::MAX {
            // What is older counts less.
            self.faults.iter_mut().for_each(|faults| *faults /= 2);
        }
        self.faults[socket] += 1;
        let counted = self.faults.iter().take(sockets).map(|f| usize::from(*f));
        let all: usize = counted.clone().sum();
        let most = counted.enumerate().max_by_key(|(_, faults)| *faults);
        // Twice p against 1 + 1 / sockets.
        let is_one =
            |faults: usize| 2 * sockets * (faults + 2) >= (sockets + 1) * (all + 2 * sockets);
        self.mostly = match most {
            Some((socket, faults)) if sockets > 1 && is_one(faults) => socket as Accessor + 1,
            _ => ALL,
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(faults: &[usize], sockets: usize) -> Accessor {
        let all = faults.iter().fold(Accessors::default(), |all, socket| {
            all.accessed(*socket, sockets)
        });
        all.mostly()
    }

    #[test]
    fn few_faults_say_nothing_and_many_alike_say_whose_they_are() {
        assert_eq!(after(&[1; 3], 2), ALL);
        assert_eq!(after(&[1; 4], 2), 2);
        assert_eq!(after(&[2; 7], 4), ALL);
        assert_eq!(after(&[2; 8], 4), 3);
        assert_eq!(after(&[0; 9], 1), ALL);
        assert_eq!(after(&[SOCKETS; 9], 2), ALL);
    }

    #[test]
    fn a_chunk_is_no_sockets_that_is_accessed_from_all() {
        let turns: Vec<usize> = (0..1_000).map(|at| at % 2).collect();
        assert_eq!(after(&turns, 2), ALL);
        let third: Vec<usize> = (0..1_000).map(|at| usize::from(at % 3 == 0)).collect();
        assert_eq!(after(&third, 2), ALL);
        let tenth: Vec<usize> = (0..1_000).map(|at| usize::from(at % 10 == 0)).collect();
        assert_eq!(after(&tenth, 2), 1);
    }

    #[test]
    fn who_accesses_it_now_counts_more_than_who_did() {
        let mut faults = vec![0; 10_000];
        faults.extend([1; 600]);
        assert_eq!(after(&faults, 2), 2);
    }
}
