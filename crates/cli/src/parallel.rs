// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `sim compare` and `claims` share: simulations on several threads, the measure of their
//! progress, and what a kept result was computed by.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use terrace_sim::Setup;

/// The simulator by its sources (`build.rs`), as far as a system's results depend on them: equal
/// set-ups have equal results only within one.
pub(crate) fn simulator(system: &str) -> String {
    let mut presets = env!("TERRACE_PRESETS").split(',');
    let preset = presets.find_map(|one| one.strip_prefix(system)?.strip_prefix('='));
    let preset = preset.unwrap_or_default();
    format!("{}{preset}", env!("TERRACE_SIMULATION"))
}

/// Parts of a simulated second that a progress bar counts.
const STEPS: f64 = 10.0;

/// Works off a queue from its back, on `jobs` threads. Gives what was made, in the order in which it
/// was finished.
///
/// # Errors
///
/// The first one of `work`; what has not been begun then is left.
pub(crate) fn in_parallel<T: Send, R: Send, E: Send>(
    jobs: usize,
    queue: Vec<T>,
    work: impl Fn(T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let queue = Mutex::new(queue);
    let made = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = locked(&queue).pop();
                    let Some(next) = next else { return };
                    match work(next) {
                        Ok(result) => locked(&made).push(result),
                        Err(error) => {
                            locked(&queue).clear();
                            locked(&failed).get_or_insert(error);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(made.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// How long a run is likely to take, by the same measure for all.
pub(crate) fn weight(setup: &Setup) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "only for an order")]
    let bytes = setup.workload.bytes() as f64;
    setup.seconds * bytes
}

/// Simulated seconds in steps of a progress bar.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "simulated seconds are positive and at most a million"
)]
pub(crate) fn steps(seconds: f64) -> u64 {
    (seconds * STEPS) as u64
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_made_once_or_the_first_error_is_told() {
        let mut made = in_parallel(3, (0..100).collect(), Ok::<_, ()>).unwrap();
        made.sort_unstable();
        assert_eq!(made, (0..100).collect::<Vec<_>>());
        let begun = Mutex::new(0);
        let result = in_parallel(1, (0..100).collect(), |n| {
            *begun.lock().unwrap() += 1;
            if n == 97 { Err(n) } else { Ok(n) }
        });
        assert_eq!(result, Err(97));
        assert_eq!(*begun.lock().unwrap(), 3, "what was not begun is left");
    }
}
