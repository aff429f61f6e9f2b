// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of the emulated PMU, and what HeMem makes of them.

use crate::END;
use crate::OFF;
use crate::READY;
use crate::machine::guest_with;
use crate::machine::slowed;
use crate::number;
use crate::until_more;

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
         sed -n '/\"trackers\"/,$p' /tmp/s",
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
    let out = slowed(&format!(
        "terrace run --paused --policy hemem --sample-period 97 --stats=/tmp/s -- \
           terrace-bench gups --fast-free 60M --place slow --seconds 5m > /tmp/out & sup=$!
         {READY}; terrace resume > /dev/null; {}; {OFF} || exit 6
         {END}; wait $sup || exit 1
         grep total /tmp/out; cat /tmp/s",
        until_more("$sup", "promoted_bytes", HOT_BYTES * 3 / 4)
    ))
    .good();
    // Hint faults cost; with a PMU there are none.
    assert_eq!(number(&out, "hint_faults"), 0, "{out}");
    assert!(number(&out, "samples") > 1000, "{out}");
    // The hot set takes nine tenths of the accesses; half of them is well beyond chance.
    let total: serde_json::Value = serde_json::from_str(out.lines().next().expect("a line"))
        .expect("terrace-bench prints JSON");
    let fast = total["total"]["share_by_node"][0].as_f64();
    assert!(fast.is_some_and(|share| share > 0.5), "{out}");
}

/// Bytes of gups's hot set where the fast node has 60 MiB: 0.36 of them.
const HOT_BYTES: u64 = (60 << 20) * 36 / 100;

/// Maps so many MiB and touches every page, until all but a hundredth is fast or `/tmp/over` is there; says how many
/// are on which node.
const TOUCHES: &str = "
import mmap, os, sys
size, name = int(sys.argv[1]) << 20, sys.argv[2]
m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[::4096] = b'x' * (size // 4096)
open('/tmp/filled', 'w')
def nodes():
    for line in open('/proc/self/numa_maps'):
        f = dict(x.split('=') for x in line.split() if '=' in x)
        if int(f.get('anon', 0)) * 4096 >= size * 0.9:
            return int(f.get('N0', 0)), int(f.get('N1', 0))
while not os.path.exists('/tmp/over'):
    for _ in range(20):
        m[::4096]
    fast, slow = nodes()
    if name == 'priority' and fast >= 99 * slow:
        break
print(name, *nodes(), flush=True)
";

/// HeMem 5.2.2: the fast node is taken when a program with priority comes, and all of it goes there.
#[test]
#[ignore = "boots the emulated machine"]
fn a_program_with_priority_has_all_its_memory_fast() {
    let script = format!(
        "cat >/tmp/touches.py <<'END'{TOUCHES}END
R='terrace run --policy hemem --sample-period 500 --param managed_threshold=16MiB --group g'
$R -- python3 /tmp/touches.py 160 other & other=$!
until [ -e /tmp/filled ]; do sleep 0.1; done
timeout 300 $R --priority 1 -- python3 /tmp/touches.py 40 priority || exit 1
touch /tmp/over; wait $other"
    );
    let out = slowed(&script).good();
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
