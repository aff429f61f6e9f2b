// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the running kernel and this process can do, found by trying.
//!
//! Facts only ([`Facts`]): each is yes, no, or "could not tell", with the reason. What follows from
//! them is in [`rules`], which is pure. Features are probed by using them, never concluded from a
//! version. Every fact can be forced off ([`OFF_VARIABLE`]), so that what replaces a feature can
//! be tested where the feature exists.
//!
//! Probing changes nothing: what it opens it closes. [`btf`], [`bpf`], [`caps`], [`namespace`] and
//! [`memory`] are the ways of asking.

pub mod bpf;
pub mod btf;
pub mod caps;
mod gather;
pub mod memory;
pub mod namespace;
pub mod rules;

use std::collections::BTreeMap;

use thiserror::Error;

/// Names of facts, separated by commas, that are taken for "no" whatever is the case.
pub const OFF_VARIABLE: &str = "TERRACE_PROBE_OFF";

macro_rules! facts {
    ($($variant:ident $name:literal $text:literal,)*) => {
        /// Something that is or is not so on this machine.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fact { $(#[doc = $text] $variant,)* }

        impl Fact {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name, as in the JSON of `terrace doctor`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it says if it is so.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

facts! {
    Kernel "kernel" "The kernel is Linux.",
    MemoryNodes "memory_nodes" "There are two or more nodes with memory.",
    MemoryTiers "memory_tiers" "The nodes form two or more tiers.",
    KernelTiers "kernel_tiers" "The kernel sees two or more tiers, too.",
    NumaBalancing "numa_balancing" "The kernel has NUMA balancing, with tiering modes.",
    NumaBalancingIdle "numa_balancing_idle" "NUMA balancing is off until somebody switches it on.",
    PromoteRateLimit "promote_rate_limit" "The kernel's own promotion can be limited.",
    ScanSettings "scan_settings" "The scanner's periods can be read and set (debugfs).",
    SettingsWritable "settings_writable" "Kernel settings may be changed.",
    Demotion "demotion" "The kernel can demote instead of swapping.",
    Btf "btf" "The kernel describes its types (BTF).",
    FentryTargets "fentry_targets" "The kernel has the functions that the BPF program watches.",
    Bpf "bpf" "BPF programs that watch kernel functions may be loaded.",
    PidNamespace "pid_namespace" "Process ids are those that the kernel reports.",
    Uffd "uffd" "userfaultfd exists.",
    UffdKernelFaults "uffd_kernel_faults" "userfaultfd may handle faults that the kernel takes.",
    UffdWriteProtect "uffd_wp" "userfaultfd can write-protect.",
    UffdMove "uffd_move" "userfaultfd can move pages.",
    UffdReadProtect "uffd_rwp" "userfaultfd can protect against reads, too.",
    UffdUnprivileged "uffd_unprivileged" "Programs without privilege may use userfaultfd in full.",
    PagemapScan "pagemap_scan" "The page map can be scanned (PAGEMAP_SCAN).",
    MovePages "move_pages" "Pages can be asked for and moved (move_pages).",
    CapSysAdmin "cap_sys_admin" "This process has CAP_SYS_ADMIN.",
    CapSysPtrace "cap_sys_ptrace" "This process has CAP_SYS_PTRACE.",
    CapSysNice "cap_sys_nice" "This process has CAP_SYS_NICE.",
    CapBpf "cap_bpf" "This process has CAP_BPF.",
    CapPerfmon "cap_perfmon" "This process has CAP_PERFMON.",
    HugePages "huge_pages" "Transparent huge pages are in use.",
    MaxMapCount "max_map_count" "A process may have many mappings.",
    Swap "swap" "There is swap.",
    NoNumad "no_numad" "numad does not run.",
    Pmu "pmu" "There is a PMU that samples memory accesses.",
    Damon "damon" "The kernel has DAMON.",
    IdlePages "idle_pages" "The kernel has idle page tracking.",
    Qemu "qemu" "The lab's emulator is installed, new enough for its plugin.",
    Clang "clang" "The compiler for BPF programs is installed.",
    LabTools "lab_tools" "What the lab runs beside is installed.",
}

impl Fact {
    /// The fact of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }
}

/// The three answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// That could not be found out.
    Unknown,
}

/// An answer, with what was seen or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether it is so.
    pub verdict: Verdict,
    /// What was seen, or why not; may be empty.
    pub detail: String,
}

impl Answer {
    fn new(verdict: Verdict, detail: impl Into<String>) -> Self {
        Self {
            verdict,
            detail: detail.into(),
        }
    }

    fn yes(detail: impl Into<String>) -> Self {
        Self::new(Verdict::Yes, detail)
    }

    fn no(detail: impl Into<String>) -> Self {
        Self::new(Verdict::No, detail)
    }

    fn unknown(detail: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, detail)
    }

    fn is(so: bool, detail: impl Into<String>) -> Self {
        Self::new(if so { Verdict::Yes } else { Verdict::No }, detail)
    }
}

