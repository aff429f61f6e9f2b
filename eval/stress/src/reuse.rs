// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread unmaps a page while another waits to map its address anew: what that one puts there must stay.
//!
//! munmap(2) is over, for all others, before the agent has read of it, and its caller waits until then.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use terrace_core::PageSize;

use crate::driver::Random;
use crate::victim::STOP;
use crate::victim::lost;
use crate::victim::map_fixed;
use crate::victim::pointer;
use crate::victim::try_map_fixed;
use crate::victim::word;

const HUGE: u64 = PageSize::Huge2M.bytes();
/// How long what was put there is looked at.
const LOOK: Duration = Duration::from_millis(2);

const OVER: u64 = u64::MAX;

/// Maps the area, of one huge page.
pub(crate) fn prepare(start: u64) {
    map_fixed(start, HUGE);
}

/// Unmaps and maps anew until told to stop; how many rounds.
pub(crate) fn run(start: u64) -> u64 {
    let mut random = Random::seeded(start);
    // Odd: the page is about to be unmapped; even: it was mapped anew, and looked at; `OVER`: that was all.
    let turn = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| map_anew(start, &turn));
        while !STOP.load(Ordering::Relaxed) {
            fill(start);
            let round = turn.fetch_add(1, Ordering::Release) + 1;
            std::thread::sleep(Duration::from_micros(random.below(2_000)));
            // SAFETY: the area belongs to these two threads, and no reference into it is alive.
            unsafe { libc::munmap(pointer(start).cast(), bytes()) };
            while turn.load(Ordering::Acquire) == round {
                std::thread::yield_now();
            }
        }
        turn.swap(OVER, Ordering::Release) / 2
    })
}

fn bytes() -> usize {
    usize::try_from(HUGE).expect("64-bit")
}

/// Every base page is there, and they are one huge page if the kernel has one.
fn fill(start: u64) {
    const MADV_COLLAPSE: libc::c_int = 25;
    for page in (start..start + HUGE).step_by(4096) {
        word(page).store(1, Ordering::Relaxed);
    }
    // SAFETY: advice that changes no content.
    unsafe { libc::madvise(pointer(start).cast(), bytes(), MADV_COLLAPSE) };
}

fn map_anew(start: u64, turn: &AtomicU64) {
    loop {
        let round = turn.load(Ordering::Acquire);
        if round == OVER {
            return;
        }
        if round.is_multiple_of(2) {
            std::thread::yield_now();
            continue;
        }
        while !try_map_fixed(start, HUGE) {
            std::hint::spin_loop();
        }
        word(start).store(round, Ordering::Relaxed);
        let begun = Instant::now();
        while begun.elapsed() < LOOK {
            let have = word(start).load(Ordering::Relaxed);
            if have != round {
                lost(&format!("mapped anew: have {have}, want {round}"));
            }
        }
        turn.store(round + 1, Ordering::Release);
    }
}
