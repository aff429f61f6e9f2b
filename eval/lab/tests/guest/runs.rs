// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace run` and `attach`: what is promoted, and that everything is put back.

use crate::END;
use crate::OFF;
use crate::READY;
use crate::SMALL;
use crate::behind;
use crate::machine::guest;
use crate::machine::slowed;
use crate::number;
use crate::until_more;

#[test]
#[ignore = "boots the emulated machine"]
fn a_run_promotes_and_puts_everything_back() {
    // Only pages that keep a shadow move by transactions: the first 32, and some of the others.
    let promoted = until_more("$sup", "promoted_pages", 500);
    let committed = until_more("$sup", "tpm_committed", 30);
    let out = guest(&format!(
        "echo 1 > /proc/sys/kernel/numa_balancing
         cat /sys/kernel/debug/sched/numa_balancing/* > /tmp/before
         terrace run --policy nomad --stats=/tmp/s -- {SMALL} > /tmp/out & sup=$!
         {READY}; {promoted}; {committed}
         terrace pause; sleep 3; terrace status --json > /tmp/paused; {END}; wait $sup || exit 1
         cat /sys/kernel/debug/sched/numa_balancing/* | cmp - /tmp/before || exit 2
         [ $(cat /proc/sys/kernel/numa_balancing) = 1 ] || exit 3
         [ -z \"$(ls /run/terrace | grep -v '^settings')\" ] || exit 4
         cat /tmp/paused; echo; echo ====; cat /tmp/s"
    ))
    .good();
    let (paused, end) = out.split_once("====").expect("both were written");
    // The books: some time after the last order each has been answered, and not by its process's end.
    assert_eq!(number(paused, "ordered"), ended(paused), "{out}");
    assert_eq!(number(paused, "unanswered"), 0, "{out}");
    // Nor does a run that ends with nothing under way find anything that was left.
    assert_eq!(number(end, "ordered"), number(paused, "ordered"), "{out}");
    assert_eq!(number(end, "unanswered"), 0, "{out}");
}

/// Orders that have ended, one way or another.
fn ended(stats: &str) -> u64 {
    [
        "promoted_pages",
        "demoted_pages",
        "tpm_aborted",
        "refused_busy",
        "refused_no_memory",
        "lost",
    ]
    .iter()
    .map(|name| number(stats, name))
    .sum()
}

/// Each finds what to promote by its own tracker, whoever was first; the settings go back with the last, whichever
/// that is and however the other ended.
#[test]
#[ignore = "boots the emulated machine"]
fn several_runs_at_once_each_promote_and_the_last_puts_everything_back() {
    let small = SMALL.replace("60M", "20M");
    let both = ["$a", "$b"].map(|one| until_more(one, "promoted_pages", 500));
    let [_, left] = &both;
    let acts = until_more("$a", "promoted_pages", 0);
    let out = slowed(&format!(
        "echo 1 > /proc/sys/kernel/numa_balancing
         now() {{ cat /sys/kernel/debug/sched/numa_balancing/* /proc/sys/kernel/numa_balancing /proc/sys/kernel/numa_balancing_promote*; }}
         now > /tmp/before
         run() {{ exec terrace run --policy $1 --stats=/tmp/$2 -- {small} > /tmp/out-$2; }}
         for pair in 'nomad a b' 'nomad b a' 'adaptive a b'; do
           set -- $pair
           (run $1 a) & a=$!
           (run $1 b) & b=$!
           {}
           pkill -TERM -P ${{!2}}; wait ${{!2}} || exit 1
           pkill -TERM -P ${{!3}}; wait ${{!3}} || exit 1
           now | cmp - /tmp/before || exit 2
           cat /tmp/a /tmp/b
         done
         (run nomad a) & a=$!
         (run nomad b) & b=$!
         {acts}; kill -KILL $a; {left}; pkill -TERM -P $b; wait $b || exit 3
         now | cmp - /tmp/before || exit 4
         [ -e /run/terrace/settings ] && exit 5; true",
        both.join("\n")
    ))
    .good();
    assert_eq!(out.matches("\"limits\": []").count(), 6, "{out}");
}

/// Forks twice, as servers do; what is left has 32 MiB on the slow node and uses them until there is `/tmp/enough`.
const FORKED_SERVER: &str = "import ctypes, mmap, os
policy = lambda *args: ctypes.CDLL(None).syscall(238, *args)
if os.fork(): os._exit(7)
os.setsid()
if os.fork(): os._exit(0)
policy(1, ctypes.byref(ctypes.c_ulong(2)), 64)
memory = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:] = bytes(32 << 20)
policy(0, None, 0)
while not os.path.exists('/tmp/enough'):
    for at in range(0, len(memory), 4096): memory[at] = 1
";

/// The first process ends at once, and its code is the run's; what went into the background is managed.
#[test]
#[ignore = "boots the emulated machine"]
fn programs_in_the_background_are_managed() {
    let out = slowed(&format!(
        "cat > /tmp/server.py <<'END'\n{FORKED_SERVER}END
         rm -f /tmp/out
         terrace run --paused -- sh -c 'setsid {SMALL} > /tmp/out & exit 7' & sup=$!
         {READY}; terrace resume > /dev/null; {}; {END}; wait $sup
         [ $? = 7 ] || exit 1
         tail -1 /tmp/out | grep -q '\"wrong\":\\[\\]' || exit 2
         terrace run --policy nomad -- /usr/bin/python3 /tmp/server.py & sup=$!
         {}; touch /tmp/enough; wait $sup
         [ $? = 7 ] || exit 3",
        until_more("$sup", "promoted_bytes", 16 << 20),
        until_more("$sup", "promoted_bytes", 16 << 20)
    ))
    .good();
    println!("{out}");
}

/// Makes new generations of the fast node's pages (Documentation/admin-guide/mm/multigen_lru.rst), so that there are four
/// and a file that is read once goes into the oldest, which is inactive.
const FOUR_GENERATIONS: &str = "
newest() { awk '/node/ { node = $2 } NF == 4 && node == 0 { newest = $1 } END { print newest }' /sys/kernel/debug/lru_gen; }
memcg=$(awk '/^memcg/ { print $2; exit }' /sys/kernel/debug/lru_gen)
for i in 1 2 3; do echo \"+ $memcg 0 $(newest)\" > /sys/kernel/debug/lru_gen; done
";

/// Evicts all but the two youngest: such a file goes into the older of these then, and is active.
const TWO_GENERATIONS: &str = "echo \"- $memcg 0 $(($(newest) - 2))\" > /sys/kernel/debug/lru_gen";

/// Page cache on the fast node, before the program is there or while its run is paused: `fill KIB` leaves so much free, where
/// the node has more than that. So many pages are to be promoted into it; what the run tells.
fn page_cache_is_room(run: &str, [before, paused]: [&str; 2], list: &str, pages: u64) -> String {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    file.as_file().set_len(160 << 20).expect("room");
    let out = slowed(&format!(
        "fill() {{
           free=$(awk '/MemFree/ {{ print $4 }}' /sys/devices/system/node/node0/meminfo)
           head -c $(((free - $1) * 1024)) {} > /dev/null; cat /sys/devices/system/node/node0/meminfo
         }}
         stolen() {{ awk '/^pgsteal_anon / {{ print $2 }}' /proc/vmstat; }}
         {before}
         echo 1 > /sys/kernel/mm/numa/demotion_enabled
         terrace run --paused --stats=/tmp/s {run} > /tmp/out & sup=$!
         {READY}
         {paused}
         was=$(stolen); terrace resume; {}; {END}; wait $sup || exit 1
         echo stolen $(($(stolen) - was)); cat /proc/vmstat /tmp/s",
        file.path().display(),
        until_more("$sup", "promoted_pages", pages)
    ))
    .good();
    let (free, cache) = (behind(&out, "MemFree"), behind(&out, list));
    assert!(
        free < 20 << 10 && cache > 60 << 10,
        "not full of cache: {out}"
    );
    let promoted = number(&out, "promoted_pages");
    // The kernel makes room of page cache, not of programs' pages, though it may demote.
    assert!(behind(&out, "stolen") * 20 < promoted, "{out}");
    out
}

/// A server that has been up for a day: its fast node is full of page cache.
#[test]
#[ignore = "boots the emulated machine"]
fn page_cache_on_the_fast_node_is_room() {
    let before = format!("{FOUR_GENERATIONS}fill 0");
    let run = format!("-- {SMALL}");
    page_cache_is_room(&run, [&before, ""], "Inactive(file)", 500);
}

/// With generations the kernel calls page cache active that was read once. What reclaim takes of all who are idle is not the
/// supervisor's measure of what a read takes of the fast node. Nobody wakes the kernel's reclaim here but the moves.
#[test]
#[ignore = "boots the emulated machine"]
fn page_cache_of_the_youngest_generations_is_room() {
    let paused = format!("{FOUR_GENERATIONS}{TWO_GENERATIONS}; fill 14000");
    let run = format!("-- {SMALL}");
    page_cache_is_room(&run, ["", &paused], "Active(file)", 5_000);
}

/// File-backed pages go first (AutoTiering 4.2.1): none of a program is demoted while there is page cache to take, here for
/// all of the program.
#[test]
#[ignore = "boots the emulated machine"]
fn autotiering_takes_page_cache_before_pages_of_programs() {
    let before = format!("{FOUR_GENERATIONS}fill 0");
    let small = SMALL.replace("60M", "25M");
    let run = format!("--policy autotiering --param mode=opm -- {small}");
    let out = page_cache_is_room(&run, [&before, ""], "Inactive(file)", 2_000);
    assert_eq!(number(&out, "demoted_pages"), 0, "{out}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn children_are_followed_unless_told_otherwise() {
    let run = |option: &str, until: &str| {
        format!(
            "terrace run {option} --paused --stats=/tmp/s -- sh -c '{SMALL}; true' > /tmp/out & sup=$!
             {READY}; terrace resume; {until}; {END}; wait $sup; cat /tmp/s;"
        )
    };
    let out = slowed(&format!(
        "{} echo; echo ====; {}",
        run("", &until_more("$sup", "promoted_pages", 500)),
        run("--no-follow", "sleep 10")
    ))
    .good();
    let (followed, alone) = out.split_once("====").expect("both ran");
    // By default the kernel moves the pages, from outside: nothing is in the program's process.
    assert!(number(followed, "ordinary_moves") > 500, "{out}");
    assert_eq!(number(followed, "tpm_committed"), 0, "{out}");
    assert_eq!(number(alone, "promoted_pages"), 0, "{out}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn attach_promotes_a_running_program_by_move_pages() {
    let out = slowed(&format!(
        "{SMALL} > /tmp/out & bench=$!
         until grep -q ready /tmp/out; do sleep 0.1; done
         terrace attach --stats=/tmp/s $bench & attached=$!
         until terrace why $bench | tee /tmp/why | grep -q 'an access saves'; do
           sleep 0.5; kill -0 $bench || exit 2
         done
         {}; kill -TERM $attached; wait $attached
         {END}; wait $bench || exit 1
         cat /tmp/why /tmp/s",
        until_more("$attached", "promoted_pages", 500)
    ))
    .good();
    assert!(
        out.contains("an access saves") && out.contains(" fast, "),
        "why: {out}"
    );
    assert!(number(&out, "ordinary_moves") > 500, "{out}");
    assert_eq!(number(&out, "tpm_committed"), 0, "{out}");
}

/// Each time it wakes up it takes a processor from a program, and what that one's caches and TLB hold.
#[test]
#[ignore = "boots the emulated machine"]
fn beside_a_program_that_waits_it_hardly_wakes_up() {
    let out = slowed(
        "terrace run --stats=/tmp/s -- /usr/bin/python3 -c '
import time
memory = b\"x\" * (64 << 20)
time.sleep(60)' & sup=$!
         woken() { awk '/^voluntary/ { print $2 }' /proc/$sup/status; }
         sleep 25; before=$(woken); sleep 15; after=$(woken)
         pkill -INT -P $sup; wait $sup
         cat /tmp/s; echo; echo woken: $((after - before))",
    )
    .good();
    println!("{out}");
    assert!(number(&out, "read") > 10_000, "its pages were read: {out}");
    // For the few readings of a long pass; if it asked every 0.1 s, 150 times and more.
    assert!(behind(&out, "woken") < 75, "{out}");
}

/// A program that starts threads, forks and touches new memory takes as long by default as alone, and not
/// much longer with the agent.
#[test]
#[ignore = "boots the emulated machine"]
fn what_programs_do_all_the_time_costs_little() {
    // On a host that others use a measurement can be spoilt, and three hardly all in the same way.
    let measured = |options: &str, most: f64| {
        format!(
            "for attempt in 1 2 3; do
               terrace-stress toll --json --turns 24 --milliseconds 20 -- terrace run {options} --stats=/tmp/s -- > /tmp/toll || exit 1
               cat /tmp/toll
               python3 -c 'import json; exit(max(w[\"ratio\"] for w in json.load(open(\"/tmp/toll\"))[\"works\"].values()) > {most})' && break
             done; cat /tmp/s; echo; echo ====;"
        )
    };
    let agent = measured("--policy nomad", 1.5);
    let out = slowed(&format!("{} {agent}", measured("", 1.15))).good();
    println!("{out}");
    let parts: Vec<&str> = out.split("====").collect();
    // Both were at work meanwhile.
    assert!(number(parts[0], "cleared") > 10_000, "{out}");
    assert!(number(parts[1], "agents") > 0, "{out}");
    for (part, most) in parts.iter().zip([1.15, 1.5]) {
        let last = part.lines().rfind(|line| line.starts_with("{\"run"));
        let tolls: serde_json::Value =
            serde_json::from_str(last.expect("an attempt")).expect("JSON");
        for (work, toll) in tolls["works"].as_object().expect("by work") {
            let ratio = toll["ratio"].as_f64();
            assert!(ratio.is_some_and(|ratio| ratio <= most), "{work}: {out}");
        }
    }
}

/// Whatever tells a policy of accesses, but for hint faults: the kernel moves no pages beside it.
#[test]
#[ignore = "boots the emulated machine"]
fn the_kernels_balancing_goes_off_where_pages_are_slow() {
    for policy in ["adaptive", "hemem", "mtm --tracker accessed-bits"] {
        let out = guest(&format!(
            "echo 1 > /proc/sys/kernel/numa_balancing
             terrace run --policy {policy} -- {SMALL} > /tmp/out & sup=$!
             {READY}; until {OFF}; do sleep 0.1; kill -0 $sup || exit 9; done
             {END}; wait $sup || exit 1
             [ $(cat /proc/sys/kernel/numa_balancing) = 1 ] || exit 2
             cat /tmp/out"
        ))
        .good();
        assert!(out.contains("\"wrong\":[]"), "{policy}: {out}");
    }
}

/// With mode 2 or 3 the kernel keeps when it marked a slow page where it else keeps who accessed it. A page that is promoted while
/// the bit is off takes that along, and the next hint fault there looks up what a processor runs that there is not: it took the
/// kernel down.
#[test]
#[ignore = "boots the emulated machine"]
fn no_promoted_page_takes_along_when_it_was_marked() {
    let attached = |policy: &str, until: &str| {
        format!(
            "terrace attach {policy} $bench & sup=$!; {until}
             kill -TERM $sup; wait $sup; [ $(cat $mode) = 1 ] || exit 2"
        )
    };
    // All of its memory is marked.
    let marked = attached(
        "--policy autotiering",
        "was=$(faults); until [ $(( $(faults) - was )) -gt 30000 ]; do sleep 0.2; kill -0 $sup || exit 8; done",
    );
    let promoted = attached("", &until_more("$sup", "promoted_pages", 500));
    let script = format!(
        "T=/sys/kernel/tracing; [ -e $T/kprobe_events ] || mount -t tracefs none $T
         echo 'p:told task_numa_fault cpupid=%di:u32 node=%si:u32' > $T/kprobe_events || exit 3
         echo node == 0 > $T/events/kprobes/told/filter
         mode=/proc/sys/kernel/numa_balancing; echo 1 > $mode
         for end in min max; do echo 1000 > /sys/kernel/debug/sched/numa_balancing/scan_period_${{end}}_ms; done
         faults() {{ sed -n 's/^numa_hint_faults //p' /proc/vmstat; }}
         terrace-bench drifting threads=2 --fast-free 60M --place slow --seconds 10m > /tmp/out & bench=$!; sup=$bench
         {READY}; {marked}; {promoted}
         echo 1 > $T/events/kprobes/told/enable
         was=$(faults); until [ $(( $(faults) - was )) -gt 20000 ]; do sleep 0.2; kill -0 $bench || exit 9; done
         # 21 ones stand for nobody
         sed -n 's/.* told: .*cpupid=//p' $T/trace |
           awk -v cpus=$(nproc) '{{all++; if ($1 != 2097151 && $1 / 256 >= cpus) wrong++}} END {{print \"told: \" all, \"wrong: \" wrong + 0}}'
         echo 0 > $T/events/kprobes/told/enable; echo > $T/kprobe_events
         {END}; wait $bench || exit 1
         cat /tmp/out"
    );
    let out = guest(&script).good();
    assert!(out.contains("\"wrong\":[]"), "{out}");
    assert!(behind(&out, "told") > 1_000, "{out}");
    assert_eq!(behind(&out, "wrong"), 0, "{out}");
}
