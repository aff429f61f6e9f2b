// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the host's processors run what, and before whom.
//!
//! Each of the guest's processors has one of the host's to itself; the emulator's other threads, and a
//! server's client, have all but the first. Otherwise the processor that a server runs on shares the
//! host's with the client for some seconds at a time and not for others. On a host with one processor, and
//! without the privilege, a run is only noisier.

use std::fs;

use rustix::process::Pid;
use rustix::process::setpriority_process;
use rustix::thread::CpuSet;
use rustix::thread::sched_getaffinity;
use rustix::thread::sched_setaffinity;

/// Priority of the emulator among the host's processes.
const NICENESS: i32 = -10;

/// Puts a process before the host's others: the guest's delays are real time, and what else runs
/// should disturb them little.
pub(crate) fn favour(pid: u32) {
    let _ = setpriority_process(raw(pid), NICENESS);
    let _ = fs::write(format!("/proc/{pid}/autogroup"), NICENESS.to_string());
}

/// The last of them, for a server's client: the guest's first processor is not there, if there are two.
pub(crate) fn last() -> usize {
    allowed().last().copied().unwrap_or_default()
}

/// Puts the calling thread where the guest's first processor is, before others too.
pub(crate) fn beside_the_first() {
    let own = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0);
    favour(own);
    if let Some(&first) = allowed().first() {
        stay_on(first);
    }
}

/// Keeps the calling thread on a processor; where that is refused it runs somewhere, and does no harm.
pub(crate) fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    let _ = sched_setaffinity(None, &only);
}

/// Places the threads of a running emulator, whose processors' are called `CPU 0/TCG` and so on.
pub(super) fn emulator(pid: u32) {
    let host = allowed();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for thread in threads.flatten() {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let tid = thread.file_name();
        if let Some(tid) = tid.to_str().and_then(|name| name.parse().ok()) {
            place(tid, &places(&name, &host));
        }
    }
}

/// Where a thread of that name may run.
fn places(name: &str, host: &[usize]) -> Vec<usize> {
    let number = name
        .strip_prefix("CPU ")
        .and_then(|rest| rest.split('/').next()?.parse::<usize>().ok());
    match number {
        Some(number) if !host.is_empty() => vec![host[number % host.len()]],
        _ => rest(host),
    }
}

/// All but the first; all where there is but one.
fn rest(host: &[usize]) -> Vec<usize> {
    if host.len() < 2 { host } else { &host[1..] }.to_vec()
}

fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

fn place(tid: u32, on: &[usize]) {
    let mut set = CpuSet::new();
    for &cpu in on {
        set.set(cpu);
    }
    if !on.is_empty() {
        let _ = sched_setaffinity(raw(tid), &set);
    }
}

fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_has_its_own_and_the_rest_keep_off_the_first() {
        let host = [2, 3, 5];
        assert_eq!(places("CPU 0/TCG\n", &host), [2]);
        assert_eq!(places("CPU 1/TCG\n", &host), [3]);
        assert_eq!(places("CPU 4/TCG\n", &host), [3], "more than the host has");
        assert_eq!(places("qemu-system-x86\n", &host), [3, 5]);
        assert_eq!(places("CPU 1/TCG\n", &[7]), [7]);
        assert_eq!(places("qemu-system-x86\n", &[7]), [7]);
        assert!(places("CPU 0/TCG\n", &[]).is_empty());
    }

    #[test]
    fn a_thread_runs_where_it_was_placed() {
        let host = allowed();
        let last = host[host.len() - 1];
        let moved = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            place(u32::try_from(tid).expect("positive"), &[last]);
            allowed()
        });
        assert_eq!(moved.join().expect("it does not panic"), [last]);
    }
}
