//! Tests `parm experiment` with real processes: its results, and its cleanup when it is interrupted or killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::process::{PATIENCE, command, text};

/// Three workers: one hangs, one crashes and restarts, and one answers wrongly.
const FILE: &str = r#"
instances = 3
deployed = 2
repeats = 1
queries = 240
warm_up = 20
rates = [120.0]
policies = ["equal", "hedge"]
scenarios = ["trouble"]
service = { time_ms = { kind = "constant", value = 4.0 } }
deadline_ms = 2000

[[scenario.trouble.faults]]
kind = "hang"
when = { kind = "once", at_ms = 300, length_ms = 500 }
on = { only = [0] }

[[scenario.trouble.faults]]
kind = "crash"
when = { kind = "once", at_ms = 900, length_ms = 300 }
on = { only = [1] }

[[scenario.trouble.faults]]
kind = "wrong"
share = 1.0
when = { kind = "once", at_ms = 1400, length_ms = 500 }
on = { only = [2] }
"#;

fn experiment(folder: &Path, text: &str) -> std::process::Command {
    let file = folder.join("trouble.toml");
    fs::write(&file, text).unwrap();
    let mut command = command();
    command
        .arg("experiment")
        .arg(&file)
        .arg("--results")
        .arg(folder.join("results"))
        .arg("--output")
        .arg("json");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The processes whose command line names a folder.
fn processes_of(folder: &Path) -> usize {
    let name = folder.display().to_string();
    let is_one = |entry: &fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.contains(&name) && (words.contains("\0worker\0") || words.contains("\0serve\0"))
    };
    fs::read_dir("/proc").unwrap().flatten().filter(is_one).count()
}

fn until_no_process_of(folder: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while processes_of(folder) > 0 {
        assert!(Instant::now() < deadline, "processes outlived the experiment");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the first run is done and the second one has begun.
fn until_half_way(folder: &Path, child: &mut Child) {
    let deadline = Instant::now() + PATIENCE;
    while !folder.join("results/runs.jsonl").exists() {
        assert!(
            child.try_wait().unwrap().is_none() && Instant::now() < deadline,
            "the first run did not end"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn report_compares_policies_under_the_same_faults() {
    let folder = TempDir::new().unwrap();
    let output = experiment(folder.path(), FILE).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["count"], 220, "{row}");
        assert_eq!(row["shares"]["rejected"], 0.0, "lost jobs run again: {row}");
        assert!(row["wrong"].as_f64().unwrap() > 0.0, "one worker answers wrongly: {row}");
        assert!(row["p999_ms"].is_null(), "220 queries are too few for p99.9");
    }
    let results = folder.path().join("results");
    let page = fs::read_to_string(results.join("report.txt")).unwrap();
    assert!(page.contains("not enough data"));
    let raw = fs::read_to_string(results.join("raw/trouble-0.24-hedge-0.csv")).unwrap();
    assert_eq!(raw.lines().count(), 241, "every query has a line");
    until_no_process_of(folder.path());
}

#[test]
fn interrupted_experiment_keeps_results_and_ends_processes() {
    let folder = TempDir::new().unwrap();
    let mut child = experiment(folder.path(), FILE).spawn().unwrap();
    until_half_way(folder.path(), &mut child);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        !output.status.success() && text(&output.stderr).contains("ended early"),
        "{}",
        text(&output.stderr)
    );
    let results = fs::read(folder.path().join("results/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_slice(&results).unwrap();
    assert_eq!(results["ended_early"], "interrupted");
    assert_eq!(results["report"]["rows"].as_array().unwrap().len(), 1, "the interrupted run does not count");
    assert!(fs::read_to_string(folder.path().join("results/report.txt")).unwrap().contains("Ended early"));
    until_no_process_of(folder.path());
}

#[test]
fn processes_end_when_the_experiment_is_killed() {
    let folder = TempDir::new().unwrap();
    let mut child = experiment(folder.path(), FILE).spawn().unwrap();
    until_half_way(folder.path(), &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    until_no_process_of(folder.path());
}

#[test]
fn invalid_file_is_named_with_its_line() {
    let folder = TempDir::new().unwrap();
    for (text_of_file, said) in [
        ("seed = 1\nqueris = 5\n", vec!["trouble.toml", "line 2", "queris"]),
        ("seed = 1\npolicies = [\"hope\"]\n", vec!["trouble.toml, line 2: ", "hope", "parm+"]),
        ("[[scenario.x.faults]]\nkind = \"hang\"\n", vec!["trouble.toml", "when"]),
    ] {
        let output = experiment(folder.path(), text_of_file).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{}", text(&output.stderr));
        assert!(said.iter().all(|word| text(&output.stderr).contains(word)), "{}", text(&output.stderr));
    }
}
