/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What crosses between accessed_bits.bpf.c and src/accessed.rs. All words are
 * u64 in the machine's order; both maps are mapped into user space.
 */
#ifndef ACCESSED_BITS_H
#define ACCESSED_BITS_H

enum accessed_limits {
	/* Chunks one call hands out at most. */
	ACCESSED_CHUNKS = 256,
	/* Ranges of page frames that are told apart. */
	ACCESSED_RANGES = 8,
};

struct frame_range {
	__u64 first;
	__u64 count;
};

/* One walk: what is asked, then what came of it. */
struct accessed_walk {
	__u64 next;		/* in and out: where to go on */
	__u64 end;		/* in: where to stop */
	__u64 base;		/* in: where the kernel maps physical address 0; 0: only pgd is told */
	__u64 levels5;		/* in: five levels of tables */
	__u64 named;		/* in: so many of `chunks` are asked for by name, not `next` to `end` */
	__u64 ranges;		/* in: how many of `range` */
	struct frame_range range[ACCESSED_RANGES];
	__u64 pgd;		/* out: the top table */
	__u64 chunks;		/* out: how many of the map `chunks` are filled */
	__u64 torn;		/* out: tables that changed under the reader */
	__u64 gone;		/* out: the process has no memory (any more) */
};

struct accessed_chunk {
	__u64 start;		/* in, where it is named */
	__u64 huge;
	__u64 first_frame;
	__u64 words;		/* in, where it is named: which words of 64 pages to look at */
	__u64 present[8];
	__u64 accessed[8];
	__u64 within[ACCESSED_RANGES][8];
};

#endif
