//! Tests of the admin API, called without a network.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use parm_frontend::{Frontend, Timers};
use parm_protocol::InferenceService;
use parm_settings::PolicyKind;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::rig::{Network, call, config, connected, infer, metric, ready, request, send, start, until};
use crate::scripted::Scripted;

async fn fleet(servers: &[&std::sync::Arc<Scripted>]) -> Frontend {
    connected(config(PolicyKind::None), servers).await
}

#[tokio::test(start_paused = true)]
async fn instances_are_listed_with_state_and_times() {
    let frontend = fleet(&[&Scripted::quick("test://a", 20)]).await;
    infer(&frontend, request(&[1.0])).await.unwrap();
    let (status, list) = call(&frontend, "GET", "/instances", json!(null)).await;
    assert_eq!(status, 200);
    let one = &list[0];
    assert_eq!(
        (&one["address"], &one["source"], &one["state"]),
        (&json!("test://a"), &json!("static"), &json!("ready"))
    );
    assert_eq!((&one["in_service"], &one["inflight"]), (&json!(true), &json!(0)));
    assert_eq!(one["models"], json!([{"name": "double", "version": "1", "in_service": true}]));
    assert!(one["service_time"]["p99_us"].as_u64().unwrap() >= 20_000, "{one}");
    assert_eq!(call(&frontend, "GET", "/instances/1", json!(null)).await.1["number"], json!(1));
}

/// Pages and `parm top` reject streams with lines that are too long.
#[tokio::test(start_paused = true)]
async fn long_text_of_callers_is_truncated_in_stream_and_errors() {
    let frontend = fleet(&[&Scripted::quick("test://a", 20)]).await;
    let long = "x".repeat(1 << 19);
    for (method, path, body, status) in [
        ("PATCH", "/settings", json!({ "policy": long }), 400),
        ("POST", "/instances", json!({ "url": format!("test://{long}") }), 400),
        ("PATCH", "/settings/double", json!({ "backup_model": long }), 200),
    ] {
        let (is, answer) = call(&frontend, method, path, body).await;
        assert_eq!(is, status, "{path}");
        assert!(status == 200 || answer["error"].as_str().unwrap().len() <= 2000, "{path}");
    }
    let mut lines = send(&frontend, ("GET", "/admin/v1/stream"), &[], &Value::Null).await.into_body();
    for _ in 0..4 {
        let line = lines.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(line.len() < 10_000, "{} bytes", line.len());
    }
}

