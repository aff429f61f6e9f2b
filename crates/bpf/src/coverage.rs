// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program needs of the running kernel, and what of it is missing.
//!
//! The names stand in terrace-sys, where `terrace doctor` finds them too; the test here holds them
//! against the program's source.

use terrace_sys::probe::btf::KernelBtf;

/// The names that the kernel's type information does not have.
#[must_use]
pub fn missing(btf: &KernelBtf) -> Vec<&'static str> {
    btf.missing_for_hint_faults()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use terrace_sys::probe::btf::HINT_FAULT_FUNCTIONS;
    use terrace_sys::probe::btf::HINT_FAULT_TRACEPOINTS;

    /// Every place the program attaches to is checked for, and nothing else is.
    #[test]
    fn names_are_those_of_the_program() {
        let source = include_str!("bpf/hint_faults.bpf.c");
        let attached: BTreeSet<String> = source
            .lines()
            .filter_map(|l| l.strip_prefix("SEC(\"")?.split_once("\")"))
            .filter_map(|(section, _)| section.split_once('/'))
            .map(|(kind, name)| match kind {
                "tp_btf" => format!("btf_trace_{name}"),
                _ => name.to_owned(),
            })
            .collect();
        let checked = HINT_FAULT_FUNCTIONS
            .into_iter()
            .chain(HINT_FAULT_TRACEPOINTS);
        assert_eq!(attached, checked.map(str::to_owned).collect());
    }
}
