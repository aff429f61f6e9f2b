// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs a program that the accessed bits of its pages were cleared: its first access to each looks the
//! translation up anew, and the processor has to set the bit, which it does for one access after the other.
//!
//! Measured on memory of our own: all its pages are touched in an order that no prefetcher follows, each access by
//! itself, once as they are and once after another thread has cleared their bits (`MADV_COLD`, which flushes the
//! translations, as [`crate::advise::cold`] does). The difference is the cost. It grows with the memory, from where
//! the caches do not hold its page tables any more, so few pages say too little of a large program.

use rustix::io::Errno;

use crate::own_memory::OwnMemory;
use crate::own_memory::median;

/// ns that the first access to a page of 4 KiB takes more after its bit was cleared, on that many pages (rounded up
/// to a power of two), which are given back.
///
/// # Errors
///
/// `ENOMEM`, or what madvise(2) says of `MADV_COLD` (Linux 5.4).
pub fn measure(pages: usize) -> Result<f64, Errno> {
    let memory = OwnMemory::new(pages, false)?;
    median(|| {
        memory.touch::<false>();
        let warm = memory.touch::<false>();
        // By another thread, as it is by the tracker: what that one loads is not in this one's own caches.
        std::thread::scope(|scope| {
            let cleared = scope.spawn(|| memory.clear()).join();
            cleared.unwrap_or(Err(Errno::NOTSUP))
        })?;
        Ok(memory.touch::<false>() - warm)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_more_than_nothing_and_less_than_a_fault() {
        let each = measure(1 << 14).unwrap();
        assert!(each > 1.0 && each < 100_000.0, "{each} ns");
    }
}
