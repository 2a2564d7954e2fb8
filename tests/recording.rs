//! Tests `parm record` and `parm serve --record` on real traffic.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::process::{command, refused, succeeds, told};
use crate::support::{Parm, affine};

fn infer(parm: &Parm) {
    let answer = affine::infer(parm.http, &affine::rows(1, 3));
    assert_eq!(answer.status, 200, "{}", answer.body_text());
}

#[test]
fn running_frontend_is_recorded_for_a_second() {
    let parm = Parm::serve(&["--instances", "2", "--admin", "127.0.0.1:0"]);
    parm.until_model_ready();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("run.jsonl");
    let url = format!("http://{}", parm.admin.unwrap());
    let mut record = command();
    record.args(["record", "--frontend", &url, "--seconds", "1", "--output", "json", "--file"]).arg(&file);
    let mut child = record.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        infer(&parm);
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["model"], &summary["dropped"]), (&json!("affine"), &json!(0)));
    let (queries, jobs) = (summary["queries"].as_u64().unwrap(), summary["jobs"].as_u64().unwrap());
    assert!(queries > 0 && jobs >= queries - 1, "{summary}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().last().unwrap().starts_with("{\"end\""), "{text}");

    let again = record.output().unwrap();
    assert!(!again.status.success(), "a recording is not overwritten");
    let file = file.to_str().unwrap();
    let simulate = ["simulate", "--policy", "equal", "--queries", "20000", "--recording", file];
    let (status, said) = told(&simulate);
    assert!(
        status == Some(0) || said.contains("needs 1000"),
        "the simulation runs or reports too few jobs: {said}"
    );
    assert!(succeeds(&["record", "--summary", file]).contains("queries of model 'affine'"));
}

#[test]
fn recording_stops_and_queries_go_on_when_the_disk_is_full() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("run.jsonl");
    let record = ["--instances", "1", "--admin", "127.0.0.1:0", "--record", file.to_str().unwrap()];
    let mut parm = Parm::serve_on_full_disk(&record);
    parm.until_model_ready();
    parm.until("the recording has stopped", |parm| {
        infer(parm);
        parm.log().contains("free disk space, and restart to record again")
    });
    (0..10).for_each(|_| infer(&parm));
    let (_, said) = told(&["doctor", &format!("http://{}", parm.admin.unwrap())]);
    assert!(said.contains("FAIL files: recording stopped") && said.contains("[PARM-0015]"), "{said}");
    parm.signal("TERM");
    let ended = parm.wait();
    assert_eq!(ended.code(), Some(1), "the status shows that the recording is incomplete: {}", parm.log());
    assert!(parm.log().contains(file.to_str().unwrap()), "{}", parm.log());
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("{\"recording\""), "the lines before the failure are kept: {text}");
}

#[test]
fn record_error_has_advice_when_the_frontend_is_unusable() {
    let parm = Parm::serve(&["--instances", "1"]);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("run.jsonl");
    for (url, code, word) in [
        ("127.0.0.1:1".to_owned(), 64, "http://HOST:PORT"),
        ("https://127.0.0.1:1".to_owned(), 64, "--ca"),
        ("http://127.0.0.1:1".to_owned(), 1, "--admin"),
        (format!("http://{}", parm.http), 1, "not an admin API"),
    ] {
        refused(&["record", "--frontend", &url, "--file", file.to_str().unwrap()], Some(code), word);
    }
}

#[test]
fn recording_of_a_killed_frontend_has_its_last_seconds() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("run.jsonl");
    let mut parm = Parm::serve(&["--instances", "1", "--record", file.to_str().unwrap()]);
    parm.until_model_ready();
    (0..3).for_each(|_| infer(&parm));
    let jobs = || fs::read_to_string(&file).unwrap().matches("{\"job\"").count();
    parm.until("the file has the jobs", |_| jobs() >= 3);
    parm.signal("KILL");
    parm.wait();
    let summary = || told(&["record", "--summary", file.to_str().unwrap()]).1;
    assert!(summary().contains("3 queries") && summary().contains("has no end"), "{}", summary());
    fs::write(&file, fs::read_to_string(&file).unwrap() + "{\"end\":{\"at_us\":9000000}}\n").unwrap();
    assert!(summary().contains("3 queries") && !summary().contains("has no end"), "{}", summary());
}
