// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terrace in the emulated two-tier machine, end to end: the stress of the transactions, real
//! programs, crashes, missing permissions. Each test boots the machine; all are ignored unless
//! asked for (`scripts/test` does) and need the release binaries beside `terrace-lab`.
//!
//! `TERRACE_STRESS_SECONDS` sets how long each stress runs, 60 if unset.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn bin() -> PathBuf {
    let lab = Path::new(env!("CARGO_BIN_EXE_terrace-lab"));
    lab.parent().expect("a file is in a directory").to_owned()
}

fn guest(script: &str) -> Ran {
    guest_with(&["--delays", "off"], script)
}

/// With the delays of the slow node: the default moves nothing between nodes that are equally fast.
fn slowed(script: &str) -> Ran {
    guest_with(&[], script)
}

fn guest_with(options: &[&str], script: &str) -> Ran {
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_terrace-lab"))
        .arg("run")
        .args(options)
        .args(["--timeout", "10m", "--machine"])
        .arg(machine)
        .args(["--", "bash", "-c"])
        .arg(format!(
            "set -u; export PATH={}:$PATH\n{script}",
            bin().display()
        ))
        .output()
        .expect("terrace-lab was built for this test");
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Ran {
    fn good(self) -> String {
        assert_eq!(
            self.code,
            Some(0),
            "stdout:\n{}\nstderr:\n{}",
            self.out,
            self.err
        );
        self.out
    }
}

/// The number behind `"name":` in JSON that is known to hold it once.
fn number(json: &str, name: &str) -> u64 {
    let at = json
        .find(&format!("\"{name}\":"))
        .unwrap_or_else(|| panic!("no {name} in {json}"));
    let digits: String = json[at..]
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("digits")
}

fn stress(options: &str) {
    stress_twice(options, None);
}

/// With `also`, those options for a sixth of the time in the same boot.
fn stress_twice(options: &str, also: Option<&str>) {
    let seconds = std::env::var("TERRACE_STRESS_SECONDS").unwrap_or_else(|_| "60".to_owned());
    let mut script = format!("terrace-stress words --json --seconds {seconds} {options}");
    if let Some(also) = also {
        script += &format!(" && terrace-stress words --json --seconds $(({seconds} / 6)) {also}");
    }
    let out = guest(&script).good();
    println!("{options}, {also:?}: {out}");
}

const CHAOS: &str = "--chaos fork,munmap,mremap,dontneed,mprotect,rw";

#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_in_4k_pages() {
    // The second is how `terrace run` commits base pages by default.
    stress_twice("--page-size 4k", Some("--page-size 4k --copy-in-commit"));
}

#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_in_2m_pages() {
    // 48 MiB: the fast node has some 110 MiB, and the agent's frames need room as well.
    let chaos = format!("--page-size 2m --pages 12 {CHAOS}");
    stress_twice("--page-size 2m --pages 12", Some(&chaos));
}

#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_while_the_program_changes_its_mappings() {
    let copying = format!("--page-size 4k --copy-in-commit {CHAOS}");
    stress_twice(&format!("--page-size 4k {CHAOS}"), Some(&copying));
}

#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_when_the_supervisor_is_killed() {
    stress("--page-size 4k --kill-supervisor");
}

#[test]
#[ignore = "boots the emulated machine"]
fn real_programs_compute_the_same() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let script = format!(
        "mkdir -p /tmp/w && /usr/bin/python3 {0}/make_inputs.py /tmp/w && {0}/real_programs.sh {1} /tmp/w",
        tests.display(),
        bin().display()
    );
    let out = guest(&script).good();
    println!("{out}");
    for program in ["python3", "gcc", "sort", "redis"] {
        assert!(out.contains(&format!("same {program} ")), "{out}");
    }
}

const SMALL: &str = "terrace-bench nomad-small-read --fast-free 60M --place slow";

