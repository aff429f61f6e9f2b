// SPDX-License-Identifier: MIT OR Apache-2.0
use std::path::Path;

use proptest::prelude::*;

use crate::claim::Claim;
use crate::claim::Status;

const GOOD: &str = r#"
id = "nomad/small"
paper = "nomad"
section = "4.1, figure 7 (a)"
says = "Nomad is as fast as TPP once stable."
scaled = "memory by 8"
status = "refuted"
why = "A reason."

[setup]
machine = "machines/a.toml"
workload = "nomad-small-read"
seconds = 60.0
free = ["13GB", ""]
divide = 8

[[run]]
name = "nomad"
system = "nomad"

[[run]]
name = "tpp"
system = "tpp"
seconds = 30.0
page_size = "2MiB"

[[holds]]
left = "nomad.stable_ops_per_s"
relation = ">="
right = "tpp.stable_ops_per_s"
tolerance = 0.05

[[holds]]
left = "nomad.ops_per_s / tpp.ops_per_s"
relation = "about"
right = 2
within = 0.5

[[holds]]
relation = "decreasing"
metric = "promoted_pages"
over = ["tpp", "nomad"]
"#;

fn parse(text: &str) -> Result<Claim, String> {
    family(text).map(|mut claims| claims.remove(0))
}

fn family(text: &str) -> Result<Vec<Claim>, String> {
    Claim::parse(text, "nomad/small", Path::new("claims/nomad/small.toml"))
        .map_err(|error| error.to_string())
}

/// The error for the good file with one thing replaced.
fn spoilt(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from} is not in the file");
    parse(&GOOD.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn a_good_file_becomes_a_claim() {
    let claim = parse(GOOD).unwrap();
    assert_eq!(claim.status, Status::Refuted);
    let (nomad, tpp) = (&claim.runs[0].spec, &claim.runs[1].spec);
    assert_eq!((nomad.seconds, tpp.seconds), (60.0, 30.0));
    assert_eq!((nomad.page_bytes, tpp.page_bytes), (4096, 2 << 20));
    assert_eq!(nomad.free, [Some(13_000_000_000), None]);
    assert_eq!(tpp.divide, 8);
    assert_eq!(claim.holds.len(), 3);
    assert_eq!(
        claim.holds[1].to_string(),
        "nomad.ops_per_s / tpp.ops_per_s about 2"
    );
}

/// What is spoilt, how, and what the error says.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "id = \"nomad/small\"",
        "id = \"nomad/other\"",
        ":2: id is 'nomad/other'",
    ),
    (
        "paper = \"nomad\"",
        "paper = \"nimble\"",
        ":3: paper is 'nimble', expected mtm",
    ),
    ("status = \"refuted\"", "status = \"yes\"", ":7: status is"),
    (
        "why = \"A reason.\"",
        "",
        ":7: status is 'refuted', so why is required",
    ),
    (
        "scaled = \"memory by 8\"",
        "",
        "divide is above 1, so scaled must say it",
    ),
    (
        "seconds = 60.0",
        "seconds = 0.0",
        ":13: seconds is 0, expected more than 0",
    ),
    ("seconds = 60.0", "", ":17: the run has no seconds"),
    ("seconds = 60.0", "secs = 60.0", ":13: unknown field `secs`"),
    ("divide = 8", "divide = 0", ":15: divide is 0"),
    ("\"13GB\"", "\"much\"", ":14: free: 'much' is not a size"),
    (
        "name = \"tpp\"",
        "name = \"nomad\"",
        "second [[run]] named 'nomad'",
    ),
    (
        "name = \"tpp\"",
        "name = \"t.p\"",
        "expected a word without",
    ),
    (
        "page_size = \"2MiB\"",
        "page_size = \"8KiB\"",
        "expected 4KiB, 2MiB, 1GiB",
    ),
    (
        "relation = \">=\"",
        "relation = \">\"",
        "expected >=, <=, about",
    ),
    (
        "right = \"tpp.stable_ops_per_s\"",
        "right = \"tqq.stable_ops_per_s\"",
        "no run 'tqq'; there are nomad, tpp",
    ),
    (
        "right = \"tpp.stable_ops_per_s\"",
        "right = \"nomad.stable_ops_per_s\"",
        "left and right are the same",
    ),
    (
        "left = \"nomad.stable_ops_per_s\"",
        "left = \"nomad..ops_per_s\"",
        "'.ops_per_s' is not the name of a metric",
    ),
    (
        "divide = 8",
        "divide = 8\npriorities = { kv = -1 }",
        ":16: invalid value",
    ),
    (
        "divide = 8",
        "divide = 8\ntracker = \"pmu,pebs\"",
        "Unknown tracker 'pebs'; there are: auto, accessed-bits",
    ),
    (
        "divide = 8",
        "divide = 8\nmover = \"memcpy\"",
        "Unknown mover 'memcpy'; there are: auto, move-pages",
    ),
    ("within = 0.5", "", "about needs a tolerance"),
    (
        "over = [\"tpp\", \"nomad\"]",
        "over = [\"tpp\"]",
        "over needs two runs at least",
    ),
    (
        "tolerance = 0.05",
        "tolerance = -1.0",
        "tolerance is -1, expected a number above 0",
    ),
    (
        "tolerance = 0.05",
        "tolerance = nan",
        "tolerance is NaN, expected",
    ),
];

