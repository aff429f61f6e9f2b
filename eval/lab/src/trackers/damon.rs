// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's DAMON at a share of a processor.
//!
//! Contract: `Documentation/admin-guide/mm/damon/usage.rst` (sysfs, Linux 5.18; operations `fvaddr`, 6.0) and
//! the trace point `damon:damon_aggregated`, which tells each region's count at the end of each aggregation
//! at a fraction of what asking by sysfs takes. DAMON looks at one page of each region every sampling interval;
//! an aggregation is twenty of them, as by default. It is told the program's memory and spends nothing on the rest.
//! Its share is kept by the sampling interval: found by a try, and adapted as the number of regions changes. With
//! regions that stay as they are ([`Damon::fixed`]) it is held against the other reader of accessed bits.

use std::fs::File;
use std::io::ErrorKind;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_sys::clock;
use terrace_workload::PAGE_BYTES;

use super::heat::Heat;
use super::translations::own_time;
use super::watch::Others;
use super::watch::Watch;
use crate::kdamond;
use crate::kdamond::ADMIN;
pub use crate::kdamond::SAMPLES;
use crate::kdamond::UPDATE_US;
use crate::kdamond::write;

const TRACING: &str = "/sys/kernel/tracing";
/// The sampling interval at first, us: four times DAMON's default.
const FIRST_US: u64 = 20_000;
/// How long it is tried with that.
const TRY: Duration = Duration::from_millis(2400);
/// The shortest interval and the longest, us. An aggregation shall not be longer than two seconds.
const SAMPLE_US: (u64, u64) = (1_000, 100_000);
/// Its share is held within this of what it should be.
const SLACK: (f64, f64) = (0.8, 1.2);

/// See the module. Switched off when dropped.
#[derive(Debug)]
pub struct Damon {
    before: Nanos,
    sample_us: u64,
    /// Since when.
    changed: Nanos,
    trace: File,
    /// What a line is not yet whole of.
    text: Vec<u8>,
}

fn context() -> PathBuf {
    Path::new(ADMIN).join("0/contexts/0")
}

impl Damon {
    /// Starts it and finds its interval.
    ///
    /// # Errors
    ///
    /// Where the kernel has no DAMON, or will not do as told.
    pub(super) fn open(
        pid: Pid,
        range: Range,
        permille: u32,
        regions: u32,
    ) -> anyhow::Result<Self> {
        let limits = (10, regions);
        let mut damon = Self::start(pid, range, limits, regions / 2, FIRST_US)?;
        damon.attempt(range, permille)?;
        damon.before = damon.busy();
        Ok(damon)
    }

    /// Starts it with so many regions, all of a size, and one sampling interval. It joins none, as the sum would be larger than
    /// the range by their least number, and splits none, as it may have no more.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn fixed(pid: Pid, range: Range, regions: u32, sample: Duration) -> anyhow::Result<Self> {
        let sample_us = u64::try_from(sample.as_micros()).context("The sampling interval")?;
        Self::start(pid, range, (regions, regions), regions, sample_us)
    }

    fn start(
        pid: Pid,
        range: Range,
        (min, max): (u32, u32),
        regions: u32,
        sample_us: u64,
    ) -> anyhow::Result<Self> {
        let trace = trace()?;
        write(format!("{ADMIN}/nr_kdamonds"), &1)?;
        write(format!("{ADMIN}/0/contexts/nr_contexts"), &1)?;
        write(context().join("operations"), "fvaddr")?;
        let attributes = context().join("monitoring_attrs");
        write(attributes.join("nr_regions/max"), &max)?;
        write(attributes.join("nr_regions/min"), &min)?;
        intervals(sample_us)?;
        let targets = context().join("targets");
        write(targets.join("nr_targets"), &1)?;
        write(targets.join("0/pid_target"), &pid)?;
        cut(&targets.join("0/regions"), range, u64::from(regions))?;
        write(format!("{ADMIN}/0/state"), "on")?;
        // Else each change of the intervals would cut them again.
        write(targets.join("0/regions/nr_regions"), &0)?;
        Ok(Self {
            before: Nanos::ZERO,
            sample_us,
            changed: Nanos::ZERO,
            trace,
            text: Vec::new(),
        })
    }

    /// What it told since: of each aggregation each region, and in how many of its [`SAMPLES`] it was accessed.
    ///
    /// # Errors
    ///
    /// Where its trace cannot be read.
    pub fn told(&mut self) -> anyhow::Result<Vec<(Range, f64)>> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.trace.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.text.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("Cannot read DAMON's trace"),
            }
        }
        let last = self.text.iter().rposition(|byte| *byte == b'\n');
        let lines: Vec<u8> = self.text.drain(..last.map_or(0, |at| at + 1)).collect();
        let lines = String::from_utf8_lossy(&lines);
        Ok(lines.lines().filter_map(parse).collect())
    }

    /// Runs for a while, and takes the interval at which that would have been its share.
    fn attempt(&mut self, range: Range, permille: u32) -> anyhow::Result<()> {
        let (begin, own) = (clock::now(), own_time());
        let before = self.busy();
        std::thread::sleep(TRY);
        self.drain(&mut Heat::new(range))?;
        let busy = self.busy().since(before) + own_time().since(own);
        let took = Duration::from(busy).as_secs_f64();
        let watched = Duration::from(clock::now().since(begin)).as_secs_f64();
        self.scale(took / watched * 1e3 / f64::from(permille))
    }

    /// So much longer intervals.
    fn scale(&mut self, factor: f64) -> anyhow::Result<()> {
        let wanted = Duration::from_micros(self.sample_us).mul_f64(factor.clamp(0.1, 10.0));
        let wanted = u64::try_from(wanted.as_micros()).unwrap_or(FIRST_US);
        self.sample_us = wanted.clamp(SAMPLE_US.0, SAMPLE_US.1);
        self.changed = clock::now();
        intervals(self.sample_us)?;
        write(format!("{ADMIN}/0/state"), "commit")
    }

    /// Processor time of its thread so far.
    fn busy(&self) -> Nanos {
        kdamond::busy(&Path::new(ADMIN).join("0")).map_or(self.before, Nanos::from)
    }
}

