// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every preset for real machines at work on the kernel.

use terrace_policy::PRESETS;
use terrace_policy::Preset;
use terrace_policy::UNMANAGED;

use crate::END;
use crate::READY;
use crate::SMALL;
use crate::machine::slowed;
use crate::number;
use crate::until_more;

/// Bytes that each promotes, of the 40 MB that the program uses, before the program ends.
const ENOUGH: u64 = 8 << 20;

/// A preset's run: its parameters as the lab has them, for MTM a short interval.
fn run(preset: &Preset) -> String {
    let dilated = (preset.dilated)(20.0).into_iter();
    let mut params: Vec<String> = dilated
        .map(|(name, value)| format!("--param {name}={value}"))
        .collect();
    if preset
        .parameters()
        .iter()
        .any(|one| one.parameter.name == "interval")
    {
        params.push("--param interval=2s".to_owned());
    }
    if preset.samples() {
        params.push("--sample-period 397".to_owned());
    }
    let (name, params) = (preset.name, params.join(" "));
    let enough = until_more("$sup", "promoted_bytes", ENOUGH);
    format!(
        "rm -f /tmp/out
         terrace run --paused --policy {name} {params} --stats=/tmp/s -- {SMALL} > /tmp/out & sup=$!
         {READY}; terrace resume > /dev/null; {enough}; {END}; wait $sup || exit 1
         tail -1 /tmp/out | grep -q '\"wrong\":\\[\\]' || exit 2
         now | cmp - /tmp/before || exit 3
         echo {name} $(grep -E '\"(promoted_bytes|unanswered)\"' /tmp/s)\n"
    )
}

/// Each promotes much of what the program uses, which starts on the slow node, and puts the kernel's settings back.
#[test]
#[ignore = "boots the emulated machine"]
fn each_promotes_and_puts_the_settings_back() {
    let real = PRESETS.iter().copied().filter(|one| one.in_user_space());
    let managing: Vec<&Preset> = real.filter(|one| !std::ptr::eq(*one, UNMANAGED)).collect();
    let runs: String = managing.iter().copied().map(run).collect();
    let out = slowed(&format!(
        "now() {{ cat /sys/kernel/debug/sched/numa_balancing/* /proc/sys/kernel/numa_balancing; }}
         now > /tmp/before\n{runs}"
    ))
    .good();
    println!("{out}");
    let lines: Vec<&str> = out
        .lines()
        .filter(|line| line.contains("promoted"))
        .collect();
    assert_eq!(lines.len(), managing.len(), "{out}");
    for line in lines {
        assert!(number(line, "promoted_bytes") > ENOUGH, "{out}");
    }
}
