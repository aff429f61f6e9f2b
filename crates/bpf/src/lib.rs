//! Hint faults from the kernel's own scanner, through eBPF.
