// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program may do to a part of a huge page while the page moves as a whole.
//!
//! Each call comes at any moment, so some while the page is out of place: what the program keeps must be
//! there afterwards, what it dropped must be zero. A mapping that was cut holds base pages from then on, so
//! every round begins with a new mapping, of one huge page.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrace_core::PageSize;

use crate::driver::Random;
use crate::options::PARTS_PAGES;
use crate::victim::STOP;
use crate::victim::lost;
use crate::victim::map_fixed;
use crate::victim::pointer;
use crate::victim::word;

const PAGE: u64 = PageSize::Base4K.bytes();
const HUGE: u64 = PageSize::Huge2M.bytes();
/// Base pages of a huge one.
const COUNT: u64 = HUGE / PAGE;
/// Words looked at in each base page.
const PROBES: [u64; 2] = [0, 4088];
/// From a page to where its parts are moved away to.
const AWAY: u64 = 1 << 28;
const MADV_COLLAPSE: libc::c_int = 25;

/// Maps the area.
pub(crate) fn prepare(start: u64) {
    map_fixed(start, PARTS_PAGES * HUGE);
}

/// Disturbs until told to stop; how many rounds.
pub(crate) fn run(start: u64) -> u64 {
    let mut random = Random::seeded(start);
    let mut round = 0;
    while !STOP.load(Ordering::Relaxed) {
        round += 1;
        let at = start + random.below(PARTS_PAGES) * HUGE;
        let page = Page { at, round };
        page.renew();
        // It is on its way again by then, or not: at any moment of a move.
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
        let first = random.below(COUNT);
        let part = first..first + 1 + random.below(8.min(COUNT - first));
        match random.below(6) {
            0 => page.read_only(part),
            1 => page.not_dumped(part),
            2 => page.forked(part),
            3 => page.dropped(part),
            4 => page.unmapped(part),
            _ => page.moved_away(part),
        }
    }
    round
}

/// A huge page in one round. Parts are ranges of its base pages.
struct Page {
    at: u64,
    round: u64,
}

impl Page {
    fn addr(&self, page: u64) -> u64 {
        self.at + page * PAGE
    }

    fn value(&self, page: u64, probe: u64) -> u64 {
        self.round << 32 | page << 16 | probe | 1
    }

    fn call(&self, part: &Range<u64>, call: impl Fn(*mut libc::c_void, usize) -> libc::c_int) {
        let len = (part.end - part.start) * PAGE;
        call(
            pointer(self.addr(part.start)).cast(),
            usize::try_from(len).expect("64-bit"),
        );
    }

    /// Mapped anew, filled, and one huge page if the kernel has one.
    fn renew(&self) {
        let all = 0..COUNT;
        // SAFETY: the area belongs to this thread, and no reference into it is alive.
        self.call(&all, |addr, len| unsafe { libc::munmap(addr, len) });
        map_fixed(self.at, HUGE);
        // SAFETY: advice that changes no content.
        self.call(&all, |addr, len| unsafe {
            libc::madvise(addr, len, libc::MADV_HUGEPAGE)
        });
        for page in 0..COUNT {
            for probe in PROBES {
                let value = self.value(page, probe);
                word(self.addr(page) + probe).store(value, Ordering::Relaxed);
            }
        }
        // SAFETY: as above.
        self.call(&all, |addr, len| unsafe {
            libc::madvise(addr, len, MADV_COLLAPSE)
        });
    }

    /// What is wrong with the pages, which are `off` from their place: those of `zero` must be zero.
    fn wrong(&self, pages: Range<u64>, off: u64, zero: &Range<u64>) -> Option<String> {
        let (mut wrong, mut first) = (0, None);
        let count = pages.end.saturating_sub(pages.start);
        for page in pages {
            for probe in PROBES {
                let have = word(self.addr(page) + off + probe).load(Ordering::Relaxed);
                let want = if zero.contains(&page) {
                    0
                } else {
                    self.value(page, probe)
                };
                if have != want {
                    wrong += 1;
                    first.get_or_insert((page, probe, have, want));
                }
            }
        }
        let (page, probe, have, want) = first?;
        Some(format!(
            "{wrong} of {} words wrong, first page {page} byte {probe}: have {have:#x}, want {want:#x}",
            2 * count
        ))
    }

