python3() {
  "$@" env PYTHONHASHSEED=1 /usr/bin/python3 -c '
import hashlib, sys, time
h = hashlib.sha256()
d = {}
for i in range(30000):
    d[f"key-{i}"] = [i, str(i * i), (i, i + 1)]
for step in range(10):
    for k in list(d)[step::7]:
        d[k].append(step)
    for k, v in d.items():
        if hash(k) is None: print("never")
    h.update(repr(sorted(d.items())[step::97]).encode())
open(sys.argv[2], "w").close()
end = time.monotonic() + int(sys.argv[1])
while time.monotonic() < end:
    if sorted(d)[0] != "key-0" or len(d) != 30000: print("never")
print(h.hexdigest(), sum(len(v) for v in d.values()), hashlib.sha256(repr(d).encode()).hexdigest())
' "$turn" "$built"
}
