//! Tests `parm serve --capture` on real traffic, and `parm stand-in` on the captured queries.

use std::path::Path;

use tempfile::TempDir;

use crate::support::process::{command, root, text};
use crate::support::{Parm, affine};

fn captured(folder: &Path, rows: usize) {
    let mut parm = Parm::serve(&[
        "--instances",
        "1",
        "--capture",
        folder.to_str().unwrap(),
        "--set",
        "frontend.capture.share=1.0",
    ]);
    parm.until_model_ready();
    for seed in 0..rows as u64 {
        let answer = affine::infer(parm.http, &affine::rows(1, seed));
        assert_eq!(answer.status, 200, "{}", answer.body_text());
    }
    assert!(parm.log().contains("requests is stored in this folder"), "{}", parm.log());
    parm.signal("TERM");
    assert!(parm.wait().success(), "{}", parm.log());
}

/// Searches for a stand-in, and returns the status and the output.
fn search(model: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let folder = TempDir::new().unwrap();
    let runs = folder.path().join("runs");
    let fixed = ["stand-in", model, "--dry-run", "--measure", "1", "--runs", runs.to_str().unwrap()];
    // A search has no time limit: on a busy machine it takes minutes.
    let output = command().args(fixed).args(arguments).output().unwrap();
    (output.status.code(), text(&[output.stdout, output.stderr].concat()))
}

#[test]
fn stand_in_search_uses_captured_queries() {
    let folder = TempDir::new().unwrap();
    let captures = folder.path().join("captures");
    captured(&captures, 40);
    let source = format!("capture:{}", captures.display());
    let affine = root().join("tests/models/affine/1/model.onnx");
    let (status, said) = search(affine.to_str().unwrap(), &["--name", "affine", "--data", &source]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("20 rows to make candidates, 10 more to refit weights, 10 to judge them"),
        "{said}"
    );

    let (status, said) = search(affine.to_str().unwrap(), &["--name", "other", "--data", &source]);
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("holds queries to 'affine', none to 'other'"), "{said}");

    let lenet = root().join("models/fashion-lenet/1/model.onnx");
    let (status, said) = search(lenet.to_str().unwrap(), &["--name", "affine", "--data", &source]);
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("captured from a model with the inputs x, but this model has input"), "{said}");
}
