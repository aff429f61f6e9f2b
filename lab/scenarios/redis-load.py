# SPDX-License-Identifier: MIT OR Apache-2.0
"""The load of the workload `redis`: half GET, half SET, keys zipfian, by resp-benchmark (PyPI).

Says "ready", then waits for a line "KEYS SECONDS" on standard input. Popular keys lie anywhere in
the key space, as with YCSB's hashed keys: a multiplication by a prime, modulo the number of keys.
A value is the key and six digits of its own, repeated up to 1,000 bytes, so that a checker can tell
a value that belongs to its key from any other, and one in one piece from one of two halves.
"""
import sys

from resp_benchmark import Benchmark

LUA = """
local rank = bench.key(%d, "zipfian", "key")
local digits = bench.rand(900000)
local coin = bench.rand(2)
function generate()
    local key = string.format("key:%%d", rank() * 2654435761 %% %d)
    if coin() == 0 then return { "GET", key } end
    local token = key .. ":" .. (digits() + 100000) .. ";"
    return { "SET", key, string.sub(string.rep(token, 100), 1, 1000) }
end
"""

load = Benchmark(host="127.0.0.1", port=7777, cores=sys.argv[1])
print("ready", flush=True)
keys, seconds = (int(word) for word in sys.stdin.readline().split())
load.bench(
    command=LUA % (keys, keys),
    use_lua=True,
    connections=4,
    pipeline=32,
    seconds=seconds,
    quiet=True,
)
