// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nobody sleeps on a range that was unregistered.
//!
//! The kernel wakes the waiters of a range before it takes the lock under which faults are taken; who lies
//! down in between is woken by nobody, unless `Uffd::unregister` does.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::mm::mmap_anonymous;
use terrace_sys::uffd::Events;
use terrace_sys::uffd::Protected;
use terrace_sys::uffd::Uffd;
use terrace_sys::uffd::Writers;

const LEN: usize = 4096;
/// How long to provoke it. Without the second wake-up it takes some seconds.
const LASTS: Duration = Duration::from_secs(10);
/// A thread that has not written for so long to a page that is free to write sleeps for ever.
const ASLEEP: Duration = Duration::from_secs(20);

#[test]
fn who_waits_is_woken_when_the_range_goes() {
    let Ok(uffd) = Uffd::open(Events::Mappings, Writers::Wait) else {
        eprintln!("skipped: no userfaultfd here");
        return;
    };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which nothing refers to.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), LEN, access, MapFlags::PRIVATE) };
    let page = page.expect("a page of memory").expose_provenance();
    let written = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (written, stop) = (Arc::clone(&written), Arc::clone(&stop));
        move || {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the mapping outlives this thread, which alone uses it.
                unsafe { ptr::with_exposed_provenance_mut::<u64>(page).write_volatile(1) };
                written.fetch_add(1, Ordering::Release);
            }
        }
    });
    let (start, len) = (page as u64, LEN as u64);
    let (begun, mut rounds) = (Instant::now(), 0_u32);
    while begun.elapsed() < LASTS {
        uffd.register(start, len, false).expect("register");
        let protected = uffd.write_protect(start, len, true).expect("protect");
        assert_eq!(protected, Protected::Done);
        // The writer comes to the protected page at some time from here on.
        for _ in 0..rounds % 2_000 {
            std::hint::spin_loop();
        }
        uffd.unregister(start, len).expect("unregister");
        let before = written.load(Ordering::Acquire);
        let waiting = Instant::now();
        while written.load(Ordering::Acquire) == before {
            assert!(
                waiting.elapsed() < ASLEEP,
                "the writer sleeps on a free page, after {rounds} rounds"
            );
            thread::yield_now();
        }
        rounds += 1;
    }
    assert!(rounds > 100, "only {rounds} rounds");
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("the writer ends");
}
