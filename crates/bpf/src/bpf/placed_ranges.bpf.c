// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings of one process that have a memory policy of their own (mbind(2))
 * which does not let the kernel's NUMA balancing move them: to the reader as
 * pairs of addresses. An iterator over a task's mappings: each stays as it is
 * while it is looked at.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/mempolicy.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define RELOCATED __attribute__((preserve_access_index))

struct mempolicy {
	unsigned short flags;
} RELOCATED;
struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mempolicy *vm_policy;
} RELOCATED;
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} RELOCATED;
struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct vm_area_struct *vma;
} RELOCATED;

SEC("iter/task_vma")
int placed(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct mempolicy *policy;
	__u64 range[2];

	/* Without CONFIG_NUMA there is no such thing. */
	if (!vma || !bpf_core_field_exists(vma->vm_policy))
		return 0;
	policy = BPF_CORE_READ(vma, vm_policy);
	if (!policy || BPF_CORE_READ(policy, flags) & MPOL_F_MOF)
		return 0;
	range[0] = BPF_CORE_READ(vma, vm_start);
	range[1] = BPF_CORE_READ(vma, vm_end);
	/* Where it is full the kernel comes again with the same mapping. */
	bpf_seq_write(ctx->meta->seq, range, sizeof(range));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