#[test]
fn each_mistake_names_its_line() {
    for (from, to, expected) in MISTAKES {
        let error = spoilt(from, to);
        assert!(error.contains(expected), "{error}\n  lacks {expected}");
        assert!(error.starts_with("claims/nomad/small.toml:"), "{error}");
    }
}

#[test]
fn a_run_may_put_programs_first_and_a_relation_name_one() {
    let text = GOOD
        .replacen(
            "system = \"nomad\"",
            "system = \"hemem\"\npriorities = { kv = 1 }",
            1,
        )
        .replacen(
            "left = \"nomad.stable_ops_per_s\"",
            "left = \"nomad.kv.ops_per_s\"",
            1,
        );
    let claim = parse(&text).unwrap();
    assert_eq!(claim.runs[0].spec.priorities["kv"], 1);
    assert!(claim.runs[1].spec.priorities.is_empty());
    assert_ne!(
        claim.runs[0].spec.key(),
        parse(GOOD).unwrap().runs[0].spec.key()
    );
    assert_eq!(claim.holds[0].names()[0], ("nomad", "kv.ops_per_s"));
}

const CASES: &str = r#"
[[case]]
name = "platform-a"

[[case]]
name = "platform-b"
says = "Half as fast."
status = "held"
setup = { machine = "machines/b.toml", divide = 4 }
holds = [{ left = "nomad.ops_per_s", relation = ">=", factor = 0.5, right = "tpp.ops_per_s" }]
"#;

#[test]
fn a_case_says_what_differs() {
    let claims = family(&[GOOD, CASES].concat()).unwrap();
    let ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
    assert_eq!(ids, ["nomad/small-platform-a", "nomad/small-platform-b"]);
    let (a, b) = (&claims[0], &claims[1]);
    let of_file = Claim {
        id: a.id.clone(),
        ..parse(GOOD).unwrap()
    };
    assert_eq!(*a, of_file);
    assert_eq!((b.status, b.says.as_str()), (Status::Held, "Half as fast."));
    assert_eq!((a.holds.len(), b.holds.len()), (3, 1));
    let specs = |claim: &Claim| {
        claim
            .runs
            .iter()
            .map(|run| run.spec.clone())
            .collect::<Vec<_>>()
    };
    for (a, b) in specs(a).into_iter().zip(specs(b)) {
        let machine = "machines/b.toml".to_owned();
        assert_eq!(
            b,
            crate::RunSpec {
                machine,
                divide: 4,
                ..a
            }
        );
    }
}

