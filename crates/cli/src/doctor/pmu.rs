// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `terrace doctor` says of the PMU: which events see accesses here, and what follows. The
//! table of events is the tracker's, so this is asked of it, not of the probes.

use std::path::Path;

use terrace_sys::ivshmem;
use terrace_sys::probe::Fact;
use terrace_sys::probe::OFF_VARIABLE;
use terrace_sys::probe::rules::Finding;
use terrace_sys::probe::rules::State;
use terrace_track::PmuConfig;
use terrace_track::pmu::PmuError;
use terrace_track::pmu::Survey;
use terrace_track::pmu::survey;

const WHAT: &str = "PMU sampling";
const WITHOUT: &str = "policies that decide by samples (terrace policies) take hint faults instead, \
                       each of which costs the program a fault";

/// Asks, unless it is forced off.
pub(super) fn finding(off: &[Fact]) -> Finding {
    if off.contains(&Fact::Pmu) {
        return Finding {
            what: WHAT,
            state: State::Limited,
            found: vec![format!("pmu: no (switched off by {OFF_VARIABLE})")],
            follows: WITHOUT,
            to_do: "",
        };
    }
    let emulated = !ivshmem::devices(Path::new("/")).is_empty();
    judge(&survey(&PmuConfig::default()), emulated)
}

/// `emulated`: there is memory in which an emulator leaves samples, which serve as well.
fn judge(survey: &Survey, emulated: bool) -> Finding {
    let (state, follows, to_do) = match &survey.error {
        Some(_) if emulated => (State::Ok, "", ""),
        Some(error) => (State::Limited, WITHOUT, remedy(error)),
        None if survey.per_cpu != Some(true) => (
            State::Limited,
            "each thread of a program takes events of its own, and nodes are asked for page by page",
            "run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0",
        ),
        None if !survey.physical => (
            State::Limited,
            "samples come without physical addresses, so nodes are asked for page by page",
            "run as root or with CAP_PERFMON",
        ),
        None => (State::Ok, "", ""),
    };
    Finding {
        what: WHAT,
        state,
        found: found(survey, emulated),
        follows,
        to_do,
    }
}

fn found(survey: &Survey, emulated: bool) -> Vec<String> {
    let mut found = Vec::new();
    if emulated {
        found.push("the emulator's PMU: usable".to_owned());
    }
    let row = survey.row.as_deref().unwrap_or("unknown");
    match &survey.cpu {
        Some(cpu) => found.push(format!("processor: {cpu}; events: {row}")),
        None => found.push(format!("processor: it does not say; events: {row}")),
    }
    for event in &survey.events {
        let state = event.refused.as_deref().unwrap_or(if event.fallback {
            "usable, in place of others"
        } else {
            "usable"
        });
        found.push(format!("{}: {state}", event.name));
    }
    found
}

const fn remedy(error: &PmuError) -> &'static str {
    match error {
        PmuError::NotPermitted { .. } => {
            "run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0"
        }
        PmuError::NoPerf(_) => {
            "use a kernel with CONFIG_PERF_EVENTS, outside of sandboxes that forbid perf_event_open"
        }
        PmuError::UnknownCpu { .. } => "add a row to the event table (docs/pmu.md)",
        PmuError::NoPmu { .. } | PmuError::NoEvent { .. } => {
            "run on hardware with Intel's PEBS or AMD's IBS, or have the host pass them on"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use terrace_track::pmu::EventState;

    use super::*;

    fn usable() -> Survey {
        Survey {
            row: Some("Intel Ice Lake-SP".to_owned()),
            events: vec![EventState {
                name: "LOADS".to_owned(),
                refused: None,
                fallback: false,
            }],
            per_cpu: Some(true),
            physical: true,
            ..Survey::default()
        }
    }

    #[test]
    fn what_works_is_named() {
        let finding = judge(&usable(), false);
        assert_eq!((finding.state, finding.to_do), (State::Ok, ""));
        assert_eq!(finding.found[1], "LOADS: usable");
    }

    #[test]
    fn what_is_missing_limits_and_is_no_failure() {
        let none = Survey {
            error: Some(PmuError::NoPmu {
                pmu: "cpu".to_owned(),
                row: "x".to_owned(),
                have: String::new(),
            }),
            ..usable()
        };
        let process = Survey {
            per_cpu: Some(false),
            ..usable()
        };
        let virtual_only = Survey {
            physical: false,
            ..usable()
        };
        for survey in [none, process, virtual_only] {
            let finding = judge(&survey, false);
            assert_eq!(finding.state, State::Limited);
            assert!(!finding.follows.is_empty() && !finding.to_do.is_empty());
        }
    }

    #[test]
    fn the_emulators_pmu_is_as_good() {
        let error = Some(PmuError::NoPmu {
            pmu: "cpu".to_owned(),
            row: "x".to_owned(),
            have: String::new(),
        });
        let finding = judge(&Survey { error, ..usable() }, true);
        assert_eq!((finding.state, finding.to_do), (State::Ok, ""));
        assert!(finding.found[0].contains("emulator"), "{finding:?}");
    }

    #[test]
    fn it_can_be_forced_off() {
        let finding = finding(&[Fact::Pmu]);
        assert!(finding.found[0].contains(OFF_VARIABLE), "{finding:?}");
        assert_eq!(finding.state, State::Limited);
    }
}
