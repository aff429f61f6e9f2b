// SPDX-License-Identifier: GPL-2.0-only
/*
 * A set-associative last-level cache for each socket, shared by its vCPUs: physical tags, CLOCK
 * replacement, write-back.
 *
 * The ways of a set are a ring with a hand. A hit sets its way's reference bit. A miss takes the first
 * way at or after the hand whose bit is clear, clears the bits on the way there, and leaves the hand
 * behind it; a line comes in with its bit clear. A store makes its line dirty, and its writer the
 * last; the line goes clean only by being given back.
 *
 * vCPU threads use it without a lock. Two of them in one set at the same instant can lose a
 * reference bit or enter a line twice; both are worth one miss at most and are accepted, because
 * a lock would cost more than the model is exact.
 */
#include "model.h"

#include <stdlib.h>

#define DIRTY 1ull
#define WRITER_SHIFT 1
#define LINE_SHIFT 3
#define STATE_BITS ((1ull << LINE_SHIFT) - 1)
#define EMPTY (NO_LINE & ~STATE_BITS)

static uint64_t *tags[MAX_SOCKETS];	/* line << 3 | last writer << 1 | dirty */
static uint32_t *clocks[MAX_SOCKETS];	/* hand << 16 | reference bits */
static uint64_t set_mask;
static unsigned int ways;

int llc_init(void)
{
	uint64_t sets = opt.llc_bytes >> opt.line_shift;

	ways = opt.ways;
	sets /= ways;
	if (!sets || (sets & (sets - 1)) || ways > 16)
		return -1;
	set_mask = sets - 1;
	for (unsigned int s = 0; s < opt.sockets; s++) {
		tags[s] = malloc(sets * ways * sizeof(uint64_t));
		clocks[s] = calloc(sets, sizeof(uint32_t));
		if (!tags[s] || !clocks[s])
			return -1;
		for (uint64_t i = 0; i < sets * ways; i++)
			tags[s][i] = EMPTY;
	}
	return 0;
}

bool llc_access(unsigned int socket, uint64_t line, bool store, enum writer writer,
		struct victim *victim)
{
	const uint64_t wanted = line << LINE_SHIFT;
	const uint64_t dirty = wanted | (uint64_t)writer << WRITER_SHIFT | DIRTY;
	/* Fold the higher bits in, so that page-aligned hot data does not pile up in few sets. */
	uint64_t set = (line ^ line >> 12) & set_mask;
	uint64_t *tag = tags[socket] + set * ways;
	uint32_t *clock = clocks[socket] + set;
	uint32_t state = __atomic_load_n(clock, __ATOMIC_RELAXED);
	unsigned int hand;
	uint64_t old;

	victim->line = NO_LINE;
	for (unsigned int w = 0; w < ways; w++) {
		old = __atomic_load_n(&tag[w], __ATOMIC_RELAXED);
		if ((old & ~STATE_BITS) != wanted)
			continue;
		if (store && old != dirty)
			__atomic_store_n(&tag[w], dirty, __ATOMIC_RELAXED);
		if (!(state & 1u << w))
			__atomic_store_n(clock, state | 1u << w, __ATOMIC_RELAXED);
		return true;
	}
	hand = state >> 16;
	while (state & 1u << hand) {
		state &= ~(1u << hand);
		hand = hand + 1 == ways ? 0 : hand + 1;
	}
	old = __atomic_load_n(&tag[hand], __ATOMIC_RELAXED);
	if (old & DIRTY) {
		victim->line = old >> LINE_SHIFT;
		victim->writer = old >> WRITER_SHIFT & 3;
	}
	__atomic_store_n(&tag[hand], store ? dirty : wanted, __ATOMIC_RELAXED);
	hand = hand + 1 == ways ? 0 : hand + 1;
	__atomic_store_n(clock, (uint32_t)hand << 16 | (state & 0xffff), __ATOMIC_RELAXED);
	return false;
}