#[tokio::test(start_paused = true)]
async fn body_is_rejected_when_it_times_out() {
    let frontend = fleet(&[]).await;
    let body = Body::from_stream(futures::stream::pending::<Result<&str, std::io::Error>>());
    let request = Request::patch("/admin/v1/settings").header("content-type", "application/json");
    let answered = frontend.admin().router().oneshot(request.body(body).unwrap());
    let answered = tokio::time::timeout(std::time::Duration::from_secs(60), answered).await;
    let response = answered.expect("the body has no timeout").unwrap();
    assert_eq!(response.status().as_u16(), 400);
    let words = response.into_body().collect().await.unwrap().to_bytes();
    let words = String::from_utf8_lossy(&words).into_owned();
    assert!(words.contains("timed out after 10s"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn instances_are_added_and_removed_while_serving() {
    let (a, b) = (Scripted::quick("test://a", 20), Scripted::quick("test://b", 20));
    let network = Network::with(&[&a, &b]);
    let frontend = Frontend::start(config(PolicyKind::None), network, Timers::Runtime).unwrap();
    for (url, wanted) in [("test://a", 201), ("test://b", 201), ("test://a", 409), ("nonsense", 400)] {
        let (status, answer) = call(&frontend, "POST", "/instances", json!({"url": url})).await;
        assert_eq!(status, wanted, "{url}: {answer}");
    }
    until("both joined", || ready(&frontend) == 2.0).await;
    let held = [start(&frontend, request(&[1.0])), start(&frontend, request(&[2.0]))];
    until("both work", || a.seen.lock().len() + b.seen.lock().len() == 2).await;
    assert_eq!(call(&frontend, "DELETE", "/instances/1", json!(null)).await.0, 202);
    assert_eq!(call(&frontend, "DELETE", "/instances/1", json!(null)).await.0, 404);
    for request in held {
        request.await.unwrap().unwrap();
    }
    infer(&frontend, request(&[3.0])).await.unwrap();
    assert_eq!((a.seen.lock().len(), b.seen.lock().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn instance_is_drained_ejected_and_returned() {
    let (a, b) = (Scripted::quick("test://a", 20), Scripted::quick("test://b", 20));
    let frontend = fleet(&[&a, &b]).await;
    let state = |name: &str| metric(&frontend, "parm_instances", &[&format!("state=\"{name}\"")]);
    call(&frontend, "POST", "/instances/1/drain", json!(null)).await;
    until("one drains", || state("draining") == 1.0).await;
    infer(&frontend, request(&[1.0, 2.0])).await.unwrap();
    assert_eq!((a.seen.lock().len(), b.seen.lock().len()), (0, 2));
    call(&frontend, "POST", "/instances/1/undrain", json!(null)).await;
    until("the instance is back", || ready(&frontend) == 2.0).await;
    let held = start(&frontend, request(&[1.0, 2.0]));
    until("both work", || a.seen.lock().len() == 1).await;
    call(&frontend, "POST", "/instances/1/eject", json!(null)).await;
    held.await.unwrap().unwrap();
    assert_eq!(state("ejected"), 1.0);
    let list = call(&frontend, "GET", "/instances", json!(null)).await.1;
    assert_eq!((&list[0]["reason"], list[1].get("reason")), (&json!("order"), None));
    assert_eq!((a.seen.lock().len(), b.seen.lock().len()), (1, 4), "its work must run elsewhere");
    call(&frontend, "POST", "/instances/1/undrain", json!(null)).await;
    until("the instance is back again", || ready(&frontend) == 2.0).await;
    let (status, answer) = call(&frontend, "POST", "/instances/1/polish", json!(null)).await;
    assert_eq!(status, 400);
    assert!(answer["error"].as_str().unwrap().contains("drain"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn frontend_is_not_ready_while_all_instances_are_drained() {
    let frontend = fleet(&[&Scripted::quick("test://a", 20), &Scripted::quick("test://b", 20)]).await;
    for number in [1, 2] {
        assert!(frontend.is_ready(), "before instance {number} is drained");
        call(&frontend, "POST", &format!("/instances/{number}/drain"), json!(null)).await;
    }
    until("no instance accepts jobs", || ready(&frontend) == 0.0).await;
    assert!(!frontend.is_ready(), "every request would fail");
    call(&frontend, "POST", "/instances/1/undrain", json!(null)).await;
    until("the frontend is ready again", || frontend.is_ready()).await;
}

#[tokio::test(start_paused = true)]
async fn settings_are_read_and_changed_without_losing_a_query() {
    let server = Scripted::quick("test://a", 20);
    let frontend = fleet(&[&server]).await;
    let held = start(&frontend, request(&[1.0, 2.0, 3.0]));
    until("it works", || !server.seen.lock().is_empty()).await;
    let patch = json!({"policy": "hedge", "batch": {"max_size": 4}});
    let (status, changed) = call(&frontend, "PATCH", "/settings", patch).await;
    assert_eq!((status, &changed["dispatch"]["policy"]), (200, &json!("hedge")));
    held.await.unwrap().unwrap();
    assert_eq!(server.batches(), [1, 2], "waiting queries must be batched by the new settings");
    let (_, own) = call(&frontend, "PATCH", "/settings/double", json!({"queue_limit": 7})).await;
    assert_eq!((&own["queue_limit"], &own["policy"]), (&json!(7), &json!("hedge")));
    assert_eq!(own["in_force"]["1"]["policy"], json!("hedge"));
    let (_, all) = call(&frontend, "GET", "/settings", json!(null)).await;
    assert_eq!(all["models"]["double"]["queue_limit"], json!(7));
    assert_eq!(
        call(&frontend, "DELETE", "/settings/double", json!(null)).await.1["queue_limit"],
        json!(1024)
    );
    let again = call(&frontend, "DELETE", "/settings/double", json!(null)).await;
    assert_eq!(again.0, 200, "it follows the common settings already: {}", again.1);
    let unknown = call(&frontend, "DELETE", "/settings/nothing", json!(null)).await;
    assert_eq!(unknown.0, 404);
    assert_eq!(call(&frontend, "PATCH", "/settings", json!({"queue_limit": 0})).await.0, 400);
    assert_eq!(call(&frontend, "PATCH", "/settings/nothing", json!({})).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_and_methods_are_rejected_in_json() {
    let open = fleet(&[]).await;
    let (status, answer) = call(&open, "GET", "/nothing", json!(null)).await;
    assert_eq!(status, 404);
    assert!(answer["error"].as_str().unwrap().contains("/admin/v1/nothing"));
    assert_eq!(call(&open, "PUT", "/instances", json!(null)).await.0, 405);
}
