/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * The wire format between hint_faults.bpf.c and ../record.rs, and the only
 * place where it is defined. Both sides are built together and travel in one
 * binary, so there is no version field; offsets are asserted below and in
 * record.rs.
 *
 * Times are CLOCK_MONOTONIC in nanoseconds. Process and thread ids are those
 * of the initial pid namespace.
 */
#ifndef TERRACE_HINT_FAULTS_H
#define TERRACE_HINT_FAULTS_H

enum hint_kind {
	HINT_SCAN = 1,	/* the scanner is about to mark [start, end) */
	HINT_FAULT = 2,	/* an access to a marked page, at start */
	HINT_FORK = 3,	/* peer begat tgid, which is now managed too */
	HINT_EXEC = 4,	/* tgid has a new address space */
	HINT_EXIT = 5,	/* the last thread of tgid ended */
	NR_HINT_KINDS,
};

enum hint_flags {
	HINT_WRITE = 1 << 0,	/* the access was a write */
	HINT_MIGRATED = 1 << 1,	/* the kernel moved the page in this fault */
};

/* What a managed process asks for. */
enum hint_managed {
	HINT_FOLLOW = 1 << 0,	/* its children are managed as well */
};

#define HINT_NO_NODE 0xffff

struct hint_record {
	__u64 time;	/* ns */
	__u64 start;	/* address */
	__u64 end;	/* address behind the range of a scan; ns when a fault began */
	__u32 tgid;
	__u32 tid;
	__u32 peer;	/* the parent in a fork; else 0 */
	__u32 cpu;
	__u16 node;	/* of the page; HINT_NO_NODE where there is none */
	__u16 pages;	/* base pages made accessible again by the fault */
	__u8 kind;
	__u8 flags;
	__u16 cpu_node;	/* of cpu; HINT_NO_NODE where there is none */
};

/* Set before the program is loaded. */
struct hint_config {
	__u32 wakeup_bytes;	/* wake the reader when so much waits for it */
	__u32 pad;
};

#define HINT_OFFSET(field, at)                                                \
	_Static_assert(__builtin_offsetof(struct hint_record, field) == (at), \
		       #field)
HINT_OFFSET(time, 0);
HINT_OFFSET(start, 8);
HINT_OFFSET(end, 16);
HINT_OFFSET(tgid, 24);
HINT_OFFSET(tid, 28);
HINT_OFFSET(peer, 32);
HINT_OFFSET(cpu, 36);
HINT_OFFSET(node, 40);
HINT_OFFSET(pages, 42);
HINT_OFFSET(kind, 44);
HINT_OFFSET(flags, 45);
HINT_OFFSET(cpu_node, 46);
_Static_assert(sizeof(struct hint_record) == 48, "record size");

#endif
