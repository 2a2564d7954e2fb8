//! Tests `parm load` on a running server: its report, exit status and errors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::Parm;
use crate::support::files::npy;
use crate::support::process::{command, refused};

/// One request at a time, so that a busy machine misses no schedule.
const BRIEF: &[&str] =
    &["--scenario", "single-stream", "--seconds", "0.3", "--warm-up", "0.1", "--model", "affine"];

fn load(url: &str, arguments: &[&str]) -> Output {
    command().args(["load", url, "--quiet"]).args(BRIEF).args(arguments).output().unwrap()
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Four rows for the test model, and their classes: 1 if the sum of the row is above 1.
fn rows(folder: &Path) -> (PathBuf, PathBuf) {
    let (input, labels) = (folder.join("x.npy"), folder.join("y.idx"));
    let values = [[0.0f32; 4], [1.0; 4], [-1.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5]];
    let bytes: Vec<u8> = values.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    npy(&input, "<f4", &[4, 4], &bytes);
    fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 0, 1]).unwrap();
    (input, labels)
}

#[test]
fn load_grades_answers_over_http_and_grpc() {
    let folder = tempfile::TempDir::new().unwrap();
    let (input, labels) = rows(folder.path());
    let worker = Parm::worker(&[]);
    let samples = folder.path().join("samples.csv");
    for url in [format!("http://{}", worker.http), format!("grpc://{}", worker.grpc)] {
        let output = load(
            &url,
            &[
                "--output",
                "json",
                "--input",
                input.to_str().unwrap(),
                "--labels",
                labels.to_str().unwrap(),
                "--samples",
                samples.to_str().unwrap(),
                "--require",
                "accuracy>=100%",
                "--require",
                "failed<=0%",
            ],
        );
        let report = report(&output);
        assert!(output.status.success(), "{report:#}");
        assert_eq!(report["outcomes"][0]["outcome"], "exact");
        assert_eq!(report["outcomes"][0]["accuracy"], 1.0, "{report:#}");
        assert_eq!(report["requirements"][0]["finding"], "met");
        let lines = fs::read_to_string(&samples).unwrap().lines().count();
        assert_eq!(lines - 1, report["sent"].as_u64().unwrap() as usize);
    }
}

#[test]
fn unmet_requirement_is_named_and_exits_1() {
    let worker = Parm::worker(&[]);
    let output =
        load(&format!("http://{}", worker.http), &["--require", "accuracy>=50%", "--require", "p50<=0us"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("accuracy>=50% (not measured), p50<=0ms (missed)"), "{said}");
}

#[test]
fn invalid_arguments_are_rejected_with_advice() {
    let worker = Parm::worker(&[]);
    let url = format!("http://{}", worker.http);
    for (arguments, reason) in [
        (&["--model", "nosuch"][..], "unknown model 'nosuch'"),
        (&["--input", "no/such.npy"], "no/such.npy: No such file"),
        (&["--samples", "no/such/folder/run.csv"], "cannot write no/such/folder/run.csv"),
        (&["--scenario", "offline", "--streams", "6000000"], "6000000 is not in 1..=1000000"),
        (
            &["--scenario", "server", "--rate", "1000000", "--seconds", "1000"],
            "for a shorter time or at a lower rate",
        ),
    ] {
        let model = if arguments[0] == "--model" { &[][..] } else { &["--model", "affine"] };
        refused(&[&["load", &url, "--quiet"], model, arguments].concat(), None, reason);
    }
}
