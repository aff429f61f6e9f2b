# SPDX-License-Identifier: MIT OR Apache-2.0
"""The load of the workload `redis`: half GET, half SET, keys zipfian, by resp-benchmark (PyPI).

Arguments: PORT KEYS LETTERS SECONDS PROCESSOR. It runs on the host, as it stands for another machine,
on that processor, and takes little of it: one random number (a linear congruential step) chooses the
rank, another the operation and the value.

Ranks are zipfian (0.99, YCSB's) in 1,024 steps of equal probability, uniform within a step. Popular
keys lie anywhere in the key space, as with YCSB's hashed keys: a multiplication by a prime, modulo
the number of keys. A value is its key, a number below 64, and the letter of that number, repeated: a
checker can tell a value that belongs to its key from any other, and one in one piece from one of two
halves.
"""
import os
import sys

from resp_benchmark import Benchmark

LUA = """
local keys = %d
local first, width = {}, {}
local span = keys ^ 0.01 - 1
for i = 0, 1024 do first[i] = math.floor((span * i / 1024 + 1) ^ 100) end
for i = 0, 1023 do width[i] = math.max(first[i + 1] - first[i], 1) end
local high, low, short, tail = {}, {}, {}, {}
for i = 0, keys // 1000 do high[i] = "key:" .. i end
for i = 0, 999 do low[i], short[i] = string.format("%%03d", i), "key:" .. i end
for i = 0, 63 do tail[i] = ":" .. i .. ";" .. string.rep(string.char(48 + i), %d) end
local seed = bench.rand(1 << 30)
local state = seed() << 30 | seed()
local get, set = { "GET", "" }, { "SET", "", "" }
function generate()
    state = state * 6364136223846793005 + 1442695040888963407
    local step = state >> 54
    local rank = first[step] + (state >> 24 & 0x3fffffff) %% width[step]
    local index = rank * 2654435761 %% keys
    local key = index > 999 and high[index // 1000] .. low[index %% 1000] or short[index]
    if state & 0x800000 == 0 then
        get[2] = key
        return get
    end
    set[2], set[3] = key, key .. tail[state >> 16 & 63]
    return set
end
"""

port, keys, letters, seconds, processor = (int(word) for word in sys.argv[1:])
# The generator pins its workers, counting the processors that it finds allowed.
os.sched_setaffinity(0, {processor})
Benchmark(host="127.0.0.1", port=port, cores="0").bench(
    command=LUA % (keys, letters),
    use_lua=True,
    connections=4,
    pipeline=128,
    seconds=seconds,
    quiet=True,
)
