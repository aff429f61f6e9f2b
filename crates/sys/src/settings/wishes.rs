// SPDX-License-Identifier: MIT OR Apache-2.0
//! One value for all who need a setting. Pure.
//!
//! The kernel's scanner is one for all processes, and each tracker reports only its own. So who needs more
//! gets it, and the others get more than they asked for: the scanner marks what anybody wants marked, as
//! often as the most impatient wants it. Who has it off says nothing about its pace.

use super::Setting;
use super::record::Record;

impl Record {
    /// The value that serves all holders; `None` where nobody needs any.
    pub(super) fn wanted(&self, setting: Setting) -> Option<u64> {
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
