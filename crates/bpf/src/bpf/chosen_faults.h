/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * The wire format between chosen_faults.bpf.c and ../chosen_faults.rs, and the
 * only place where it is defined. Both sides are built together and travel in
 * one binary, so there is no version field; offsets are asserted below and in
 * chosen_faults.rs.
 *
 * Times are CLOCK_MONOTONIC in nanoseconds. Process and thread ids are those
 * of the initial pid namespace.
 */
#ifndef TERRACE_CHOSEN_FAULTS_H
#define TERRACE_CHOSEN_FAULTS_H

/* A page that is armed. */
struct chosen_page {
	__u64 start;	/* its first address */
	__u32 tgid;
	__u32 shift;	/* 12, or 21 for a huge page */
};

/* Pages of a process that may be armed: which sizes to look for. */
enum chosen_sizes {
	CHOSEN_BASE = 1 << 0,
	CHOSEN_HUGE = 1 << 1,
};

#define CHOSEN_NO_NODE 0xffff

/* The first access of an armed page. */
struct chosen_record {
	__u64 time;	/* ns */
	struct chosen_page page;
	__u32 tid;
	__u32 cpu;
	__u16 cpu_node;	/* of cpu; CHOSEN_NO_NODE where there is none */
	__u8 write;
	__u8 pad[5];
};

#define CHOSEN_OFFSET(field, at)                                                \
	_Static_assert(__builtin_offsetof(struct chosen_record, field) == (at), \
		       #field)
CHOSEN_OFFSET(time, 0);
CHOSEN_OFFSET(page.start, 8);
CHOSEN_OFFSET(page.tgid, 16);
CHOSEN_OFFSET(page.shift, 20);
CHOSEN_OFFSET(tid, 24);
CHOSEN_OFFSET(cpu, 28);
CHOSEN_OFFSET(cpu_node, 32);
CHOSEN_OFFSET(write, 34);
_Static_assert(sizeof(struct chosen_record) == 40, "record size");
_Static_assert(sizeof(struct chosen_page) == 16, "key size");

#endif
