// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker's own buffer, to look at the program's pages without touching them.

use terrace_sys::self_memory;
use terrace_sys::self_memory::Piece;

use crate::ops::memory;

const BYTES: u64 = 64 << 10;

/// The buffer.
#[derive(Debug)]
pub(crate) struct Scratch {
    words: Vec<u64>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            words: vec![0; usize::try_from(BYTES / 8).unwrap_or(0)],
        }
    }

    /// Two buffers of a page each.
    pub(crate) fn two_pages(&mut self, bytes: u64) -> [u64; 2] {
        let words = usize::try_from(bytes / 4).unwrap_or(0);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        let start = self.words.as_mut_ptr().expose_provenance() as u64;
        [start, start + bytes]
    }

    /// Whether a page of the program holds the same bytes as a frame of ours. `false` where it
    /// cannot be read.
    pub(crate) fn program_page_equals(&mut self, page: u64, frame: u64, bytes: u64) -> bool {
        let to = self.words.as_mut_ptr().expose_provenance() as u64;
        let mut done = 0;
        while done < bytes {
            let len = BYTES.min(bytes - done);
            let piece = Piece {
                from: page + done,
                to,
                len,
            };
            // SAFETY: the buffer is ours alone and `BYTES` long.
            if unsafe { self_memory::copy_in(&[piece]) } != Ok(len) {
                return false;
            }
            // SAFETY: the buffer was just filled; the frame is present and the caller's.
            if !unsafe { memory::same(to, frame + done, len) } {
                return false;
            }
            done += len;
        }
        true
    }
}
