// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was there before it was changed, on disk.
//!
//! `/run/terrace/settings`, text, replaced as a whole ([`replace`]), so that it is always complete:
//!
//! ```text
//! terrace-settings 1
//! boot BOOT-ID
//! owner PID START-TICKS
//! setting NAME OLD OURS [OURS...]
//! ```
//!
//! `OLD` was there first; each `OURS` is a value that the owner wrote or was about to write. The
//! order of settings is the order of their first change. `/run/terrace/settings.lock` is locked
//! (`flock(2)`) by the owner as long as it lives: that, and not the id, says that it lives.

use std::fmt::Write as _;
use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::FlockOperation;
use terrace_core::Pid;
use thiserror::Error;

use super::Setting;
use crate::process::Identity;
use crate::replace::replace;

const HEAD: &str = "terrace-settings 1";

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
}

/// One setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) setting: Setting,
    pub(super) old: String,
    /// Never empty; the latest is last.
    pub(super) ours: Vec<String>,
}

/// The file's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) boot: String,
    pub(super) owner: Identity,
    pub(super) changes: Vec<Change>,
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

    /// Takes the lock; `None` where somebody holds it. It goes with the file.
    pub(super) fn lock(&self) -> Result<Option<File>, RecordError> {
        fs::create_dir_all(&self.directory)
            .map_err(self.failed("make the directory of", "settings"))?;
        let failed = self.failed("lock", "settings.lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.directory.join("settings.lock"))
            .map_err(&failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(failed(e.into())),
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
    /// The number of the first line that makes no sense, otherwise.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(1);
        }
        let boot = lines.next().and_then(|l| l.strip_prefix("boot "));
        let owner = lines.next().and_then(parse_owner);
        let mut record = Self {
            boot: boot.ok_or(2usize)?.to_owned(),
            owner: owner.ok_or(3usize)?,
            changes: Vec::new(),
        };
        for (index, line) in lines.enumerate() {
            record.changes.push(parse_change(line).ok_or(index + 4)?);
        }
        Ok(record)
    }
}

fn parse_owner(line: &str) -> Option<Identity> {
    let (pid, start) = line.strip_prefix("owner ")?.split_once(' ')?;
    Some(Identity {
        pid: Pid(pid.parse().ok()?),
        start_ticks: start.parse().ok()?,
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
        writeln!(f, "owner {} {}", self.owner.pid, self.owner.start_ticks)?;
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
            owner: Identity {
                pid: Pid(12),
                start_ticks: 345,
            },
            changes: vec![Change {
                setting: Setting::ScanSizeMb,
                old: "256".to_owned(),
                ours: vec!["64".to_owned(), "512".to_owned()],
            }],
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
        fn any_text_is_read_or_refused(text in "(terrace-settings 1\n)?(boot a\n)?[a-z0-9 _\n]{0,100}") {
            if let Ok(record) = Record::parse(&text) {
                prop_assert_eq!(Record::parse(&record.to_string()), Ok(record));
            }
        }
    }
}
