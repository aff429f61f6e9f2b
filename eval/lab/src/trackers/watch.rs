// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terrace's own trackers, each at a share of a processor. None of them moves a page.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_sim::Costs;
use terrace_sys::clock;
use terrace_sys::settings::KernelSettings;
use terrace_sys::settings::ScanMode;
use terrace_sys::settings::ScanRate;
use terrace_sys::settings::Setting;
use terrace_sys::zones;
use terrace_track::AccessedBits;
use terrace_track::AccessedBitsConfig;
use terrace_track::EmulatedPmu;
use terrace_track::EmulatedPmuConfig;
use terrace_track::HintFaultTracker;
use terrace_track::HintFaultTrackerConfig;
use terrace_track::TrackEvent;
use terrace_track::Tracker;
use terrace_track::accessed_bits::Told;
use terrace_workload::PAGE_BYTES;

use super::heat::Heat;

/// A tracker at work.
pub trait Watch {
    /// Puts in what it was told since the call before.
    ///
    /// # Errors
    ///
    /// Where its source is broken.
    fn drain(&mut self, heat: &mut Heat) -> anyhow::Result<()>;

    /// The end: what is known of pages that were looked at until now and not accessed.
    fn finish(&mut self, _heat: &mut Heat, _watched: Nanos) {}

    /// What it took so far of others' time: kernel threads', and estimated of the program's.
    fn others(&self) -> Others;

    /// Of its share it used so much, 1 being all: it may do more, or has to do less.
    ///
    /// # Errors
    ///
    /// Where it cannot be set.
    fn steer(&mut self, _used: f64) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Time that a tracker takes and this process does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Others {
    /// Of kernel threads, as the kernel counts it.
    pub kernel: Nanos,
    /// Of the program: what was counted, at what each takes in the emulated machine (`eval/sim/costs/lab.toml`).
    pub program: Nanos,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a count of a run, and a time"
)]
pub(super) fn times(count: u64, ns: f64) -> Nanos {
    Nanos((count as f64 * ns) as u64)
}

fn seconds(time: Nanos) -> f64 {
    Duration::from(time).as_secs_f64()
}

/// Accessed bits: each page's idle time in each pass.
#[derive(Debug)]
pub(super) struct Bits {
    tracker: AccessedBits,
    refill_ns: f64,
}

impl Bits {
    /// First reading of a pass, and the shortest pass.
    const SHORTEST: Nanos = Nanos::from_millis(1);
    const PASS: Nanos = Nanos::from_secs(1);
    /// What a page takes in a pass of the emulated machine, with a dozen readings, ns. The first pass has that long;
    /// the others are as long as it took.
    const PAGE_NS: f64 = 4_000.0;

    pub(super) fn open(pid: Pid, range: Range, permille: u32) -> anyhow::Result<Self> {
        let mut tracker = AccessedBits::open(AccessedBitsConfig {
            zones: zones::read(Path::new("/")),
            budget_permille: permille,
            ..AccessedBitsConfig::default()
        })?;
        tracker.add(pid, false)?;
        let pages = range.bytes() / PAGE_BYTES;
        let pass = times(pages, Self::PAGE_NS * 1e3 / f64::from(permille));
        tracker.ask(Self::SHORTEST, pass.max(Self::PASS), 1);
        Ok(Self {
            tracker,
            // The bit is set by a walk of the page tables, as if the page's entry were touched by the scanner.
            refill_ns: Costs::lab().pte_scan_ns,
        })
    }
}

impl Watch for Bits {
    fn drain(&mut self, heat: &mut Heat) -> anyhow::Result<()> {
        self.tracker.poll(Duration::ZERO, &mut |_| ())?;
        self.tracker.told(|told| {
            let Told::Reading(reading) = told else {
                return;
            };
            let chunk = reading.as_chunk();
            let at = |page: usize| Addr(chunk.start.0 + page as u64 * PAGE_BYTES);
            let middle = f64::midpoint(seconds(chunk.since), seconds(chunk.until));
            for page in chunk.fresh.pages() {
                if let Some(page) = heat.page(at(page)) {
                    heat.add(page, 1.0, middle);
                }
            }
            let idle = chunk.present.without(&chunk.accessed);
            for page in idle.pages().filter(|_| chunk.last) {
                if let Some(page) = heat.page(at(page)) {
                    heat.add(page, 0.0, seconds(chunk.until));
                }
            }
        });
        Ok(())
    }

    fn others(&self) -> Others {
        let seen = self.tracker.stats().map_or(0, |stats| stats.accesses);
        Others {
            program: times(seen, self.refill_ns),
            ..Others::default()
        }
    }
}

/// Hint faults of all pages: each one's idle time, and of the armed ones that had none yet, how long they wait.
#[derive(Debug)]
pub(super) struct Faults {
    tracker: HintFaultTracker,
    /// Put back when dropped.
    _settings: KernelSettings,
    on: bool,
    /// By page of the range.
    armed: Vec<Option<Nanos>>,
    faults: u64,
    marks: u64,
}

impl Faults {
    /// The kernel arms no less at a time.
    const GO: u64 = 2 << 20;
    /// What reading a fault takes us, ns, about.
    const OWN_NS: f64 = 3_000.0;

