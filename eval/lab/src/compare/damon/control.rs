// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON switched on, steered and asked in the guest.
//!
//! DAMON clears a page's accessed bit and does not flush the processor's translation of it, so that a page in use looks
//! idle for as long as its translation is cached. The emulator caches far more of them than hardware. Clearing for our own tracker flushes
//! what it cleared (`MADV_COLD`); DAMON gets a flush of all translations in each of its sampling
//! intervals, by [`heartbeat`].

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
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
use terrace_core::Nanos;
use terrace_sys::zones;

use super::super::heartbeat;
use super::super::record::Moves;
use super::Mode;
use super::goal::Fill;
use super::scheme;
use super::scheme::Setting;
use super::scheme::Tiers;
use super::scheme::Way;

const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";
/// A user of DAMON inside the kernel that is on by default where there is one, and keeps others off physical memory.
const STAT: &str = "/sys/module/damon_stat/parameters/enabled";
/// How often the goals are fed: as often as the schemes act.
const FEED: Duration = Duration::from_millis(100);
/// How often the tuned intervals are looked up.
const LOOK: Duration = Duration::from_secs(1);
/// A flush is never asked for more often: what the kernel tunes begins there.
const SHORTEST: Duration = Duration::from_millis(5);

/// The kernel cannot do what the system is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the guest's kernel lacks {0}")]
pub(in super::super) struct Refused(&'static str);

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
    /// [`Refused`] where the kernel lacks something.
    pub(in super::super) fn prepare(mode: Mode, fast: usize, slow: usize) -> anyhow::Result<Self> {
        if Path::new(STAT).exists() {
            put(Path::new(STAT), "N").with_context(|| format!("Cannot write N to {STAT}"))?;
        }
        let root = Path::new(ADMIN);
        let tiers = Tiers { fast, slow };
        let zones = zones::read(Path::new("/"));
        apply(root, &scheme::settings(mode, tiers, &zones, "filters"))?;
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
            let [tried, applied] = ["sz_tried", "sz_applied"].map(|name| stat(way, name));
            told.push((tried?, applied?, busy(way)?));
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

/// Writes all of it; what is not there or not taken is lacking.
fn apply(root: &Path, settings: &[Setting]) -> anyhow::Result<()> {
    for setting in settings {
        let path = root.join(&setting.path);
        match put(&path, &setting.value) {
            Err(error) if lacking(&error) => return Err(Refused(setting.lacks).into()),
            result => result
                .with_context(|| format!("Cannot write {} to {}", setting.value, path.display()))?,
        }
    }
    Ok(())
}

fn lacking(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
    )
}

/// Into a file that is there.
fn put(path: &Path, value: &str) -> io::Result<()> {
    File::options()
        .write(true)
        .open(path)?
        .write_all(value.as_bytes())
}

fn thread_directory(way: Way) -> PathBuf {
    Path::new(ADMIN).join(way.thread().to_string())
}

fn write(path: &Path, value: &str) -> anyhow::Result<()> {
    put(path, value).with_context(|| format!("Cannot write {value} to {}", path.display()))
}

fn state(way: Way, value: &str) -> anyhow::Result<()> {
    write(&thread_directory(way).join("state"), value)
}

fn number(path: &Path) -> anyhow::Result<u64> {
    let text =
        fs::read_to_string(path).with_context(|| format!("Cannot read {}", path.display()))?;
    let number = text.trim().parse();
    number.with_context(|| format!("{} has {text}, which is no number", path.display()))
}

fn stat(way: Way, name: &str) -> anyhow::Result<u64> {
    let stats = thread_directory(way).join("contexts/0/schemes/0/stats");
    number(&stats.join(name))
}

/// Processor time of its thread so far.
fn busy(way: Way) -> anyhow::Result<Duration> {
    let pid = number(&thread_directory(way).join("pid"))?;
    let path = format!("/proc/{pid}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("Cannot read {path}"))?;
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    Ok(first.map_or(Duration::ZERO, |ns| Duration::from(Nanos(ns))))
}

/// Tells the goals how full the fast node is.
fn feed(fast: usize, on: bool) -> anyhow::Result<()> {
    let fill = Fill::read(fast)?;
    for way in Way::BOTH {
        let goal = Path::new(ADMIN).join(scheme::goal_directory(way));
        let value = match way {
            Way::Down => fill.free,
            Way::Up => fill.used,
        };
        write(&goal.join("current_value"), &value.to_string())?;
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
        let us = number(&thread_directory(way).join(path))?;
        shortest = shortest.min(Duration::from_micros(us));
    }
    Ok(shortest)
}

#[cfg(test)]
mod tests {
    use terrace_core::NodeId;
    use terrace_sys::zones::Zone;

    use super::*;

    fn settings(mode: Mode) -> Vec<Setting> {
        let zones = [0, 1].map(|node| Zone {
            node: NodeId(node),
            first: 1 << 20,
            count: 1 << 10,
        });
        scheme::settings(mode, Tiers { fast: 0, slow: 1 }, &zones, "filters")
    }

    /// A directory that has the files of a mode, without some.
    fn kernel(mode: Mode, without: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let all = settings(mode).into_iter();
        for setting in all.filter(|setting| without.is_empty() || !setting.path.contains(without)) {
            let path = root.path().join(setting.path);
            fs::create_dir_all(path.parent().expect("one")).expect("a directory");
            fs::write(path, "").expect("a file");
        }
        root
    }

    #[test]
    fn what_a_kernel_lacks_is_told_by_its_name() {
        let refused = |without| {
            let root = kernel(Mode::Auto, without);
            let error = apply(root.path(), &settings(Mode::Auto)).expect_err("refused");
            assert!(error.is::<Refused>(), "{error}");
            error.to_string()
        };
        for (without, lacks) in [
            ("goals/0/nid", "goals of a node's memory"),
            ("intervals_goal", "tuning of DAMON's intervals"),
            ("target_nid", "migrate_hot"),
            ("nr_kdamonds", "DAMON's sysfs interface"),
        ] {
            let why = refused(without);
            assert!(
                why.starts_with("the guest's kernel lacks ") && why.contains(lacks),
                "{why}"
            );
        }
    }

    #[test]
    fn a_kernel_that_has_all_of_it_is_told_all_of_it() {
        let root = kernel(Mode::Auto, "");
        apply(root.path(), &settings(Mode::Auto)).expect("taken");
        let last = root.path().join("1/contexts/0/schemes/0/action");
        assert_eq!(fs::read_to_string(last).expect("written"), "migrate_hot");
    }

    #[test]
    fn only_what_is_unknown_is_a_refusal() {
        let lacks = |kind| lacking(&io::Error::from(kind));
        assert!(lacks(io::ErrorKind::NotFound) && lacks(io::ErrorKind::InvalidInput));
        assert!(!lacks(io::ErrorKind::PermissionDenied));
    }
}
