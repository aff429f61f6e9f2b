// SPDX-License-Identifier: MIT OR Apache-2.0
//! What follows from the facts: pure, no question to the machine here.
//!
//! One finding for each thing that a user can want of Terrace, good ones included, in the order in
//! which one would fix them.

use super::Fact;
use super::Facts;
use super::Verdict;

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Works.
    Ok,
    /// Works in part, or it is not sure.
    Limited,
    /// Does not work.
    Missing,
}

impl State {
    /// As `terrace doctor` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// Something that works or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub what: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found, fact by fact; empty where all is well.
    pub found: Vec<String>,
    /// What that means for a run; empty where all is well.
    pub follows: &'static str,
    /// What to do about it; empty where nothing is to be done.
    pub to_do: &'static str,
}

/// One thing and what it takes.
struct Rule {
    what: &'static str,
    /// All of these, or the thing does not work.
    needs: &'static [Fact],
    /// All of these, or it works in part.
    wants: &'static [Fact],
    /// If one of the needs is missing.
    without: (&'static str, &'static str),
    /// If only a want is missing.
    limited: (&'static str, &'static str),
}

const RULES: &[Rule] = &[
    Rule {
        what: "memory tiers",
        needs: &[Fact::MemoryNodes, Fact::MemoryTiers],
        wants: &[],
        without: (
            "there is nothing to tier: `terrace run` needs --fast to split the node in name",
            "check that the slow memory is online as a node of its own (daxctl, numactl -H)",
        ),
        limited: ("", ""),
    },
    Rule {
        what: "the kernel's view of the tiers",
        needs: &[Fact::MemoryTiers],
        wants: &[Fact::KernelTiers],
        without: ("there are no tiers to see", ""),
        limited: (
            "the kernel has all nodes in one tier: its own tiering does nothing, scan mode 2 marks \
             no page, and mode 1 moves pages by itself",
            "firmware must describe the slow memory (HMAT, CDAT); user space cannot change it",
        ),
    },
    Rule {
        what: "hint faults",
        needs: &[
            Fact::NumaBalancing,
            Fact::Btf,
            Fact::FentryTargets,
            Fact::Bpf,
            Fact::PidNamespace,
            Fact::SettingsWritable,
        ],
        wants: &[Fact::PromoteRateLimit],
        without: (
            "policies that decide by hint faults (terrace policies) promote nothing",
            "run as root outside of a container, on a kernel with CONFIG_NUMA_BALANCING and BTF \
             that is not locked down",
        ),
        limited: (
            "the kernel promotes by itself beside us",
            "use a kernel with numa_balancing_promote_rate_limit_MBps (Linux 6.1)",
        ),
    },
    Rule {
        what: "scan rate",
        needs: &[],
        wants: &[Fact::ScanSettings],
        without: ("", ""),
        limited: (
            "the scanner runs at the kernel's pace (a pass a second to a pass a minute) and is only \
             switched on and off",
            "mount -t debugfs none /sys/kernel/debug, on a kernel that is not locked down",
        ),
    },
    Rule {
        what: "page transactions (agent)",
        needs: &[
            Fact::Uffd,
            Fact::UffdKernelFaults,
            Fact::UffdWriteProtect,
            Fact::UffdMove,
        ],
        wants: &[Fact::PagemapScan, Fact::CapSysPtrace],
        without: (
            "no transactional promotion, no shadow pages, no exchange: pages move by move_pages, \
             which stops who touches them meanwhile",
            "use Linux 6.8 or newer, and run as root, or permit /dev/userfaultfd \
             (chmod or an ACL), or set vm.unprivileged_userfaultfd=1",
        ),
        limited: (
            "children of a managed program do without the agent, or ranges are inspected page by \
             page",
            "run as root on Linux 6.7 or newer",
        ),
    },
    Rule {
        what: "hint faults of chosen pages",
        needs: &[],
        wants: &[Fact::UffdReadProtect],
        without: ("", ""),
        limited: (
            "no policy can have pages of its choice armed: a parameter that asks for it is refused",
            "use a kernel with CONFIG_USERFAULTFD_RWP (Linux 7.3)",
        ),
    },
    Rule {
        what: "ordinary migration (move_pages)",
        needs: &[Fact::MovePages],
        wants: &[Fact::CapSysPtrace, Fact::CapSysNice],
        without: (
            "processes without the agent cannot be tiered",
            "leave the sandbox that forbids move_pages",
        ),
        limited: (
            "only processes of this user, and pages that one process alone maps, can be moved",
            "run as root, or with CAP_SYS_PTRACE and CAP_SYS_NICE",
        ),
    },
    Rule {
        what: "the kernel's demotion",
        needs: &[],
        wants: &[Fact::Demotion],
        without: ("", ""),
        limited: (
            "under pressure the kernel swaps or kills where it could demote",
            "use a kernel with /sys/kernel/mm/numa/demotion_enabled (Linux 5.18)",
        ),
    },
    Rule {
        what: "nobody else moves pages",
        needs: &[],
        wants: &[Fact::NoNumad, Fact::NumaBalancingIdle],
        without: ("", ""),
        limited: (
            "numad moves programs against us; NUMA balancing is taken over when a run has pages to \
             move and put back after it",
            "systemctl stop numad; sysctl kernel.numa_balancing=0 for a fair comparison",
        ),
    },
    Rule {
        what: "huge pages",
        needs: &[],
        wants: &[Fact::HugePages],
        without: ("", ""),
        limited: (
            "every page is 4 KiB: more faults and more to keep track of",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    },
    Rule {
        what: "many mappings",
        needs: &[],
        wants: &[Fact::MaxMapCount],
        without: ("", ""),
        limited: (
            "programs with many scattered transactions can run out of mappings; the agent then \
             leaves ranges alone",
            "sysctl vm.max_map_count=1048576",
        ),
    },
    Rule {
        what: "the lab's tools",
        needs: &[],
        wants: &[Fact::Qemu, Fact::Clang, Fact::LabTools],
        without: ("", ""),
        limited: (
            "the emulated machine (make demo) cannot be built or booted; runs are not concerned",
            "scripts/setup in a clone of the repository installs them",
        ),
    },
];

/// What follows from the facts.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    RULES.iter().map(|rule| apply(rule, facts)).collect()
}

