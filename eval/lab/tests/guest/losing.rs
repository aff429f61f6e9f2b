// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that goes away while pages move: blocks of the slow node are unplugged and come back, a limit becomes less than what
//! is used. Nothing is lost, nothing is stuck.

use crate::CHAOS;
use crate::END;
use crate::SMALL;
use crate::figure;
use crate::machine::guest;
use crate::machine::slowed;
use crate::until_more;

/// `turn offline` and `turn online` all blocks of the slow node that the kernel gives (Documentation/admin-guide/mm/
/// memory-hotplug.rst); three of them, 384 MiB, or the test says nothing. In the end all are back. The kernel moves pages of a block to other
/// nodes only, and waits for room there, with whomever it is full; its demotion makes some.
const BLOCKS: &str = "
echo 1 > /sys/kernel/mm/numa/demotion_enabled
blocks=$(for b in /sys/devices/system/memory/memory[0-9]*; do [ -e $b/node1 ] && [ ! -e $b/node0 ] && echo $b; done)
turned() { for b in $blocks; do echo $1 > $b/state && echo $b; done 2> /dev/null | wc -l; }
turn() { n=$(turned $1); [ $n -ge 3 ] || { echo \"$n blocks $1\"; exit 10; }; }
trap 'turned online > /dev/null' EXIT
";

/// The kernel moves the pages of a block that goes, also what the agent has out of place in it.
#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_while_a_node_loses_memory() {
    for options in ["", "--commit copy", CHAOS] {
        let out = guest(&format!(
            "{BLOCKS}
             terrace-stress words --json --seconds 15 --page-size 4k {options} > /tmp/words & words=$!
             sleep 1; turns=0
             while kill -0 $words 2> /dev/null; do
               turn offline; sleep 0.7; turn online; sleep 0.7; turns=$((turns + 1))
             done
             wait $words || exit 1
             [ $turns -ge 3 ] || exit 2
             echo $turns turns; cat /tmp/words"
        ))
        .good();
        println!("{options}: {out}");
    }
}

/// Rounds of AutoTiering's stay short: in a long one all pages are accessed, and none is promoted any more.
#[test]
#[ignore = "boots the emulated machine"]
fn a_node_may_lose_its_memory_and_have_it_back() {
    for policy in [
        "adaptive",
        "nomad",
        "autotiering --param scan_period_max=2s",
    ] {
        let promoted = figure("$sup", "promoted_pages");
        let some = until_more("$sup", "promoted_pages", 500);
        let more = until_more("$sup", "promoted_pages", "$((10#0$was + 500))");
        let more = format!("was={promoted}; {more}");
        let out = slowed(&format!(
            "{BLOCKS}
             terrace run --policy {policy} -- terrace-bench drifting --fast-free 60M --place slow --seconds 5m > /tmp/out & sup=$!
             {some}
             turn offline; {more}; grep MemTotal /sys/devices/system/node/node1/meminfo
             turn online; {more}; grep MemTotal /sys/devices/system/node/node1/meminfo
             {END}; wait $sup || exit 2
             tail -1 /tmp/out; tail -1 /tmp/out | grep -q '\"wrong\":\\[\\]' || exit 3"
        ))
        .good();
        println!("{policy}: {out}");
    }
}

/// A limit that the program fits in and the program with its shadows does not: these go, and nobody is killed.
#[test]
#[ignore = "boots the emulated machine"]
fn a_limit_in_the_middle_takes_shadows_and_nothing_else() {
    let out = slowed(&format!(
        "echo +memory > /sys/fs/cgroup/cgroup.subtree_control; job=/sys/fs/cgroup/job; mkdir -p $job
         trap 'echo -memory > /sys/fs/cgroup/cgroup.subtree_control' EXIT
         terrace run --policy nomad -- bash -c \"echo \\$\\$ > $job/cgroup.procs
           exec {SMALL}\" > /tmp/out & sup=$!
         {}
         was=$(cat $job/memory.current); limit=$((was - (16 << 20))); echo $limit > $job/memory.max
         echo $was; cat $job/memory.current $job/memory.max $job/memory.events
         [ $(cat $job/memory.current) -le $limit ] || exit 1
         sleep 3; grep -qx 'oom_kill 0' $job/memory.events || exit 2
         {END}; wait $sup || exit 3
         tail -1 /tmp/out; tail -1 /tmp/out | grep -q '\"wrong\":\\[\\]' || exit 4",
        until_more("$sup", "promoted_pages", 8_000)
    ))
    .good();
    println!("{out}");
}
