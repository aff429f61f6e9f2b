// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plays QEMU to the memory model, on one thread and with a clock of its own: of the plugin nothing
 * but the clock is another.
 *
 *   harness TICKS_PER_8NS OPTION...     options as QEMU passes them on
 *
 * Each virtual processor has a time-stamp counter, which advances by one tick whenever the plugin
 * pauses. Standard input is a trace, one access a line:
 *
 *   CODE AT VCPU VADDR PADDR STORE      CODE: 0 program, 1 tiering, 2 kernel's copy, 3 its clear
 *
 * The access begins at tick AT, or when the vCPU has waited for its last one, if that is later. For
 * each, standard output has a line:
 *
 *   SERVED WRITTEN UNTIL                node that served the miss, node a dirty line was given back
 *                                       to (-1: none), tick at which the vCPU goes on
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

static uint64_t harness_ticks(void);
static void harness_pause(void);
static int harness_monotonic(struct timespec *ts);
static int harness_nap(const struct timespec *nap);

#undef __rdtsc
#define __rdtsc() harness_ticks()
#define __builtin_ia32_pause() harness_pause()
#define clock_gettime(id, ts) harness_monotonic(ts)
#define nanosleep(nap, rest) harness_nap(nap)
#include "../../plugin/delay.c"

#define TIERING_CODE 0x2000ull
#define BEGIN (1ull << 40)

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

static uint64_t now[MAX_VCPUS] = { BEGIN }, slept_ns, ticks_per_8ns;
static unsigned int running;

static uint64_t harness_ticks(void)
{
	return now[running];
}

static void harness_pause(void)
{
	now[running]++;
}

static int harness_monotonic(struct timespec *ts)
{
	*ts = (struct timespec){ .tv_sec = (time_t)(slept_ns / 1000000000),
				 .tv_nsec = (long)(slept_ns % 1000000000) };
	return 0;
}

static int harness_nap(const struct timespec *nap)
{
	slept_ns += (uint64_t)nap->tv_nsec;
	now[running] += (uint64_t)nap->tv_nsec / 8 * ticks_per_8ns;
	return 0;
}

/* QEMU's side of the interface. */

struct qemu_plugin_insn {
	uint64_t vaddr;
	size_t length;
	uint8_t bytes[8];
	vcpu_udata_cb exec;
	vcpu_mem_cb access;
	void *exec_data, *access_data;
};

struct qemu_plugin_tb {
	struct qemu_plugin_insn *insn;
};

struct qemu_plugin_register {
	uint64_t value;
};

struct qemu_plugin_hwaddr {
	uint64_t phys;
};

/* In the order of the trace's codes; then the two that steer. */
enum { START = 4, TIERING, INSNS };
static struct qemu_plugin_insn code[INSNS] = {
	{ .vaddr = 0x1000, .length = 3, .bytes = { 0x48, 0x8b, 0x00 } },
	{ .vaddr = TIERING_CODE, .length = 3, .bytes = { 0x48, 0x8b, 0x00 } },
	{ .vaddr = 0xffffffff81000000, .length = 3, .bytes = { 0xf3, 0x48, 0xa5 } },
	{ .vaddr = 0xffffffff81000010, .length = 3, .bytes = { 0xf3, 0x48, 0xab } },
	{ .vaddr = 0x3000, .length = 8, .bytes = { 0x0f, 0x1f, 0x84, 0, 0xe1, 0xac, 0x55, 0x7e } },
	{ .vaddr = 0x3010, .length = 8, .bytes = { 0x0f, 0x1f, 0x84, 0, 0xe5, 0xac, 0x55, 0x7e } },
};
static struct qemu_plugin_register rax = { TIERING_CODE }, rdx = { 3 };
static struct qemu_plugin_hwaddr where;
static vcpu_tb_trans_cb translate_cb;
static udata_cb exit_cb;

static void translate(void)
{
	struct qemu_plugin_tb tb;

	for (int i = 0; i < INSNS; i++) {
		code[i].exec = NULL;
		code[i].access = NULL;
		tb.insn = &code[i];
		translate_cb(0, &tb);
	}
}

