// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace doctor`: what this machine can do, what is missing and what follows.
//!
//! Exit code 0 where the default preset works in full, 1 where something of it is missing.

mod accessed;
mod pmu;

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use serde::Serialize;
use terrace_core::Pid;
use terrace_supervisor::program::ProgramError;
use terrace_supervisor::program::find_agent;
use terrace_sys::probe;
use terrace_sys::probe::Facts;
use terrace_sys::probe::Verdict;
use terrace_sys::probe::rules;
use terrace_sys::probe::rules::Finding;
use terrace_sys::probe::rules::State;
use terrace_sys::settings;

use crate::Usage;
use crate::args::DoctorArgs;
use crate::out::paragraph;
use crate::out::say;

/// Findings without which the default preset does nothing.
const DEFAULT_NEEDS: [&str; 3] = [
    "memory tiers",
    "ordinary migration (move_pages)",
    accessed::WHAT,
];

#[derive(Serialize)]
struct Report {
    findings: Vec<Row>,
    facts: BTreeMap<&'static str, FactRow>,
    settings_left_changed: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    what: &'static str,
    state: &'static str,
    found: Vec<String>,
    follows: &'static str,
    to_do: &'static str,
}

#[derive(Serialize)]
struct FactRow {
    answer: &'static str,
    detail: String,
}

pub(crate) fn doctor(args: &DoctorArgs) -> anyhow::Result<u8> {
    if args.restore {
        return restore();
    }
    let off = probe::forced_off().map_err(|error| Usage(error.to_string()))?;
    let facts = Facts::gather(&off);
    let mut findings = rules::findings(&facts);
    findings.push(accessed::finding(&off, args.process.map(Pid)));
    findings.push(pmu::finding(&off));
    findings.push(agent(find_agent(None)));
    let stale: Vec<String> = settings::stale(Path::new("/"))
        .unwrap_or_default()
        .into_iter()
        .map(|s| format!("{:?} (was {})", s.setting, s.old))
        .collect();
    let needed = |f: &&Finding| DEFAULT_NEEDS.contains(&f.what);
    let whole = findings
        .iter()
        .filter(needed)
        .all(|f| f.state != State::Missing);
    if args.json.json {
        say!(
            "{}",
            serde_json::to_string_pretty(&report(&facts, &findings, stale))?
        );
    } else {
        for finding in &findings {
            print(finding);
        }
        if !stale.is_empty() {
            say!(
                "changed  kernel settings left by a supervisor that crashed: {}\n         do: terrace doctor --restore",
                stale.join(", ")
            );
        }
    }
    Ok(if whole { 0 } else { 1 })
}

/// Whether the library is where `terrace run` looks for it.
fn agent(found: Result<PathBuf, ProgramError>) -> Finding {
    let (state, found, follows, to_do) = match found {
        Ok(_) => (State::Ok, Vec::new(), "", ""),
        Err(error) => (
            State::Missing,
            vec![error.to_string()],
            "policies that need the agent (terrace policies) start only with --mover move-pages",
            "put libterrace.so beside terrace, or into ../lib/terrace from there",
        ),
    };
    Finding {
        what: "the agent's library",
        state,
        found,
        follows,
        to_do,
    }
}

fn print(finding: &Finding) {
    paragraph(&format!("{:<8} ", finding.state.name()), finding.what);
    for line in &finding.found {
        paragraph("         found: ", line);
    }
    if finding.state != State::Ok {
        paragraph("         so: ", finding.follows);
        if !finding.to_do.is_empty() {
            paragraph("         do: ", finding.to_do);
        }
    }
}

fn report(facts: &Facts, findings: &[Finding], settings_left_changed: Vec<String>) -> Report {
    let answer = |verdict| match verdict {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::Unknown => "could not tell",
    };
    Report {
        findings: findings
            .iter()
            .map(|f| Row {
                what: f.what,
                state: f.state.name(),
                found: f.found.clone(),
                follows: f.follows,
                to_do: f.to_do,
            })
            .collect(),
        facts: facts
            .iter()
            .map(|(fact, a)| {
                (
                    fact.name(),
                    FactRow {
                        answer: answer(a.verdict),
                        detail: a.detail.clone(),
                    },
                )
            })
            .collect(),
        settings_left_changed,
    }
}

fn restore() -> anyhow::Result<u8> {
    let restored = settings::restore_stale(Path::new("/"))?;
    if restored.is_empty() {
        say!("nothing to restore: no supervisor has left settings changed");
    }
    for stale in restored {
        match stale.foreign {
            None => say!("put back {:?}: {}", stale.setting, stale.old),
            Some(found) => say!(
                "left {:?} at {found}: somebody else changed it (was {})",
                stale.setting,
                stale.old
            ),
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_default_needs_is_among_the_findings() {
        let mut findings = rules::findings(&Facts::all_yes());
        findings.push(accessed::finding(&[probe::Fact::Bpf], None));
        for what in DEFAULT_NEEDS {
            assert!(findings.iter().any(|f| f.what == what), "{what}");
        }
    }

    #[test]
    fn a_missing_library_is_named() {
        let place = PathBuf::from("/opt/bin/libterrace.so");
        let finding = agent(Err(ProgramError::NoAgent(place.clone())));
        assert_eq!(finding.state, State::Missing);
        assert!(
            finding.found[0].contains("/opt/bin/libterrace.so"),
            "{finding:?}"
        );
        assert!(finding.follows.contains("--mover move-pages"));
        assert_eq!(agent(Ok(place)).state, State::Ok);
    }
}
