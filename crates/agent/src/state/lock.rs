// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock around the page states: a futex, no thread-local state, no poisoning.
//!
//! Not `std::sync::Mutex`, for two reasons: fork handlers must take and give it back in different
//! functions, and the fault handler must not starve behind a worker that takes it again at once.
//! Who asks [`Lock::lock`] gives way to who waits in [`Lock::lock_urgent`].

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ops::DerefMut;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use rustix::thread::futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_WITH_WAITERS: u32 = 2;
const SPINS: u32 = 60;
/// How often a worker yields to an urgent waiter before it queues up all the same.
const COURTESY: u32 = 64;

/// A mutual exclusion around a value.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    word: AtomicU32,
    urgent: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard or `&mut` only, and one guard exists at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Access to the value while the lock is held.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            urgent: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, after those in a hurry.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        for _ in 0..COURTESY {
            if self.urgent.load(Ordering::Relaxed) == 0 {
                break;
            }
            rustix::thread::sched_yield();
        }
        self.acquire();
        Guard { lock: self }
    }

    /// Takes the lock before workers do.
    pub(crate) fn lock_urgent(&self) -> Guard<'_, T> {
        self.urgent.fetch_add(1, Ordering::Relaxed);
        self.acquire();
        self.urgent.fetch_sub(1, Ordering::Relaxed);
        Guard { lock: self }
    }

    /// Takes the lock without a guard; [`Self::release`] gives it back.
    pub(crate) fn acquire(&self) {
        for _ in 0..SPINS {
            if self.try_acquire() {
                return;
            }
            std::hint::spin_loop();
        }
        while self.word.swap(HELD_WITH_WAITERS, Ordering::Acquire) != FREE {
            // Interrupted and changed mean the same here: look again.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, HELD_WITH_WAITERS, None);
        }
    }

    /// Takes the lock if it is free; [`Self::release`] gives it back.
    pub(crate) fn try_acquire(&self) -> bool {
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Gives the lock back. Only for who called [`Self::acquire`].
    pub(crate) fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) == HELD_WITH_WAITERS {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }

    /// In a forked child, where the holder does not exist: makes the lock free.
    pub(crate) fn reset(&self) {
        self.word.store(FREE, Ordering::Relaxed);
        self.urgent.store(0, Ordering::Relaxed);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so the lock is held by it alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes this the only access through the guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_and_lets_everybody_through() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let lock = &lock;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let mut guard = if n == 0 {
                            lock.lock_urgent()
                        } else {
                            lock.lock()
                        };
                        let seen = *guard;
                        std::hint::black_box(&seen);
                        *guard = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }
}
