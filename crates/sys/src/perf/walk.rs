// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cutting what lies in a ring into records. Pure.
//!
//! What lies between tail and head is one run of bytes, or two where it goes over the ring's end.
//! A record that goes over the end is put together in a buffer; the others are handed out where
//! they lie. A header that cannot be (shorter than itself, longer than what is there) ends the
//! walk: nothing behind it can be trusted, and it is left to the caller to give all of it up.

use super::record::HEADER_BYTES;
use super::record::Header;

/// The longest record: its length is a u16.
pub const RECORD_BYTES_MAX: usize = u16::MAX as usize;

/// How far a walk went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walked {
    /// Bytes of whole records handed out.
    pub bytes: usize,
    /// Whether it ended at a header that cannot be.
    pub broken: bool,
}

/// Hands out records from `first`, then `second`, until `enough` bytes or more are handed out or
/// the end is reached. `buffer` is for records that lie in both.
pub fn walk(
    first: &[u8],
    second: &[u8],
    enough: usize,
    buffer: &mut Vec<u8>,
    sink: &mut dyn FnMut(&[u8]),
) -> Walked {
    let mut walked = Walked::default();
    let whole = first.len() + second.len();
    while walked.bytes < enough && walked.bytes < whole {
        let at = walked.bytes;
        let mut header = [0; HEADER_BYTES];
        let size = if copy(first, second, at, &mut header) {
            usize::from(Header::parse(header).size)
        } else {
            0
        };
        if size < HEADER_BYTES || at + size > whole {
            walked.broken = true;
            break;
        }
        if at + size <= first.len() {
            sink(&first[at..at + size]);
        } else if let Some(at) = at.checked_sub(first.len()) {
            sink(&second[at..at + size]);
        } else {
            buffer.resize(size, 0);
            copy(first, second, at, buffer);
            sink(buffer);
        }
        walked.bytes += size;
    }
    walked
}

/// Copies from place `at` of both together; false where they end before `to` is full.
fn copy(first: &[u8], second: &[u8], at: usize, to: &mut [u8]) -> bool {
    if at + to.len() > first.len() + second.len() {
        return false;
    }
    let head = first.get(at..).unwrap_or(&[]);
    let head = &head[..head.len().min(to.len())];
    let (front, back) = to.split_at_mut(head.len());
    front.copy_from_slice(head);
    let from = at.saturating_sub(first.len());
    back.copy_from_slice(&second[from..from + back.len()]);
    true
}
