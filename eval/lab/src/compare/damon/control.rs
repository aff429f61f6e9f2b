// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON switched on, steered and asked in the guest.
//!
//! DAMON clears a page's accessed bit and does not flush the processor's translation of it, so that a page in use looks
//! idle for as long as its translation is cached. The emulator caches far more of them than hardware. Clearing for our own tracker flushes
//! what it cleared (`MADV_COLD`); DAMON gets a flush of all translations in each of its sampling
//! intervals, by [`heartbeat`].

use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::anyhow;
use terrace_sys::zones;

use super::super::heartbeat;
use super::super::record::Moves;
use super::Mode;
use super::goal::Fill;
use super::scheme;
use super::scheme::Tiers;
use super::scheme::Way;
use super::sysfs;
use super::sysfs::state;
use crate::kdamond;

/// A user of DAMON inside the kernel that is on by default where there is one, and keeps others off physical memory.
const STAT: &str = "/sys/module/damon_stat/parameters/enabled";
/// How often the goals are fed: as often as the schemes act.
const FEED: Duration = Duration::from_millis(100);
/// How often the tuned intervals are looked up.
const LOOK: Duration = Duration::from_secs(1);
/// A flush is never asked for more often: what the kernel tunes begins there.
const SHORTEST: Duration = Duration::from_millis(5);

/// DAMON, set up.
#[derive(Debug)]
pub(in super::super) struct Control {
    mode: Mode,
    fast: usize,
    running: Mutex<Option<Running>>,
}

/// Since the moment at which it may act.
#[derive(Debug)]
struct Running {
    since: Instant,
    stop: Sender<()>,
    steering: JoinHandle<anyhow::Result<()>>,
}

impl Control {
    /// Sets it up, off.
    ///
    /// # Errors
    ///
    /// [`sysfs::Refused`] where the kernel lacks something.
    pub(in super::super) fn prepare(mode: Mode, fast: usize, slow: usize) -> anyhow::Result<Self> {
        if Path::new(STAT).exists() {
            kdamond::write(STAT, "N")?;
        }
        let tiers = Tiers { fast, slow };
        let zones = zones::read(Path::new("/"));
        sysfs::apply(
            Path::new(kdamond::ADMIN),
            &scheme::settings(mode, tiers, &zones),
        )?;
        Ok(Self {
            mode,
            fast,
            running: Mutex::new(None),
        })
    }

    /// From now on it may act.
    pub(in super::super) fn go(&self) -> anyhow::Result<()> {
        let (mode, fast) = (self.mode, self.fast);
        if let Mode::At(rate) = mode {
            feed(fast, false)?;
            heartbeat::beat_every(rate.interval());
        }
        for way in Way::BOTH {
            state(way, "on")?;
        }
        let (stop, stopped) = mpsc::channel();
        let steering = thread::spawn(move || {
            let pause = if mode == Mode::Auto { LOOK } else { FEED };
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                match mode {
                    Mode::Auto => heartbeat::beat_every(tuned()?.max(SHORTEST)),
                    Mode::At(_) | Mode::Best => feed(fast, true)?,
                }
            }
            Ok(())
        });
        let running = Running {
            since: Instant::now(),
            stop,
            steering,
        };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// Ends the steering, and what was moved, with a line for people.
    pub(in super::super) fn end(&self) -> anyhow::Result<(Moves, String)> {
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let running = running.context("DAMON was not started")?;
        drop(running.stop);
        let steered = running.steering.join();
        steered.map_err(|_| anyhow!("The thread that steers DAMON panicked"))??;
        let mut told = Vec::new();
        for way in Way::BOTH {
            state(way, "update_schemes_stats")?;
            let [tried, applied] = ["sz_tried", "sz_applied"].map(|name| sysfs::stat(way, name));
            told.push((
                tried?,
                applied?,
                kdamond::busy(&sysfs::thread_directory(way))?,
            ));
        }
        let pages = |(_, applied, _): (u64, u64, Duration)| applied / 4096;
        let moves = Moves {
            demoted_pages: pages(told[0]),
            promoted_pages: pages(told[1]),
            ..Moves::default()
        };
        let share =
            |busy: Duration| busy.as_secs_f64() / running.since.elapsed().as_secs_f64() * 100.0;
        let line = format!(
            "DAMON moved {} of {} MiB down and {} of {} MiB up, its threads took {:.1} and {:.1} % of a processor",
            told[0].1 >> 20,
            told[0].0 >> 20,
            told[1].1 >> 20,
            told[1].0 >> 20,
            share(told[0].2),
            share(told[1].2),
        );
        Ok((moves, line))
    }
}

/// Tells the goals how full the fast node is.
fn feed(fast: usize, on: bool) -> anyhow::Result<()> {
    let fill = Fill::read(fast)?;
    for way in Way::BOTH {
        let goal = Path::new(kdamond::ADMIN).join(scheme::goal_directory(way));
        let value = match way {
            Way::Down => fill.free,
            Way::Up => fill.used,
        };
        kdamond::write(goal.join("current_value"), &value)?;
        if on {
            state(way, "commit_schemes_quota_goals")?;
        }
    }
    Ok(())
}

/// The shorter of the two sampling intervals as the kernel tuned them.
fn tuned() -> anyhow::Result<Duration> {
    let mut shortest = LOOK;
    for way in Way::BOTH {
        state(way, "update_tuned_intervals")?;
        let path = "contexts/0/monitoring_attrs/intervals/sample_us";
        let us = kdamond::number(&sysfs::thread_directory(way).join(path))?;
        shortest = shortest.min(Duration::from_micros(us));
    }
    Ok(shortest)
}
