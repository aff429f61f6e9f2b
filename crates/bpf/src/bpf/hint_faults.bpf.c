// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watches the kernel's NUMA-balancing scanner and the hint faults it causes.
 *
 * The kernel does the marking (kernel.numa_balancing, debugfs
 * sched/numa_balancing); this program only reports, and only for the processes
 * in `managed`:
 *
 *   change_prot_numa(vma, addr, end)	a scan of a range begins
 *   handle_mm_fault(vma, addr, flags)	remembers the address, per task
 *   task_numa_fault(.., node, pages, ..)	that fault was a hint fault
 *
 * Everything else is user space's business: which scan a fault belongs to, what
 * is hot, what to move. Fork, exec and exit of managed processes are reported
 * so that their children can be managed and their state dropped.
 *
 * Cost: a process that is not managed pays one hash lookup per page fault. A
 * record that finds no room is counted in `lost` by its kind, never waited for.
 */
#include <linux/types.h>
#include <stdbool.h>

/* The map types and flags that are used; uapi linux/bpf.h has them all. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "hint_faults.h"

/* The few kernel fields that are looked at, relocated at load (CO-RE). */
#define RELOCATED __attribute__((preserve_access_index))

typedef struct {
	int counter;
} atomic_t;

struct mm_struct;

struct signal_struct {
	atomic_t live;
} RELOCATED;

struct task_struct {
	int pid;
	int tgid;
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct signal_struct *signal;
} RELOCATED;

struct vm_area_struct;
struct linux_binprm;

/* include/linux/mm_types.h and kernel/sched/sched.h: stable since 5.x. */
#define FAULT_FLAG_WRITE (1 << 0)
#define FAULT_FLAG_REMOTE (1 << 7)
#define TNF_MIGRATED 0x01

/* What the fault handler knows and the accounting of the fault does not. */
struct pending {
	__u64 address;	/* 0: nothing pending */
	__u64 since;	/* ns */
	__u32 write;
	__u32 pad;
};

const volatile struct hint_config config = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);	/* bytes; user space may set another */
	__uint(map_flags, BPF_F_NUMA_NODE);	/* node 0; user space may set another */
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);		/* tgid */
	__type(value, __u32);		/* enum hint_managed */
} managed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pending);
} pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NR_HINT_KINDS);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static void count_lost(__u32 kind)
{
	__u64 *count = bpf_map_lookup_elem(&lost, &kind);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* A record with all fields set but those special to its kind, or NULL. */
static struct hint_record *reserve(__u8 kind, __u32 tgid, __u32 tid)
{
	__u64 now = bpf_ktime_get_ns();
	struct hint_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	if (!r) {
		count_lost(kind);
		return NULL;
	}
	r->time = now;
	r->start = 0;
	r->end = 0;
	r->tgid = tgid;
	r->tid = tid;
	r->peer = 0;
	r->cpu = bpf_get_smp_processor_id();
	r->node = HINT_NO_NODE;
	r->pages = 0;
	r->kind = kind;
	r->flags = 0;
	r->cpu_node = bpf_get_numa_node_id();
	return r;
}

/*
 * A wake-up costs the faulting task far more than the record. The reader polls
 * with a timeout and is woken early only when much waits for it.
 */
static void submit(struct hint_record *r)
{
	__u64 waiting = bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);

	bpf_ringbuf_submit(r, waiting >= config.wakeup_bytes ?
				      BPF_RB_FORCE_WAKEUP :
				      BPF_RB_NO_WAKEUP);
}

/* The scanner runs as task work, so the current process is the one scanned. */
SEC("fentry/change_prot_numa")
int BPF_PROG(on_scan, struct vm_area_struct *vma, unsigned long address,
	     unsigned long end)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	struct hint_record *r;

	if (!bpf_map_lookup_elem(&managed, &tgid))
		return 0;
	r = reserve(HINT_SCAN, tgid, (__u32)id);
	if (!r)
		return 0;
	r->start = address;
	r->end = end;
	submit(r);
	return 0;
}

SEC("fentry/handle_mm_fault")
int BPF_PROG(on_fault, struct vm_area_struct *vma, unsigned long address,
	     unsigned int flags)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct pending *p;

	/* A remote fault is in another process's address space. */
	if (flags & FAULT_FLAG_REMOTE)
		return 0;
	if (!bpf_map_lookup_elem(&managed, &tgid))
		return 0;
	p = bpf_task_storage_get(&pending, bpf_get_current_task_btf(), NULL,
				 BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!p)
		return 0;	/* counted in on_hint, if it was one */
	p->address = address;
	p->since = bpf_ktime_get_ns();
	p->write = flags & FAULT_FLAG_WRITE;
	return 0;
}

SEC("fentry/task_numa_fault")
int BPF_PROG(on_hint, int last_cpupid, int node, int pages, int flags)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	struct hint_record *r;
	struct pending *p;

	p = bpf_task_storage_get(&pending, bpf_get_current_task_btf(), NULL, 0);
	if (!p || !p->address) {
		if (bpf_map_lookup_elem(&managed, &tgid))
			count_lost(HINT_FAULT);
		return 0;
	}
	r = reserve(HINT_FAULT, tgid, (__u32)id);
	if (r) {
		r->start = p->address;
		r->end = p->since;
		r->node = node;
		r->pages = pages;
		r->flags = (p->write ? HINT_WRITE : 0) |
			   (flags & TNF_MIGRATED ? HINT_MIGRATED : 0);
		submit(r);
	}
	p->address = 0;
	return 0;
}

static bool manage_child(__u32 parent, __u32 child)
{
	__u32 *wanted = bpf_map_lookup_elem(&managed, &parent);
	struct hint_record *r;
	__u32 inherited;

	if (!wanted || !(*wanted & HINT_FOLLOW))
		return false;
	inherited = *wanted;
	if (bpf_map_update_elem(&managed, &child, &inherited, BPF_ANY)) {
		count_lost(HINT_FORK);
		return false;
	}
	r = reserve(HINT_FORK, child, child);
	if (r) {
		r->peer = parent;
		submit(r);
	}
	return true;
}

/*
 * A child that still runs in its parent's address space (vfork) is taken in
 * when it calls exec: until then its faults are none of its own.
 */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	if (child->tgid != parent->tgid && child->mm != parent->mm)
		manage_child(parent->tgid, child->tgid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid,
	     struct linux_binprm *bprm)
{
	__u32 tgid = task->tgid;
	struct hint_record *r;

	if (!bpf_map_lookup_elem(&managed, &tgid) &&
	    !manage_child(task->real_parent->tgid, tgid))
		return 0;
	r = reserve(HINT_EXEC, tgid, tgid);
	if (r)
		submit(r);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct hint_record *r;

	/* Threads end one by one; the last one takes the entry with it. */
	if (task->signal->live.counter > 0)
		return 0;
	if (bpf_map_delete_elem(&managed, &tgid))
		return 0;
	r = reserve(HINT_EXIT, tgid, tgid);
	if (r)
		submit(r);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
