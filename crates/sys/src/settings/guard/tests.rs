// SPDX-License-Identifier: MIT OR Apache-2.0
//! On a directory that looks like the kernel's files.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use tempfile::TempDir;
use terrace_core::Nanos;

use super::*;
use crate::settings::ScanMode;

const INITIAL: [(Setting, &str); 8] = [
    (Setting::NumaBalancing, "1"),
    (Setting::PromoteRateLimitMbps, "65536"),
    (Setting::ScanDelayMs, "1000"),
    (Setting::ScanPeriodMinMs, "1000"),
    (Setting::ScanPeriodMaxMs, "60000"),
    (Setting::ScanSizeMb, "256"),
    (Setting::HotThresholdMs, "1000"),
    (Setting::DemotionEnabled, "0"),
];

fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (setting, value) in INITIAL {
        let path = setting.path(root.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{value}\n")).unwrap();
    }
    // As the kernel prints it.
    fs::write(Setting::DemotionEnabled.path(root.path()), "false\n").unwrap();
    let boot = root.path().join("proc/sys/kernel/random");
    fs::create_dir_all(&boot).unwrap();
    fs::write(boot.join("boot_id"), "boot-1\n").unwrap();
    root
}

fn value(root: &TempDir, setting: Setting) -> String {
    setting.read(root.path()).unwrap().unwrap()
}

fn is_initial(root: &TempDir) -> bool {
    INITIAL.iter().all(|(s, v)| value(root, *s) == *v)
}

fn crash(settings: KernelSettings) {
    // What SIGKILL does: the process goes, nothing else happens.
    let mut settings = settings;
    settings.done = true;
    let mut record = settings.file.read().unwrap().unwrap();
    record.holder(settings.id).unwrap().id.process.start_ticks += 1;
    settings.file.write(&record).unwrap();
}

fn set(settings: &mut KernelSettings, setting: Setting, value: u64) {
    assert_eq!(settings.set(setting, value).unwrap(), SetOutcome::Done);
}

#[test]
fn settings_are_put_back_when_dropped() {
    let root = machine();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    set(&mut settings, Setting::DemotionEnabled, 1);
    set(&mut settings, Setting::NumaBalancing, 2);
    assert_eq!(value(&root, Setting::DemotionEnabled), "1");
    assert_eq!(value(&root, Setting::NumaBalancing), "2");
    drop(settings);
    assert!(is_initial(&root));
    assert!(!root.path().join("run/terrace/settings").exists());
}

#[test]
fn crash_is_repaired_by_the_next_start_and_by_hand() {
    for by_hand in [false, true] {
        let root = machine();
        let mut settings = KernelSettings::acquire(root.path()).unwrap();
        set(&mut settings, Setting::ScanSizeMb, 1024);
        set(&mut settings, Setting::NumaBalancing, 2);
        crash(settings);
        assert_eq!(value(&root, Setting::NumaBalancing), "2");
        assert_eq!(stale(root.path()).unwrap().len(), 2);

        if by_hand {
            assert_eq!(restore_stale(root.path()).unwrap().len(), 2);
        } else {
            let next = KernelSettings::acquire(root.path()).unwrap();
            assert_eq!(next.restored_at_start().len(), 2);
        }
        assert!(is_initial(&root));
        assert!(stale(root.path()).unwrap().is_empty());
    }
}

#[test]
fn crash_between_record_and_change_does_no_harm() {
    let root = machine();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    for value in [2, 3, 0] {
        set(&mut settings, Setting::NumaBalancing, value);
        let path = Setting::NumaBalancing.path(root.path());
        let now = fs::read_to_string(&path).unwrap();
        let before = settings.record.clone();
        set(&mut settings, Setting::NumaBalancing, 1);
        // The record is of the later change, the kernel of the earlier.
        fs::write(&path, now).unwrap();
        settings.set.clear();
        set(&mut settings, Setting::NumaBalancing, value);
        assert_eq!(settings.record.changes.len(), before.changes.len());
    }
    crash(settings);
    restore_stale(root.path()).unwrap();
    assert!(is_initial(&root));
}

