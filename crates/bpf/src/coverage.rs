// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program needs of the running kernel, and what of it is missing.

use terrace_sys::probe::btf::KernelBtf;

/// Kernel functions the program attaches to.
pub const NEEDED_FUNCTIONS: [&str; 3] = ["change_prot_numa", "handle_mm_fault", "task_numa_fault"];

/// Trace points it attaches to, by the names of their BTF types.
pub const NEEDED_TRACEPOINTS: [&str; 3] = [
    "btf_trace_sched_process_fork",
    "btf_trace_sched_process_exec",
    "btf_trace_sched_process_exit",
];

/// The names that the kernel's type information does not have.
#[must_use]
pub fn missing(btf: &KernelBtf) -> Vec<&'static str> {
    let functions = NEEDED_FUNCTIONS
        .into_iter()
        .filter(|n| !btf.has_function(n));
    let tracepoints = NEEDED_TRACEPOINTS
        .into_iter()
        .filter(|n| !btf.has_typedef(n));
    functions.chain(tracepoints).collect()
}