fn apply(rule: &Rule, facts: &Facts) -> Finding {
    let not_so = |wanted: &[Fact]| {
        let open = wanted.iter().filter(|f| !facts.has(**f));
        open.copied().collect::<Vec<_>>()
    };
    let (needs, wants) = (not_so(rule.needs), not_so(rule.wants));
    let certain = needs.iter().any(|f| facts.verdict(*f) == Verdict::No);
    let (state, (follows, to_do)) = if certain {
        (State::Missing, rule.without)
    } else if !needs.is_empty() {
        // It may work: that could not be told.
        (State::Limited, rule.without)
    } else if !wants.is_empty() {
        (State::Limited, rule.limited)
    } else {
        (State::Ok, ("", ""))
    };
    let found = needs.iter().chain(&wants).map(|f| describe(*f, facts));
    Finding {
        what: rule.what,
        state,
        found: found.collect(),
        follows,
        to_do,
    }
}

fn describe(fact: Fact, facts: &Facts) -> String {
    let answer = match facts.verdict(fact) {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::Unknown => "could not tell",
    };
    match facts.detail(fact) {
        "" => format!("{}: {answer}", fact.name()),
        detail => format!("{}: {answer} ({detail})", fact.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(facts: &Facts, what: &str) -> Finding {
        let all = findings(facts);
        all.into_iter().find(|f| f.what == what).unwrap()
    }

    #[test]
    fn nothing_to_say_where_everything_is_so() {
        for finding in findings(&Facts::all_yes()) {
            assert_eq!(finding.state, State::Ok, "{finding:?}");
            assert!(finding.found.is_empty() && finding.follows.is_empty());
        }
    }

    #[test]
    fn every_fact_off_changes_a_finding_and_says_what_follows() {
        // What is only shown, and what decides together with another.
        let shown_only = [
            Fact::Kernel,
            Fact::UffdUnprivileged,
            Fact::CapSysAdmin,
            Fact::CapBpf,
            Fact::CapPerfmon,
            Fact::Swap,
            // `terrace doctor` asks the tracker, which knows the events.
            Fact::Pmu,
            Fact::Damon,
            Fact::IdlePages,
        ];
        for fact in Fact::ALL.iter().filter(|f| !shown_only.contains(f)) {
            let facts = Facts::all_yes().with(*fact, Verdict::No, "because");
            let bad: Vec<_> = findings(&facts)
                .into_iter()
                .filter(|f| f.state != State::Ok)
                .collect();
            assert!(!bad.is_empty(), "{fact:?}");
            for finding in bad {
                let found = format!("{}: no (because)", fact.name());
                assert_eq!(finding.found, [found]);
                assert!(!finding.follows.is_empty(), "{finding:?}");
            }
        }
    }

    #[test]
    fn doubt_is_not_missing() {
        let facts = Facts::all_yes().with(Fact::UffdMove, Verdict::Unknown, "");
        let agent = finding(&facts, "page transactions (agent)");
        assert_eq!(agent.state, State::Limited);
        assert_eq!(agent.found, ["uffd_move: could not tell"]);
        let facts = facts.with(Fact::Uffd, Verdict::No, "");
        assert_eq!(
            finding(&facts, "page transactions (agent)").state,
            State::Missing
        );
    }

    #[test]
    fn one_tier_of_the_kernel_is_said_plainly() {
        let facts = Facts::all_yes().with(Fact::KernelTiers, Verdict::No, "1 tier");
        let view = finding(&facts, "the kernel's view of the tiers");
        assert_eq!(view.state, State::Limited);
        assert!(view.follows.contains("mode 2 marks no page"));
        assert_eq!(finding(&facts, "memory tiers").state, State::Ok);
    }
}