#[test]
#[ignore = "boots the emulated machine"]
fn a_run_promotes_and_puts_everything_back() {
    let out = guest(&format!(
        "echo 1 > /proc/sys/kernel/numa_balancing
         cat /sys/kernel/debug/sched/numa_balancing/* > /tmp/before
         terrace run --policy nomad --stats=/tmp/s -- {SMALL} --seconds 12s > /tmp/out || exit 1
         cat /sys/kernel/debug/sched/numa_balancing/* | cmp - /tmp/before || exit 2
         [ $(cat /proc/sys/kernel/numa_balancing) = 1 ] || exit 3
         [ -z \"$(ls /run/terrace | grep -v '^settings')\" ] || exit 4
         cat /tmp/s"
    ))
    .good();
    assert!(number(&out, "promoted_pages") > 500, "{out}");
    // Only pages that keep a shadow move by transactions: the first 32, and some of the others.
    assert!(number(&out, "tpm_committed") > 30, "{out}");
    // The books: what was ordered has ended one way or another.
    let ended: u64 = [
        "promoted_pages",
        "demoted_pages",
        "tpm_aborted",
        "refused_busy",
        "refused_no_memory",
        "lost",
    ]
    .iter()
    .map(|name| number(&out, name))
    .sum();
    assert_eq!(number(&out, "ordered"), ended, "{out}");
}

/// The number behind a word, at the start of a line or after others.
fn behind(text: &str, word: &str) -> u64 {
    let mut words = text
        .split_whitespace()
        .skip_while(|w| w.trim_end_matches(':') != word);
    let number = words.nth(1).and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| panic!("no {word} in {text}"))
}

/// A server that has been up for a day: its fast node is full of page cache.
#[test]
#[ignore = "boots the emulated machine"]
fn page_cache_on_the_fast_node_is_room() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    file.as_file().set_len(160 << 20).expect("room");
    let out = slowed(&format!(
        "cat {} > /dev/null; cat /sys/devices/system/node/node0/meminfo
         echo 1 > /sys/kernel/mm/numa/demotion_enabled
         terrace run --paused --stats=/tmp/s -- {SMALL} --seconds 12s > /tmp/out & sup=$!
         until grep -q ready /tmp/out; do sleep 0.1; done; terrace resume
         wait $sup || exit 1
         cat /proc/vmstat /tmp/s",
        file.path().display()
    ))
    .good();
    let (free, cache) = (behind(&out, "MemFree"), behind(&out, "Inactive(file)"));
    assert!(
        free < 20 << 10 && cache > 60 << 10,
        "not full of cache: {out}"
    );
    let promoted = number(&out, "promoted_pages");
    assert!(promoted > 500, "{out}");
    // The kernel makes room of page cache, not of programs' pages, though it may demote.
    assert!(behind(&out, "pgsteal_anon") * 20 < promoted, "{out}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn a_killed_supervisor_leaves_the_program_alone_and_the_doctor_restores() {
    let out = guest(&format!(
        "echo 1 > /proc/sys/kernel/numa_balancing
         terrace run --policy nomad --mover move-pages -- {SMALL} --seconds 16s > /tmp/out & sup=$!
         sleep 8; kill -KILL $(pgrep -x terrace)
         wait $sup
         echo \"balancing $(cat /proc/sys/kernel/numa_balancing)\"
         terrace doctor | grep '^changed'
         terrace doctor --restore
         echo \"balancing $(cat /proc/sys/kernel/numa_balancing)\"
         while pgrep -x terrace-bench > /dev/null; do sleep 0.2; done
         cat /tmp/out | tail -1"
    ))
    .good();
    assert!(
        out.contains("changed  kernel settings left by a supervisor that crashed"),
        "{out}"
    );
    assert!(out.trim_end().contains("balancing 1"), "{out}");
    assert!(
        out.contains("\"wrong\":[]"),
        "the program did not finish well: {out}"
    );
}

#[test]
#[ignore = "boots the emulated machine"]
fn attach_promotes_a_running_program_by_move_pages() {
    let out = slowed(&format!(
        "{SMALL} --seconds 20s > /tmp/out & bench=$!
         until grep -q ready /tmp/out; do sleep 0.1; done
         timeout 12 terrace attach --stats=/tmp/s $bench
         wait $bench || exit 1
         cat /tmp/s"
    ))
    .good();
    assert!(number(&out, "ordinary_moves") > 500, "{out}");
    assert_eq!(number(&out, "tpm_committed"), 0, "{out}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn without_userfaultfd_pages_go_by_move_pages_and_the_user_is_told() {
    let out = guest(&format!(
        "rm -f /dev/userfaultfd; echo 0 > /proc/sys/vm/unprivileged_userfaultfd
         terrace run --policy nomad --stats=/tmp/s -- setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace \
           --reuid 65534 --clear-groups {SMALL} --seconds 12s > /tmp/out || exit 1
         cat /tmp/s"
    ))
    .good();
    assert!(
        out.contains("no transactions, move_pages instead: Operation not permitted"),
        "{out}"
    );
    assert!(number(&out, "ordinary_moves") > 500, "{out}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn without_permission_the_program_runs_and_the_user_is_told() {
    let out = guest(
        "chmod 1777 /tmp; setpriv --reuid 65534 --regid 65534 --clear-groups \
           terrace run --stats -- sh -c 'echo ran; exit 3'; echo code $?",
    );
    assert!(out.out.contains("ran\ncode 3"), "{} {}", out.out, out.err);
    assert!(
        out.err
            .contains("no accessed bits, nothing will be promoted"),
        "{}",
        out.err
    );
}

#[test]
#[ignore = "boots the emulated machine"]
fn children_are_followed_unless_told_otherwise() {
    let run = |option: &str| {
        format!(
            "terrace run {option} --paused --stats=/tmp/s -- sh -c '{SMALL} --seconds 12s; true' > /tmp/out & sup=$!
             until grep -q ready /tmp/out; do sleep 0.1; done; terrace resume
             wait $sup; cat /tmp/s;"
        )
    };
    let out = slowed(&format!(
        "{} echo; echo ====; {}",
        run(""),
        run("--no-follow")
    ))
    .good();
    let (followed, alone) = out.split_once("====").expect("both ran");
    // By default the kernel moves the pages, from outside: nothing is in the program's process.
    assert!(number(followed, "promoted_pages") > 500, "{out}");
    assert!(number(followed, "ordinary_moves") > 500, "{out}");
    assert_eq!(number(followed, "tpm_committed"), 0, "{out}");
    assert_eq!(number(alone, "promoted_pages"), 0, "{out}");
}

/// All samples that were due, of misses by anybody: taken, lost or throttled.
fn due(stats: &str) -> u64 {
    number(stats, "seen") + number(stats, "lost") + number(stats, "throttled")
}

#[test]
#[ignore = "boots the emulated machine"]
fn the_emulated_pmu_s_samples_are_right_and_none_is_lost_silently() {
    // So dense, limited and cramped that some must be throttled and some lost at any speed.
    let out = guest_with(
        &["--pmu-rate", "500", "--pmu-room", "16"],
        "terrace run --policy none --tracker emulated-pmu --sample-period 13 --stats=/tmp/s -- \
           terrace-bench gups --fast-free 60M --place slow --seconds 6s > /tmp/out || exit 1
         sed -n '/\"tracker\"/,$p' /tmp/s",
    )
    .good();
    assert!(out.contains("\"name\": \"emulated-pmu\""), "{out}");
    let (seen, reported) = (number(&out, "seen"), number(&out, "reported"));
    assert!(reported > 200, "{out}");
    assert!(number(&out, "lost") > 0, "{out}");
    assert!(number(&out, "throttled") > 0, "{out}");
    // One in 13 misses, whatever became of it; the gaps between samples vary by an eighth.
    let (due, misses) = (due(&out), number(&out, "misses"));
    assert!(
        due * 13 * 20 > misses * 19 && due * 13 * 20 < misses * 21,
        "{out}"
    );
    // Nothing moves, so every check confirms; a page can be away for an instant.
    let confirmed = number(&out, "checks_confirmed");
    assert_eq!(number(&out, "checks_mismatched"), 0, "{out}");
    assert!(number(&out, "checks_unclear") * 20 <= confirmed, "{out}");
    assert!(confirmed * 20 > reported, "one in 16 is checked: {out}");
    assert_eq!(number(&out, "foreign"), seen - reported, "{out}");
    assert_eq!(number(&out, "torn"), 0, "{out}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn hemem_promotes_the_hot_set_by_samples_alone() {
    let out = guest_with(
        &["--delays", "on"],
        "terrace run --paused --policy hemem --sample-period 97 --stats=/tmp/s -- \
           terrace-bench gups --fast-free 60M --place slow --seconds 20s > /tmp/out &
         until grep -q ready /tmp/out; do sleep 0.2; kill -0 $! || exit 2; done
         terrace resume > /dev/null; sleep 3; cat /proc/sys/kernel/numa_balancing > /tmp/scanner
         wait $! || exit 1
         grep total /tmp/out; cat /tmp/scanner; cat /tmp/s",
    )
    .good();
    // Hint faults cost; with a PMU there are none.
    assert_eq!(out.lines().nth(1), Some("0"), "the scanner is off: {out}");
    assert_eq!(number(&out, "hint_faults"), 0, "{out}");
    assert!(number(&out, "samples") > 1000, "{out}");
    assert!(number(&out, "promoted_pages") > 0, "{out}");
    // The hot set takes nine tenths of the accesses; half of them is well beyond chance.
    let total: serde_json::Value = serde_json::from_str(out.lines().next().expect("a line"))
        .expect("terrace-bench prints JSON");
    let fast = total["total"]["share_by_node"][0].as_f64();
    assert!(fast.is_some_and(|share| share > 0.5), "{out}");
}

/// Maps so many MiB, touches every page for so many seconds, says how many are on which node.
const TOUCHES: &str = "
import mmap, sys, time
size, seconds, name = int(sys.argv[1]) << 20, float(sys.argv[2]), sys.argv[3]
m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[::4096] = b'x' * (size // 4096)
end = time.time() + seconds
while time.time() < end:
    m[::4096]
for line in open('/proc/self/numa_maps'):
    f = dict(x.split('=') for x in line.split() if '=' in x)
    if int(f.get('anon', 0)) * 4096 >= size * 0.9:
        print(name, f.get('N0', 0), f.get('N1', 0), flush=True)
";

/// What is hostile to a library in its process is managed by default as if nobody were there.
#[test]
#[ignore = "boots the emulated machine"]
fn hostile_programs_end_as_plain() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/hazards");
    let out = slowed(&format!("LIMIT=180 {} terrace run --", script.display())).good();
    println!("{out}");
    assert!(out.contains("\n0 failed"), "{out}");
    // They start on the slow node; all or most of the pages of some were promoted while they ran.
    let placed = out.split("[pages: ").skip(1);
    let fast = placed.filter_map(|after| after.split(' ').next()?.parse::<u64>().ok());
    assert!(fast.sum::<u64>() > 1_000, "{out}");
}

/// HeMem 5.2.2: the fast node is taken when a program with priority comes, and all of it goes there.
#[test]
#[ignore = "boots the emulated machine"]
fn a_program_with_priority_has_all_its_memory_fast() {
    let script = format!(
        "cat >/tmp/touches.py <<'END'{TOUCHES}END
R='terrace run --policy hemem --sample-period 500 --param managed_threshold=16MiB --group g'
$R -- python3 /tmp/touches.py 160 70 other &
sleep 12
$R --priority 1 -- python3 /tmp/touches.py 40 40 priority && wait $!"
    );
    let out = guest_with(&["--delays", "on"], &script).good();
    let of = |name: &str| -> Vec<u64> {
        let line = out.lines().find_map(|line| line.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("{name} said nothing: {out}"));
        let numbers = line.split_whitespace().map(str::parse);
        numbers.collect::<Result<_, _>>().expect("numbers")
    };
    let (priority, other) = (of("priority"), of("other"));
    assert!(priority[0] >= 99 * priority[1], "{out}");
    assert!(other[1] > 0, "there was no pressure: {out}");
}
