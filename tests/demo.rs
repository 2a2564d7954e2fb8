//! Tests `parm demo`: complete runs, interrupted runs and invalid arguments.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::process::{command, refused, run};

/// The shortest and lightest run. No test checks its timings.
const BRIEF: [&str; 5] = ["demo", "--seconds", "5", "--rate", "40"];

#[test]
fn policies_answer_the_same_queries_and_report_json() {
    let output = run(&[&BRIEF[..], &["--policies", "least-requests,stand-in", "--output", "json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let policies = report["policies"].as_array().unwrap();
    let names: Vec<&str> = policies.iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["least-requests", "stand-in"]);
    let count = |policy: &Value, what: &str| policy["outcomes"][what]["queries"].as_u64().unwrap();
    for policy in policies {
        let outcomes = policy["outcomes"].as_object().unwrap();
        let answered = outcomes.keys().map(|what| count(policy, what)).sum::<u64>();
        assert_eq!(policy["queries"].as_u64().unwrap(), answered + policy["missed"].as_u64().unwrap());
        let work = policy["work"].as_f64().unwrap() / policy["queries"].as_f64().unwrap();
        assert!(work > 0.5, "{work} runs for each query: {report}");
        let right = policy["outcomes"]["exact"]["right"].as_f64().unwrap() / count(policy, "exact") as f64;
        assert!(right > 0.6, "{right} of the answers are right: {report}");
    }
    assert_eq!(policies[0]["queries"], policies[1]["queries"], "{report}");
    assert_eq!(count(&policies[0], "hedged") + count(&policies[0], "stand-in"), 0);
    let stand_in = report["stand_in"].as_str().unwrap();
    let cost = report["costs"][stand_in].as_f64().unwrap();
    assert!(cost > 0.0 && cost < 0.8, "measured on this machine: {report}");
    assert_eq!(
        report["costs"].as_object().unwrap().len(),
        2,
        "models that no policy loads have no cost: {report}"
    );
}

#[test]
fn demo_of_codes_runs_next_to_a_folder_with_other_models() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("models/own/1")).unwrap();
    let mut brief = command();
    brief.current_dir(folder.path()).env("TMPDIR", folder.path());
    let output = brief
        .args(BRIEF)
        .args(["--policies", "parm+,exact,parm,equal", "--output", "json"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["stand_in"], "fashion-perceptron");
    let reconstructed =
        |policy: usize| report["policies"][policy]["outcomes"]["reconstructed"]["queries"].as_u64().unwrap();
    assert!(reconstructed(2) > 0 && reconstructed(3) == 0, "{report}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "its files are removed");
}

#[test]
fn demo_prints_its_summary_when_interrupted() {
    let mut child = command()
        .args(["demo", "--seconds", "3600", "--rate", "40", "--policies", "hedge"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("0:0") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the demo ended without a first row");
    }
    Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(rest.contains("p99.9") && rest.contains("\nNext: "), "{rest}");
    assert!(!rest.contains('\x1b'), "escape sequences without a terminal: {rest:?}");
}

#[test]
fn invalid_arguments_are_rejected_before_the_demo_starts() {
    for (flags, status, words) in [
        (&["demo", "--rate", "2000"][..], 64, "1200 requests a second"),
        (&["demo", "--seconds", "1"], 64, "5 to 3600"),
        (
            &["demo", "--policies", "hedge,magic"],
            2,
            "use one of least-requests, hedge, stand-in, parm+, exact, parm, equal",
        ),
    ] {
        refused(flags, Some(status), words);
    }
}
