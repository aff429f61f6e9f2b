// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which guest instructions are watched, and the three magic ones that the guest steers with.
 *
 * Watched is user code as a whole, and of the kernel only what moves data in bulk (rep movs, rep
 * stos, and the loop of its memcpy, which is what page migration copies with), through its direct
 * map: everything else the kernel does is already slower in the emulator than in reality, and must
 * not be slowed again.
 *
 * A magic instruction is `nopl disp32(%rax,%rax,1)` (0f 1f 84 00 disp32), which does nothing on
 * any processor. The displacement says what is asked: start watching, stop, write a mark whose text
 * is at %rax, %rdx bytes long; or, before the start only, that what the user code which lies there
 * does is not the programs' (a tiering system's). Starting and stopping throw away all translated code,
 * so that nothing of the plugin is in the guest's way while it is off.
 */
#include "model.h"

#include <string.h>

#define MAGIC_START 0x7e55ace1u
#define MAGIC_STOP 0x7e55ace2u
#define MAGIC_MARK 0x7e55ace3u
#define MAGIC_TIERING 0x7e55ace5u
#define MARK_BYTES 240
#define CODE_RANGES 32
#define COPIES 0x100u

/* Debian's x86-64 direct map with four-level paging and no randomisation (nokaslr, la57=off). */
#define DIRECT_MAP 0xffff888000000000ull
#define DIRECT_MAP_BYTES (64ull << 40)
#define USER_END (1ull << 47)

PLUGIN_EXPORT int qemu_plugin_version = PLUGIN_API_VERSION;

bool watching;
static bool wanted;
static qemu_plugin_id_t self;

/* Code of somebody: written before the start by one vCPU, read by all after it. */
struct ranges {
	struct {
		uint64_t start, length;
	} range[CODE_RANGES];
	unsigned int n;
};

static struct ranges tiering;

static void install(qemu_plugin_id_t id);

enum l1 { L1_HIT, L1_DIRTIED, L1_MISS };

/*
 * What the vCPU's small private cache makes of an access: each set has the two lines used last.
 * L1_DIRTIED: the line is there, and this is the first store to it since it came, of which the shared
 * cache has to know.
 */
static inline enum l1 l1_access(struct vcpu *v, uint64_t vline, bool store)
{
	uint64_t *set = v->l1[(vline ^ vline >> 6 ^ vline >> 14) % L1_SETS];
	uint64_t found = set[0];

	if (unlikely(found >> 1 != vline)) {
		/* The line used last comes first. */
		found = set[1];
		set[1] = set[0];
		if (found >> 1 != vline) {
			set[0] = vline << 1 | store;
			return L1_MISS;
		}
		set[0] = found;
	}
	if (likely(!store || (found & 1)))
		return L1_HIT;
	set[0] = found | 1;
	return L1_DIRTIED;
}

/* True on a miss. */
static inline bool touch(struct vcpu *v, uint64_t phys, bool store, enum writer writer,
			 enum code code, uint64_t now)
{
	const uint64_t line = phys >> opt.line_shift;
	struct victim victim;
	bool hit = llc_access(v->socket, line, store, writer, &victim);

	if (code == CODE_PROGRAM) {
		v->access++;
		v->hit += hit;
	}
	if (hit)
		return false;
	if (victim.line != NO_LINE)
		delay_writeback(v, node_of(victim.line << opt.line_shift), victim.writer, now);
	delay_miss(v, node_of(phys), line, store, code, now);
	return true;
}

/* `whose`: the code's, an enum code. */
static void user_access(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *whose)
{
	const enum code code = (uintptr_t)whose;
	const enum writer writer = code == CODE_TIERING ? WRITER_COPY : WRITER_PROGRAM;
	const bool store = qemu_plugin_mem_is_store(info);
	struct vcpu *v = &vcpus[cpu];
	struct qemu_plugin_hwaddr *hw;
	uint64_t now, phys;
	enum l1 l1 = l1_access(v, vaddr >> opt.line_shift, store);

	if (l1 == L1_HIT)
		return;
	now = clock_ticks();
	/* Asking QEMU about device memory can trip an assertion: user addresses only. */
	if (unlikely(vaddr >= USER_END))
		return;
	hw = qemu_plugin_get_hwaddr(info, vaddr);
	if (unlikely(!hw || qemu_plugin_hwaddr_is_io(hw)))
		return;
	phys = qemu_plugin_hwaddr_phys_addr(hw);
	/* Memory of a device that a program has mapped, such as the PMU's records. */
	if (unlikely(!is_memory(phys)))
		return;
	/* A PMU's store event sees the stores that follow a load of the line, too. */
	if (touch(v, phys, store, writer, code, now) || l1 == L1_DIRTIED)
		pmu_event(cpu, vaddr, phys, store);
}

