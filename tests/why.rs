//! Tests `parm doctor` on recordings: the causes of a tail in a file and of a running frontend, and errors.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use parm_workload::Random;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::process::{command, refused, text};
use crate::support::{Parm, affine};

/// Writes a recording of six instances, of which number 2 is five times slower.
fn recording(folder: &TempDir, queries: u64) -> PathBuf {
    let mut draw = Random::of(7, [0]);
    let mut lines = vec![
        json!({"recording": {"format": 1, "unix_ms": 0}}),
        json!({"model": {"number": 0, "name": "m", "version": "1"}}),
    ];
    let named =
        |number: u64| json!({"instance": {"number": number, "name": format!("http://worker-{number}")}});
    lines.extend((0..6).map(named));
    for number in 0..queries {
        let (at, instance) = (20_000 * (number + 1), number % 6);
        let usual = 18_000.0 + 4_000.0 * draw.uniform();
        let took = if instance == 2 { 5.0 * usual } else { usual } as u64;
        lines.push(json!({"query": {"at_us": at, "model": 0, "rows": 1}}));
        lines.push(json!({"job": {"at_us": at, "took_us": took, "model": 0, "instance": instance, "rows": 1,
                                  "role": "deployed", "ok": true, "arrived_us": at}}));
    }
    let path = folder.path().join("run.jsonl");
    fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    path
}

fn why(arguments: &[&str]) -> Output {
    command().arg("doctor").args(arguments).output().unwrap()
}

#[test]
fn slow_instance_of_a_recording_is_named_with_its_cost() {
    let folder = TempDir::new().unwrap();
    let file = recording(&folder, 12_000);
    let file = file.to_str().unwrap();
    let output = why(&[file, "--policy", "equal"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.contains("http://worker-2 is 5.0 times slower than the others. Without that p99.9"),
        "{said}"
    );
    assert!(said.contains("recycle it"), "{said}");

    let output = why(&[file, "--policy", "equal", "--output", "json", "--repeats", "1"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &found["suspects"][0];
    assert_eq!(first["cause"], json!({"kind": "slow_instances", "instances": [2]}), "{found}");
    let [whole, without] =
        [&found["replayed"], &first["without"]].map(|tail| tail["p999_ms"].as_f64().unwrap());
    assert!((90.0..120.0).contains(&whole) && (19.0..25.0).contains(&without), "{whole} {without}");
    let recorded = found["recorded"]["p999_ms"].as_f64().unwrap();
    assert!((recorded / whole - 1.0).abs() < 0.1, "{recorded} {whole}");
}

/// Bursts of jobs wait at a worker behind jobs of other frontends: the recording has their times, not the reason.
#[test]
fn no_cause_is_named_when_the_replay_differs_widely() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run.jsonl");
    let mut lines = vec![
        json!({"recording": {"format": 1, "unix_ms": 0}}),
        json!({"model": {"number": 0, "name": "m", "version": "1"}}),
        json!({"instance": {"number": 0, "name": "http://worker"}}),
    ];
    for number in 0..12_000u64 {
        // Four jobs at a time are at one worker, which the replay gives one at a time.
        let at = 10_000 * number;
        lines.push(json!({"query": {"at_us": at, "model": 0, "rows": 1}}));
        lines.push(
            json!({"job": {"at_us": at, "took_us": 40_000 + number % 7, "model": 0, "instance": 0, "rows": 1,
                                  "role": "deployed", "ok": true, "arrived_us": at}}),
        );
    }
    fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let file = path.to_str().unwrap();
    let output = why(&[file, "--policy", "equal", "--repeats", "1"]);
    let said = text(&output.stdout);
    assert!(said.starts_with("p99.9 is 40.0 ms") && said.contains("No cause is named: the replay"), "{said}");
    assert!(!said.contains("Queries wait for an instance"), "{said}");
    assert!(said.contains("other frontends use the same workers") && said.contains("--config"), "{said}");
    let output = why(&[file, "--policy", "equal", "--repeats", "1", "--output", "json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["reproduced"], &found["suspects"]), (&json!(false), &json!([])), "{found}");
}

#[test]
fn short_recording_gives_p99_and_a_shorter_one_an_error() {
    let folder = TempDir::new().unwrap();
    let file = recording(&folder, 3_000);
    let output = why(&[file.to_str().unwrap(), "--policy", "equal", "--repeats", "1"]);
    let said = text(&output.stdout);
    assert!(said.contains("p99 is ") && said.contains("p99.9 needs 10000 recorded queries"), "{said}");
    let file = recording(&folder, 500);
    for (arguments, word) in [
        (&[file.to_str().unwrap()][..], "needs 1000 and there are 500"),
        (&[file.to_str().unwrap(), "--policy", "hope"], "hedge"),
        (&[file.to_str().unwrap(), "--config", "/no/such/parm.toml"], "/no/such/parm.toml"),
    ] {
        refused(&[&["doctor"], arguments].concat(), Some(64), word);
    }
}

#[test]
fn running_frontend_is_recorded_and_examined() {
    let parm = Parm::serve(&["--instances", "2", "--admin", "127.0.0.1:0"]);
    parm.until_model_ready();
    let url = format!("http://{}", parm.admin.unwrap());
    let mut command = command();
    command.args(["doctor", &url, "--seconds", "2", "--output", "json"]);
    let piped = std::process::Stdio::piped;
    let mut child = command.stdout(piped()).stderr(piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        assert_eq!(affine::infer(parm.http, &affine::rows(1, 3)).status, 200);
    }
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    if output.status.success() {
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(found["queries"].as_u64().unwrap() > 0, "{found}");
    } else {
        assert!(output.status.code() == Some(64) && said.contains("needs 1000"), "{said}");
    }
}
