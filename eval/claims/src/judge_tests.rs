// SPDX-License-Identifier: MIT OR Apache-2.0
use std::path::Path;

use super::*;
use crate::plan::Filed;
use crate::plan::Known;
use crate::plan::missing;

const KNOWN: Known<'static> = Known {
    systems: &["none", "nomad"],
    metrics: &["ops_per_s"],
};

fn claim(status: &str, system: &str, metric: &str) -> Claim {
    let text = format!(
        r#"
id = "x"
paper = "mtm"
section = "9"
says = "It is faster."
status = "{status}"
why = "Because."
[setup]
machine = "m.toml"
workload = "gups"
seconds = 1.0
[[run]]
name = "a"
system = "{system}"
[[run]]
name = "b"
system = "none"
[[holds]]
left = "a.{metric}"
relation = ">="
factor = 1.2
right = "b.ops_per_s"
"#
    );
    Claim::parse(&text, "x", Path::new("x.toml"))
        .unwrap()
        .remove(0)
}

fn judged(status: &str, a: f64, b: f64) -> Judgement {
    let lookup = |run: &str, _: &str| Some(if run == "a" { a } else { b });
    judge(
        &claim(status, "nomad", "ops_per_s"),
        &[],
        &lookup,
        &|_, _| None,
    )
}

fn lacks(claim: &Claim) -> Result<Vec<String>, String> {
    let path = Path::new("claims/x.toml");
    missing(&Filed { claim, path }, KNOWN).map_err(|error| error.to_string())
}

#[test]
fn a_verdict_is_set_against_the_status() {
    assert_eq!(judged("held", 12.0, 10.0).finding, Finding::AsMarked);
    assert_eq!(judged("held", 11.9, 10.0).finding, Finding::Broken);
    assert_eq!(judged("refuted", 11.9, 10.0).finding, Finding::AsMarked);
    assert_eq!(judged("refuted", 12.0, 10.0).finding, Finding::HoldsNow);
    assert_eq!(judged("open", 12.0, 10.0).finding, Finding::CanBeRun);
    assert_eq!(judged("held", 12.0, 10.0).verdict, Verdict::Holds);
    assert_eq!(judged("held", f64::NAN, 10.0).finding, Finding::Broken);
}

#[test]
fn a_run_without_figures_breaks_a_held_claim() {
    let claim = claim("held", "nomad", "ops_per_s");
    let judgement = judge(&claim, &[], &|_, _| None, &|_, _| None);
    assert_eq!(judgement.finding, Finding::Broken);
    assert!(describe(&claim, &judgement.checks)[0].contains("- to -"));
}

#[test]
fn an_unknown_policy_is_a_mistake_and_a_planned_one_is_not() {
    assert_eq!(lacks(&claim("held", "nomad", "ops_per_s")), Ok(vec![]));
    assert_eq!(
        lacks(&claim("open", "thermostat", "f1")),
        Ok(vec!["preset thermostat".to_owned(), "metric f1".to_owned()])
    );
    let error = lacks(&claim("open", "nimble", "ops_per_s")).unwrap_err();
    assert!(
        error.starts_with("claims/x.toml:12: run 'a': no policy 'nimble'"),
        "{error}"
    );
    let error = lacks(&claim("held", "thermostat", "ops_per_s")).unwrap_err();
    assert!(error.contains("status is 'held', but preset thermostat is missing"));
    let error = lacks(&claim("held", "nomad", "opps")).unwrap_err();
    assert!(error.contains("no metric 'opps' (run 'a')"));
}

#[test]
fn what_came_out_is_said_in_figures() {
    let claim = claim("held", "nomad", "ops_per_s");
    let lookup = |run: &str, _: &str| Some(if run == "a" { 1_234_567.0 } else { 2_000_000.0 });
    let judgement = judge(&claim, &[], &lookup, &|_, _| None);
    assert_eq!(
        describe(&claim, &judgement.checks),
        ["a.ops_per_s >= 1.2 x b.ops_per_s: 1.23M to 2.00M (0.617 x) ✗"]
    );
    assert_eq!(short(Some(0.0)), "0");
    assert_eq!(short(Some(9_999.0)), "9999");
    assert_eq!(short(Some(12_345.0)), "12.3k");
    assert_eq!(short(Some(0.12345)), "0.123");
    assert_eq!(short(None), "-");
}

#[test]
fn a_cause_is_accepted_when_the_claim_holds_without_it() {
    let text = r#"
id = "x"
paper = "mtm"
section = "9"
says = "It is faster."
status = "refuted"
why = "In one second it moves {a.ops_per_s} of {b.ops_per_s} pages ({a.ops_per_s / b.ops_per_s})."
cause = "setup"
counterfactual = { changes = "a minute", setup = { seconds = 60.0 } }
run = [{ name = "a", system = "nomad" }, { name = "b", system = "none" }]
holds = [{ left = "a.ops_per_s", relation = ">=", right = "b.ops_per_s" }]
setup = { machine = "m.toml", workload = "gups", seconds = 1.0 }
"#;
    let claim = Claim::parse(text, "x", Path::new("x.toml"))
        .unwrap()
        .remove(0);
    assert_eq!(claim.cause, Some(crate::Cause::Setup));
    let seconds: Vec<f64> = claim.all_runs().map(|run| run.spec.seconds).collect();
    assert_eq!(seconds, [1.0, 1.0, 60.0, 60.0]);
    assert_eq!(crate::plan::runs([&claim]).len(), 4);

    let before = |run: &str, _: &str| Some(if run == "a" { 5.0 } else { 10.0 });
    for (after, finding) in [(10.0, Finding::AsMarked), (9.9, Finding::NotTheCause)] {
        let changed = |run: &str, _: &str| Some(if run == "a" { after } else { 10.0 });
        let judgement = judge(&claim, &[], &before, &changed);
        assert_eq!(judgement.finding, finding);
        assert_eq!(judgement.without_cause.len(), 1);
    }
    // It holds with the cause, too.
    let holds = judge(&claim, &[], &|_, _| Some(1.0), &|_, _| Some(1.0));
    assert_eq!(holds.finding, Finding::HoldsNow);
    let why = claim.why.unwrap().said(&before);
    assert_eq!(why, "In one second it moves 5.00 of 10.0 pages (0.500).");
}
