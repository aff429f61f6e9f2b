// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holding kernel settings: change them, and put them back at the end, whichever end it is.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;

use super::ScanRate;
use super::Setting;
use super::SettingsError;
use super::record::Change;
use super::record::Record;
use super::record::RecordFile;
use crate::process::Identity;

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum SetOutcome {
    /// It is as asked.
    Done,
    /// Somebody else changed it after we did; it is left as it is, now and at the end.
    Foreign {
        /// What is there.
        found: String,
    },
}

/// What putting a setting back came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// The setting.
    pub setting: Setting,
    /// What was there first.
    pub old: String,
    /// What is there, where that is neither of us: it is left alone.
    pub foreign: Option<String>,
}

/// The right to change kernel settings, and the duty to put them back.
///
/// Only one process has it at a time. Dropping it puts everything back, last change first.
#[derive(Debug)]
pub struct KernelSettings {
    root: PathBuf,
    file: RecordFile,
    record: Record,
    restored_at_start: Vec<Stale>,
    out_of_reach: BTreeSet<Setting>,
    done: bool,
    // Last: the lock goes after everything is back.
    _lock: File,
}

impl KernelSettings {
    /// Takes the right, and puts back what a process that crashed has left.
    ///
    /// # Errors
    ///
    /// Where another process has it, or what that left cannot be read or put back.
    pub fn acquire(root: &Path) -> Result<Self, SettingsError> {
        let file = RecordFile::new(root);
        let Some(lock) = file.lock()? else {
            let owner = file.read().ok().flatten().map(|r| r.owner);
            return Err(SettingsError::Held { owner });
        };
        let restored_at_start = restore(root, &file)?;
        let owner = Identity::own().unwrap_or(Identity {
            pid: terrace_core::Pid(std::process::id()),
            start_ticks: 0,
        });
        let record = Record {
            boot: boot_id(root),
            owner,
            changes: Vec::new(),
        };
        // At once, so that the next one can name us.
        file.write(&record)?;
        Ok(Self {
            root: root.to_owned(),
            file,
            record,
            restored_at_start,
            out_of_reach: BTreeSet::new(),
            done: false,
            _lock: lock,
        })
    }

    /// What a crashed process had left and [`KernelSettings::acquire`] dealt with.
    #[must_use]
    pub fn restored_at_start(&self) -> &[Stale] {
        &self.restored_at_start
    }

    /// A setting's number as it is; none where the kernel does not have it, or it is none.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<u64> {
        setting.read(&self.root).ok().flatten()?.parse().ok()
    }

    /// Changes a setting. Cheap where the value was written before: one read, and one write if it
    /// differs.
    ///
    /// # Errors
    ///
    /// Where the kernel does not have it or it cannot be changed; it then is as before.
    pub fn set(&mut self, setting: Setting, value: u64) -> Result<SetOutcome, SettingsError> {
        let value = setting.canonical(&value.to_string());
        let Some(found) = setting.read(&self.root)? else {
            return Err(SettingsError::Absent {
                path: setting.path(&self.root),
            });
        };
        let known = self
            .record
            .changes
            .iter()
            .position(|c| c.setting == setting);
        if let Some(index) = known
            && !self.record.changes[index].knows(&found)
        {
            return Ok(SetOutcome::Foreign { found });
        }
        if found == value {
            return Ok(SetOutcome::Done);
        }
        self.note(known, setting, found, &value)?;
        setting.write(&self.root, &value)?;
        Ok(SetOutcome::Done)
    }

    /// Writes down what is about to change, unless the record says so already.
    fn note(
        &mut self,
        known: Option<usize>,
        setting: Setting,
        found: String,
        value: &str,
    ) -> Result<(), SettingsError> {
        match known.and_then(|index| self.record.changes.get_mut(index)) {
            Some(change) if change.knows(value) => return Ok(()),
            Some(change) => change.ours.push(value.to_owned()),
            None => self.record.changes.push(Change {
                setting,
                old: found,
                ours: vec![value.to_owned()],
            }),
        }
        Ok(self.file.write(&self.record)?)
    }

    /// Changes how the kernel scans. A setting that somebody else has changed is left as it is,
    /// and named. Without debugfs, or in a locked-down kernel, the scanner is switched on and off
    /// and keeps its own pace: see [`KernelSettings::out_of_reach`].
    ///
    /// # Errors
    ///
    /// Where the scanner cannot be switched on or off.
    pub fn set_scan_rate(
        &mut self,
        rate: &ScanRate,
    ) -> Result<Vec<(Setting, String)>, SettingsError> {
        let mut foreign = Vec::new();
        for (setting, value) in rate.settings() {
            match self.set(setting, value) {
                Ok(SetOutcome::Done) => {}
                Ok(SetOutcome::Foreign { found }) => foreign.push((setting, found)),
                Err(e @ SettingsError::Record(_)) => return Err(e),
                Err(e) if setting == Setting::NumaBalancing => return Err(e),
                Err(_) => {
                    self.out_of_reach.insert(setting);
                }
            }
        }
        Ok(foreign)
    }

    /// Settings of the scanner's pace that could not be changed, so that it runs at the kernel's.
    pub fn out_of_reach(&self) -> impl Iterator<Item = Setting> {
        self.out_of_reach.iter().copied()
    }

    /// Puts everything back now, and says what that came to.
    ///
    /// # Errors
    ///
    /// Where a setting cannot be put back; the record then stays, for the next start.
    pub fn restore(mut self) -> Result<Vec<Stale>, SettingsError> {
        self.done = true;
        restore(&self.root, &self.file)
    }
}

