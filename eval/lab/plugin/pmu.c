// SPDX-License-Identifier: GPL-2.0-only
/*
 * The emulated PMU: one in N events of user code becomes a record in memory that the guest maps
 * (pmu.h). An event is a last-level miss, or the first store to a line that a load has brought: a
 * processor's store event sees all stores, and a read-modify-write is one of each. The period is jittered by an eighth, so that it does not beat with a loop.
 *
 * As with a processor's own sampling, what is lost is counted and nothing waits: a full ring drops,
 * a rate above the limit is throttled until the next hundredth of a second. A sample costs its vCPU
 * a charge, as a microcode assist would, dilated like memory.
 */
#include "model.h"
#include "pmu.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WINDOW_NS (10ull * 1000 * 1000)
#define WINDOWS_A_SECOND 100

/* One vCPU's, touched by its thread alone. */
static struct sampler {
	uint64_t left, random, window, in_window;
	uint64_t period;
} __attribute__((aligned(64))) samplers[MAX_VCPUS];

static struct pmu_header *header;

static struct pmu_ring *ring_of(unsigned int cpu)
{
	return (void *)((char *)header + PMU_HEADER_BYTES + cpu * header->ring_bytes);
}

static uint64_t control(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void count(uint64_t *word, uint64_t more)
{
	__atomic_store_n(word, *word + more, __ATOMIC_RELAXED);
}

static uint64_t host_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t next_random(struct sampler *s)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return s->random;
}

/* Misses until the next sample: the period on average, up to an eighth more or less. */
static uint64_t next_gap(struct sampler *s, uint64_t period)
{
	const uint64_t spread = period / 8;

	return period - spread + next_random(s) % (2 * spread + 1);
}

static bool throttled(struct sampler *s, uint64_t now_ns)
{
	const uint64_t limit = control(&header->max_rate);

	if (!limit)
		return false;
	if (now_ns / WINDOW_NS != s->window) {
		s->window = now_ns / WINDOW_NS;
		s->in_window = 0;
	}
	return ++s->in_window > (limit + WINDOWS_A_SECOND - 1) / WINDOWS_A_SECOND;
}

static void write_record(struct pmu_ring *ring, unsigned int cpu, uint64_t vaddr, uint64_t paddr,
			 bool store, uint64_t now_ns)
{
	struct pmu_record *records = (void *)((char *)ring + PMU_RING_HEADER_BYTES);
	const uint64_t head = ring->head, tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
	uint64_t room = control(&header->room);

	if (!room || room > PMU_RING_RECORDS)
		room = PMU_RING_RECORDS;
	/* A consumer that writes nonsense loses samples and nothing else. */
	if (head - tail >= room) {
		count(&ring->lost, 1);
		return;
	}
	records[head % PMU_RING_RECORDS] = (struct pmu_record){
		.vaddr = vaddr, .paddr = paddr, .time_ns = now_ns, .root = page_table_root(cpu),
		.cpu = cpu, .node = (uint16_t)node_of(paddr), .store = store, .number = head,
	};
	count(&ring->taken, 1);
	__atomic_store_n(&ring->head, head + 1, __ATOMIC_RELEASE);
}

void pmu_event(unsigned int cpu, uint64_t vaddr, uint64_t paddr, bool store)
{
	struct sampler *s = &samplers[cpu];
	struct pmu_ring *ring;
	uint64_t period, now_ns, from;

	if (!header || !control(&header->enabled))
		return;
	period = control(&header->period);
	if (!period)
		return;
	ring = ring_of(cpu);
	count(&ring->misses, 1);
	if (period != s->period) {
		s->period = period;
		s->left = next_gap(s, period);
	}
	if (--s->left)
		return;
	s->left = next_gap(s, period);
	now_ns = host_ns();
	if (throttled(s, now_ns)) {
		count(&ring->throttled, 1);
		return;
	}
	from = clock_ticks();
	write_record(ring, cpu, vaddr, paddr, store, now_ns);
	wait_until(from + (uint64_t)((double)control(&header->charge_ns) * opt.dilation *
				     ticks_per_ns));
}

struct pmu_count pmu_count(void)
{
	struct pmu_count sum = { 0 };

	for (unsigned int i = 0; header && i < opt.vcpus; i++) {
		const struct pmu_ring *ring = ring_of(i);

		sum.samples += control(&ring->taken);
		sum.lost += control(&ring->lost);
		sum.throttled += control(&ring->throttled);
		sum.misses += control(&ring->misses);
	}
	return sum;
}

int pmu_open(void)
{
	const uint64_t ring_bytes = PMU_RING_HEADER_BYTES +
				    PMU_RING_RECORDS * sizeof(struct pmu_record);
	const uint64_t bytes = PMU_HEADER_BYTES + opt.vcpus * ring_bytes;
	struct pmu_header *new;
	struct stat st;
	int fd;

	if (!opt.pmu[0])
		return 0;
	fd = open(opt.pmu, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || (uint64_t)st.st_size < bytes) {
		fprintf(stderr, "terrace-lab plugin: %s is not a file of %lu bytes\n", opt.pmu,
			bytes);
		return -1;
	}
	new = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (new == MAP_FAILED) {
		perror(opt.pmu);
		return -1;
	}
	*new = (struct pmu_header){
		.version = PMU_VERSION, .rings = opt.vcpus, .ring_records = PMU_RING_RECORDS,
		.record_bytes = sizeof(struct pmu_record), .header_bytes = PMU_HEADER_BYTES,
		.ring_bytes = ring_bytes, .period = opt.pmu_period, .max_rate = opt.pmu_rate,
		.charge_ns = opt.pmu_charge_ns, .room = opt.pmu_room,
	};
	for (unsigned int i = 0; i < opt.vcpus; i++)
		samplers[i].random = 0x9e3779b97f4a7c15ull * (i + 1);
	__atomic_store_n(&new->magic, PMU_MAGIC, __ATOMIC_RELEASE);
	header = new;
	return 0;
}
