// SPDX-License-Identifier: MIT OR Apache-2.0
//! One value for all who need a setting. Pure.
//!
//! The kernel's scanner is one for all processes, and each tracker reports only its own. So who needs more
//! gets it, and the others get more than they asked for: the scanner marks what anybody wants marked, as
//! often as the most impatient wants it. Who has it off says nothing about its pace.
//!
//! Where all have it off it may have to stay on, so that it marks next to nothing. With bit 1 (mode 2 or 3) the kernel keeps when it marked a slow page
//! where it keeps who accessed others (`last_cpupid`), and forgets that when the page moves to the top tier, but only as long as the bit is
//! set (`folio_migrate_flags` in Linux 6.12). A page that is promoted without it takes a time for a processor, and the next hint
//! fault there, in mode 1 or 3, looks up what that processor runs (`task_numa_group`): with a number beyond those that there are it reads anywhere, and the kernel
//! may go down. So once pages were marked it stays set while anybody here moves pages
//! ([`times`](super::times)).

use super::Setting;
use super::record::Record;

/// A pass over all memory of a process, ms. Not longer, as a thread that the kernel gives a new time between its steps meanwhile keeps that afterwards until its next hint
/// fault.
const IDLE_PASS_MS: u64 = 3_600_000;

/// A setting where the scanner is to mark next to nothing, and the kernel to move nothing (but into a fast node with more than 1 GiB or 1/16 of itself free).
const fn idle(setting: Setting) -> Option<u64> {
    match setting {
        Setting::NumaBalancing => Some(2),
        Setting::PromoteRateLimitMbps => Some(0),
        Setting::ScanPeriodMinMs | Setting::ScanPeriodMaxMs => Some(IDLE_PASS_MS),
        // The kernel divides by it.
        Setting::ScanSizeMb => Some(1),
        Setting::ScanDelayMs | Setting::HotThresholdMs | Setting::DemotionEnabled => None,
    }
}

impl Record {
    /// Whether all have the scanner off, and it has to stay on.
    pub(super) fn idles(&self) -> bool {
        let modes = self.holders.iter();
        let modes = modes.filter_map(|holder| holder.wishes.get(&Setting::NumaBalancing));
        self.timed && modes.max() == Some(&0)
    }

    /// Settings that are as they are for that.
    pub(super) fn idle_settings(&self) -> impl Iterator<Item = Setting> {
        let idles = self.idles();
        let all = Setting::ALL.into_iter();
        all.filter(move |setting| idles && idle(*setting).is_some())
    }

    /// The value that serves all holders; `None` where nobody needs any.
    pub(super) fn wanted(&self, setting: Setting) -> Option<u64> {
        if let Some(value) = idle(setting).filter(|_| self.idles()) {
            return Some(value);
        }
        let scanning: Vec<_> = self
            .holders
            .iter()
            .filter(|holder| holder.wishes.get(&Setting::NumaBalancing) != Some(&0))
            .collect();
        let all = self.holders.iter().collect();
        let heard = if is_pace(setting) && !scanning.is_empty() {
            scanning
        } else {
            all
        };
        let wishes = heard.into_iter().filter_map(|h| h.wishes.get(&setting));
        let wishes = wishes.copied();
        match setting {
            // 2 marks slow pages, 3 all.
            Setting::NumaBalancing
            | Setting::ScanSizeMb
            | Setting::HotThresholdMs
            | Setting::DemotionEnabled => wishes.max(),
            Setting::PromoteRateLimitMbps
            | Setting::ScanDelayMs
            | Setting::ScanPeriodMinMs
            | Setting::ScanPeriodMaxMs => wishes.min(),
        }
    }
}

const fn is_pace(setting: Setting) -> bool {
    matches!(
        setting,
        Setting::ScanDelayMs
            | Setting::ScanPeriodMinMs
            | Setting::ScanPeriodMaxMs
            | Setting::ScanSizeMb
    )
}

#[cfg(test)]
mod tests {
    use super::super::record::Holder;
    use super::super::record::HolderId;
    use super::*;

    fn record(wishes: &[&[(Setting, u64)]]) -> Record {
        let holder = |wishes: &&[(Setting, u64)]| Holder {
            id: HolderId::new(),
            wishes: wishes.iter().copied().collect(),
        };
        Record {
            holders: wishes.iter().map(holder).collect(),
            ..Record::new("b".to_owned())
        }
    }

    #[test]
    fn all_are_served() {
        let (mode, period) = (Setting::NumaBalancing, Setting::ScanPeriodMinMs);
        let size = Setting::ScanSizeMb;
        let two = record(&[
            &[(mode, 2), (period, 1000), (size, 64)],
            &[(mode, 3), (period, 5000), (size, 256)],
        ]);
        assert_eq!(two.wanted(mode), Some(3));
        assert_eq!(two.wanted(period), Some(1000));
        assert_eq!(two.wanted(size), Some(256));
        assert_eq!(two.wanted(Setting::DemotionEnabled), None);
    }

    #[test]
    fn where_pages_hold_access_times_it_stays_on_and_idles() {
        let (mode, size) = (Setting::NumaBalancing, Setting::ScanSizeMb);
        let off: &[_] = &[(mode, 0), (size, 64)];
        let mut one = record(&[off]);
        assert_eq!((one.wanted(mode), one.wanted(size)), (Some(0), Some(64)));
        one.timed = true;
        assert_eq!((one.wanted(mode), one.wanted(size)), (Some(2), Some(1)));
        assert_eq!(one.wanted(Setting::PromoteRateLimitMbps), Some(0));
        assert_eq!(one.wanted(Setting::ScanDelayMs), None);
        assert_eq!(one.idle_settings().last(), Some(mode));
        // Not for who needs something else, nor with nobody there.
        let mut two = record(&[off, &[(mode, 3), (size, 16)]]);
        two.timed = true;
        assert_eq!((two.wanted(mode), two.wanted(size)), (Some(3), Some(16)));
        let mut none = record(&[&[(size, 16)]]);
        none.timed = true;
        assert_eq!((none.wanted(mode), none.wanted(size)), (None, Some(16)));
    }

    #[test]
    fn who_has_the_scanner_off_keeps_nobody_from_it_and_sets_no_pace() {
        let (mode, period) = (Setting::NumaBalancing, Setting::ScanPeriodMinMs);
        let off: &[_] = &[(mode, 0), (period, 100)];
        let two = record(&[off, &[(mode, 2), (period, 5000)]]);
        assert_eq!(two.wanted(mode), Some(2));
        assert_eq!(two.wanted(period), Some(5000));
        let one = record(&[off]);
        assert_eq!(one.wanted(mode), Some(0));
        assert_eq!(one.wanted(period), Some(100));
    }
}
