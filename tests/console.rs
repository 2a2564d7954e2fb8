//! Tests `parm ctl` and `parm top` on a running frontend.

use serde_json::{Value, json};

use crate::support::process::{refused, succeeds};
use crate::support::{Parm, affine, http};

/// Runs a command that must succeed, and returns its output.
fn said(parm: &Parm, words: &[&str]) -> String {
    let url = format!("http://{}", parm.admin.unwrap());
    succeeds(&[words, &["--url", &url]].concat())
}

fn infer(parm: &Parm, id: &str) {
    let mut body = affine::json(&affine::rows(1, 3));
    body["id"] = json!(id);
    let answer = http::post(parm.http, "/v2/models/affine/infer", body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body_text());
}

#[test]
fn ctl_changes_a_frontend_and_shows_its_state() {
    let parm = Parm::serve(&["--instances", "2", "--admin", "127.0.0.1:0"]);
    parm.until_model_ready();
    assert_eq!(said(&parm, &["ctl", "set", "affine", "queue_limit=77"]), "queue_limit 1024 to 77\n");
    assert_eq!(said(&parm, &["ctl", "set", "affine", "queue_limit=77"]), "nothing changed\n");
    let exported = said(&parm, &["ctl", "export"]);
    assert!(exported.contains("[frontend.models.affine]\nqueue_limit = 77"), "{exported}");
    let settings: Value = serde_json::from_str(&said(&parm, &["ctl", "settings"])).unwrap();
    assert_eq!(settings["models"]["affine"]["queue_limit"], json!(77));
    assert!(parm.log().contains("queue_limit 1024 to 77"), "{}", parm.log());

    assert!(said(&parm, &["ctl", "drain", "2"]).contains("instance 2 received the order"));
    parm.until("it drains", |parm| said(parm, &["ctl", "instances"]).contains("   2  draining"));
    said(&parm, &["ctl", "return", "2"]);
    parm.until("it is back", |parm| said(parm, &["ctl", "instances"]).contains("   2  ready"));

    // The first queries are the slowest so far, so their traces are kept.
    (0..40).for_each(|_| infer(&parm, "frame-88"));
    let story = said(&parm, &["ctl", "query", "frame-88"]);
    assert!(story.contains("It arrived.") && story.contains("got it."), "{story}");
    assert!(said(&parm, &["ctl", "queries", "--slowest"]).contains("frame-88"));

    parm.until("batches are shown", |parm| {
        infer(parm, "frame-89");
        let models = said(parm, &["ctl", "models", "--output", "json"]);
        let models: Value = serde_json::from_str(&models).unwrap();
        let (rows, used) = (models[0]["rows_per_batch"].as_f64(), models[0]["objective_used"].as_f64());
        models[0]["model"] == "affine" && rows == Some(1.0) && used.is_some_and(|used| used < 1.0)
    });
    let models = said(&parm, &["ctl", "models"]);
    assert!(models.starts_with("MODEL ") && models.contains("\naffine "), "{models}");

    let top = said(&parm, &["top", "--once"]);
    assert!(top.contains("affine") && top.contains("embedded:0") && top.contains("settings"), "{top}");
}

#[test]
fn ctl_and_top_show_rejections_with_advice() {
    let parm =
        Parm::serve(&["--instances", "1", "--admin", "127.0.0.1:0", "--set", "frontend.admin.token=sesame"]);
    let url = format!("http://{}", parm.admin.unwrap());
    let key = ["--key", "sesame"];
    for (words, key, word) in [
        (&["ctl", "instances"][..], &[][..], "PARM_KEY"),
        (&["ctl", "drain", "9"], &key, "unknown instance 9"),
        (&["ctl", "set", "queue_limit=0"], &key, "from 1 to 1000000"),
        (&["ctl", "query", "0123456789abcdef"], &key, "not kept"),
        (&["top"], &[], "PARM_KEY"),
    ] {
        refused(&[words, &["--url", &url], key].concat(), Some(1), word);
    }
}
