//! Tests of recordings (through the admin API, to a file, and by a slow listener) and of captured queries.

use std::num::NonZeroUsize;
use std::path::Path;

use axum::body::Body;
use http_body_util::BodyExt;
use parm_frontend::{Config, Error, Frontend, Timers};
use parm_settings::recording::{Line, RecordedRole};
use parm_settings::{Fraction, PolicyKind};
use serde_json::Value;

use crate::rig::{Network, column, config, frontend, infer, metric, request, send};
use crate::scripted::Scripted;

fn lines(text: &[u8]) -> Vec<Line> {
    std::str::from_utf8(text).unwrap().lines().map(|line| Line::parse(line).unwrap()).collect()
}

async fn get(frontend: &Frontend, path: &str) -> (u16, Body) {
    let response = send(frontend, ("GET", &format!("/admin/v1/{path}")), &[], &Value::Null).await;
    (response.status().as_u16(), response.into_body())
}

#[tokio::test(start_paused = true)]
async fn traffic_is_streamed_with_instances_and_times() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::quick("a", 20)]).await;
    let (status, body) = get(&frontend, "recording?seconds=1").await;
    assert_eq!(status, 200);
    infer(&frontend, request(&[1.0])).await.unwrap();
    infer(&frontend, request(&[1.0, 2.0])).await.unwrap();
    let lines = lines(&body.collect().await.unwrap().to_bytes());
    assert!(matches!(lines.first(), Some(Line::Recording { format: 1, .. })), "{lines:?}");
    assert!(matches!(lines.last(), Some(Line::End { at_us: 1_000_000.. })), "{lines:?}");
    assert!(lines.contains(&Line::Model { number: 0, name: "double".into(), version: "1".into() }));
    let named =
        |line: &Line| matches!(line, Line::Instance { number: 0, name } if name.starts_with("embedded"));
    assert!(lines.iter().any(named), "{lines:?}");
    let rows = lines.iter().filter_map(|line| match line {
        Line::Query(query) => Some(query.rows),
        _ => None,
    });
    assert_eq!(rows.collect::<Vec<_>>(), [1, 2]);
    let jobs: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Job(job) => Some(job),
            _ => None,
        })
        .collect();
    assert_eq!(jobs.iter().map(|job| job.rows).sum::<u32>(), 3);
    assert!(
        jobs.iter().all(|job| job.took_us >= 20_000 && job.role == RecordedRole::Deployed && job.ok),
        "{jobs:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn admin_api_limits_recordings_in_length_and_number() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::quick("a", 20)]).await;
    for bad in ["seconds=0", "seconds=86401", "seconds=soon", "second=5"] {
        assert_eq!(get(&frontend, &format!("recording?{bad}")).await.0, 400, "{bad}");
    }
    let held: Vec<_> = (0..4).map(|_| frontend.record().unwrap()).collect();
    assert_eq!(get(&frontend, "recording").await.0, 503);
    drop(held);
    assert_eq!(get(&frontend, "recording").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn slow_listener_loses_events_and_gets_their_number() {
    let mut config = config(PolicyKind::None);
    config.recording.buffer = NonZeroUsize::new(3).unwrap();
    let frontend = frontend(config, &[&Scripted::quick("a", 20)]).await;
    let mut recording = frontend.record().unwrap();
    for _ in 0..5 {
        infer(&frontend, request(&[1.0])).await.unwrap();
    }
    let mut text = Vec::new();
    recording.end(&mut text);
    let lines = lines(&text);
    let kept = lines.iter().filter(|line| matches!(line, Line::Query(_) | Line::Job(_))).count();
    assert_eq!(kept, 3);
    assert!(lines.contains(&Line::Dropped { notes: 7 }), "{lines:?}");
}

#[tokio::test]
async fn recording_file_is_complete_and_previous_one_kept() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("run.jsonl");
    std::fs::write(&path, "before").unwrap();
    let frontend = frontend(to(&path), &[&Scripted::quick("a", 1)]).await;
    let writing = frontend.record_to_file().await.unwrap().unwrap();
    infer(&frontend, request(&[1.0])).await.unwrap();
    writing.end().await.unwrap();
    let lines = lines(&std::fs::read(&path).unwrap());
    assert!(matches!(lines.last(), Some(Line::End { .. })), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| matches!(line, Line::Query(_))).count(), 1);
    assert_eq!(std::fs::read_to_string(folder.path().join("run.jsonl.old")).unwrap(), "before");
}

fn to(path: &std::path::Path) -> Config {
    let mut config = config(PolicyKind::None);
    config.recording.file = Some(path.to_owned());
    config
}

fn captured_in(folder: &Path) -> Config {
    let mut config = config(PolicyKind::None);
    config.capture.folder = Some(folder.to_owned());
    config.capture.share = Fraction::percent(100);
    config
}

#[tokio::test]
async fn captured_requests_have_the_deployed_models_answers() {
    let folder = tempfile::TempDir::new().unwrap();
    let frontend = frontend(captured_in(folder.path()), &[&Scripted::quick("a", 1)]).await;
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
    assert_eq!(metric(&frontend, "parm_captured_requests_total", &["event=\"kept\""]), 2.0);
}

#[tokio::test]
async fn folder_that_cannot_be_created_is_an_error_at_start() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Frontend::start(captured_in(&file), Network::with(&[]), Timers::Runtime).err().unwrap();
    assert!(matches!(&error, Error::Capture { path, .. } if *path == file), "{error}");
}
