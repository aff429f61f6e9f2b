/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the emulated PMU and its reader in the guest share: memory that the guest sees as the second
 * base address register of an ivshmem device. crates/track/src/emulated/layout.rs is the same in
 * Rust; whoever changes one changes both, and the version.
 *
 * All fields are 64-bit little-endian words. The file is one header of PMU_HEADER_BYTES, then a ring
 * for each vCPU: PMU_RING_HEADER_BYTES of its own words, then its records. A ring has one producer
 * (the vCPU's thread) and one consumer (in the guest). `head` and `tail` count records since the
 * start and never wrap; a record's place is its number modulo the ring's records. The producer
 * drops a record, and counts it, where head - tail has reached the room.
 */
#ifndef TERRACE_LAB_PMU_H
#define TERRACE_LAB_PMU_H

#include <stdint.h>

#define PMU_MAGIC 0x31554d5043525254ull	/* "TRRCPMU1" */
#define PMU_VERSION 1
#define PMU_HEADER_BYTES 4096
#define PMU_RING_HEADER_BYTES 4096
#define PMU_RING_RECORDS 16384

struct pmu_header {
	/* What this is; written once, the magic last. */
	uint64_t magic, version;
	uint64_t rings, ring_records, record_bytes, header_bytes, ring_bytes;
	uint64_t reserved;
	/* Control: the command line's values at first, then the guest's. */
	uint64_t enabled;	/* 0: no samples */
	uint64_t period;	/* one sample in so many events */
	uint64_t max_rate;	/* samples a second of a vCPU, more are throttled; 0: no limit */
	uint64_t charge_ns;	/* what taking a sample costs the vCPU, as the machine's time */
	uint64_t room;		/* unread records a ring holds; 0: as many as it has places */
};

struct pmu_ring {
	uint64_t head;		/* written by the producer */
	uint64_t pad0[7];
	uint64_t tail;		/* written by the consumer */
	uint64_t pad1[7];
	uint64_t taken;		/* records written */
	uint64_t lost;		/* not written for lack of room */
	uint64_t throttled;	/* not taken because of max_rate */
	uint64_t misses;	/* events seen while enabled: one in `period` is taken */
};

struct pmu_record {
	uint64_t vaddr, paddr;
	uint64_t time_ns;	/* the host's monotonic clock */
	uint64_t root;		/* %cr3 as it is, process-context bits included */
	uint32_t cpu;
	uint16_t node;
	uint16_t store;		/* 1 store, 0 load */
	uint64_t number;	/* of this record in its ring: a torn one does not match its place */
};

#endif
