// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two programs of a group that share the fast node: one comes when the other has taken it all.

use crate::END;
use crate::behind;
use crate::machine::slowed;

/// Both visit all of their pages alike, so nothing but its floor gets the second any fast memory, and nothing but its ceiling stops it there.
#[test]
#[ignore = "boots the emulated machine"]
fn a_floor_is_had_and_a_ceiling_kept() {
    let bench = "terrace-bench gups-uniform threads=1 working_set=120MiB --seconds 5m";
    let script = format!(
        r#"fast() {{ awk '/anon=/ {{for (i = 1; i <= NF; i++) if (split($i, n, "=") == 2 && n[1] == "N0") fast += n[2]}}
             END {{print int(fast / 256)}}' /proc/$(pgrep -P $1 -x terrace-bench)/numa_maps; }}
           terrace run --group g -- {bench} > /tmp/first & first=$!
           until grep -qs ready /tmp/first; do sleep 0.1; kill -0 $first || exit 8; done
           terrace run --group g --floor 24MiB --ceiling 32MiB -- {bench} > /tmp/second & second=$!
           until grep -qs ready /tmp/second; do sleep 0.1; kill -0 $second || exit 9; done
           echo before: $(fast $second) MiB
           until there=$(fast $second); [ 0$there -ge 23 ]; do sleep 1; kill -0 $second || exit 10; done
           most=0; for i in 1 2 3 4 5 6; do
             sleep 1; there=$(fast $second); [ $there -gt $most ] && most=$there
           done
           echo first: $(fast $first) MiB
           {END}; wait $first || exit 11; wait $second || exit 12
           grep -q '"wrong":\[\]' /tmp/first && grep -q '"wrong":\[\]' /tmp/second || exit 13
           echo there: $there MiB, most: $most MiB"#
    );
    let out = slowed(&script).good();
    println!("{out}");
    assert!(behind(&out, "first") > 32, "there was no pressure: {out}");
    let (there, most) = (behind(&out, "there"), behind(&out, "most"));
    assert!(there >= 22 && most <= 33, "{out}");
}
