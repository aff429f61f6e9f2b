redis() { # the digest after a fixed load
  local sock=$work/redis.sock
  "$@" redis-server --port 0 --unixsocket "$sock" --save '' --appendonly no --enable-debug-command yes \
    --maxmemory 0 --daemonize no > "$work/redis.log" 2>&1 & local server=$!
  until redis-cli -s "$sock" ping 2>/dev/null | grep -q PONG; do sleep 0.2; done
  redis-cli -s "$sock" debug populate 40000 key 1000 > /dev/null
  touch "$built"
  /usr/bin/python3 - "$sock" "$turn" <<'PY'
import random, socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile("rb")
r = random.Random(7)
def cmd(*a):
    return b"*%d\r\n" % len(a) + b"".join(b"$%d\r\n%s\r\n" % (len(x), x) for x in a)
for block in range(250):
    n, out = 0, b""
    for _ in range(100):
        k = b"key:%d" % min(int(r.paretovariate(0.4)), 39999)
        if r.random() < 0.5: out += cmd(b"SET", k, b"%d" % r.getrandbits(64) * 50)
        else: out += cmd(b"STRLEN", k)
        n += 1
    s.sendall(out)
    for _ in range(n): f.readline()
end = time.monotonic() + int(sys.argv[2])
while time.monotonic() < end:
    s.sendall(b"".join(cmd(b"STRLEN", b"key:%d" % r.randrange(40000)) for _ in range(100)))
    for _ in range(100): f.readline()
PY
  redis-cli -s "$sock" debug digest
  redis-cli -s "$sock" shutdown nosave > /dev/null 2>&1 || true
  wait "$server" || true
}
