// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holding kernel settings: change them, and put them back at the end, whichever end it is.
//!
//! Any number of processes hold them at once. Each writes down what it needs; each setting has the one value
//! that serves all ([`wishes`](super::wishes)), and goes back when nobody needs it any more. What a holder that crashed
//! needed is forgotten by the next one that comes, changes something or leaves.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use super::ScanRate;
use super::Setting;
use super::SettingsError;
use super::record::Change;
use super::record::Holder;
use super::record::HolderId;
use super::record::Record;
use super::record::RecordFile;
use super::times;

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum SetOutcome {
    /// It is as asked.
    Done,
    /// Another holder needs more: it is as that one asked.
    Shared {
        /// What is there.
        found: String,
    },
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

/// A share in the kernel settings, and the duty to put them back.
///
/// Dropping it puts back what no other holder needs.
#[derive(Debug)]
pub struct KernelSettings {
    root: PathBuf,
    file: RecordFile,
    id: HolderId,
    /// As last seen, in case that the file is removed.
    record: Record,
    /// What was asked for, what was found then, and what that came to.
    set: BTreeMap<Setting, (u64, String, SetOutcome)>,
    restored_at_start: Vec<Stale>,
    out_of_reach: BTreeSet<Setting>,
    done: bool,
}

impl KernelSettings {
    /// Becomes a holder, and puts back what nobody needs of what processes that crashed have left.
    ///
    /// # Errors
    ///
    /// Where what they left cannot be read or put back.
    pub fn acquire(root: &Path) -> Result<Self, SettingsError> {
        let file = RecordFile::new(root);
        let _lock = file.lock()?;
        let mut record = match load(root, &file)? {
            Some(record) => record,
            None => with_times(root, Record::new(boot_id(root))),
        };
        record.bury();
        let restored_at_start = settle(root, &file, &mut record)?;
        let id = HolderId::new();
        record.holders.push(Holder {
            id,
            wishes: BTreeMap::new(),
        });
        file.write(&record)?;
        Ok(Self {
            root: root.to_owned(),
            file,
            id,
            record,
            set: BTreeMap::new(),
            restored_at_start,
            out_of_reach: BTreeSet::new(),
            done: false,
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

    /// Changes a setting. Cheap where that was asked for before and it still is so: one read.
    ///
    /// # Errors
    ///
    /// Where the kernel does not have it or it cannot be changed; it then is as before.
    pub fn set(&mut self, setting: Setting, value: u64) -> Result<SetOutcome, SettingsError> {
        if let Some((asked, found, outcome)) = self.set.get(&setting)
            && *asked == value
            && setting.read(&self.root)?.as_ref() == Some(found)
        {
            return Ok(outcome.clone());
        }
        let lock = self.file.lock()?;
        self.reload()?;
        let idled = self.record.idles();
        let before = self.wish(setting, Some(value));
        if self.record.idles() != idled {
            if let Err(error) = settle(&self.root, &self.file, &mut self.record) {
                self.wish(setting, before);
                self.file.write(&self.record)?;
                return Err(error);
            }
            let missing = self.record.idle_settings();
            let missing = missing.filter(|s| s.read(&self.root).ok().flatten().is_none());
            self.out_of_reach.extend(missing);
        }
        let done = apply(&self.root, &self.file, &mut self.record, setting);
        if done.is_err() {
            self.wish(setting, before);
        }
        self.file.write(&self.record)?;
        drop(lock);
        let (outcome, found) = done?;
        let is_idle = self.record.idle_settings().any(|idle| idle == setting);
        let served = is_idle || setting.canonical(&value.to_string()) == found;
        let outcome = match outcome {
            SetOutcome::Done if !served => SetOutcome::Shared {
                found: found.clone(),
            },
            other => other,
        };
        self.set.insert(setting, (value, found, outcome.clone()));
        Ok(outcome)
    }

    /// Notes what this holder needs; gives what it needed before.
    fn wish(&mut self, setting: Setting, value: Option<u64>) -> Option<u64> {
        let wishes = &mut self.record.holder(self.id)?.wishes;
        match value {
            Some(value) => wishes.insert(setting, value),
            None => wishes.remove(&setting),
        }
    }

    /// What the others have written meanwhile. The caller has the lock.
    fn reload(&mut self) -> Result<(), SettingsError> {
        if let Some(record) = load(&self.root, &self.file)? {
            self.record = record;
        }
        self.record.bury();
        if self.record.holder(self.id).is_none() {
            let wishes = self.set.iter().map(|(s, (value, ..))| (*s, *value));
            self.record.holders.push(Holder {
                id: self.id,
                wishes: wishes.collect(),
            });
        }
        Ok(())
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
                Ok(SetOutcome::Done | SetOutcome::Shared { .. }) => {}
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

    /// Puts back now what nobody else needs, and says what that came to.
    ///
    /// # Errors
    ///
    /// Where a setting cannot be put back; the record then stays, for the next start.
    pub fn restore(mut self) -> Result<Vec<Stale>, SettingsError> {
        self.leave()
    }

    fn leave(&mut self) -> Result<Vec<Stale>, SettingsError> {
        self.done = true;
        let _lock = self.file.lock()?;
        self.reload()?;
        self.record.holders.retain(|holder| holder.id != self.id);
        settle(&self.root, &self.file, &mut self.record)
    }
}

impl Drop for KernelSettings {
    fn drop(&mut self) {
        if !self.done {
            // What fails stays in the record, for the next start or `terrace doctor --restore`.
            let _ = self.leave();
        }
    }
}

impl Change {
    fn knows(&self, value: &str) -> bool {
        self.old == value || self.ours.iter().any(|ours| ours == value)
    }
}

/// The record, if there is one of this boot: after a reboot the kernel has its own values again.
fn load(root: &Path, file: &RecordFile) -> Result<Option<Record>, SettingsError> {
    let found = file.read()?.filter(|record| record.boot == boot_id(root));
    Ok(found.map(|record| with_times(root, record)))
}

fn with_times(root: &Path, record: Record) -> Record {
    let timed = times::may_be_stored(root);
    Record { timed, ..record }
}

/// What processes that are no more have left changed and nobody needs.
///
/// # Errors
///
/// Where the record cannot be read.
pub fn stale(root: &Path) -> Result<Vec<Stale>, SettingsError> {
    let Some(mut record) = load(root, &RecordFile::new(root))? else {
        return Ok(Vec::new());
    };
    record.bury();
    let left = record.changes.iter();
    let left = left.filter(|change| record.wanted(change.setting).is_none());
    left.map(|change| inspect(root, change).map(|(s, _)| s))
        .collect()
}

/// Puts back what processes that are no more have left changed and nobody needs.
///
/// # Errors
///
/// Where a setting cannot be put back.
pub fn restore_stale(root: &Path) -> Result<Vec<Stale>, SettingsError> {
    let file = RecordFile::new(root);
    if !file.path().exists() {
        return Ok(Vec::new());
    }
    let _lock = file.lock()?;
    let Some(mut record) = load(root, &file)? else {
        file.remove()?;
        return Ok(Vec::new());
    };
    record.bury();
    settle(root, &file, &mut record)
}

/// Gives a setting the value that serves all holders, of which there is one; what was there is written down
/// before. Gives what is there now, too. The caller has the lock.
fn apply(
    root: &Path,
    file: &RecordFile,
    record: &mut Record,
    setting: Setting,
) -> Result<(SetOutcome, String), SettingsError> {
    let Some(found) = setting.read(root)? else {
        return Err(SettingsError::Absent {
            path: setting.path(root),
        });
    };
    let Some(wanted) = record.wanted(setting) else {
        return Ok((SetOutcome::Done, found));
    };
    let value = setting.canonical(&wanted.to_string());
    match record.change(setting) {
        Some(change) if !change.knows(&found) => {
            let outcome = SetOutcome::Foreign {
                found: found.clone(),
            };
            return Ok((outcome, found));
        }
        _ if found == value => return Ok((SetOutcome::Done, value)),
        // The kernel may have the one or the other if we end in between.
        Some(change) if change.old == found => change.ours = vec![value.clone()],
        Some(change) => change.ours = vec![found, value.clone()],
        None => record.changes.push(Change {
            setting,
            old: found,
            ours: vec![value.clone()],
        }),
    }
    file.write(record)?;
    setting.write(root, &value)?;
    Ok((SetOutcome::Done, value))
}

/// Brings all changed settings to what the holders need, and puts back what none needs, the scanner
/// first; the record is as it then is, and goes with the last holder. Gives what was put back. One setting that
/// cannot be changed does not keep the others from it. The caller has the lock.
fn settle(
    root: &Path,
    file: &RecordFile,
    record: &mut Record,
) -> Result<Vec<Stale>, SettingsError> {
    let (mut outcomes, mut failure) = (Vec::new(), None);
    let changed = record.changes.iter().map(|c| c.setting);
    let changed: Vec<Setting> = changed.chain(record.idle_settings()).collect();
    let in_order = Setting::ALL.into_iter().filter(|s| changed.contains(s));
    let (needed, left): (Vec<_>, Vec<_>) = in_order.partition(|s| record.wanted(*s).is_some());
    for setting in needed {
        // A holder that needs it asks again; at the end it goes back.
        let _ = apply(root, file, record, setting);
    }
    for setting in left.into_iter().rev() {
        match put_back(root, record, setting) {
            Ok(stale) => outcomes.extend(stale),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    if record.is_empty() {
        file.remove()?;
    } else {
        file.write(record)?;
    }
    failure.map_or(Ok(outcomes), Err)
}

fn put_back(
    root: &Path,
    record: &mut Record,
    setting: Setting,
) -> Result<Option<Stale>, SettingsError> {
    let Some(change) = record.change(setting) else {
        return Ok(None);
    };
    let (stale, write) = inspect(root, change)?;
    if write {
        setting.write(root, &change.old)?;
    }
    record.changes.retain(|change| change.setting != setting);
    Ok(Some(stale))
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

/// Which boot this is; the same for all where the kernel does not say.
fn boot_id(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id"));
    text.map_or_else(|_| "unknown".to_owned(), |t| t.trim().to_owned())
}

#[cfg(test)]
mod tests;
