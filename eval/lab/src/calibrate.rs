// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much slower the guest is than a real machine, thing by thing, beside the machine's dilation.
//!
//! The real cost is what the same code ([`terrace_bench::primitives`]) takes on the host; of an access to a
//! node, what the machine file says; of a hint fault, a minor fault on the host, which does nearly
//! the same work (a host without a second node has no hint faults to measure).

use std::fmt::Write as _;

use serde::Deserialize;
use serde::Serialize;
use terrace_bench::primitives;
use terrace_bench::primitives::Figure;
use terrace_bench::primitives::Options;
use terrace_experiment::RunInfo;
use terrace_machine_spec::Machine;

use crate::boot;
use crate::boot::BootError;
use crate::boot::Outcome;
use crate::boot::Spec;

/// The host is shared with other programs, which the least of several rounds shuts out.
const HOST_ROUNDS: usize = 7;

/// One thing, in the guest and in reality.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factor {
    pub what: String,
    pub guest_ns: f64,
    pub real_ns: f64,
    /// Guest over real.
    pub factor: f64,
    /// The factor over the machine's dilation: above 1, the lab overcharges it against memory.
    pub against_dilation: f64,
    /// Where the real cost is from: `host`, `machine` or `host minor fault`.
    pub real_from: String,
}

/// All of them, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// What the guest's side was made with.
    pub run: RunInfo,
    /// Each thing.
    pub factors: Vec<Factor>,
}

/// Why calibration failed.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error("In the guest, exit code {code}: {said}")]
    Guest { code: i32, said: String },
}

/// Runs the probe on the host and in the guest; `spec`'s command must be `terrace-lab probe`.
///
/// # Errors
///
/// [`CalibrateError`].
pub fn calibrate(spec: &Spec<'_>) -> Result<(Vec<Factor>, Outcome), CalibrateError> {
    let host = least(
        (0..HOST_ROUNDS)
            .map(|_| primitives::measure(&Options::small(1)))
            .collect(),
    );
    let (outcome, said) = boot::said(spec)?;
    let guest: Result<Vec<Figure>, _> = serde_json::from_slice(&said[0]);
    match guest {
        Ok(guest) if outcome.code == 0 => Ok((factors(spec.machine, &host, &guest), outcome)),
        _ => {
            let said = String::from_utf8_lossy(&said[1]).trim().to_owned();
            Err(CalibrateError::Guest {
                code: outcome.code,
                said,
            })
        }
    }
}

/// The least of each cost over several rounds.
fn least(rounds: Vec<Vec<Figure>>) -> Vec<Figure> {
    let mut rounds = rounds.into_iter();
    let mut least = rounds.next().unwrap_or_default();
    for round in rounds {
        for (best, cost) in least.iter_mut().zip(round) {
            best.ns = match (best.ns, cost.ns) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
    }
    least
}

/// Puts both sides together. Pure.
#[must_use]
pub fn factors(machine: &Machine, host: &[Figure], guest: &[Figure]) -> Vec<Factor> {
    let dilation = machine.lab.map_or(1.0, |lab| lab.dilation);
    let on_host = |what: &str| {
        host.iter()
            .find(|cost| cost.what == what)
            .and_then(|cost| cost.ns)
    };
    let real = |what: &str| -> Option<(f64, &str)> {
        if let Some(node) = what.strip_prefix("read_node_") {
            let node: usize = node
                .parse()
                .ok()
                .filter(|&node| node < machine.nodes.len())?;
            return Some((machine.path(0, node).read_ns, "machine"));
        }
        match what {
            "hint_fault" => Some((on_host("minor_fault")?, "host minor fault")),
            _ => Some((on_host(what)?, "host")),
        }
    };
    let factor = |cost: &Figure| {
        let guest_ns = cost.ns?;
        let (real_ns, from) = real(&cost.what)?;
        let factor = guest_ns / real_ns;
        Some(Factor {
            what: cost.what.clone(),
            guest_ns,
            real_ns,
            factor,
            against_dilation: factor / dilation,
            real_from: from.to_owned(),
        })
    };
    guest.iter().filter_map(factor).collect()
}

/// The table that people read.
#[must_use]
pub fn table(machine: &Machine, factors: &[Factor]) -> String {
    let dilation = machine.lab.map_or(1.0, |lab| lab.dilation);
    let mut text = format!(
        "{:<22}{:>12}{:>12}{:>10}{:>14}  real cost from\n",
        "", "guest ns", "real ns", "factor", "of dilation"
    );
    for line in factors {
        writeln!(
            text,
            "{:<22}{:>12.1}{:>12.1}{:>9.1}x{:>13.2}x  {}",
            line.what,
            line.guest_ns,
            line.real_ns,
            line.factor,
            line.against_dilation,
            line.real_from
        )
        .expect("a String takes all");
    }
    writeln!(
        text,
        "Dilation of {}: {dilation}. Above 1x of it, the lab overcharges.",
        machine.name
    )
    .expect("a String takes all");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(what: &str, ns: f64) -> Figure {
        Figure {
            what: what.to_owned(),
            about: String::new(),
            ns: Some(ns),
            spread: None,
            mb_per_s: None,
            why: None,
        }
    }

    #[test]
    fn the_least_round_counts() {
        let rounds = vec![
            vec![cost("a", 3.0), cost("b", 1.0)],
            vec![cost("a", 2.0), cost("b", 5.0)],
        ];
        assert_eq!(least(rounds), [cost("a", 2.0), cost("b", 1.0)]);
    }

    #[test]
    fn each_thing_is_divided_by_its_own_reality() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
        let machine = Machine::load(&path).unwrap();
        let host = [cost("syscall", 100.0), cost("minor_fault", 500.0)];
        let guest = [
            cost("syscall", 300.0),
            cost("hint_fault", 20_000.0),
            cost("read_node_1", 5_500.0),
            cost("migrate_page", 1.0),
        ];
        let factors = factors(&machine, &host, &guest);
        let short: Vec<(&str, f64)> = factors
            .iter()
            .map(|f| (f.what.as_str(), f.factor))
            .collect();
        assert_eq!(
            short,
            [
                ("syscall", 3.0),
                ("hint_fault", 40.0),
                ("read_node_1", 22.0)
            ]
        );
        assert!((factors[1].against_dilation - 2.0).abs() < 1e-9);
        assert!(table(&machine, &factors).contains("hint_fault"));
    }
}
