# What the programs' files share; sourced by run.sh.

# Everything that is built once, on the host.
prepare() {
  local from=$here/sources
  /usr/bin/python3 "$from/make_inputs.py" "$inputs"
  javac -d "$inputs" "$from/Churn.java"
  # With cgo it is linked dynamically, so that an agent can be in it.
  (cd "$from" && CGO_ENABLED=1 command go build -o "$inputs/churn-go" churn.go)
  cp "$from/churn.js" "$from/memcached_client.py" "$inputs"
  command gcc -g -O1 -o "$inputs/debuggee" "$from/debuggee.c"
  postgresql_prepare
}

# A hog holds the fast node's memory while the program builds its data, so that the data starts on the slow
# node; then the hog goes and Terrace has something to promote.
hog_start() {
  rm -f "$built"
  numactl --membind=0 /usr/bin/python3 -c '
import mmap, sys, time
m = mmap.mmap(-1, int(sys.argv[1]) << 20)
for i in range(0, len(m), 4096): m[i] = 1
print("full", flush=True)
time.sleep(3600)' 80 > "$work/hog" & hog=$!
  until grep -q full "$work/hog" 2>/dev/null; do sleep 0.1; done
}

# Waits until the program has its data: until it made the file that $built names or, where it cannot, a process
# has so many MiB resident; a minute at most.
wait_built() {
  local process=${1:-} mib=${2:-} pid pages
  for ((n = 0; n < 600; n++)); do
    [ ! -e "$built" ] || return 0
    if pid=$(pidof -s "${process:-nothing}") && read -r _ pages _ 2>/dev/null < "/proc/$pid/statm"; then
      [ $((pages / 256)) -lt "$mib" ] || return 0
    fi
    sleep 0.1
  done
}

# A figure of a run's statistics, or of a storm's report, that has one of these names.
figure() {
  /usr/bin/python3 -c '
import json, sys
found = json.load(open(sys.argv[1]))
found = found.get("stats", found)
print(next(found[name] for name in sys.argv[2:] if name in found))' "$work/$@"
}

# Runs one under Terrace and says whether it computed the same; once more with more time where nothing was
# promoted in the first, as on a busy host, unless it is one whose pages stay.
compare() {
  local stays=STAYS_$1
  once "$1"
  if [ "$promoted" = 0 ] && [ "$mode" != storm ] && [ -z "${!stays:-}" ]; then
    turn=$((turn * 4)) once "$1"
  fi
}

once() {
  local name=$1 size=BUILT_$1 begun=$SECONDS code=0 killer hog committed
  local json=$work/$1.json prefix=("$bin/terrace" run)
  case $mode in
    default) prefix+=("--stats=$json" --) ;;
    storm) prefix=(timeout -k 5 60 "$bin/terrace-stress" storm --report "$json" --) ;;
    *) prefix+=(--policy "$mode" "--stats=$json" --) ;;
  esac
  if [ "$mode" != storm ]; then
    hog_start
    (
      # shellcheck disable=SC2086 # two words or none
      wait_built ${!size:-}
      kill "$hog"
    ) & killer=$!
  fi
  "$name" "${prefix[@]}" > "$work/$name.tiered" || code=$?
  if [ "$mode" != storm ]; then
    kill "$killer" "$hog" 2>/dev/null || true
    wait "$killer" "$hog" 2>/dev/null || true
  fi
  promoted=$(figure "$name.json" promoted_pages moved) committed=$(figure "$name.json" tpm_committed moved)
  all_promoted=$((all_promoted + promoted)) all_committed=$((all_committed + committed))
  if [ "$code" = 0 ] && [ -s "$work/$name.tiered" ] && cmp -s "$inputs/$name.plain" "$work/$name.tiered"; then
    echo "same $name promoted $promoted by-transactions $committed seconds $((SECONDS - begun))"
  else
    echo "DIFFERENT $name: exit $code, promoted $promoted"
    diff "$inputs/$name.plain" "$work/$name.tiered" | head -20
    failed=1
  fi
}
