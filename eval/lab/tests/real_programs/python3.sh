HOLD_python3=2
python3() {
  "$@" env PYTHONHASHSEED=1 /usr/bin/python3 -c '
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
}
