// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two sockets: a program that is bound to one has its memory there, by Terrace or by the kernel.

use crate::END;
use crate::READY;
use crate::SMALL;
use crate::behind;
use crate::machine::guest_on;

/// All of its pages start on persistent memory of the first socket, and both sockets have room for them. What it has
/// before it places them, its stack, is near at once.
#[test]
#[ignore = "boots the emulated machine"]
fn a_bound_program_has_the_memory_of_its_socket() {
    let script = format!(
        r#"terrace-lab mark start || exit 99
           terrace run --stats=/tmp/stats -- taskset -c 1 terrace-bench gups threads=1 working_set=40MiB hot=20MiB \
             --place slow --seconds 5m > /tmp/out & sup=$!
           near() {{ for pid in $(pgrep -x terrace-bench); do
             awk '/anon=/ {{for (i = 1; i <= NF; i++) if (split($i, n, "=") == 2 && n[1] ~ /^N[0-9]$/) {{
               all += n[2]; if (n[1] == "N1") near += n[2]}}}} END {{print int(near * 100 / (all + 1))}}' /proc/$pid/numa_maps
           done; }}
           {READY}; until there=$(near); [ 0$there -gt 90 ]; do sleep 1; kill -0 $sup || exit 9; done
           {END}; wait $sup || exit 10
           grep -q '"wrong":\[\]' /tmp/out || exit 11
           echo near: $there"#
    );
    let out = guest_on("autotiering-2socket.toml", &["--delays", "mark"], &script).good();
    println!("{out}");
    assert!(behind(&out, "near") > 90, "{out}");
}

/// On machines of several sockets distributions have the kernel bring memory to the socket that uses it. That goes on as
/// long as all is on fast memory, for all programs of the machine; from when a page of ours is on slow memory the scanner
/// is ours, which tells who accesses what, and after the run it is as it was.
#[test]
#[ignore = "boots the emulated machine"]
fn what_is_all_on_fast_memory_is_left_to_the_kernels_balancing() {
    let script = format!(
        "terrace-lab mark start || exit 99; mode=/proc/sys/kernel/numa_balancing; echo 1 > $mode
         echo 3 > /proc/sys/vm/drop_caches # the lab keeps files on slow memory
         migrated() {{ sed -n 's/^numa_pages_migrated //p' /proc/vmstat; }}
         was=$(migrated)
         terrace run -- bash -c '
           terrace-bench gups-crossed threads=2 --fast-free 12M --seconds 5m > /tmp/out &
           until [ -e /tmp/slow ]; do sleep 0.1; done
           {SMALL} --slow-node 2 > /tmp/small & wait %1' & sup=$!
         {READY}
         until [ $(( $(migrated) - was )) -gt 4000 ]; do
           [ $(cat $mode) = 1 ] || exit 2
           sleep 0.2; kill -0 $sup || exit 9
         done
         touch /tmp/slow
         until [ $(cat $mode) != 1 ]; do sleep 0.2; kill -0 $sup || exit 9; done
         [ $(cat $mode) = 0 ] || [ $(cat /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps) = 0 ] || exit 5
         {END}; wait $sup || exit 3
         [ $(cat $mode) = 1 ] || exit 4
         cat /tmp/out"
    );
    let out = guest_on("autotiering-2socket.toml", &["--delays", "mark"], &script).good();
    assert!(out.contains("\"wrong\":[]"), "{out}");
}

/// Each thread's memory is on the other socket at first. Nothing but hint faults says whose it is, of one thread's memory before the
/// other's; once they have, hardly any page is armed.
#[test]
#[ignore = "boots the emulated machine"]
fn the_default_learns_which_socket_accesses_what() {
    let script = format!(
        r#"terrace-lab mark start || exit 99; mode=/proc/sys/kernel/numa_balancing; echo 1 > $mode
         terrace run --stats=/tmp/stats -- terrace-bench gups-crossed threads=2 --fast-node 0 --slow-node 3 --order 0,1,2,3 --order 1,0,3,2 \
           --seconds 5m > /tmp/out & sup=$!
         {READY}; bench=$(pgrep -x terrace-bench)
         until terrace why $bench > /tmp/why; [ $(grep -o "by node [01]'s processors" /tmp/why | sort -u | wc -l) = 2 ]; do
           sleep 1; kill -0 $sup || exit 8
         done
         cat /tmp/why
         until [ $(cat $mode) = 2 ]; do sleep 0.2; kill -0 $sup || exit 9; done
         {END}; wait $sup || exit 1
         [ $(cat $mode) = 1 ] || exit 2
         cat /tmp/out"#
    );
    let out = guest_on("autotiering-2socket.toml", &["--delays", "mark"], &script).good();
    println!("{out}");
    for words in [
        "by node 0's processors",
        "by node 1's processors",
        "\"wrong\":[]",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
}
