# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sets known values in memcached and gets them, again and again until the time is up: SOCKET SECONDS BUILT."""
import hashlib
import socket
import sys
import time

COUNT = 15_000


def value(n: int, turn: int) -> bytes:
    return (b"%d/%d " % (n, turn)) * 90


for _ in range(300):
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(sys.argv[1])
        break
    except OSError:
        time.sleep(0.1)
answers = connection.makefile("rb")


def set_all(numbers: range, turn: int) -> None:
    for first in range(0, len(numbers), 200):
        some = numbers[first : first + 200]
        values = [(n, value(n, turn)) for n in some]
        connection.sendall(b"".join(b"set k%d 0 0 %d\r\n%s\r\n" % (n, len(v), v) for n, v in values))
        for _ in some:
            assert answers.readline() == b"STORED\r\n"


def get(n: int) -> bytes:
    connection.sendall(b"get k%d\r\n" % n)
    head = answers.readline().split()
    if len(head) != 4:
        return b"missing"
    found = answers.read(int(head[3]) + 2)[:-2]
    answers.readline()
    return found


set_all(range(COUNT), 0)
open(sys.argv[3], "w").close()
end = time.time() + float(sys.argv[2])
at, wrong = 0, 0
while time.time() < end:
    if get(at % COUNT) != value(at % COUNT, 0):
        wrong += 1
    at += 7
set_all(range(0, COUNT, 3), 1)
digest = hashlib.sha256()
for n in range(0, COUNT, 10):
    digest.update(get(n))
print("memcached", digest.hexdigest(), "wrong", wrong)