/* `kind`: the bytes one repetition moves, and whether it copies. */
static void kernel_bulk(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *kind)
{
	const unsigned int width = (uintptr_t)kind & ~COPIES;
	const enum writer writer = (uintptr_t)kind & COPIES ? WRITER_COPY : WRITER_CLEAR;
	struct vcpu *v = &vcpus[cpu];
	const bool store = qemu_plugin_mem_is_store(info);
	struct qemu_plugin_hwaddr *hw;
	uint64_t phys;

	if (vaddr - DIRECT_MAP < DIRECT_MAP_BYTES) {
		phys = vaddr - DIRECT_MAP;
	} else if (vaddr < USER_END) {		/* copy_from_user, copy_to_user */
		hw = qemu_plugin_get_hwaddr(info, vaddr);
		if (!hw || qemu_plugin_hwaddr_is_io(hw))
			return;
		phys = qemu_plugin_hwaddr_phys_addr(hw);
	} else {
		return;
	}
	if (unlikely(!is_memory(phys)))
		return;
	if (store)
		v->node[node_of(phys)].kwrite_bytes += width;
	else
		v->node[node_of(phys)].kread_bytes += width;
	if (l1_access(v, vaddr >> opt.line_shift, store) != L1_HIT)
		touch(v, phys, store, writer, CODE_KERNEL, clock_ticks());
}

/*
 * The loop of the kernel's memcpy_orig (arch/x86/lib/memcpy_64.S), which every memcpy is on a
 * processor without fast short rep movs: 32 bytes a turn, from
 * `sub $0x20,%rdx` to `lea 0x20(%rdi),%rdi`. There is one such loop in a kernel.
 */
static const uint8_t memcpy_loop[] = {
	0x48, 0x83, 0xea, 0x20, 0x4c, 0x8b, 0x06, 0x4c, 0x8b, 0x4e, 0x08, 0x4c, 0x8b, 0x56,
	0x10, 0x4c, 0x8b, 0x5e, 0x18, 0x48, 0x8d, 0x76, 0x20, 0x4c, 0x89, 0x07, 0x4c, 0x89,
	0x4f, 0x08, 0x4c, 0x89, 0x57, 0x10, 0x4c, 0x89, 0x5f, 0x18, 0x48, 0x8d, 0x7f, 0x20,
};

/* How many instructions from `at` on are the whole of that loop: all or 0. */
static size_t loop_from(const struct qemu_plugin_tb *tb, size_t at, size_t n)
{
	size_t seen = 0, i = at;

	for (; i < n && seen < sizeof(memcpy_loop); i++) {
		uint8_t bytes[16];
		size_t length = qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i), bytes,
						      sizeof(bytes));

		if (length > sizeof(memcpy_loop) - seen || memcmp(bytes, memcpy_loop + seen, length))
			return 0;
		seen += length;
	}
	return seen == sizeof(memcpy_loop) ? i - at : 0;
}

/* Bytes one repetition of a `rep movs` (then with COPIES) or `rep stos` moves; 0 for any other. */
static unsigned int bulk_kind(const uint8_t *insn, size_t length)
{
	bool rep = false, rex_w = false, word = false;
	unsigned int width;

	for (size_t i = 0; i < length; i++) {
		switch (insn[i]) {
		case 0xf2: case 0xf3:
			rep = true;
			break;
		case 0x66:
			word = true;
			break;
		case 0x67: case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65:
			break;
		case 0x40 ... 0x4f:
			rex_w = insn[i] & 8;
			break;
		case 0xa4: case 0xa5: case 0xaa: case 0xab:
			if (!rep)
				return 0;
			width = !(insn[i] & 1) ? 1 : rex_w ? 8 : word ? 2 : 4;
			return insn[i] < 0xa8 ? width | COPIES : width;
		default:
			return 0;
		}
	}
	return 0;
}

static void on_reset(qemu_plugin_id_t id)
{
	watching = wanted;
	if (watching) {
		for (unsigned int i = 0; i < opt.vcpus; i++) {
			memset(vcpus[i].l1, 0xff, sizeof(vcpus[i].l1));
			memset(vcpus[i].stream, 0xff, sizeof(vcpus[i].stream));
		}
	}
	install(id);
	report_mark(watching ? "watch:on" : "watch:off");
}

static void magic_watch(unsigned int cpu, void *on)
{
	(void)cpu;
	wanted = on != NULL;
	if (wanted != watching)
		qemu_plugin_reset(self, on_reset);
}

static uint64_t read_register(struct qemu_plugin_register *reg, GByteArray *buf)
{
	uint64_t value = 0;

	g_byte_array_set_size(buf, 0);
	if (reg && qemu_plugin_read_register(reg, buf) > 0)
		memcpy(&value, buf->data, buf->len < 8 ? buf->len : 8);
	return value;
}

/* The registers needed, looked up on this vCPU's thread the first time they are needed. */
static void find_registers(struct vcpu *v)
{
	GArray *all;

	if (v->rax)
		return;
	all = qemu_plugin_get_registers();
	for (unsigned int i = 0; all && i < all->len; i++) {
		qemu_plugin_reg_descriptor *reg = (qemu_plugin_reg_descriptor *)(void *)all->data + i;

		if (!strcmp(reg->name, "rax"))
			v->rax = reg->handle;
		else if (!strcmp(reg->name, "rdx"))
			v->rdx = reg->handle;
		else if (!strcmp(reg->name, "cr3"))
			v->cr3 = reg->handle;
	}
	if (all)
		g_array_free(all, 1);
}