impl Drop for KernelSettings {
    fn drop(&mut self) {
        if !self.done {
            // What fails stays in the record, for the next start or `terrace doctor --restore`.
            let _ = restore(&self.root, &self.file);
        }
    }
}

impl Change {
    fn knows(&self, value: &str) -> bool {
        self.old == value || self.ours.iter().any(|ours| ours == value)
    }
}

/// What a process that is no more has left changed; empty where there is nothing, or its owner
/// lives.
///
/// # Errors
///
/// Where the record cannot be read.
pub fn stale(root: &Path) -> Result<Vec<Stale>, SettingsError> {
    let file = RecordFile::new(root);
    if !file.path().exists() || file.lock()?.is_none() {
        return Ok(Vec::new());
    }
    let Some(record) = file.read()?.filter(|r| r.boot == boot_id(root)) else {
        return Ok(Vec::new());
    };
    let changes = record.changes.iter();
    changes
        .map(|change| inspect(root, change).map(|(s, _)| s))
        .collect()
}

/// Puts back what a process that is no more has left changed.
///
/// # Errors
///
/// Where its owner lives, or a setting cannot be put back.
pub fn restore_stale(root: &Path) -> Result<Vec<Stale>, SettingsError> {
    let file = RecordFile::new(root);
    if !file.path().exists() {
        return Ok(Vec::new());
    }
    let Some(_lock) = file.lock()? else {
        let owner = file.read()?.map(|r| r.owner);
        return Err(SettingsError::Held { owner });
    };
    restore(root, &file)
}

/// How a changed setting stands, and whether it is to be written.
fn inspect(root: &Path, change: &Change) -> Result<(Stale, bool), SettingsError> {
    let found = change.setting.read(root)?;
    let stale = |foreign| Stale {
        setting: change.setting,
        old: change.old.clone(),
        foreign,
    };
    Ok(match found {
        Some(found) if change.knows(&found) => (stale(None), found != change.old),
        Some(found) => (stale(Some(found)), false),
        None => (stale(Some("absent".to_owned())), false),
    })
}

/// Puts back what the record says, last change first, and removes it. The caller has the lock.
/// One setting that cannot be put back does not keep the others from it.
fn restore(root: &Path, file: &RecordFile) -> Result<Vec<Stale>, SettingsError> {
    let Some(record) = file.read()? else {
        return Ok(Vec::new());
    };
    let (mut outcomes, mut failure) = (Vec::new(), None);
    // After a reboot the kernel has its own values again.
    if record.boot == boot_id(root) {
        for change in record.changes.iter().rev() {
            let put_back = inspect(root, change).and_then(|(stale, write)| {
                if write {
                    change.setting.write(root, &change.old)?;
                }
                Ok(stale)
            });
            match put_back {
                Ok(stale) => outcomes.push(stale),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
    }
    match failure {
        Some(e) => Err(e),
        None => {
            file.remove()?;
            Ok(outcomes)
        }
    }
}

/// Which boot this is; the same for all where the kernel does not say.
fn boot_id(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id"));
    text.map_or_else(|_| "unknown".to_owned(), |t| t.trim().to_owned())
}

#[cfg(test)]
mod tests;