fn intervals(sample_us: u64) -> anyhow::Result<()> {
    let intervals = context().join("monitoring_attrs/intervals");
    write(intervals.join("sample_us"), &sample_us)?;
    write(intervals.join("aggr_us"), &(sample_us * SAMPLES))?;
    write(intervals.join("update_us"), &UPDATE_US)
}

/// Begins with half as many regions as it may have, so that it need not find them by splitting one.
fn cut(directory: &Path, range: Range, count: u64) -> anyhow::Result<()> {
    let pages = range.bytes() / PAGE_BYTES;
    let count = count.clamp(1, pages);
    write(directory.join("nr_regions"), &count)?;
    let at = |index: u64| range.start.0 + pages * index / count * PAGE_BYTES;
    for index in 0..count {
        let region = directory.join(index.to_string());
        write(region.join("start"), &at(index))?;
        write(region.join("end"), &at(index + 1))?;
    }
    Ok(())
}

/// What it tells from now on.
fn trace() -> anyhow::Result<File> {
    write(
        format!("{TRACING}/events/damon/damon_aggregated/enable"),
        &1,
    )?;
    let path = format!("{TRACING}/trace_pipe");
    let non_blocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits())?;
    let mut options = File::options();
    let file = options.read(true).custom_flags(non_blocking).open(&path);
    file.with_context(|| format!("Cannot read {path}"))
}

/// A region of an aggregation and in how many samples it was accessed.
fn parse(line: &str) -> Option<(Range, f64)> {
    let (_, rest) = line.split_once("nr_regions=")?;
    let mut words = rest.split_ascii_whitespace().skip(1);
    let (start, end) = words.next()?.trim_end_matches(':').split_once('-')?;
    let range = Range {
        start: Addr(start.parse().ok()?),
        end: Addr(end.parse().ok()?),
    };
    Some((range, words.next()?.parse().ok()?))
}

impl Watch for Damon {
    fn drain(&mut self, heat: &mut Heat) -> anyhow::Result<()> {
        let aggregation = Duration::from_micros(self.sample_us * SAMPLES).as_secs_f64();
        for (region, accessed) in self.told()? {
            for page in heat.pages(region) {
                heat.add(page, accessed, aggregation);
            }
        }
        Ok(())
    }

    fn steer(&mut self, used: f64) -> anyhow::Result<()> {
        // A change begins an aggregation anew.
        let since = clock::now().since(self.changed);
        let settled = since > Nanos(2 * self.sample_us * SAMPLES * 1_000);
        if settled && !(SLACK.0..SLACK.1).contains(&used) {
            self.scale(used.clamp(0.5, 2.0))?;
        }
        Ok(())
    }

    fn others(&self) -> Others {
        Others {
            kernel: self.busy().since(self.before),
            ..Others::default()
        }
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        // The guest ends soon, and the next one says it where DAMON is not to be had any more.
        let _ = write(format!("{ADMIN}/0/state"), "off");
        let _ = write(format!("{ADMIN}/nr_kdamonds"), &0);
        let _ = write(
            format!("{TRACING}/events/damon/damon_aggregated/enable"),
            &0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_trace_is_a_region() {
        let line = "  kdamond.0-316 [001] .....  91.5: damon_aggregated: target_id=0 nr_regions=9 \
                    140119000-140127192: 13 4";
        let (range, accessed) = parse(line).expect("a region");
        assert_eq!(
            (range.start, range.end),
            (Addr(140_119_000), Addr(140_127_192))
        );
        assert!((accessed - 13.0).abs() < f64::EPSILON);
        assert_eq!(parse("CPU:1 [LOST 5 EVENTS]"), None);
        assert_eq!(parse("nr_regions=9 1-x: 3 4"), None);
    }
}
