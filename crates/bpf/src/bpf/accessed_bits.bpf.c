// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads the page tables of one process, 512 entries at a time, and writes a
 * bitmap of what is present and accessed for each 2 MiB that has memory, or
 * for chosen pages of those that are named.
 *
 * Runs as a task iterator bound to a process, once for each walk that user
 * space asks for in `walks`. It holds no lock: a table that is not the same
 * after it was read is left out and counted, as is all when the process's
 * memory went away meanwhile. x86-64 only: the bits are the processor's.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "accessed_bits.h"

#define RELOCATED __attribute__((preserve_access_index))

struct mm_struct {
	void *pgd;
} RELOCATED;
struct task_struct {
	struct mm_struct *mm;
} RELOCATED;
struct bpf_iter__task {
	struct task_struct *task;
} RELOCATED;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct accessed_walk);
} walks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ACCESSED_CHUNKS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct accessed_chunk);
} chunks SEC(".maps");

struct table {
	__u64 entry[512];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct table);
} scratch SEC(".maps");

/*
 * arch/x86/include/asm/pgtable_types.h: bits of an entry. A page that NUMA
 * balancing has armed, or mprotect(PROT_NONE), is there and has PROTNONE in
 * place of PRESENT, its accessed bit as it was, and all bits of its frame
 * inverted (pgtable-invert.h). Entries for swap and migration have neither.
 */
#define PRESENT 1ULL
#define PROTNONE_SHIFT 8
#define ACCESSED_SHIFT 5
#define LEAF 128ULL
/* Set in a last-level entry that maps no page of anybody's: the zero page, devices. */
#define SPECIAL_SHIFT 9
#define FRAME 0x000ffffffffff000ULL
/* Iterations of one call: chunks, or larger gaps skipped. */
#define STEPS 2048

struct place {
	struct accessed_walk *w;
	struct table *t;
	__u64 pgd;
	__u64 base;
	__u64 va;
	__u64 end;
	/* Which words of 64 pages are wanted. */
	__u64 words;
};

struct sort {
	struct accessed_walk *w;
	struct accessed_chunk *c;
	struct table *t;
	__u64 words;
};

/* Whether it maps memory. */
static __always_inline __u64 is_there(__u64 e)
{
	return (e | e >> PROTNONE_SHIFT) & PRESENT;
}

/* The frame's bits, of an entry that is there. */
static __always_inline __u64 frame_of(__u64 e)
{
	return (e ^ ((e & PRESENT) - 1)) & FRAME;
}

static __always_inline __u64 entry_at(__u64 table, __u64 va, int shift)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value),
			      (void *)(table + (((va >> shift) & 511) << 3)));
	return value;
}

/* Which of the pages lie in one range of frames; no branch by page. */
static long sort_range(__u32 i, struct sort *s)
{
	__u64 first, count;

	if (i >= ACCESSED_RANGES)
		return 1;
	first = s->w->range[i].first;
	count = s->w->range[i].count;
	for (int k = 0; k < 8; k++) {
		__u64 in = 0;

		for (int b = 0; b < 64 && s->words >> k & 1; b++) {
			__u64 e = s->t->entry[k * 64 + b];
			__u64 off = (frame_of(e) >> 12) - first;

			in |= ((~off & (off - count)) >> 63) << b;
		}
		s->c->within[i][k] = in & s->c->present[k];
	}
	return 0;
}

/* A huge page: bit 0 stands for all. */
static __always_inline void leaf(struct place *p, struct accessed_chunk *c, __u64 e,
				 __u64 frame)
{
	__builtin_memset(c, 0, sizeof(*c));
	c->start = p->va & ~((1ULL << 21) - 1);
	c->huge = 1;
	c->first_frame = frame;
	c->present[0] = 1;
	c->accessed[0] = (e >> ACCESSED_SHIFT) & 1;
	for (__u64 i = 0; i < ACCESSED_RANGES; i++) {
		__u64 off = frame - p->w->range[i].first;

		if (i < p->w->ranges)
			c->within[i][0] = (~off & (off - p->w->range[i].count)) >> 63;
	}
}