#[test]
fn several_hold_them_and_the_last_puts_them_back() {
    for (first_ends_first, crashes) in [(true, false), (false, false), (true, true), (false, true)]
    {
        let root = machine();
        let acquire = || KernelSettings::acquire(root.path()).unwrap();
        let (mut first, mut second) = (acquire(), acquire());
        set(&mut first, Setting::NumaBalancing, 2);
        set(&mut first, Setting::ScanPeriodMinMs, 100);
        set(&mut second, Setting::NumaBalancing, 3);
        let found = "100".to_owned();
        assert_eq!(
            second.set(Setting::ScanPeriodMinMs, 5000).unwrap(),
            SetOutcome::Shared { found }
        );
        assert_eq!(value(&root, Setting::NumaBalancing), "3");
        assert_eq!(value(&root, Setting::ScanPeriodMinMs), "100");
        assert!(stale(root.path()).unwrap().is_empty());
        assert!(restore_stale(root.path()).unwrap().is_empty());
        let (one, other) = if first_ends_first {
            (first, second)
        } else {
            (second, first)
        };
        if crashes {
            crash(one);
            // Who is left is not disturbed, and what was needed for the dead one alone goes.
            assert!(restore_stale(root.path()).unwrap().is_empty());
        } else {
            drop(one);
        }
        let (mode, period) = if first_ends_first {
            ("3", "5000")
        } else {
            ("2", "100")
        };
        assert_eq!(value(&root, Setting::NumaBalancing), mode);
        assert_eq!(value(&root, Setting::ScanPeriodMinMs), period);
        if crashes {
            crash(other);
            assert_eq!(stale(root.path()).unwrap().len(), 2);
            assert_eq!(restore_stale(root.path()).unwrap().len(), 2);
        } else {
            drop(other);
        }
        assert!(is_initial(&root));
        assert!(!root.path().join("run/terrace/settings").exists());
    }
}

#[test]
fn who_found_it_as_needed_keeps_it_so_when_another_leaves() {
    let root = machine();
    let mut first = KernelSettings::acquire(root.path()).unwrap();
    set(&mut first, Setting::NumaBalancing, 0);
    let mut second = KernelSettings::acquire(root.path()).unwrap();
    set(&mut second, Setting::NumaBalancing, 0);
    drop(first);
    assert_eq!(value(&root, Setting::NumaBalancing), "0");
    drop(second);
    assert!(is_initial(&root));
}

#[test]
fn a_record_that_somebody_removes_is_written_again() {
    let root = machine();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    set(&mut settings, Setting::NumaBalancing, 2);
    fs::remove_dir_all(root.path().join("run/terrace")).unwrap();
    set(&mut settings, Setting::ScanSizeMb, 512);
    drop(settings);
    assert!(is_initial(&root));
}

#[test]
fn only_the_owner_can_take_the_lock_and_nobody_waits_for_ever() {
    let root = machine();
    let file = RecordFile::new(root.path());
    let lock = file.lock().unwrap();
    let mode = fs::metadata(root.path().join("run/terrace/settings.lock"));
    assert_eq!(mode.unwrap().permissions().mode() & 0o777, 0o600);
    let error = KernelSettings::acquire(root.path()).unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
    drop(lock);
    KernelSettings::acquire(root.path()).unwrap();
}

#[test]
fn value_changed_by_somebody_else_is_left_alone() {
    let root = machine();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    set(&mut settings, Setting::NumaBalancing, 2);
    set(&mut settings, Setting::ScanSizeMb, 512);
    fs::write(Setting::NumaBalancing.path(root.path()), "0\n").unwrap();
    let again = settings.set(Setting::NumaBalancing, 3).unwrap();
    assert_eq!(
        again,
        SetOutcome::Foreign {
            found: "0".to_owned()
        }
    );

    let outcomes = settings.restore().unwrap();
    assert_eq!(value(&root, Setting::NumaBalancing), "0");
    assert_eq!(value(&root, Setting::ScanSizeMb), "256");
    let foreign: BTreeMap<_, _> = outcomes
        .into_iter()
        .map(|o| (o.setting, o.foreign))
        .collect();
    assert_eq!(foreign[&Setting::NumaBalancing], Some("0".to_owned()));
    assert_eq!(foreign[&Setting::ScanSizeMb], None);
}

#[test]
fn absent_setting_is_named_and_nothing_is_recorded() {
    let root = machine();
    fs::remove_dir_all(root.path().join("sys/kernel/debug")).unwrap();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    let error = settings.set(Setting::ScanSizeMb, 1).unwrap_err();
    assert!(error.to_string().contains("scan_size_mb"), "{error}");
    assert!(settings.record.changes.is_empty());
    assert!(settings.record.wanted(Setting::ScanSizeMb).is_none());
    set(&mut settings, Setting::NumaBalancing, 2);
}

