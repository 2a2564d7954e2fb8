//! Tests of recordings: through the admin API, to a file, and by a slow listener.

use std::num::NonZeroUsize;

use parm_frontend::Frontend;
use parm_settings::PolicyKind;
use parm_settings::recording::{Line, RecordedRole};
use serde_json::Value;

use crate::rig::{config, frontend, infer, request, send};
use crate::scripted::Scripted;

fn lines(text: &[u8]) -> Vec<Line> {
    std::str::from_utf8(text).unwrap().lines().map(|line| Line::parse(line).unwrap()).collect()
}

async fn status(frontend: &Frontend, path: &str) -> u16 {
    send(frontend, ("GET", &format!("/admin/v1/{path}")), &[], &Value::Null).await.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn admin_api_limits_recordings_in_length_and_number() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::quick("a", 20)]).await;
    for bad in ["seconds=0", "seconds=86401", "seconds=soon", "second=5"] {
        assert_eq!(status(&frontend, &format!("recording?{bad}")).await, 400, "{bad}");
    }
    let held: Vec<_> = (0..4).map(|_| frontend.record().unwrap()).collect();
    assert_eq!(status(&frontend, "recording").await, 503);
    drop(held);
    assert_eq!(status(&frontend, "recording").await, 200);
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
    let mut config = config(PolicyKind::None);
    config.recording.file = Some(path.clone());
    let frontend = frontend(config, &[&Scripted::quick("a", 20)]).await;
    let writing = frontend.record_to_file().await.unwrap().unwrap();
    infer(&frontend, request(&[1.0, 2.0])).await.unwrap();
    writing.end().await.unwrap();
    let lines = lines(&std::fs::read(&path).unwrap());
    assert!(matches!(lines.first(), Some(Line::Recording { format: 1, .. })), "{lines:?}");
    assert!(matches!(lines.last(), Some(Line::End { .. })), "{lines:?}");
    assert!(lines.contains(&Line::Model { number: 0, name: "double".into(), version: "1".into() }));
    assert_eq!(lines.iter().filter(|line| matches!(line, Line::Query(query) if query.rows == 2)).count(), 1);
    let deployed = |line: &Line| match line {
        Line::Job(job) if job.ok && job.role == RecordedRole::Deployed && job.took_us >= 20_000 => job.rows,
        _ => 0,
    };
    assert_eq!(lines.iter().map(deployed).sum::<u32>(), 2, "{lines:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("run.jsonl.old")).unwrap(), "before");
}