#[test]
fn a_mistake_in_a_case_names_its_line_and_case() {
    let spoilt =
        |from: &str, to: &str| family(&[GOOD, &CASES.replacen(from, to, 1)].concat()).unwrap_err();
    let whole = [GOOD, CASES].concat();
    let before = whole.split("status = \"held\"").next().unwrap();
    let line = before.lines().count() + 1;
    let error = spoilt("\"held\"", "\"hold\"");
    let expected = format!("claims/nomad/small.toml:{line}: status is 'hold', expected");
    assert!(error.starts_with(&expected), "{error} for {expected}");
    assert!(error.ends_with(" (case 'platform-b')"), "{error}");
    assert!(spoilt("platform-b", "platform-a").contains("second [[case]] named 'platform-a'"));
    assert!(spoilt("platform-b", "a b").contains("needs a name"));
    assert!(spoilt("divide", "dived").contains("unknown field `dived`"));
    let error = family(&["case = 3\n", GOOD].concat()).unwrap_err();
    assert!(error.contains("write [[case]]"), "{error}");
}

#[test]
fn a_claim_without_runs_or_relations_is_refused() {
    let head = GOOD.split("[[run]]").next().unwrap();
    assert!(parse(head).unwrap_err().contains("has no [[run]]"));
    let no_relation = GOOD.split("[[holds]]").next().unwrap();
    assert!(parse(no_relation).unwrap_err().contains("has no [[holds]]"));
}

#[test]
fn equal_runs_have_equal_keys() {
    let claim = parse(GOOD).unwrap();
    let again = parse(GOOD).unwrap();
    assert_eq!(claim.runs[0].spec.key(), again.runs[0].spec.key());
    assert_ne!(claim.runs[0].spec.key(), claim.runs[1].spec.key());
    let both = crate::plan::runs([&claim, &again]);
    assert_eq!(both.len(), 2);
}

proptest! {
    /// Whatever is cut out of a good file, the answer is a claim or an error of one line.
    #[test]
    fn no_text_makes_it_panic(from in 0..GOOD.len(), length in 0usize..60) {
        let to = (from + length).min(GOOD.len());
        let text = [&GOOD[..from], &GOOD[to..]].concat();
        if let Err(error) = parse(&text) {
            prop_assert!(error.starts_with("claims/nomad/small.toml:"), "{}", error);
            prop_assert!(!error.contains('\n'), "{}", error);
        }
    }
}

#[test]
fn a_cause_and_what_shows_it_come_together() {
    let with = |keys: &str| parse(&GOOD.replace("why = \"A reason.\"", keys)).map(|_| ());
    let why = "why = \"A reason: {nomad.ops_per_s / tpp.ops_per_s}.\"\n";
    let shown = "counterfactual = { changes = \"all of it\", setup = { divide = 1 } }\n";
    assert_eq!(with(&format!("{why}cause = \"model\"\n{shown}")), Ok(()));
    let cases = [
        (
            format!("{why}cause = \"model\"\n"),
            ":9: a cause needs a [counterfactual]",
        ),
        (
            format!("{why}{shown}"),
            ":9: a [counterfactual] shows a cause: name it",
        ),
        (
            format!("{why}cause = \"weather\"\n{shown}"),
            ":9: cause is 'weather', expected preset, model, setup, paper",
        ),
        (
            format!("{why}cause = \"model\"\ncounterfactual = {{ changes = \"nothing\" }}\n"),
            ":10: the [counterfactual] changes nothing",
        ),
        (
            format!(
                "{why}cause = \"model\"\ncounterfactual = {{ changes = \"b\", run = [{{ name = \"b\" }}] }}\n"
            ),
            ":10: the claim has no run of that name",
        ),
        (
            "why = \"It is {b.ops_per_s}.\"\n".to_owned(),
            ":8: no run 'b'; there are nomad, tpp",
        ),
    ];
    for (keys, what) in cases {
        let error = with(&keys).unwrap_err();
        assert!(error.ends_with(what), "{error} for {what}");
    }
    let held = GOOD.replace("\"refuted\"", "\"held\"");
    let error =
        parse(&held.replace("why =", &format!("cause = \"model\"\n{shown}why ="))).unwrap_err();
    assert!(
        error.ends_with(":8: only a refuted claim has a cause"),
        "{error}"
    );
}