#[test]
fn setting_that_cannot_be_written_does_not_keep_the_others_from_going_back() {
    let root = machine();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    set(&mut settings, Setting::ScanSizeMb, 512);
    set(&mut settings, Setting::NumaBalancing, 2);
    set(&mut settings, Setting::DemotionEnabled, 1);
    // A directory in its place stands for a permission lost: root may write any file.
    let path = Setting::NumaBalancing.path(root.path());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();

    settings.restore().unwrap_err();
    assert_eq!(value(&root, Setting::ScanSizeMb), "256");
    assert_eq!(value(&root, Setting::DemotionEnabled), "0");
    // Once it can be written again, the record still knows.
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "2\n").unwrap();
    restore_stale(root.path()).unwrap();
    assert!(is_initial(&root));
}

#[test]
fn without_permission_nothing_is_changed() {
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root may write any file");
        return;
    }
    let root = machine();
    let path = Setting::NumaBalancing.path(root.path());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    let error = settings.set(Setting::NumaBalancing, 2).unwrap_err();
    assert!(matches!(error, SettingsError::Write { .. }));
    drop(settings);
    assert!(is_initial(&root));
}

#[test]
fn record_of_an_earlier_boot_is_void() {
    let root = machine();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    set(&mut settings, Setting::NumaBalancing, 2);
    crash(settings);
    let boot = root.path().join("proc/sys/kernel/random/boot_id");
    fs::write(boot, "boot-2\n").unwrap();
    assert!(stale(root.path()).unwrap().is_empty());
    let settings = KernelSettings::acquire(root.path()).unwrap();
    assert!(settings.restored_at_start().is_empty());
    assert_eq!(value(&root, Setting::NumaBalancing), "2");
}

#[test]
fn malformed_record_is_refused_and_kept() {
    let root = machine();
    let path = root.path().join("run/terrace/settings");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "nonsense").unwrap();
    let error = KernelSettings::acquire(root.path()).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
    assert!(path.exists());
}

fn rate(mode: ScanMode, min_ms: u64) -> ScanRate {
    ScanRate {
        mode,
        period_min: Nanos::from_millis(min_ms),
        period_max: Nanos::from_millis(10 * min_ms),
        size_mb: 64,
    }
}

#[test]
fn scanning_backs_off_and_comes_back_and_the_record_does_not_grow() {
    let root = machine();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    let record = root.path().join("run/terrace/settings");
    let (fast, slow) = (rate(ScanMode::Tiering, 100), rate(ScanMode::Tiering, 5000));
    for rate in [fast, slow, rate(ScanMode::Off, 1), fast] {
        assert_eq!(settings.set_scan_rate(&rate).unwrap(), []);
    }
    let before = fs::metadata(&record).unwrap();
    for ms in (100..4000).step_by(100) {
        let rate = rate(ScanMode::Tiering, ms);
        assert_eq!(settings.set_scan_rate(&rate).unwrap(), []);
    }
    assert_eq!(settings.set_scan_rate(&fast).unwrap(), []);
    let after = fs::metadata(&record).unwrap();
    assert!(after.len() < before.len() + 40, "{} bytes", after.len());
    // What is so already is not written down again.
    assert_eq!(settings.set_scan_rate(&fast).unwrap(), []);
    let again = fs::metadata(&record).unwrap();
    assert_eq!(again.modified().unwrap(), after.modified().unwrap());
    assert_eq!(value(&root, Setting::NumaBalancing), "2");
    assert_eq!(value(&root, Setting::ScanPeriodMinMs), "100");
    assert_eq!(value(&root, Setting::ScanPeriodMaxMs), "1000");
    drop(settings);
    assert!(is_initial(&root));
}

/// Next to nothing is marked and nothing promoted, but the mode stays.
fn is_idle(root: &TempDir) -> bool {
    let idle = [
        (Setting::NumaBalancing, "2"),
        (Setting::PromoteRateLimitMbps, "0"),
        (Setting::ScanPeriodMinMs, "3600000"),
        (Setting::ScanSizeMb, "1"),
    ];
    idle.into_iter().all(|(s, v)| value(root, s) == v)
}

