#!/bin/bash
# Real programs, plain or under `terrace run`, their results compared with a plain run's.
#   run.sh prepare DIR [NAME..]                 on the host: makes inputs, runs programs plain
#   run.sh default|nomad DIR BIN_DIR [NAME..]   in the guest: each under Terrace, compared
#   run.sh storm DIR BIN_DIR [NAME..]           on the host: each with its pages moved at full rate, compared
# One file a program here: a function of its name, which runs it behind the prefix it is given and prints
# what it computed. The fast node is full until the program has made the file $built, or has the size that
# BUILT_name says. Then it looks at its data for $turn seconds, which does not show in what it prints.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mode=$1 inputs=$2
shift 2
names="python3 gcc sort redis jvm go node postgresql memcached memtester gdb"
. "$here/common.sh"
for name in $names; do . "$here/$name.sh"; done

if [ "$mode" = prepare ]; then
  work=$(mktemp -d) turn=1
  trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"
  built=$work/built
  prepare
  for name in ${*:-$names}; do "$name" env > "$inputs/$name.plain"; done
  exit 0
fi
bin=$1
shift
if [ "$mode" = storm ]; then
  work=$(mktemp -d) turn=3
  trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"
else
  work=/tmp/w turn=7
  mkdir -p "$work"
  # Programs of other users have transactions too.
  chmod 666 /dev/userfaultfd
fi
built=$work/built
failed=0 all_promoted=0 all_committed=0
for name in ${*:-$names}; do compare "$name"; done
echo "promoted in all $all_promoted by transactions $all_committed"
exit $failed
