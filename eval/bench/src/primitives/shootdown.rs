// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TLB shootdown by the number of processors that must hear of it.
//!
//! One thread takes the right to write from a page again and again while so many others of the same
//! process compute, each on a processor of its own. What it takes longer than alone is the
//! shootdown; a line through the numbers of processors gives what the first costs and what each
//! further one adds.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use rustix::thread::CpuSet;
use rustix::thread::Pid;
use rustix::thread::sched_getaffinity;
use rustix::thread::sched_setaffinity;

use super::Value;
use super::Why;
use super::mean;
use super::region::Region;
use super::value;

const FLIPS: usize = 4000;

pub(super) fn measure() -> Vec<Value> {
    let mut values = Vec::new();
    let own = sched_getaffinity(None);
    let measured = own.map_err(Why::from).and_then(|own| {
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|cpu| own.is_set(*cpu))
            .collect();
        let times = by_count(&cpus);
        // The thread goes where it may go again.
        sched_setaffinity(None, &own)?;
        times
    });
    let (base, per_cpu) = match &measured {
        Ok(times) => line(times),
        Err(why) => (Err(why.clone()), Err(why.clone())),
    };
    values.push(value(
        "shootdown_base",
        "a TLB shootdown, the part that does not grow with the number of processors",
        base,
    ));
    values.push(value(
        "shootdown_per_cpu",
        "a TLB shootdown, each processor that must hear of it",
        per_cpu,
    ));
    for (others, ns) in measured.into_iter().flatten().enumerate().skip(1) {
        let about = format!("a TLB shootdown with {others} others running, over one with none");
        values.push(value(&format!("shootdown_{others}"), &about, Ok(ns)));
    }
    values
}

/// For no other, one other and so on: how much longer it takes than alone.
fn by_count(cpus: &[usize]) -> Result<Vec<f64>, Why> {
    let mut counts: Vec<usize> = vec![0];
    counts.extend((1..cpus.len()).take(15));
    let times = counts
        .into_iter()
        .map(|others| flips(&cpus[..=others]))
        .collect::<Result<Vec<f64>, Why>>()?;
    Ok(times.iter().map(|ns| (ns - times[0]).max(0.0)).collect())
}

fn only(cpu: usize) -> Result<(), Why> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None::<Pid>, &set)?)
}

/// Nanoseconds of a flip with a thread of ours on each of the processors.
fn flips(cpus: &[usize]) -> Result<f64, Why> {
    let region = Region::populated(1)?;
    let (ready, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    only(cpus[0])?;
    std::thread::scope(|scope| {
        for &cpu in &cpus[1..] {
            let (ready, done) = (&ready, &done);
            scope.spawn(move || {
                // Where it cannot be pinned it runs somewhere else.
                let _ = only(cpu);
                ready.fetch_add(1, Ordering::AcqRel);
                while !done.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
        }
        while ready.load(Ordering::Acquire) < cpus.len() - 1 {
            std::thread::yield_now();
        }
        let ns = mean(FLIPS, || (0..FLIPS).try_for_each(|_| region.flip()));
        done.store(true, Ordering::Release);
        Ok(ns?)
    })
}

/// The least squares' line through (1, t1), (2, t2) ...: its value for none, and its slope.
fn line(times: &[f64]) -> (Result<f64, Why>, Result<f64, Why>) {
    let points: Vec<(f64, f64)> = (0_u8..)
        .map(f64::from)
        .zip(times.iter().copied())
        .skip(1)
        .collect();
    let need = |cpus| Err(Why::Refused(format!("needs {cpus} processors")));
    match points.as_slice() {
        [] => (need("two"), need("two")),
        [(_, only)] => (Ok(*only), need("three")),
        _ => {
            #[expect(clippy::cast_precision_loss, reason = "at most 15")]
            let n = points.len() as f64;
            let sum = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>();
            let (x, y) = (sum(|p| p.0) / n, sum(|p| p.1) / n);
            let up: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
            let across: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
            let slope = (up / across).max(0.0);
            (Ok((y - slope * x).max(0.0)), Ok(slope))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_and_slope_come_from_the_line() {
        let (base, slope) = line(&[0.0, 1100.0, 1200.0, 1300.0]);
        assert!((base.unwrap() - 1000.0).abs() < 1e-6);
        assert!((slope.unwrap() - 100.0).abs() < 1e-6);
        let (base, slope) = line(&[0.0, 1100.0]);
        assert_eq!(base, Ok(1100.0));
        assert!(slope.is_err());
        assert!(line(&[0.0]).0.is_err());
    }
}