/// A fact was to be forced off that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{OFF_VARIABLE}: there is no fact '{0}'; `terrace doctor --json` lists them")]
pub struct NoSuchFact(pub String);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    answers: BTreeMap<Fact, Answer>,
}

impl Facts {
    /// Asks this machine everything. Facts in `off` are not asked, they are "no".
    #[must_use]
    pub fn gather(off: &[Fact]) -> Self {
        let answers = Fact::ALL.iter().map(|fact| {
            let answer = if off.contains(fact) {
                Answer::no(format!("switched off by {OFF_VARIABLE}"))
            } else {
                gather::ask(*fact)
            };
            (*fact, answer)
        });
        Self {
            answers: answers.collect(),
        }
    }

    /// Made-up ones, for tests: everything is so.
    #[must_use]
    pub fn all_yes() -> Self {
        let answers = Fact::ALL.iter().map(|f| (*f, Answer::yes("")));
        Self {
            answers: answers.collect(),
        }
    }

    /// With another answer to one of them.
    #[must_use]
    pub fn with(mut self, fact: Fact, verdict: Verdict, detail: &str) -> Self {
        self.answers.insert(fact, Answer::new(verdict, detail));
        self
    }

    /// The verdict; not asked is "could not tell".
    #[must_use]
    pub fn verdict(&self, fact: Fact) -> Verdict {
        self.answers
            .get(&fact)
            .map_or(Verdict::Unknown, |a| a.verdict)
    }

    /// Whether it is so beyond doubt.
    #[must_use]
    pub fn has(&self, fact: Fact) -> bool {
        self.verdict(fact) == Verdict::Yes
    }

    /// What was seen, or why not.
    #[must_use]
    pub fn detail(&self, fact: Fact) -> &str {
        self.answers.get(&fact).map_or("", |a| a.detail.as_str())
    }

    /// All facts with their answers.
    pub fn iter(&self) -> impl Iterator<Item = (Fact, &Answer)> {
        self.answers.iter().map(|(fact, answer)| (*fact, answer))
    }
}

/// Whether a single fact is so, without asking for all of them; [`OFF_VARIABLE`] applies.
///
/// # Errors
///
/// Where the variable names a fact that does not exist.
pub fn ask(fact: Fact) -> Result<Answer, NoSuchFact> {
    if forced_off()?.contains(&fact) {
        return Ok(Answer::no(format!("switched off by {OFF_VARIABLE}")));
    }
    Ok(gather::ask(fact))
}

/// What [`OFF_VARIABLE`] forces off.
///
/// # Errors
///
/// Where it names a fact that does not exist.
pub fn forced_off() -> Result<Vec<Fact>, NoSuchFact> {
    parse_off(&std::env::var(OFF_VARIABLE).unwrap_or_default())
}

fn parse_off(names: &str) -> Result<Vec<Fact>, NoSuchFact> {
    let names = names.split(',').map(str::trim).filter(|n| !n.is_empty());
    names
        .map(|n| Fact::from_name(n).ok_or_else(|| NoSuchFact(n.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_can_be_switched_off_by_name() {
        assert_eq!(parse_off(""), Ok(vec![]));
        assert_eq!(
            parse_off("uffd_move, bpf"),
            Ok(vec![Fact::UffdMove, Fact::Bpf])
        );
        assert_eq!(
            parse_off("uffd-move"),
            Err(NoSuchFact("uffd-move".to_owned()))
        );
        let facts = Facts::gather(&[Fact::Kernel]);
        assert_eq!(facts.verdict(Fact::Kernel), Verdict::No);
        assert!(facts.detail(Fact::Kernel).contains(OFF_VARIABLE));
    }

    #[test]
    fn names_are_unique() {
        for fact in Fact::ALL {
            assert_eq!(Fact::from_name(fact.name()), Some(*fact));
        }
    }

    #[test]
    fn this_machine_answers_everything_with_a_reason() {
        let facts = Facts::gather(&[]);
        assert_eq!(facts.iter().count(), Fact::ALL.len());
        assert!(facts.has(Fact::Kernel));
        assert!(
            facts
                .detail(Fact::Kernel)
                .starts_with(|c: char| c.is_ascii_digit())
        );
        for (fact, answer) in facts.iter() {
            eprintln!("{:20} {:?} {}", fact.name(), answer.verdict, answer.detail);
            assert!(
                answer.verdict == Verdict::Yes || !answer.detail.is_empty(),
                "{fact:?}"
            );
        }
    }
}
