// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work on several threads.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

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
