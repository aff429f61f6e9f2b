// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a sample of the processor's counters costs the program it interrupts.

use std::hint::black_box;
use std::time::Instant;

use terrace_sys::perf::SampledEvent;
use terrace_sys::perf::Sampler;

use super::Value;
use super::Why;
use super::value;

/// One dependent step of some cycles.
const STEPS: u32 = 40_000_000;
const PERIOD_CYCLES: u64 = 100_003;
const PERIOD_NS: u64 = 50_000;

pub(super) fn measure() -> Vec<Value> {
    vec![
        value(
            "pmu_sample",
            "a sample of the PMU (cycles), time that the program loses",
            cost(SampledEvent::Cycles, PERIOD_CYCLES),
        ),
        value(
            "clock_sample",
            "a sample of the kernel's software clock (a timer's interrupt), time that the program loses",
            cost(SampledEvent::CpuClock, PERIOD_NS),
        ),
    ]
}

fn work() -> f64 {
    let start = Instant::now();
    let mut x = black_box(1_u64);
    for _ in 0..STEPS {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(x);
    start.elapsed().as_secs_f64() * 1e9
}

fn cost(event: SampledEvent, period: u64) -> Result<f64, Why> {
    let sampler = Sampler::start(event, period)
        .map_err(|error| Why::Refused(format!("perf_event_open: {error}")))?;
    // Both ways in turn, the least of each: other programs interrupt, too.
    drop(sampler);
    let (mut with, mut without, mut samples) = (f64::MAX, f64::MAX, 0);
    for _ in 0..3 {
        without = without.min(work());
        let mut sampler = Sampler::start(event, period)?;
        let time = work();
        if time < with {
            with = time;
            samples = sampler.samples();
        }
    }
    if !(100..Sampler::SAMPLES_MAX).contains(&samples) {
        return Err(Why::Refused(format!("{samples} samples came")));
    }
    if with <= without {
        let text = "sampling is lost in the noise of this machine";
        return Err(Why::Refused(text.to_owned()));
    }
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    Ok((with - without) / samples as f64)
}
