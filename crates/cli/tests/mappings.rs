// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that maps and unmaps ranges faster than anybody can look at them, under a policy that
//! watches mappings.

use std::path::Path;

use assert_cmd::Command;

/// Maps, writes, checks and unmaps 60,000 ranges of 64 KiB to 8 MiB beside one that stays, and says
/// what they held and how much memory its supervisor had at half time and in the end.
const PROGRAM: &str = "
import mmap, os, re
def supervisor():
    text = open(f'/proc/{os.getppid()}/status').read()
    return int(re.search(r'VmHWM:\\s+(\\d+) kB', text)[1])
stays = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
stays[::4096] = b'x' * (len(stays) // 4096)
total, half = 0, 0
for n in range(60_000):
    size = 65536 << (n % 8)
    m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    assert m[size - 1] == 0 and m[0] == 0
    m[0] = m[size - 1] = n & 255
    total += m[0] + m[size - 1]
    m.close()
    if n == 30_000:
        half = supervisor()
assert stays[::4096] == b'x' * (len(stays) // 4096)
print(total, half, supervisor())
";

#[test]
fn many_short_mappings_leave_program_and_supervisor_well() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::cargo_bin("terrace").expect("built by cargo");
    command
        .env("TERRACE_RUN_DIR", dir.path())
        .args(["run", "--policy", "hemem"]);
    if !Path::new("/sys/devices/system/node/node1").exists() {
        command.args(["--fast", "64M"]);
    }
    let output = command
        .args(["--", "python3", "-c", PROGRAM])
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} {error}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map(|n| n.parse().expect("a number"))
        .collect();
    let total: u64 = (0..60_000).map(|n| 2 * (n & 255)).sum();
    assert_eq!(numbers[0], total, "{text}");
    // What is gone is forgotten: twice as many mappings take no more memory.
    assert!(numbers[2] < numbers[1] + (16 << 10), "{text}");
}
