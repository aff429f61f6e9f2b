/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared declarations of the lab's memory model. Units: time-stamp counter ticks for delays,
 * bytes for sizes, line numbers (physical address / line size) for cache tags.
 *
 *   options.c  what the runner passes on QEMU's command line
 *   llc.c      the last-level cache of each socket
 *   delay.c    what a miss costs, and waiting for it
 *   hook.c     which instructions are watched; on, off, marks
 *   pmu.c      samples of misses, for the guest
 *   report.c   the time series and the totals
 */
#ifndef TERRACE_LAB_MODEL_H
#define TERRACE_LAB_MODEL_H

#include "api.h"

#define MAX_VCPUS 16
#define MAX_SOCKETS 4
#define MAX_NODES 8
#define STREAMS 16
#define AHEAD 8
#define L1_SETS 256			/* 32 KiB in lines of 64 bytes */
#define L1_WAYS 2
#define NO_LINE UINT64_MAX

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Who dirtied a line. */
enum writer {
	WRITER_PROGRAM,			/* user code */
	WRITER_COPY,			/* the kernel's copies (migration is one), a tiering system's code */
	WRITER_CLEAR,			/* the kernel's clearing of pages */
	WRITERS
};

/* Whose code it is that misses. */
enum code {
	CODE_PROGRAM,			/* user code */
	CODE_TIERING,			/* of it: a tiering system's, that was pointed out */
	CODE_KERNEL
};

/* What one vCPU did to one node. Written by that vCPU's thread alone, read by the reporter. */
struct node_count {
	uint64_t load, store;		/* misses of programs, served by this node */
	uint64_t stream;		/* of these: the next line of a stream */
	uint64_t tload, tstore;		/* misses of the tiering system's user code */
	uint64_t kload, kstore;		/* misses of the kernel's bulk moves */
	uint64_t kread_bytes, kwrite_bytes; /* bytes of those moves, hits included */
	uint64_t writeback[WRITERS];	/* dirty lines the cache gave back, by who wrote them last */
	uint64_t delay_ticks;		/* waited for this node, queueing included */
	uint64_t queue_ticks;		/* of these: because its bandwidth was used up */
};

struct vcpu {
	uint64_t l1[L1_SETS][L1_WAYS];	/* virtual line numbers: a private first-level filter */
	uint64_t stream[STREAMS];
	uint64_t engine[2];		/* tick at which the stream engine has its last line */
	unsigned int next_stream;
	unsigned int socket;
	struct qemu_plugin_register *rax, *rdx, *cr3;
	uint64_t access;		/* programs' accesses that passed the first-level filter */
	uint64_t hit;			/* of these: hits in the last-level cache */
	struct node_count node[MAX_NODES];
} __attribute__((aligned(64)));

/* One socket's view of one node; index 0 is reading, 1 is writing. */
struct path {
	uint64_t latency[2];		/* ticks */
	uint64_t line[2];		/* ticks the node is busy with one line */
	uint64_t stream[2];		/* ticks one vCPU waits for the next line of a stream */
};

struct options {
	unsigned int sockets, nodes, vcpus;
	unsigned int line_shift, ways;
	uint64_t llc_bytes;
	uint64_t below_4g;		/* bytes of guest memory below 4 GiB */
	uint64_t end[MAX_NODES];	/* where each node ends, in bytes of guest memory */
	unsigned int vcpu_socket[MAX_VCPUS];
	double dilation;
	double ns[MAX_SOCKETS][MAX_NODES][6]; /* read, write latency; line r, w; stream r, w */
	char series[4096];
	char pmu[4096];			/* the memory shared with the guest; empty: no PMU */
	uint64_t pmu_period, pmu_rate, pmu_charge_ns, pmu_room;
};

struct pmu_count {
	uint64_t samples, lost, throttled, misses;
};

extern struct options opt;
extern struct vcpu vcpus[MAX_VCPUS];
extern struct path paths[MAX_SOCKETS][MAX_NODES];
extern double ticks_per_ns;
extern bool watching;

int options_parse(int argc, char **argv);

int llc_init(void);
/* A dirty line that was thrown out; NO_LINE if none was. */
struct victim {
	uint64_t line;
	enum writer writer;
};

/* True on a hit. A miss takes the line in and may throw another out. */
bool llc_access(unsigned int socket, uint64_t line, bool store, enum writer writer,
		struct victim *victim);

void delay_init(void);
uint64_t clock_ticks(void);
/* Charges a node one miss that began at tick `now`, and waits as long as it would take. */
void delay_miss(struct vcpu *v, unsigned int node, uint64_t line, bool store, enum code code,
		uint64_t now);
void delay_writeback(struct vcpu *v, unsigned int node, enum writer writer, uint64_t now);
void wait_until(uint64_t tick);
unsigned int node_of(uint64_t phys);
/* Whether there is memory of the guest, and no device's. */
bool is_memory(uint64_t phys);

int pmu_open(void);
/* User code missed the cache, or stored to a line for the first time since it came. */
void pmu_event(unsigned int cpu, uint64_t vaddr, uint64_t paddr, bool store);
struct pmu_count pmu_count(void);
/* %cr3 of this vCPU; to be called on its thread, where registers may be read. */
uint64_t page_table_root(unsigned int cpu);

int report_open(void);
void report_mark(const char *name);
void report_close(void);

#endif