uint64_t page_table_root(unsigned int cpu)
{
	static __thread GByteArray *buf;

	if (!buf)
		buf = g_byte_array_new();
	find_registers(&vcpus[cpu]);
	return read_register(vcpus[cpu].cr3, buf);
}

static void magic_mark(unsigned int cpu, void *unused)
{
	static __thread GByteArray *buf;
	char name[MARK_BYTES + 1];
	uint64_t at, length;

	(void)unused;
	if (!buf)
		buf = g_byte_array_new();
	find_registers(&vcpus[cpu]);
	at = read_register(vcpus[cpu].rax, buf);
	length = read_register(vcpus[cpu].rdx, buf);
	if (at >= USER_END || length > MARK_BYTES)
		return;
	g_byte_array_set_size(buf, 0);
	if (!qemu_plugin_read_memory_vaddr(at, buf, length))
		return;
	memcpy(name, buf->data, length);
	name[length] = 0;
	report_mark(name);
}

/* `which` is to know the code that %rax and %rdx (bytes) say. */
static void magic_code(unsigned int cpu, void *which)
{
	static __thread GByteArray *buf;
	struct ranges *ranges = which;

	if (!buf)
		buf = g_byte_array_new();
	find_registers(&vcpus[cpu]);
	if (watching || ranges->n == CODE_RANGES) {
		report_mark("code:refused");
		return;
	}
	ranges->range[ranges->n].start = read_register(vcpus[cpu].rax, buf);
	ranges->range[ranges->n].length = read_register(vcpus[cpu].rdx, buf);
	ranges->n++;
}

static bool in_ranges(const struct ranges *ranges, uint64_t vaddr)
{
	for (unsigned int i = 0; i < ranges->n; i++) {
		if (vaddr - ranges->range[i].start < ranges->range[i].length)
			return true;
	}
	return false;
}

static void steer(struct qemu_plugin_insn *insn, const uint8_t *bytes)
{
	static const uint8_t prefix[4] = { 0x0f, 0x1f, 0x84, 0x00 };
	uint32_t what;

	if (memcmp(bytes, prefix, sizeof(prefix)))
		return;
	memcpy(&what, bytes + 4, sizeof(what));
	if (what == MAGIC_START)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, magic_watch, CB_NO_REGS, &watching);
	else if (what == MAGIC_STOP)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, magic_watch, CB_NO_REGS, NULL);
	else if (what == MAGIC_MARK)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, magic_mark, CB_R_REGS, NULL);
	else if (what == MAGIC_TIERING)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, magic_code, CB_R_REGS, &tiering);
}

static void watch_user(struct qemu_plugin_insn *insn)
{
	const uint64_t at = qemu_plugin_insn_vaddr(insn);
	const enum code code = in_ranges(&tiering, at) ? CODE_TIERING : CODE_PROGRAM;

	/* Where there is a PMU, its samples hold a register. */
	qemu_plugin_register_vcpu_mem_cb(insn, user_access, opt.pmu[0] ? CB_R_REGS : CB_NO_REGS,
					 MEM_RW, (void *)(uintptr_t)code);
}

/* `copying`: how many instructions from here on belong to the kernel's memcpy. */
static void watch_kernel(struct qemu_plugin_tb *tb, size_t i, size_t n, size_t *copying)
{
	struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
	uint8_t bytes[16] = { 0 };
	size_t length = qemu_plugin_insn_data(insn, bytes, sizeof(bytes));
	unsigned int kind = bulk_kind(bytes, length);

	if (!*copying)
		*copying = loop_from(tb, i, n);
	if (*copying) {
		--*copying;
		kind = 8 | COPIES;
	}
	if (kind)
		qemu_plugin_register_vcpu_mem_cb(insn, kernel_bulk, CB_NO_REGS, MEM_RW,
						 (void *)(uintptr_t)kind);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	const size_t n = qemu_plugin_tb_n_insns(tb);
	size_t copying = 0;

	(void)id;
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t bytes[16] = { 0 };

		if (qemu_plugin_insn_vaddr(insn) >= USER_END) {
			if (watching)
				watch_kernel(tb, i, n, &copying);
			continue;
		}
		if (qemu_plugin_insn_data(insn, bytes, sizeof(bytes)) == 8)
			steer(insn, bytes);
		if (watching)
			watch_user(insn);
	}
}

static void on_exit_(qemu_plugin_id_t id, void *unused)
{
	(void)id;
	(void)unused;
	report_close();
}

static void install(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit_, NULL);
}

PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
				      char **argv)
{
	if (!info->system_emulation || strcmp(info->target_name, "x86_64"))
		return -1;
	if (options_parse(argc, argv) || llc_init())
		return -1;
	if (info->system.smp_vcpus > (int)opt.vcpus)
		return -1;
	self = id;
	delay_init();
	if (pmu_open() || report_open())
		return -1;
	install(id);
	return 0;
}
