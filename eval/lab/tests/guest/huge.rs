// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages with one hot part each, where the fast tier is full of some of them.

use crate::END;
use crate::READY;
use crate::machine::slowed;
use crate::number;

/// As wholes they have a third of the visits in fast memory at most, which is what fits of them. Visits are as rare as readings can tell
/// apart here, and passes a second long: they would be up to a minute, as reading costs much and what there is to gain is little.
///
/// How many are split for it is chance: where no huge page is free in fast memory the kernel moves the parts of one that goes there, and of
/// those that are in parts so none has to be split.
#[test]
#[ignore = "boots the emulated machine"]
fn hot_parts_of_huge_pages_are_fast_in_the_end() {
    let out = slowed(&format!(
        "terrace run --param pace=false --stats=/tmp/s -- terrace-bench sparse think=15us --huge --place fast --seconds 5m > /tmp/out & sup=$!
         {READY}; bench=$(pgrep -x terrace-bench | tail -1)
         until terrace why $bench | grep -qE 'so more are split|to split more would not pay'; do
           sleep 1; kill -0 $sup || exit 8
         done
         sleep 40; terrace why $bench
         {END}; wait $sup || exit 1; cat /tmp/s; echo; grep share_by_node /tmp/out | tail -1"
    ))
    .good();
    println!("{out}");
    assert!(number(&out, "splits") >= 8, "it splits some to see");
    let total = out.lines().last().expect("it says what it reached");
    let total: serde_json::Value = serde_json::from_str(total).expect("JSON");
    let fast = total["total"]["share_by_node"][0].as_f64();
    assert!(fast.is_some_and(|share| share > 0.5), "{total}");
    assert!(out.contains("of its huge pages are in parts"), "{out}");
}
