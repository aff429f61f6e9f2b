#!/bin/bash
# Runs in the guest. Real programs under `terrace run`, their results compared with a plain run.
# Usage: real_programs.sh BIN_DIR WORK_DIR
#
# A hog holds the fast node's memory while each program builds its data, so that the data starts on
# the slow node; then the hog goes and Terrace has something to promote.
set -euo pipefail
bin=$1 work=$2
failed=0
promoted=0

hog_start() {
  numactl --membind=0 /usr/bin/python3 -c '
import mmap, sys, time
m = mmap.mmap(-1, int(sys.argv[1]) << 20)
for i in range(0, len(m), 4096): m[i] = 1
print("full", flush=True)
time.sleep(3600)' 80 > "$work/hog" & hog=$!
  until grep -q full "$work/hog" 2>/dev/null; do sleep 0.1; done
}
hog_stop() { kill "$hog" 2>/dev/null || true; wait "$hog" 2>/dev/null || true; }

# name, command: same standard output and exit code plain and under terrace.
compare() {
  local name=$1; shift
  "$@" > "$work/$name.plain"; local plain=$?
  hog_start
  ( sleep 2; kill "$hog" ) & local killer=$!
  local code=0
  "$bin/terrace" run --policy nomad --stats="$work/$name.json" -- "$@" > "$work/$name.tiered" || code=$?
  wait "$killer" 2>/dev/null || true; hog_stop
  local n; n=$(/usr/bin/python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["stats"]["promoted_pages"])' "$work/$name.json")
  promoted=$((promoted + n))
  if [ "$code" = "$plain" ] && cmp -s "$work/$name.plain" "$work/$name.tiered"; then
    echo "same $name promoted $n"
  else
    echo "DIFFERENT $name: exit $plain and $code, promoted $n"; failed=1
  fi
}

python_program='
import hashlib
h = hashlib.sha256()
d = {}
for i in range(60000):
    d[f"key-{i}"] = [i, str(i * i), (i, i + 1)]
for turn in range(10):
    for k in list(d)[turn::7]:
        d[k].append(turn)
    for k, v in d.items():
        if hash(k) is None: print("never")
    h.update(repr(sorted(d.items())[turn::97]).encode())
print(h.hexdigest(), sum(len(v) for v in d.values()))
'
compare python3 env PYTHONHASHSEED=1 /usr/bin/python3 -c "$python_program"
compare gcc sh -c "gcc -O2 -S -o - $work/big.c | sha256sum"
compare sort sh -c "sort -S 150M --parallel=2 $work/lines.txt | sha256sum"

redis_round() { # prefix command...: digest after a fixed load
  local sock=$work/redis.sock
  "$@" redis-server --port 0 --unixsocket "$sock" --save '' --appendonly no --enable-debug-command yes \
    --maxmemory 0 --daemonize no > "$work/redis.log" 2>&1 & local server=$!
  until redis-cli -s "$sock" ping 2>/dev/null | grep -q PONG; do sleep 0.2; done
  redis-cli -s "$sock" debug populate 60000 key 1000 > /dev/null
  [ -n "${hog:-}" ] && kill "$hog" 2>/dev/null
  /usr/bin/python3 - "$sock" <<'PY'
import random, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile("rb")
r = random.Random(7)
def cmd(*a):
    return b"*%d\r\n" % len(a) + b"".join(b"$%d\r\n%s\r\n" % (len(x), x) for x in a)
for block in range(400):
    n, out = 0, b""
    for _ in range(100):
        k = b"key:%d" % min(int(r.paretovariate(0.4)), 59999)
        if r.random() < 0.5: out += cmd(b"SET", k, b"%d" % r.getrandbits(64) * 50)
        else: out += cmd(b"STRLEN", k)
        n += 1
    s.sendall(out)
    for _ in range(n): f.readline()
PY
  redis-cli -s "$sock" debug digest
  redis-cli -s "$sock" shutdown nosave > /dev/null 2>&1 || true
  wait "$server" || true
}
hog=""
plain=$(redis_round env)
hog_start
tiered=$(redis_round "$bin/terrace" run --policy nomad --stats="$work/redis.json" --)
hog_stop
n=$(/usr/bin/python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["stats"]["promoted_pages"])' "$work/redis.json")
promoted=$((promoted + n))
if [ -n "$plain" ] && [ "$plain" = "$tiered" ]; then echo "same redis promoted $n digest $plain"
else echo "DIFFERENT redis: $plain and $tiered, promoted $n"; failed=1; fi

echo "promoted in all $promoted"
[ "$promoted" -ge 1000 ] || { echo "TOO FEW promotions to mean anything"; failed=1; }
exit $failed
