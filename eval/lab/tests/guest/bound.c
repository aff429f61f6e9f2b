// SPDX-License-Identifier: MIT OR Apache-2.0
// Binds its memory to a node, as `numactl --membind` does, or one range of two that are there (`range`), and visits 32 MiB of each until
// SIGTERM. Then it says how many pages of both are elsewhere.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (32ul << 20)
#define PAGE 4096ul
#define MPOL_DEFAULT 0
#define MPOL_BIND 2

static volatile sig_atomic_t stop;

static void over(int signal)
{
	stop = signal;
}

static void check(const char *what, long result)
{
	if (result) {
		perror(what);
		_exit(1);
	}
}

static volatile char *memory(void)
{
	void *start = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check("mmap", start == MAP_FAILED);
	// No huge pages, of which the node may have none.
	check("madvise", madvise(start, BYTES, MADV_NOHUGEPAGE));
	return start;
}

static void visit(volatile char *start)
{
	for (unsigned long at = 0; at < BYTES; at += PAGE)
		start[at]++;
}

static unsigned long elsewhere(volatile char *start, int node)
{
	unsigned long count = 0;

	for (unsigned long at = 0; at < BYTES; at += PAGE) {
		void *page = (void *)(start + at);
		int on = -1;

		check("move_pages", syscall(SYS_move_pages, 0, 1ul, &page, NULL, &on, 0));
		count += on != node;
	}
	return count;
}

int main(int argc, char **argv)
{
	int node = argc > 1 ? atoi(argv[1]) : 0;
	int range = argc > 2 && !strcmp(argv[2], "range");
	unsigned long mask = 1ul << node, bits = 8 * sizeof(mask) + 1;
	volatile char *bound, *others;

	check("set_mempolicy", syscall(SYS_set_mempolicy, MPOL_BIND, &mask, bits));
	bound = memory();
	others = memory();
	visit(bound);
	visit(others);
	if (range) {
		check("mbind", syscall(SYS_mbind, bound, BYTES, MPOL_BIND, &mask, bits, 0));
		check("set_mempolicy", syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0));
	}
	signal(SIGTERM, over);
	puts("ready");
	fflush(stdout);
	while (!stop) {
		visit(bound);
		visit(others);
	}
	printf("bound %lu others %lu\n", elsewhere(bound, node), elsewhere(others, node));
	return 0;
}