    /// Has to come before the program is started: its threads keep the pace that they were created with. The
    /// goes are twice as close as the share pays for where every armed page has its fault, as cold ones have
    /// none; [`Watch::steer`] leaves some out.
    pub(super) fn settings(
        bytes: u64,
        permille: u32,
    ) -> anyhow::Result<(KernelSettings, ScanRate)> {
        let costs = Costs::lab();
        let each = costs.hint_fault_ns + costs.scan_work_ns + Self::OWN_NS;
        let apart = times(
            Self::GO / PAGE_BYTES,
            each * 1e3 / f64::from(permille) / 2.0,
        );
        let apart = Nanos(apart.0.max(10_000_000));
        let mut settings = KernelSettings::acquire(Path::new("/"))?;
        let _ = settings.set(Setting::PromoteRateLimitMbps, 0)?;
        let _ = settings.set(Setting::ScanDelayMs, apart.0 / 1_000_000)?;
        let pass = Nanos(apart.0 * bytes.div_ceil(Self::GO));
        let rate = ScanRate {
            mode: ScanMode::Both,
            period_min: pass,
            period_max: pass,
            size_mb: 2,
        };
        Ok((settings, rate))
    }

    pub(super) fn open(
        pid: Pid,
        pages: usize,
        (mut settings, rate): (KernelSettings, ScanRate),
    ) -> anyhow::Result<Self> {
        let mut tracker = HintFaultTracker::open(HintFaultTrackerConfig::default())?;
        tracker.mode(true, clock::now());
        tracker.add(pid, false)?;
        settings.set_scan_rate(&rate)?;
        Ok(Self {
            tracker,
            _settings: settings,
            on: true,
            armed: vec![None; pages],
            faults: 0,
            marks: 0,
        })
    }
}

/// The scanner on or off: a write of one file, where changing all its settings would cost more than a budget has.
fn switch(on: bool) -> anyhow::Result<()> {
    let mode = if on { ScanMode::Both } else { ScanMode::Off };
    let path = Setting::NumaBalancing.path(Path::new("/"));
    let written = fs::write(&path, mode.value().to_string());
    written.with_context(|| format!("Cannot write {}", path.display()))
}

impl Watch for Faults {
    fn drain(&mut self, heat: &mut Heat) -> anyhow::Result<()> {
        let (armed, faults, marks) = (&mut self.armed, &mut self.faults, &mut self.marks);
        self.tracker
            .poll(Duration::ZERO, &mut |event| match event {
                TrackEvent::Scanned { range, time, .. } => {
                    let pages = &mut armed[heat.pages(range)];
                    for page in pages.iter_mut().filter(|page| page.is_none()) {
                        *page = Some(time);
                        *marks += 1;
                    }
                }
                TrackEvent::HintFault(fault) => {
                    *faults += 1;
                    let Some(page) = heat.page(fault.addr) else {
                        return;
                    };
                    if let Some(since) = armed[page].take() {
                        heat.add(page, 1.0, seconds(fault.fault_time.since(since)));
                    }
                }
                _ => {}
            })?;
        Ok(())
    }

    fn finish(&mut self, heat: &mut Heat, _watched: Nanos) {
        let now = clock::now();
        for (page, armed) in self.armed.iter().enumerate() {
            if let Some(since) = armed {
                heat.add(page, 0.0, seconds(now.since(*since)));
            }
        }
        // As the settings left it, else they take it for somebody else's and do not put it back.
        let _ = switch(true);
    }

    fn others(&self) -> Others {
        let costs = Costs::lab();
        Others {
            program: times(self.faults, costs.hint_fault_ns)
                + times(self.marks, costs.scan_work_ns),
            ..Others::default()
        }
    }

    fn steer(&mut self, used: f64) -> anyhow::Result<()> {
        let under = used < 1.0;
        if under != self.on {
            self.on = under;
            switch(under)?;
        }
        Ok(())
    }
}

/// Samples of the emulated PMU.
#[derive(Debug)]
pub(super) struct Samples {
    tracker: EmulatedPmu,
    charge_ns: f64,
}

impl Samples {
    /// One in so many while it is found out how many misses there are.
    const FEW: u64 = 9_973;
    /// What reading a sample takes us, ns, about.
    const OWN_NS: f64 = 1_500.0;

    /// Looks for a second how many misses there are, then samples as many as the share pays for.
    pub(super) fn open(pid: Pid, permille: u32, charge_ns: f64) -> anyhow::Result<Self> {
        let open = |period| {
            EmulatedPmu::open(EmulatedPmuConfig {
                period: Some(period),
                ..EmulatedPmuConfig::default()
            })
        };
        let few = open(Self::FEW)?;
        std::thread::sleep(Duration::from_secs(1));
        let misses = few.counts().misses;
        drop(few);
        let each = charge_ns + Self::OWN_NS;
        let period = times(misses, each / f64::from(permille) / 1e6).0;
        let mut tracker = open(period.max(1))?;
        tracker.add(pid, false)?;
        Ok(Self { tracker, charge_ns })
    }
}

impl Watch for Samples {
    fn drain(&mut self, heat: &mut Heat) -> anyhow::Result<()> {
        self.tracker.poll(Duration::ZERO, &mut |event| {
            if let TrackEvent::Sample(sample) = event
                && let Some(page) = heat.page(sample.addr)
            {
                heat.add(page, 1.0, 0.0);
            }
        })?;
        Ok(())
    }

    fn finish(&mut self, heat: &mut Heat, watched: Nanos) {
        heat.looked(seconds(watched));
    }

    fn others(&self) -> Others {
        let counts = self.tracker.counts();
        Others {
            program: times(counts.seen + counts.lost, self.charge_ns),
            ..Others::default()
        }
    }
}
