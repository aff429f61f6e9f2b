# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes the inputs of run.sh into a directory: 50 MB of lines to sort and a C file."""
import random
import sys

directory = sys.argv[1]
source = random.Random(11)
with open(f"{directory}/lines.txt", "w") as out:
    for _ in range(50 * 10**6 // 4000):
        out.write("\n".join(f"{source.getrandbits(128):032x} padding" for _ in range(100)) + "\n")
with open(f"{directory}/big.c", "w") as out:
    for n in range(140):
        out.write(
            f"int f{n}(int a, int b) {{ int s = {n}; for (int i = a; i < b; i++) "
            f"s = s * 31 + (i ^ {source.getrandbits(16)}) % (a + 7); "
            f"return s > {n} ? s - b : s + f{max(n - 1, 0)}(a, b - 1); }}\n"
        )
