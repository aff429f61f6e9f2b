// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processors threads may run on.
//!
//! Contract: sched_getaffinity(2), which tells what a cpuset leaves of the mask that was set, too; `/proc/PID/task`
//! (`proc_pid_task(5)`).

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::thread::CpuSet;
use rustix::thread::sched_getaffinity;
use rustix::thread::sched_setaffinity;
use terrace_core::Pid;

/// The processors that any thread of a process may run on.
///
/// # Errors
///
/// Where the process is gone; `EINVAL` on a machine of more processors than a set holds (1,024).
pub fn of_process(pid: Pid) -> io::Result<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = task?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        let thread = thread.and_then(rustix::thread::Pid::from_raw);
        match sched_getaffinity(thread) {
            Ok(set) => all.extend(processors(&set)),
            // A thread that has ended meanwhile.
            Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Does something on one of these processors, as far as the thread may run on them now: who isolated some keeps it off those.
/// Then it may run where it might before.
///
/// # Errors
///
/// `EINVAL` where it may not run on any of them; then nothing was done.
pub fn on<T>(cpus: &[u32], act: impl FnOnce() -> T) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    let allowed: Vec<u32> = processors(&before)
        .filter(|cpu| cpus.contains(cpu))
        .collect();
    stay(&allowed)?;
    let done = act();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

/// Keeps the calling thread on these processors from now on.
///
/// # Errors
///
/// `EINVAL` where it may not run on any of them.
pub fn stay(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU) {
        set.set(*cpu as usize);
    }
    Ok(sched_setaffinity(None, &set)?)
}

fn processors(set: &CpuSet) -> impl Iterator<Item = u32> + '_ {
    let all = 0..u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    all.filter(|cpu| set.is_set(*cpu as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_where_it_is_sent_and_may_go_back() {
        let own = Pid(std::process::id());
        // Threads of other tests may be about to be sent somewhere, too: of this one alone it is asked.
        let before: Vec<u32> = processors(&sched_getaffinity(None).unwrap()).collect();
        for cpu in &before {
            let (ran, may) = on(&[*cpu], || {
                let may = processors(&sched_getaffinity(None).unwrap()).collect::<Vec<u32>>();
                (rustix::thread::sched_getcpu(), may)
            })
            .unwrap();
            assert_eq!((ran, may), (*cpu as usize, vec![*cpu]));
        }
        let after: Vec<u32> = processors(&sched_getaffinity(None).unwrap()).collect();
        assert_eq!(after, before);
        assert!(
            of_process(own)
                .unwrap()
                .is_superset(&before.into_iter().collect())
        );
    }

    fn first() -> u32 {
        let own = sched_getaffinity(None).unwrap();
        processors(&own).next().expect("one at least")
    }

    #[test]
    fn who_may_not_go_there_does_nothing() {
        let nowhere = on(&[], || panic!("was done"));
        let kept_off = on(&[first()], || on(&[u32::MAX], || ()).is_err());
        assert!(kept_off.unwrap());
        assert_eq!(
            nowhere.unwrap_err().raw_os_error(),
            Some(Errno::INVAL.raw_os_error())
        );
        let nobody = of_process(Pid(u32::MAX / 4));
        assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
