// SPDX-License-Identifier: MIT OR Apache-2.0
// Binds its memory to a node, as `numactl --membind` does, and visits 32 MiB of it until SIGTERM.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (32ul << 20)
#define MPOL_BIND 2

static void over(int signal)
{
	_exit(signal == SIGTERM ? 0 : 1);
}

int main(int argc, char **argv)
{
	unsigned long mask = 1ul << (argc > 1 ? atoi(argv[1]) : 0);
	volatile char *memory;

	if (syscall(SYS_set_mempolicy, MPOL_BIND, &mask, 8 * sizeof(mask) + 1)) {
		perror("set_mempolicy");
		return 1;
	}
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	signal(SIGTERM, over);
	for (unsigned long round = 0;; round++) {
		for (unsigned long at = 0; at < BYTES; at += 4096)
			memory[at]++;
		if (round == 0) {
			puts("ready");
			fflush(stdout);
		}
	}
}