void qemu_plugin_reset(qemu_plugin_id_t id, simple_cb cb)
{
	translate_cb = NULL;
	cb(id);
	translate();
}

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, vcpu_tb_trans_cb cb)
{
	(void)id;
	translate_cb = cb;
}

void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, udata_cb cb, void *udata)
{
	(void)id;
	(void)udata;
	exit_cb = cb;
}

void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, vcpu_udata_cb cb,
					    int flags, void *udata)
{
	(void)flags;
	insn->exec = cb;
	insn->exec_data = udata;
}

void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, vcpu_mem_cb cb, int flags,
				      int rw, void *udata)
{
	(void)flags;
	(void)rw;
	insn->access = cb;
	insn->access_data = udata;
}

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb)
{
	(void)tb;
	return 1;
}

struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t idx)
{
	return tb->insn + idx;
}

size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *dest, size_t len)
{
	const size_t length = insn->length < len ? insn->length : len;

	memcpy(dest, insn->bytes, length);
	return length;
}

uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn)
{
	return insn->vaddr;
}

/* Of an access the harness tells nothing but whether it stores. */
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info)
{
	return info;
}

struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t vaddr)
{
	(void)info;
	(void)vaddr;
	return &where;
}

bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *haddr)
{
	(void)haddr;
	return false;
}

uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *haddr)
{
	return haddr->phys;
}

GArray *qemu_plugin_get_registers(void)
{
	static qemu_plugin_reg_descriptor all[] = { { &rax, "rax", NULL }, { &rdx, "rdx", NULL } };
	static GArray array = { (char *)all, 2 };

	return &array;
}

int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *buf)
{
	buf->len = sizeof(handle->value);
	memcpy(buf->data, &handle->value, buf->len);
	return (int)buf->len;
}

bool qemu_plugin_read_memory_vaddr(uint64_t addr, GByteArray *data, size_t len)
{
	(void)addr;
	(void)data;
	(void)len;
	return false;
}

GByteArray *g_byte_array_new(void)
{
	static uint8_t bytes[16];
	static GByteArray array = { bytes, 0 };

	return &array;
}

GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int length)
{
	array->len = length;
	return array;
}

char *g_array_free(GArray *array, int free_segment)
{
	(void)array;
	(void)free_segment;
	return NULL;
}

static uint64_t misses(const struct node_count *count)
{
	return count->load + count->store + count->tload + count->tstore + count->kload +
	       count->kstore;
}

static uint64_t writebacks(const struct node_count *count)
{
	return count->writeback[WRITER_PROGRAM] + count->writeback[WRITER_COPY] +
	       count->writeback[WRITER_CLEAR];
}

/* The first node of which there is more than before; -1 if there is none. */
static int grown(const struct node_count *before, const struct node_count *after,
		 uint64_t (*of)(const struct node_count *))
{
	for (unsigned int n = 0; n < opt.nodes; n++) {
		if (of(&after[n]) != of(&before[n]))
			return (int)n;
	}
	return -1;
}

static void replay(void)
{
	struct node_count before[MAX_NODES];
	uint64_t at, vaddr;
	unsigned int which, store;

	while (scanf("%u %" SCNu64 " %u %" SCNx64 " %" SCNx64 " %u", &which, &at, &running, &vaddr,
		     &where.phys, &store) == 6) {
		if (now[running] < at)
			now[running] = at;
		memcpy(before, vcpus[running].node, sizeof(before));
		code[which].access(running, store, vaddr, code[which].access_data);
		printf("%d %d %" PRIu64 "\n", grown(before, vcpus[running].node, misses),
		       grown(before, vcpus[running].node, writebacks), now[running]);
	}
}

int main(int argc, char **argv)
{
	const qemu_info_t info = { .target_name = "x86_64", .system_emulation = true };

	if (argc < 3)
		return 2;
	ticks_per_8ns = strtoull(argv[1], NULL, 10);
	if (qemu_plugin_install(0, &info, argc - 2, argv + 2))
		return 1;
	translate();
	code[TIERING].exec(0, code[TIERING].exec_data);
	code[START].exec(0, code[START].exec_data);
	for (int i = 0; i < START; i++) {
		if (!code[i].access) {
			fprintf(stderr, "Instruction %d is not watched\n", i);
			return 1;
		}
	}
	replay();
	exit_cb(0, NULL);
	return 0;
}
