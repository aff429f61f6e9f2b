// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who needs which settings, and what was there before they were changed, on disk.
//!
//! `/run/terrace/settings`, text, replaced as a whole ([`replace`]), so that it is always complete:
//!
//! ```text
//! terrace-settings 2
//! boot BOOT-ID
//! holder PID START-TICKS SERIAL [NAME=WISH...]
//! setting NAME OLD OURS [OURS...]
//! ```
//!
//! A holder is there until it leaves; one whose process is gone, by id and start time, does not count. `OLD`
//! was there first; `OURS`, one or two, are the values that it has by our doing, or may have: the latest is last. The order of
//! settings is that of their first change. Who reads to write has `/run/terrace/settings.lock` locked
//! (`flock(2)`) meanwhile, and nobody for longer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use rustix::fs::FlockOperation;
use terrace_core::Pid;
use thiserror::Error;

use super::Setting;
use crate::atomic_write::replace;
use crate::process::Identity;

const HEAD: &str = "terrace-settings 2";
/// A change takes a millisecond.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Why the record is of no use.
#[derive(Debug, Error)]
pub enum RecordError {
    /// It cannot be read or written.
    #[error("Cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not ours, or of another version.
    #[error(
        "{} line {line} makes no sense; check the settings it names by hand and remove it",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Somebody is at it for longer than any change takes.
    #[error(
        "{} has been locked by another Terrace process for {} s; is it stopped? Let it go on or end it",
        .0.display(),
        LOCK_PATIENCE.as_secs()
    )]
    Locked(PathBuf),
}

/// One that needs settings: a process can be so several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HolderId {
    pub(super) process: Identity,
    serial: u64,
}

impl HolderId {
    /// A new one of this process.
    pub(super) fn new() -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        Self {
            process: Identity::own().unwrap_or(Identity {
                pid: Pid(std::process::id()),
                start_ticks: 0,
            }),
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// What one needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) id: HolderId,
    pub(super) wishes: BTreeMap<Setting, u64>,
}

/// One setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) setting: Setting,
    pub(super) old: String,
    /// One or two; the latest is last.
    pub(super) ours: Vec<String>,
}

/// The file's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) boot: String,
    pub(super) holders: Vec<Holder>,
    pub(super) changes: Vec<Change>,
    /// Pages may hold access times; not in this file.
    pub(super) timed: bool,
}

/// Where it is.
#[derive(Debug, Clone)]
pub(super) struct RecordFile {
    directory: PathBuf,
}

impl RecordFile {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            directory: root.join("run/terrace"),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.join("settings")
    }

    fn failed(&self, what: &'static str, name: &str) -> impl Fn(io::Error) -> RecordError {
        let path = self.directory.join(name);
        move |source| RecordError::File {
            what,
            path: path.clone(),
            source,
        }
    }

    /// Takes the lock, waiting for who has it. It goes with the file.
    pub(super) fn lock(&self) -> Result<File, RecordError> {
        fs::create_dir_all(&self.directory)
            .map_err(self.failed("make the directory of", "settings"))?;
        let failed = self.failed("lock", "settings.lock");
        let path = self.directory.join("settings.lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            // Who can open it can lock it.
            .mode(0o600)
            .open(&path)
            .map_err(&failed)?;
        let begun = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(failed(e.into())),
            }
            if begun.elapsed() > LOCK_PATIENCE {
                return Err(RecordError::Locked(path));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn read(&self) -> Result<Option<Record>, RecordError> {
        match fs::read_to_string(self.path()) {
            Ok(text) => match Record::parse(&text) {
                Ok(record) => Ok(Some(record)),
                Err(line) => Err(RecordError::Malformed {
                    path: self.path(),
                    line,
                }),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed("read", "settings")(e)),
        }
    }

    pub(super) fn write(&self, record: &Record) -> Result<(), RecordError> {
        replace(&self.path(), record.to_string().as_bytes())
            .map_err(self.failed("write", "settings"))
    }

    pub(super) fn remove(&self) -> Result<(), RecordError> {
        match fs::remove_file(self.path()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", "settings")(e))
            }
            _ => Ok(()),
        }
    }
}

