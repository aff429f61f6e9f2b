// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a visit to a base page takes more than one to a part of a huge page: the processor looks for a translation, of which
//! huge pages need a 512th.
//!
//! Measured on memory of our own, with more base pages than a processor remembers translations of: one access to each after the other,
//! once in base pages and once in huge ones. The caches hold the page tables of so little memory; where they do not, as of a
//! large program, it is more.

use rustix::io::Errno;

use crate::own_memory::OwnMemory;
use crate::own_memory::median;

/// ns that an access to one of that many base pages takes more; 0 where there are no huge pages to be had. The memory, twice as much, is given back.
///
/// # Errors
///
/// `ENOMEM`; `EINVAL` of a kernel without transparent huge pages.
pub fn measure(pages: usize) -> Result<f64, Errno> {
    let [base, huge] = [OwnMemory::new(pages, false)?, OwnMemory::new(pages, true)?];
    median(|| {
        let [base, huge] = [&base, &huge].map(OwnMemory::touch::<true>);
        Ok(base - huge)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_less_than_a_fault() {
        let each = measure(1 << 13).expect("memory");
        println!("{each:.1} ns");
        assert!((0.0..10_000.0).contains(&each), "{each} ns");
    }
}
