//! Scenarios and profiles of measured slowness on the command line.

use std::fs;

use tempfile::TempDir;

use crate::support::process::{run, text};

const SMALL: [&str; 8] = ["--policy", "equal", "--load", "0.5", "--queries", "12000", "--output", "json"];

#[test]
fn profiles_and_scenarios_are_simulated_together() {
    let chosen = ["simulate", "--scenario", "hosts+A", "--profile", "sick-gpu+azure-chat"];
    let output = run(&[&chosen[..], &SMALL].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| &row["scenario"]).collect();
    assert_eq!(names, ["hosts+A", "sick-gpu+azure-chat"]);
    let listed = text(&run(&["simulate", "--list"]).stdout);
    assert!(["throttled", "azure-vm", "prequal-0.6"].iter().all(|name| listed.contains(name)), "{listed}");
}

#[test]
fn unknown_profile_or_file_ends_with_64_and_says_what_to_do() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mine.toml");
    let fault = "[[scenario.mine.faults]]\nkind = \"pace\"\nstep_ms = 1000\nfile = \"pace.txt\"\n";
    fs::write(&file, format!("scenarios = [\"mine\"]\n{fault}")).unwrap();
    let file = file.to_str().unwrap();
    let refused = |arguments: &[&str], words: &[&str]| {
        let output = run(&[&["simulate"], arguments, &SMALL].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
    };
    refused(&["--profile", "mayhem"], &["'mayhem'", "sick-gpu", "--scenario"]);
    refused(&["--scenario", "hosts+mayhem"], &["hosts+mayhem", "throttled"]);
    refused(&[file], &["cannot read 'pace.txt'", "relative to the experiment file"]);
    fs::write(folder.path().join("pace.txt"), "1 2\n1 x\n").unwrap();
    refused(&[file], &["pace.txt", "line 2", "'x'", "numbers above 0"]);
    fs::write(folder.path().join("pace.txt"), "1 2\n1 3\n").unwrap();
    let output = run(&[&["simulate", file], &SMALL[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
}
