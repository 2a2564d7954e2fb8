//! Tests of captured queries, and of a folder that cannot be written.

use std::path::Path;

use parm_frontend::{Config, Error, Frontend, Timers};
use parm_settings::{Fraction, PolicyKind};

use crate::rig::{Network, column, config, frontend, infer, metric, request};
use crate::scripted::Scripted;

fn to(folder: &Path) -> Config {
    let mut config = config(PolicyKind::None);
    config.capture.folder = Some(folder.to_owned());
    config.capture.share = Fraction::percent(100);
    config
}

fn count(frontend: &Frontend, event: &str) -> f64 {
    metric(frontend, "parm_captured_requests_total", &[&format!("event=\"{event}\"")])
}

#[tokio::test]
async fn captured_requests_have_the_deployed_models_answers() {
    let folder = tempfile::TempDir::new().unwrap();
    let frontend = frontend(to(folder.path()), &[&Scripted::quick("a", 1)]).await;
    for values in [&[1.0, 2.0][..], &[5.0]] {
        let answer = infer(&frontend, request(values)).await.unwrap();
        assert_eq!(column(&answer).len(), values.len());
    }
    frontend.settle_capture().await;
    let kept = parm_captures::read(folder.path(), "double").unwrap();
    assert_eq!((kept.records.len(), kept.lost), (2, 0));
    let first = &kept.records[0];
    assert_eq!(first.inputs[0].tensor.as_f32().unwrap().as_ref(), [1.0, 2.0, 2.0, 3.0]);
    let said = first.outputs.iter().find(|output| output.name == "y").unwrap();
    assert_eq!(said.tensor.as_f32().unwrap().as_ref()[..1], [2.0]);
    assert_eq!(count(&frontend, "kept"), 2.0);
}

#[tokio::test]
async fn nothing_is_captured_without_a_folder() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::quick("a", 1)]).await;
    infer(&frontend, request(&[1.0])).await.unwrap();
    frontend.settle_capture().await;
    assert!(!frontend.metrics().contains("parm_captured"));
}

#[tokio::test]
async fn capture_ends_and_serving_goes_on_when_writing_fails() {
    let folder = tempfile::TempDir::new().unwrap();
    // A file is in the place of the model's folder.
    std::fs::write(folder.path().join("double"), "").unwrap();
    let frontend = frontend(to(folder.path()), &[&Scripted::quick("a", 1)]).await;
    for _ in 0..3 {
        let answer = infer(&frontend, request(&[3.0])).await.unwrap();
        assert_eq!(column(&answer), [6.0]);
        frontend.settle_capture().await;
    }
    assert_eq!((count(&frontend, "kept"), count(&frontend, "failed")), (0.0, 1.0));
}

#[tokio::test]
async fn folder_that_cannot_be_created_is_an_error_at_start() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Frontend::start(to(&file), Network::with(&[]), Timers::Runtime).err().unwrap();
    assert!(matches!(&error, Error::Capture { path, .. } if *path == file), "{error}");
}