static __always_inline bool table(struct place *p, struct accessed_chunk *c, __u64 pmd_table,
				  __u64 e)
{
	struct sort s = { p->w, c, p->t, p->words };
	__u64 any = 0;

	if (bpf_probe_read_kernel(p->t, sizeof(*p->t), (void *)(p->base + (e & FRAME))))
		return false;
	/* Freed, or another table now: what was read may be anything. */
	if ((entry_at(pmd_table, p->va, 21) & FRAME) != (e & FRAME)) {
		p->w->torn++;
		return false;
	}
	for (int k = 0; k < 8; k++) {
		__u64 present = 0, accessed = 0;

		for (int b = 0; b < 64 && p->words >> k & 1; b++) {
			__u64 x = p->t->entry[k * 64 + b];

			present |= (is_there(x) & ~(x >> SPECIAL_SHIFT)) << b;
			accessed |= ((x >> ACCESSED_SHIFT) & 1) << b;
		}
		c->present[k] = present;
		c->accessed[k] = accessed & present;
		any |= present;
	}
	if (!any)
		return false;
	c->start = p->va & ~((1ULL << 21) - 1);
	c->huge = 0;
	c->first_frame = frame_of(p->t->entry[0]) >> 12;
	bpf_loop(p->w->ranges, sort_range, &s, 0);
	return true;
}

/*
 * What 2 MiB at `va` hold, if anything. Where nothing does, and the walk goes
 * on: behind as much as one entry of that level maps.
 */
static __always_inline bool look(struct place *p, struct accessed_chunk *c, int *shift)
{
	__u64 e, dir, va = p->va;

	*shift = p->w->levels5 ? 48 : 39;
	e = entry_at(p->pgd, va, *shift);
	if (!(e & PRESENT))
		return false;
	if (p->w->levels5) {
		*shift = 39;
		e = entry_at(p->base + (e & FRAME), va, 39);
		if (!(e & PRESENT))
			return false;
	}
	*shift = 30;
	e = entry_at(p->base + (e & FRAME), va, 30);
	if (!is_there(e))
		return false;
	*shift = 21;
	if (e & LEAF) {
		/* 1 GiB: each 2 MiB of it, all with its one bit. */
		leaf(p, c, e, ((frame_of(e) & ~((1ULL << 30) - 1)) | (va & ((1ULL << 30) - (1ULL << 21)))) >> 12);
		return true;
	}
	dir = p->base + (e & FRAME);
	e = entry_at(dir, va, 21);
	if (!is_there(e))
		return false;
	if (e & LEAF) {
		leaf(p, c, e, (frame_of(e) & ~((1ULL << 21) - 1)) >> 12);
		return true;
	}
	return table(p, c, dir, e);
}

static long step(__u32 i, struct place *p)
{
	struct accessed_chunk *c;
	__u32 slot = p->w->chunks;
	int shift;

	if (p->va >= p->end || slot >= ACCESSED_CHUNKS)
		return 1;
	c = bpf_map_lookup_elem(&chunks, &slot);
	if (!c)
		return 1;
	if (look(p, c, &shift))
		p->w->chunks = slot + 1;
	p->va = ((p->va >> shift) + 1) << shift;
	return 0;
}

/* The answer is where the question was. */
static long named(__u32 slot, struct place *p)
{
	struct accessed_chunk *c = bpf_map_lookup_elem(&chunks, &slot);
	int shift;

	if (!c || slot >= p->w->named)
		return 1;
	p->va = c->start;
	p->words = c->words;
	if (!look(p, c, &shift))
		__builtin_memset(c->present, 0, sizeof(c->present));
	p->w->chunks = slot + 1;
	return 0;
}

SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct mm_struct *mm;
	struct place p = {};
	__u32 zero = 0;

	p.w = bpf_map_lookup_elem(&walks, &zero);
	p.t = bpf_map_lookup_elem(&scratch, &zero);
	if (!task || !p.w || !p.t)
		return 0;
	mm = BPF_CORE_READ(task, mm);
	p.w->chunks = 0;
	p.w->torn = 0;
	if (!mm) {
		p.w->gone = 1;
		return 0;
	}
	p.pgd = (__u64)BPF_CORE_READ(mm, pgd);
	p.w->pgd = p.pgd;
	p.base = p.w->base;
	if (!p.base)
		return 0;
	p.va = p.w->next;
	p.end = p.w->end;
	p.words = ~0ULL;
	if (p.w->named) {
		bpf_loop(ACCESSED_CHUNKS, named, &p, 0);
	} else {
		bpf_loop(STEPS, step, &p, 0);
		p.w->next = p.va;
	}
	p.w->gone = BPF_CORE_READ(task, mm) != mm;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
