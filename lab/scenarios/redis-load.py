# SPDX-License-Identifier: MIT OR Apache-2.0
"""The load of the workload `redis`: half GET, half SET, keys zipfian, by resp-benchmark (PyPI).

Says "ready", then waits for a line "KEYS SECONDS" on standard input. A value is a token of 20
characters, fifty times: the key and six digits of its own, so that a checker can tell a value that
belongs to its key from any other, and one in one piece from one of two halves.
"""
import sys

from resp_benchmark import Benchmark

LUA = """
local key = bench.key(%d, "zipfian", "key")
local digits = bench.rand(900000)
local coin = bench.rand(2)
function generate()
    local k = string.format("key_%%010d", key() %% %d)
    if coin() == 0 then return { "GET", k } end
    return { "SET", k, string.rep(k .. (digits() + 100000), 50) }
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