impl Record {
    /// Nobody needs anything and nothing is changed.
    pub(super) fn new(boot: String) -> Self {
        Self {
            boot,
            holders: Vec::new(),
            changes: Vec::new(),
            timed: false,
        }
    }

    /// Whether there is nothing to remember.
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.changes.is_empty()
    }

    /// Forgets holders whose process is gone.
    pub(super) fn bury(&mut self) {
        self.holders.retain(|holder| holder.id.process.is_alive());
    }

    pub(super) fn holder(&mut self, id: HolderId) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.id == id)
    }

    pub(super) fn change(&mut self, setting: Setting) -> Option<&mut Change> {
        self.changes.iter_mut().find(|c| c.setting == setting)
    }

    /// The number of the first line that makes no sense, otherwise.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(1);
        }
        let boot = lines.next().and_then(|l| l.strip_prefix("boot "));
        let mut record = Self::new(boot.ok_or(2usize)?.to_owned());
        for (index, line) in lines.enumerate() {
            if let Some(holder) = parse_holder(line) {
                record.holders.push(holder);
            } else {
                record.changes.push(parse_change(line).ok_or(index + 3)?);
            }
        }
        Ok(record)
    }
}

fn parse_holder(line: &str) -> Option<Holder> {
    let mut words = line.strip_prefix("holder ")?.split(' ');
    let process = Identity {
        pid: Pid(words.next()?.parse().ok()?),
        start_ticks: words.next()?.parse().ok()?,
    };
    let serial = words.next()?.parse().ok()?;
    let wish = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((Setting::from_name(name)?, value.parse().ok()?))
    };
    Some(Holder {
        id: HolderId { process, serial },
        wishes: words.map(wish).collect::<Option<_>>()?,
    })
}

fn parse_change(line: &str) -> Option<Change> {
    let mut words = line.strip_prefix("setting ")?.split(' ');
    let setting = Setting::from_name(words.next()?)?;
    let old = words.next()?.to_owned();
    let ours: Vec<String> = words.map(str::to_owned).collect();
    (!ours.is_empty()).then_some(Change { setting, old, ours })
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{HEAD}\nboot {}", self.boot)?;
        for holder in &self.holders {
            let Identity { pid, start_ticks } = holder.id.process;
            let mut line = format!("holder {pid} {start_ticks} {}", holder.id.serial);
            for (setting, value) in &holder.wishes {
                write!(line, " {}={value}", setting.name())?;
            }
            writeln!(f, "{line}")?;
        }
        for change in &self.changes {
            let mut line = format!("setting {} {}", change.setting.name(), change.old);
            for ours in &change.ours {
                write!(line, " {ours}")?;
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Record {
        Record {
            boot: "b-1".to_owned(),
            holders: vec![Holder {
                id: HolderId {
                    process: Identity {
                        pid: Pid(12),
                        start_ticks: 345,
                    },
                    serial: 6,
                },
                wishes: BTreeMap::from([(Setting::ScanSizeMb, 512)]),
            }],
            changes: vec![Change {
                setting: Setting::ScanSizeMb,
                old: "256".to_owned(),
                ours: vec!["64".to_owned(), "512".to_owned()],
            }],
            timed: false,
        }
    }

    #[test]
    fn record_survives_the_file() {
        let record = sample();
        assert_eq!(Record::parse(&record.to_string()), Ok(record));
    }

    #[test]
    fn line_that_makes_no_sense_is_named() {
        let text = sample().to_string();
        assert_eq!(Record::parse(&format!("{text}setting sleep 1 2\n")), Err(5));
        assert_eq!(
            Record::parse(&format!("{text}setting scan_size_mb 1\n")),
            Err(5)
        );
        assert_eq!(Record::parse("something else"), Err(1));
        assert_eq!(Record::parse(""), Err(1));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(terrace-settings 2\n(boot a\n((holder 1 2 3|setting scan_size_mb 4)( scan_size_mb=5| 6)?\n){0,3})?)?[a-z0-9 _=\n]{0,100}") {
            if let Ok(record) = Record::parse(&text) {
                prop_assert_eq!(Record::parse(&record.to_string()), Ok(record));
            }
        }
    }
}
