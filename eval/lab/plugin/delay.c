// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a miss costs. All times are ticks of the host's time-stamp counter, whose rate is measured
 * at start, and all are the machine's times multiplied by the dilation.
 *
 *   random line   latency of the node for this socket, counted from when the vCPU asked
 *   stream line   the line after (or before) one of the last STREAMS missed lines of this vCPU:
 *                 a hardware prefetcher has it on the way. The vCPU's stream engine delivers
 *                 lines at the stream bandwidth, at most AHEAD lines before they are used, so a
 *                 program (or an emulator) slower than that waits for nothing. Loads and stores
 *                 have an engine each. A line that belongs to a stream (it is the stream's last, or
 *                 beside that; the first of the STREAMS places counts) becomes its last; any
 *                 other begins one, and the places are given out in turn.
 *   both          plus the time until the node is free: every line keeps its node busy for
 *                 line size / bandwidth, and requests queue behind each other
 *   write-back    keeps the node busy, nobody waits for it; it is asked for before the miss that
 *                 caused it, and takes what a store of the socket that missed takes
 */
#include "model.h"

#include <time.h>
#include <x86intrin.h>

struct path paths[MAX_SOCKETS][MAX_NODES];
double ticks_per_ns;

/* Tick at which each node has served all it was asked for. */
static struct {
	uint64_t until;
	uint64_t pad[7];
} busy[MAX_NODES] __attribute__((aligned(64)));

uint64_t clock_ticks(void)
{
	return __rdtsc();
}

static uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void delay_init(void)
{
	const struct timespec nap = { .tv_nsec = 50 * 1000 * 1000 };
	uint64_t ns = monotonic_ns(), ticks = __rdtsc();

	nanosleep(&nap, NULL);
	ticks_per_ns = (double)(__rdtsc() - ticks) / (double)(monotonic_ns() - ns);

	for (unsigned int s = 0; s < opt.sockets; s++) {
		for (unsigned int n = 0; n < opt.nodes; n++) {
			const double *in = opt.ns[s][n];
			const double scale = opt.dilation * ticks_per_ns;

			for (unsigned int w = 0; w < 2; w++) {
				paths[s][n].latency[w] = (uint64_t)(in[w] * scale);
				paths[s][n].line[w] = (uint64_t)(in[2 + w] * scale);
				paths[s][n].stream[w] = (uint64_t)(in[4 + w] * scale);
			}
		}
	}
}

/* Where a guest-physical address is in guest memory. */
static uint64_t offset_of(uint64_t phys)
{
	return phys < (4ull << 30) ? phys : phys - (4ull << 30) + opt.below_4g;
}

bool is_memory(uint64_t phys)
{
	if (phys < (4ull << 30))
		return phys < opt.below_4g;
	return offset_of(phys) < opt.end[opt.nodes - 1];
}

unsigned int node_of(uint64_t phys)
{
	const uint64_t at = offset_of(phys);
	unsigned int n = 0;

	while (n + 1 < opt.nodes && at >= opt.end[n])
		n++;
	return n;
}

/* Takes the node's next free slot of `length` ticks; returns how long to wait for it. */
static uint64_t reserve(unsigned int node, uint64_t now, uint64_t length)
{
	uint64_t until = __atomic_load_n(&busy[node].until, __ATOMIC_RELAXED), from;

	do {
		from = until > now ? until : now;
	} while (!__atomic_compare_exchange_n(&busy[node].until, &until, from + length, true,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return from - now;
}

static bool in_stream(struct vcpu *v, uint64_t line)
{
	for (unsigned int i = 0; i < STREAMS; i++) {
		if (line - v->stream[i] + 1 <= 2) {	/* one before, same, one after */
			v->stream[i] = line;
			return true;
		}
	}
	v->stream[v->next_stream++ % STREAMS] = line;
	return false;
}

/* When the stream engine has the next line, as ticks after `now`. */
static uint64_t next_of_stream(uint64_t *engine, uint64_t now, uint64_t length)
{
	const uint64_t earliest = now - AHEAD * length;
	const uint64_t from = *engine > earliest ? *engine : earliest;

	*engine = from + length;
	return *engine > now ? *engine - now : 0;
}

void delay_miss(struct vcpu *v, unsigned int node, uint64_t line, bool store, enum code code,
		uint64_t now)
{
	const struct path *path = &paths[v->socket][node];
	const bool stream = in_stream(v, line);
	const uint64_t queue = reserve(node, now, path->line[store]);
	const uint64_t wait = queue + (stream ? next_of_stream(&v->engine[store], now,
							       path->stream[store])
					      : path->latency[store]);
	struct node_count *count = &v->node[node];

	switch (code) {
	case CODE_PROGRAM:
		count->load += !store;
		count->store += store;
		count->stream += stream;
		break;
	case CODE_TIERING:
		count->tload += !store;
		count->tstore += store;
		break;
	case CODE_KERNEL:
		count->kload += !store;
		count->kstore += store;
		break;
	}
	count->queue_ticks += queue;
	count->delay_ticks += wait;
	wait_until(now + wait);
}

void wait_until(uint64_t tick)
{
	while ((int64_t)(__rdtsc() - tick) < 0)
		__builtin_ia32_pause();
}

void delay_writeback(struct vcpu *v, unsigned int node, enum writer writer, uint64_t now)
{
	v->node[node].writeback[writer]++;
	reserve(node, now, paths[v->socket][node].line[1]);
}
