// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `terrace doctor` says of accessed bits: whether they can be read, how, and what a process would cost.

use terrace_core::Pid;
use terrace_sys::probe::Fact;
use terrace_sys::probe::OFF_VARIABLE;
use terrace_sys::probe::rules::Finding;
use terrace_sys::probe::rules::State;
use terrace_track::TrackError;
use terrace_track::accessed_bits::ProcessCost;
use terrace_track::accessed_bits::Survey;
use terrace_track::accessed_bits::survey;

pub(super) const WHAT: &str = "accessed bits of all pages";

/// Asks, unless BPF is forced off.
pub(super) fn finding(off: &[Fact], process: Option<Pid>) -> Finding {
    if off.contains(&Fact::Bpf) {
        return missing(format!("bpf: no (switched off by {OFF_VARIABLE})"));
    }
    judge(survey(process))
}

fn judge(found: Result<Survey, TrackError>) -> Finding {
    let found = match found {
        Ok(found) => found,
        Err(error) => return missing(format!("{:#}", anyhow::Error::from(error))),
    };
    let how = if found.searched {
        "found by trying"
    } else {
        "by the kernel's word"
    };
    let mut lines = vec![format!(
        "read by BPF, cleared by MADV_COLD; the kernel maps all memory at {:#x}, {how}",
        found.direct_map
    )];
    lines.extend(found.process.map(cost));
    Finding {
        what: WHAT,
        state: State::Ok,
        found: lines,
        follows: "",
        to_do: "",
    }
}

fn cost(cost: ProcessCost) -> String {
    format!(
        "the process has {} pages of 4 KiB and {} of 2 MiB; reading all takes {:.2} ms, a pass a second about {:.2} % \
         of a processor, and of the program at most {:.2} ms",
        cost.base,
        cost.huge,
        cost.read.as_secs_f64() * 1e3,
        cost.pass.as_secs_f64() * 1e2,
        cost.set.as_secs_f64() * 1e3
    )
}

fn missing(found: String) -> Finding {
    Finding {
        what: WHAT,
        state: State::Missing,
        found: vec![found],
        follows: "the default policy promotes nothing; take one that decides by samples of a PMU (terrace policies)",
        to_do: "run as root on x86-64 with Linux 6.1 or newer, with BTF, outside of a container, on a kernel that \
                is not locked down",
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Nanos;

    use super::*;

    #[test]
    fn what_a_process_costs_is_said_in_people_s_units() {
        let process = Some(ProcessCost {
            base: 51_200,
            huge: 3,
            read: Nanos(140_000),
            pass: Nanos(4_600_000),
            set: Nanos(12_000_000),
        });
        let survey = Survey {
            direct_map: 0xffff_8880_0000_0000,
            searched: true,
            process,
        };
        let finding = judge(Ok(survey));
        assert_eq!(finding.state, State::Ok);
        assert!(
            finding.found[0].contains("0xffff888000000000, found by trying"),
            "{finding:?}"
        );
        assert!(
            finding.found[1].contains("0.14 ms, a pass a second about 0.46 %"),
            "{finding:?}"
        );
        assert!(
            finding.found[1].ends_with("of the program at most 12.00 ms"),
            "{finding:?}"
        );
    }

    #[test]
    fn what_is_missing_follows_for_the_default() {
        let finding = finding(&[Fact::Bpf], None);
        assert_eq!(finding.state, State::Missing);
        assert!(finding.found[0].contains(OFF_VARIABLE));
    }
}