    fn expect(&self, what: &str, pages: Range<u64>, off: u64, zero: &Range<u64>) {
        if let Some(wrong) = self.wrong(pages, off, zero) {
            lost(&format!("{what}: round {}: {wrong}", self.round));
        }
    }

    /// All of the page, now and a little later.
    fn expect_all(&self, what: &str, zero: &Range<u64>) {
        self.expect(what, 0..COUNT, 0, zero);
        std::thread::sleep(Duration::from_micros(300));
        self.expect(what, 0..COUNT, 0, zero);
    }

    /// The rest of the page, without the part.
    fn expect_rest(&self, what: &str, part: &Range<u64>) {
        self.expect(what, 0..part.start, 0, &(0..0));
        self.expect(what, part.end..COUNT, 0, &(0..0));
    }

    fn protect(&self, part: &Range<u64>, access: libc::c_int) {
        // SAFETY: the area belongs to this thread, which does not write it meanwhile.
        self.call(part, |addr, len| unsafe {
            libc::mprotect(addr, len, access)
        });
    }

    fn read_only(&self, part: Range<u64>) {
        self.protect(&part, libc::PROT_READ);
        self.expect_all("part read-only", &(0..0));
        self.protect(&part, libc::PROT_READ | libc::PROT_WRITE);
        self.expect_all("part writable again", &(0..0));
    }

    /// Another advice for a part cuts the mapping like any other change of its flags.
    fn not_dumped(&self, part: Range<u64>) {
        for advice in [libc::MADV_DONTDUMP, libc::MADV_DODUMP] {
            // SAFETY: advice that changes no content.
            self.call(&part, |addr, len| unsafe {
                libc::madvise(addr, len, advice)
            });
            self.expect_all("part not dumped", &(0..0));
        }
    }

    fn forked(&self, part: Range<u64>) {
        self.protect(&part, libc::PROT_READ);
        // SAFETY: the child only reads memory and calls _exit, and on failure write(2) through println,
        // whose lock no other thread of the victim holds for long.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let wrong = self.wrong(0..COUNT, 0, &(0..0));
            if let Some(wrong) = &wrong {
                println!("LOST in a forked child, part read-only: {wrong}");
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(wrong.is_some())) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child, if there is one.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        if child < 0 || status != 0 {
            lost(&format!("a forked child ended with status {status:#x}"));
        }
        self.protect(&part, libc::PROT_READ | libc::PROT_WRITE);
        self.expect_all("part read-only over a fork", &(0..0));
    }

    fn dropped(&self, part: Range<u64>) {
        // SAFETY: the area belongs to this thread; its content may go.
        self.call(&part, |addr, len| unsafe {
            libc::madvise(addr, len, libc::MADV_DONTNEED)
        });
        self.expect_all("part dropped", &part);
    }

    fn unmapped(&self, part: Range<u64>) {
        // SAFETY: the area belongs to this thread, and no reference into it is alive.
        self.call(&part, |addr, len| unsafe { libc::munmap(addr, len) });
        self.expect_rest("part unmapped", &part);
        map_fixed(self.addr(part.start), (part.end - part.start) * PAGE);
        self.expect_all("part mapped anew", &part);
    }

    fn moved_away(&self, part: Range<u64>) {
        let here = self.addr(part.start);
        let len = usize::try_from((part.end - part.start) * PAGE).expect("64-bit");
        let remap = |from: u64, to: u64| {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: the area belongs to this thread; the place it goes to holds nothing.
            let got = unsafe { libc::mremap(pointer(from).cast(), len, len, flags, pointer(to)) };
            if got == libc::MAP_FAILED {
                let why = std::io::Error::last_os_error();
                lost(&format!("mremap of a part was refused: {why}"));
            }
        };
        remap(here, here + AWAY);
        self.expect_rest("part moved away", &part);
        self.expect("part at its new place", part.clone(), AWAY, &(0..0));
        remap(here + AWAY, here);
        self.expect_all("part moved back", &(0..0));
    }
}
