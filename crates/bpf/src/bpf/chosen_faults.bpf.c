// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watches for the next access of pages that were armed one by one
 * (UFFDIO_RWPROTECT, by the agent in the process).
 *
 * The kernel answers such a fault by itself and tells nobody. So user space
 * enters a page into `chosen` before it is armed, and the first fault at an
 * address in it is reported and takes the entry out again:
 *
 *   exceptions:page_fault_user	an access of the program
 *   exceptions:page_fault_kernel	one of the kernel's to its memory, as by read(2)
 *
 * A page without access is not there for the processor, so a fault that says
 * otherwise (a write to a page that is read-only) is none of an armed page.
 *
 * Cost: a process of which no page is armed pays one hash lookup per page
 * fault. A record that finds no room is counted, and the entry stays.
 */
#include <linux/types.h>
#include <stdbool.h>

/* The map types and flags that are used; uapi linux/bpf.h has them all. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "chosen_faults.h"

/* arch/x86/include/asm/trap_pf.h, the processor's error code. */
#define X86_PF_PROT (1 << 0)
#define X86_PF_WRITE (1 << 1)

struct pt_regs;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);	/* bytes: all of `chosen` fits */
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);		/* tgid */
	__type(value, __u32);		/* enum chosen_sizes */
} sizes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);	/* PAGES_MAX of ../chosen_faults.rs */
	__type(key, struct chosen_page);
	__type(value, __u8);
} chosen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static void count_lost(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &zero);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Whether the page was armed. */
static bool report(struct chosen_page *page, __u64 now, __u32 tid, bool write)
{
	struct chosen_record *r;

	if (!bpf_map_lookup_elem(&chosen, page))
		return false;
	r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		count_lost();
		return true;
	}
	/* Another thread may have met the same page at the same time. */
	if (bpf_map_delete_elem(&chosen, page)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return true;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->time = now;
	r->page = *page;
	r->tid = tid;
	r->cpu = bpf_get_smp_processor_id();
	r->cpu_node = bpf_get_numa_node_id();
	r->write = write;
	/* The reader comes round by itself: to wake it costs the task more. */
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return true;
}

static void on_fault(unsigned long address, unsigned long error_code)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	bool write = error_code & X86_PF_WRITE;
	struct chosen_page page = {};
	__u32 *wanted;
	__u64 now;

	if (error_code & X86_PF_PROT)
		return;
	wanted = bpf_map_lookup_elem(&sizes, &tgid);
	if (!wanted)
		return;
	now = bpf_ktime_get_ns();
	page.tgid = tgid;
	if (*wanted & CHOSEN_BASE) {
		page.shift = 12;
		page.start = address >> 12 << 12;
		if (report(&page, now, (__u32)id, write))
			return;
	}
	if (*wanted & CHOSEN_HUGE) {
		page.shift = 21;
		page.start = address >> 21 << 21;
		report(&page, now, (__u32)id, write);
	}
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_user_fault, unsigned long address, struct pt_regs *regs,
	     unsigned long error_code)
{
	on_fault(address, error_code);
	return 0;
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(on_kernel_fault, unsigned long address, struct pt_regs *regs,
	     unsigned long error_code)
{
	on_fault(address, error_code);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