#[test]
fn once_access_times_are_stored_the_scanner_idles_instead_of_being_off() {
    let root = machine();
    let mut first = KernelSettings::acquire(root.path()).unwrap();
    let off = rate(ScanMode::Off, 1);
    assert_eq!(first.set_scan_rate(&off).unwrap(), []);
    assert_eq!(value(&root, Setting::NumaBalancing), "0");
    let fast = rate(ScanMode::Both, 100);
    assert_eq!(first.set_scan_rate(&fast).unwrap(), []);
    assert_eq!(first.set_scan_rate(&off).unwrap(), []);
    assert!(is_idle(&root));
    assert_eq!(first.set_scan_rate(&fast).unwrap(), []);
    let scans = |setting| value(&root, setting);
    assert_eq!(scans(Setting::NumaBalancing), "3");
    assert_eq!(scans(Setting::ScanPeriodMinMs), "100");
    assert_eq!(scans(Setting::ScanSizeMb), "64");
    assert_eq!(scans(Setting::PromoteRateLimitMbps), "65536");

    // Who has it off beside one that scans, and stays.
    let mut second = KernelSettings::acquire(root.path()).unwrap();
    let shared = second.set(Setting::NumaBalancing, 0).unwrap();
    assert_eq!(
        shared,
        SetOutcome::Shared {
            found: "3".to_owned()
        }
    );
    drop(first);
    assert!(is_idle(&root));
    drop(second);
    assert!(is_initial(&root));
}

/// Makes the kernel have marked so many pages since the machine was started.
fn marked(root: &TempDir, pages: u32) {
    let vmstat = format!("nr_free_pages 12\nnuma_pte_updates {pages}\nnuma_hint_faults 3\n");
    fs::write(root.path().join("proc/vmstat"), vmstat).unwrap();
}

/// What mode that was in nobody knows any more: mode 2 in the morning, 0 at noon.
#[test]
fn where_anything_was_marked_since_the_boot_it_idles() {
    let root = machine();
    let modes = [(0, "0"), (7, "2"), (0, "0")];
    for (pages, mode) in modes {
        marked(&root, pages);
        let mut settings = KernelSettings::acquire(root.path()).unwrap();
        set(&mut settings, Setting::NumaBalancing, 0);
        assert_eq!(value(&root, Setting::NumaBalancing), mode, "{pages}");
        assert_eq!(is_idle(&root), mode == "2");
        drop(settings);
        assert!(is_initial(&root));
    }
    // It stores none where no tier is slow.
    marked(&root, 7);
    let tier = root
        .path()
        .join("sys/devices/virtual/memory_tiering/memory_tier4");
    fs::create_dir_all(&tier).unwrap();
    fs::write(tier.join("nodelist"), "0-1\n").unwrap();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    set(&mut settings, Setting::NumaBalancing, 0);
    assert_eq!(value(&root, Setting::NumaBalancing), "0");
}

#[test]
fn access_times_that_somebody_elses_mode_stored_count() {
    let root = machine();
    fs::write(Setting::NumaBalancing.path(root.path()), "2\n").unwrap();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    set(&mut settings, Setting::NumaBalancing, 0);
    assert!(is_idle(&root));
    crash(settings);
    restore_stale(root.path()).unwrap();
    assert_eq!(value(&root, Setting::NumaBalancing), "2");
    assert_eq!(value(&root, Setting::ScanSizeMb), "256");
}

#[test]
fn without_debugfs_the_scanner_is_only_switched() {
    let root = machine();
    fs::remove_dir_all(root.path().join("sys/kernel/debug")).unwrap();
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    let fast = rate(ScanMode::Tiering, 100);
    assert_eq!(settings.set_scan_rate(&fast).unwrap(), []);
    assert_eq!(value(&root, Setting::NumaBalancing), "2");
    assert_eq!(settings.out_of_reach().count(), 3);
    drop(settings);
    // Nor can it idle at a pace of ours.
    marked(&root, 7);
    let mut settings = KernelSettings::acquire(root.path()).unwrap();
    set(&mut settings, Setting::NumaBalancing, 0);
    assert_eq!(value(&root, Setting::NumaBalancing), "2");
    assert_eq!(settings.out_of_reach().count(), 3);
    fs::remove_file(Setting::NumaBalancing.path(root.path())).unwrap();
    assert!(settings.set_scan_rate(&fast).is_err());
}

proptest! {
    // Every change is synced to disk.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is set, and wherever it ends, what was there comes back.
    #[test]
    fn any_changes_are_put_back(
        changes in prop::collection::vec((0usize..8, 0u64..4), 0..40),
        crashes: bool,
    ) {
        let root = machine();
        let mut settings = KernelSettings::acquire(root.path()).unwrap();
        for (which, value) in changes {
            let setting = Setting::ALL[which];
            let value = if setting == Setting::DemotionEnabled { value % 2 } else { value };
            prop_assert_eq!(settings.set(setting, value).unwrap(), SetOutcome::Done);
        }
        if crashes {
            crash(settings);
            restore_stale(root.path()).unwrap();
        } else {
            drop(settings);
        }
        prop_assert!(is_initial(&root));
    }
}
