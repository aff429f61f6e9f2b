// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placement quality by counts: where the visits go at the end, by where the pages are then.
//!
//! gups has 110 MiB for its sizes, about what the fast node has free: a working set of 297 MiB, of which 40 MiB in the
//! middle get nine tenths of the visits. All start on the slow node, or the fast one is full of the first pages, of which
//! none is hot, so that each promotion needs a demotion. Nothing depends on the host's speed: a run ends when as much as
//! is hot was promoted and each hot page has been visited often since, however long that takes.

use crate::END;
use crate::READY;
use crate::machine::slowed;
use crate::number;
use crate::until_more;

/// Bytes of gups's hot set where the fast node has 110 MiB: 0.36 of them.
const HOT_BYTES: u64 = (110 << 20) * 36 / 100;

/// Waits until there were a million visits more, of which a hot page has 90. The program tells once a second.
const VISITED: &str = "ops() { sed -n 's/.*\"second\".*\"ops\":\\([0-9]*\\).*/\\1/p' /tmp/out | tail -1; }
     from=$(ops); until [ 0$(ops) -gt $((${from:-0} + 1000000)) ]; do sleep 0.5; kill -0 $sup || exit 7; done";

/// The share of the visits that go to the fast node before and after.
fn shares(options: &str, place: &str) -> (f64, f64) {
    let enough = until_more("$sup", "promoted_bytes", HOT_BYTES * 9 / 10);
    let out = slowed(&format!(
        "terrace run --paused {options} --stats=/tmp/s -- \
           terrace-bench gups --fast-free 110M --place {place} --seconds 1h > /tmp/out & sup=$!
         {READY}; terrace resume > /dev/null; {enough}; {VISITED}; {END}; wait $sup || exit 1
         grep -E 'ready|total' /tmp/out; cat /tmp/s"
    ))
    .good();
    let mut lines = out.lines();
    let mut share = |of: &str| {
        let line: serde_json::Value =
            serde_json::from_str(lines.next().expect("a line")).expect("JSON");
        let share = line[of]["share_by_node"][0].as_f64();
        share.unwrap_or_else(|| panic!("no share in {line}"))
    };
    let shares = (share("ready"), share("total"));
    let promoted = number(&out, "promoted_bytes") >> 20;
    println!("{options} from {place}: {shares:?}, {promoted} MiB promoted");
    shares
}

fn ends_above(bound: f64, options: &str, place: &str) {
    let (before, after) = shares(options, place);
    assert!(before < 0.2, "{options} from {place}: {before} at first");
    assert!(after > bound, "{options} from {place}: {after} at the end");
}

#[test]
#[ignore = "boots the emulated machine"]
fn hot_pages_are_fast_in_the_end_with_nomad() {
    ends_above(0.75, "--policy nomad", "slow");
    ends_above(0.75, "--policy nomad", "fast");
}

#[test]
#[ignore = "boots the emulated machine"]
fn hot_pages_are_fast_in_the_end_by_default() {
    ends_above(0.8, "", "slow");
    ends_above(0.8, "", "fast");
}
