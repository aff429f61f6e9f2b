// SPDX-License-Identifier: MIT OR Apache-2.0
// Uses memory in which pages are armed, then registers it with a userfaultfd of its own, uses it on and checks it. Ends with 0 where it
// was armed before ("ur" in VmFlags of smaps, proc(5)), is its own afterwards ("uw") and holds what was written.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 32 << 20, PAGE = 4096, PATIENCE = 120, BEFORE = 2, AFTERWARDS = 5 };

static char *memory;
static uint64_t count;

static int has(const char *flag)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	uintptr_t first, last, at = (uintptr_t)memory;
	int inside = 0, found = 0;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
			inside = at >= first && at < last;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, flag) != NULL;
	}
	if (file)
		fclose(file);
	return found;
}

static void use(void)
{
	for (size_t at = 0; at < LEN; at += PAGE)
		*(volatile uint64_t *)(memory + at) = ++count;
	usleep(1000);
}

int main(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_WP };
	time_t end = time(NULL) + PATIENCE;
	int fd;

	memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(memory, LEN, MADV_NOHUGEPAGE);
	while (!has(" ur ") && time(NULL) < end)
		use();
	if (!has(" ur "))
		return 1;
	/* What is armed faults. */
	for (end = time(NULL) + BEFORE; time(NULL) < end;)
		use();
	fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	range.range.start = (uintptr_t)memory;
	range.range.len = LEN;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))
		return 2;
	for (end = time(NULL) + AFTERWARDS; time(NULL) < end;)
		use();
	if (has(" ur ") || !has(" uw "))
		return 3;
	for (size_t at = PAGE; at < LEN; at += PAGE)
		if (*(uint64_t *)(memory + at) != *(uint64_t *)(memory + at - PAGE) + 1)
			return 4;
	puts("OK own_userfaultfd");
	return 0;
}
