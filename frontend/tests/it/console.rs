//! Tests of the operator page and its stream of frames, called without a network.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use parm_frontend::Frontend;
use parm_settings::PolicyKind;
use parm_transport::client::Token;
use parm_transport::keys::{Digest, Entry, Keys, Role};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};
use tower::ServiceExt;

use crate::rig::{config, frontend, get, infer, request, send, started, until, warm, with};
use crate::scripted::{Act, Scripted};

/// A watcher that reads on demand.
struct Reader {
    body: Body,
    lines: Vec<Value>,
}

async fn ask(frontend: &Frontend, path: &str) -> axum::response::Response {
    send(frontend, ("GET", path), &[], &Value::Null).await
}

async fn watch(frontend: &Frontend, since: u64) -> Reader {
    let response = ask(frontend, &format!("/admin/v1/stream?since={since}")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    assert_eq!(response.headers()["cache-control"], "no-store");
    Reader { body: response.into_body(), lines: Vec::new() }
}

impl Reader {
    /// The next line; `None` at the end of the stream.
    async fn line(&mut self) -> Option<Value> {
        let data = self.body.frame().await?.unwrap().into_data().unwrap();
        let line: Value = serde_json::from_slice(&data).unwrap();
        self.lines.push(line.clone());
        Some(line)
    }

    /// The next line of a kind.
    async fn next(&mut self, kind: &str) -> Value {
        loop {
            let line = self.line().await.expect("the stream continues");
            if let Some(found) = line.get(kind) {
                return found.clone();
            }
        }
    }
}

fn sum(histogram: &Value) -> u64 {
    histogram.as_array().unwrap().chunks(2).map(|pair| pair[1].as_u64().unwrap()).sum()
}

#[tokio::test(start_paused = true)]
async fn watcher_gets_names_first_and_then_a_frame_per_second() {
    let (a, b) = (Scripted::quick("test://a", 20), Scripted::quick("test://b", 20));
    let frontend = frontend(config(PolicyKind::Hedge), &[&a, &b]).await;
    let mut reader = watch(&frontend, 0).await;
    let hello = reader.next("hello").await;
    assert_eq!(
        (&hello["format"], &hello["role"], &hello["key"]),
        (&json!(1), &json!("control"), &json!(null))
    );
    let model = reader.next("models").await[0].clone();
    assert_eq!(
        (&model["name"], &model["in_force"], &model["own"]),
        (&json!("double"), &json!("hedge"), &json!(false))
    );
    let instances = reader.next("instances").await;
    assert_eq!(instances[1]["models"], json!([model["m"]]));
    let kinds: Vec<_> =
        reader.next("events").await.as_array().unwrap().iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "joined").count(), 2);
    assert!(kinds.contains(&json!("model")), "{kinds:?}");

    for _ in 0..20 {
        infer(&frontend, request(&[1.0])).await.unwrap();
    }
    let frame = reader.next("frame").await;
    let own = &frame["models"][0];
    let column =
        |name: &str| hello["columns"].as_array().unwrap().iter().position(|known| known == name).unwrap();
    let place =
        |count: &str| hello["counts"].as_array().unwrap().iter().position(|name| name == count).unwrap();
    let counted = place("arrived");
    assert_eq!((&frame["over_ms"], &own["counts"][counted]), (&json!(1000), &json!(20)));
    assert_eq!((sum(&own["latency"][0]), sum(&own["alone"]), &own["alone_unknown"]), (20, 20, &json!(0)));
    assert_eq!(own["work_us"], json!([400_000, 0, 0, 0, 0]));
    assert_eq!(own["groups"], json!(null));
    assert_eq!(["batches", "batch_rows"].map(|count| &own["counts"][place(count)]), [&json!(20); 2]);
    let [p99, objective] = [0, 1].map(|at| own["objective_us"][at].as_u64().unwrap());
    assert!((19_000..21_000).contains(&p99) && objective > 40_000, "{p99} of {objective}");
    let jobs: u64 = [0, 1].iter().map(|at| frame["instances"][*at][column("jobs")].as_u64().unwrap()).sum();
    let row = &frame["instances"][0];
    assert_eq!((jobs, &row[column("state")], &row[column("oldest_ms")]), (20, &json!(1), &json!(null)));
    // 20 ms is in the bucket that begins at 64 us * 2^(132 / 16).
    assert_eq!(own["latency"][0][0], json!(132));
    let second = reader.next("frame").await;
    assert_eq!(second["models"][0]["counts"][counted], json!(0), "a frame must cover one second");
    assert!(reader.lines.iter().all(|line| line.as_object().unwrap().len() == 1));
}

#[tokio::test(start_paused = true)]
async fn past_covers_the_seconds_without_watchers() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::quick("test://a", 20)]).await;
    let mut first = watch(&frontend, 0).await;
    let hello = first.next("hello").await;
    let arrived = hello["counts"].as_array().unwrap().iter().position(|count| count == "arrived").unwrap();
    let seen = [first.next("frame").await, first.next("frame").await];
    drop(first);
    for _ in 0..60 {
        infer(&frontend, request(&[1.0])).await.unwrap();
        sleep(Duration::from_millis(980)).await;
    }
    let mut second = watch(&frontend, 0).await;
    let next = second.next("frame").await;
    let past: Vec<&Value> = second.lines.iter().filter_map(|line| line.get("past")).collect();
    let at = |frame: &Value| frame["at"].as_u64().unwrap();
    assert_eq!(past[..2].iter().map(|past| at(past)).collect::<Vec<_>>(), seen.each_ref().map(at));
    assert!(past.iter().all(|past| past.get("instances").is_none()), "{past:?}");
    let frames: Vec<&Value> = past.iter().copied().chain([&next]).collect();
    let between = frames.windows(2).map(|pair| (at(pair[1]) - at(pair[0]), &pair[1]["over_ms"]));
    assert!(between.clone().all(|pair| pair == (1000, &json!(1000))), "{:?}", between.collect::<Vec<_>>());
    let queries = frames.iter().map(|frame| frame["models"][0]["counts"][arrived].as_u64().unwrap());
    assert_eq!((frames.len() > 60, queries.sum::<u64>()), (true, 60), "{} frames", frames.len());
    let mut third = watch(&frontend, at(past[past.len() - 1])).await;
    assert_eq!(third.next("past").await["at"], next["at"], "known frames must be left out");
}

#[tokio::test(start_paused = true)]
async fn slow_watcher_gets_the_number_of_missed_frames() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::quick("test://a", 20)]).await;
    let (mut slow, mut quick) = (watch(&frontend, 0).await, watch(&frontend, 0).await);
    for _ in 0..20 {
        quick.next("frame").await;
    }
    for _ in 0..4 {
        slow.next("frame").await;
    }
    let dropped = slow.next("dropped").await.as_u64().unwrap();
    let frames = slow.lines.iter().filter(|line| line.get("frame").is_some()).count() as u64;
    assert!(frames + dropped >= 20 && dropped >= 10, "{frames} received, {dropped} dropped");
    slow.next("frame").await;
}

/// Seven sleeping laptops must not occupy the places of other watchers.
#[tokio::test(start_paused = true)]
async fn watcher_is_dropped_when_it_takes_no_line_for_30_s() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::quick("test://a", 20)]).await;
    let mut silent = Vec::new();
    for _ in 0..7 {
        silent.push(watch(&frontend, 0).await);
    }
    let mut quick = watch(&frontend, 0).await;
    for _ in 0..20 {
        quick.next("frame").await;
    }
    let refused = ask(&frontend, "/admin/v1/stream").await.status();
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE, "a pause of 20 s must not end a stream");
    for _ in 0..20 {
        quick.next("frame").await;
    }
    for _ in 0..7 {
        let mut late = watch(&frontend, 0).await;
        late.next("hello").await;
        // It reads from here on, as a page does.
        tokio::spawn(async move { while late.line().await.is_some() {} });
    }
    for mut reader in silent {
        while reader.line().await.is_some() {}
    }
    quick.next("frame").await;
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_the_frontend() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::quick("test://a", 20)]).await;
    let mut reader = watch(&frontend, 0).await;
    reader.next("frame").await;
    frontend.start_draining();
    while reader.line().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn page_needs_no_key_but_data_does() {
    let mut config = config(PolicyKind::None);
    config.admin.token = Some(Token::new("open sesame"));
    let frontend = started(config).unwrap();
    for (path, kind) in
        [("/", "text/html"), ("/page/main.js", "text/javascript"), ("/page/style.css", "text/css")]
    {
        let response = ask(&frontend, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let headers = response.headers().clone();
        assert!(headers["content-type"].to_str().unwrap().starts_with(kind), "{path}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self'; frame-ancestors 'none'"), "{policy}");
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert!(!headers.keys().any(|name| name.as_str().starts_with("access-control")), "{headers:?}");
        let etag = ("if-none-match", headers["etag"].to_str().unwrap());
        let again = send(&frontend, ("GET", path), &[etag], &Value::Null).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{path}");
    }
    assert_eq!(ask(&frontend, "/page/CONTRACT.md").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(ask(&frontend, "/admin/v1/stream").await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn pages_of_other_sites_are_rejected() {
    let mut config = config(PolicyKind::None);
    config.admin.hosts = vec!["parm.example".into()];
    let frontend = started(config).unwrap();
    let status = async |method: &str, path: &str, headers: &[(&str, &str)]| {
        send(&frontend, (method, path), headers, &Value::Null).await.status()
    };
    for (method, path) in [("GET", "/"), ("PATCH", "/admin/v1/settings"), ("GET", "/x")] {
        let rebound = status(method, path, &[("host", "evil.example:8003")]).await;
        assert_eq!(rebound, StatusCode::FORBIDDEN, "{method} {path}");
        let foreign = [("host", "parm.example"), ("origin", "http://evil.example")];
        assert_eq!(status(method, path, &foreign).await, StatusCode::FORBIDDEN, "{method} {path}");
        let own = [("host", "parm.example"), ("origin", "http://parm.example")];
        assert_ne!(status(method, path, &own).await, StatusCode::FORBIDDEN, "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn story_of_hedged_query_is_kept() {
    let (a, b) = (Scripted::quick("test://a", 20), Scripted::quick("test://b", 20));
    let frontend = frontend(config(PolicyKind::Hedge), &[&a, &b]).await;
    warm(&frontend, &request(&[1.0])).await;
    let mut reader = watch(&frontend, 0).await;
    reader.next("frame").await;
    let (_, before) = get(&frontend, "/queries?outcome=hedged").await;
    assert_eq!(before["queries"], json!([]));
    a.then(Act::Answer(Duration::from_millis(300)));
    while get(&frontend, "/queries?outcome=hedged").await.1["queries"] == json!([]) {
        let mut request = request(&[1.0]);
        request.id = "frame-88".into();
        infer(&frontend, request).await.unwrap();
    }
    until("the straggler has answered", || frontend.held().jobs == 0).await;
    let (mut hedged, mut slowest) = (0, 0);
    for _ in 0..2 {
        let own = reader.next("frame").await["models"][0].clone();
        hedged += sum(&own["latency"][1]);
        let buckets = own["alone"].as_array().unwrap().chunks(2).map(|pair| pair[0].as_u64().unwrap());
        slowest = slowest.max(buckets.max().unwrap_or_default());
    }
    // 300 ms is in the bucket that begins at 64 us * 2^(195 / 16).
    assert_eq!((hedged, slowest), (1, 195), "the time without redundancy");
    let (_, found) = get(&frontend, "/queries?model=double&request=frame-88&slowest=true&limit=1").await;
    let query = &found["queries"][0];
    assert_eq!((&query["outcome"], &query["request"]), (&json!("hedged"), &json!("frame-88")));
    assert!(query["alone_us"].as_u64().unwrap() >= 300_000, "{query}");
    let (status, told) = get(&frontend, &format!("/queries/{}", query["id"].as_str().unwrap())).await;
    assert_eq!(status, 200);
    let steps: Vec<_> =
        told["timeline"].as_array().unwrap().iter().map(|step| step["what"].clone()).collect();
    assert_eq!(steps, ["arrived", "given", "late", "hedged", "answered", "prediction_in"]);
    assert_eq!(told["timeline"][3]["instance"], told["instance"], "the hedge's instance must have answered");
    assert!(told["why"].as_str().unwrap().contains("sooner than the prediction"), "{}", told["why"]);
    assert_eq!(get(&frontend, "/queries/0123456789abcdef").await.0, 404);
    assert_eq!(get(&frontend, "/queries/nonsense").await.0, 404);
    assert_eq!(get(&frontend, "/queries?color=red").await.0, 400);
    let (status, refused) = get(&frontend, "/queries?outcome=foo").await;
    assert_eq!(status, 400);
    assert!(refused["error"].as_str().unwrap().contains("use one of exact, hedged"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn story_of_a_failed_query_has_a_part_of_its_long_id() {
    let frontend = frontend(config(PolicyKind::None), &[&Scripted::new("test://a", Act::Hang)]).await;
    let mut late = with(request(&[1.0]), "timeout", 200_000u64);
    late.id = "\u{e9}".repeat(1 << 19);
    infer(&frontend, late).await.unwrap_err();
    let (_, found) = get(&frontend, "/queries?outcome=failed").await;
    assert_eq!(found["queries"][0]["request"], json!("\u{e9}".repeat(200)));
}

#[tokio::test(start_paused = true)]
async fn revoked_key_ends_its_stream() {
    let frontend = started(config(PolicyKind::None)).unwrap();
    let key = |name: &str, role| Entry::new(name, role, Digest::of(name.as_bytes()));
    let all = [key("viewer", Role::Read), key("operator", Role::Control)];
    let keys = Keys::of(&all);
    let request = Request::get("/admin/v1/stream").header("authorization", "Bearer viewer");
    let guarded = frontend.admin().guarded_by(keys.clone()).router();
    let response = guarded.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let mut reader = Reader { body: response.into_body(), lines: Vec::new() };
    let hello = reader.next("hello").await;
    assert_eq!((&hello["role"], &hello["key"]), (&json!("read"), &json!("viewer")));
    reader.next("frame").await;
    keys.replace(&all[1..]);
    while reader.line().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn configured_key_opens_admin_api_next_to_key_file() {
    let mut config = config(PolicyKind::None);
    config.admin.token = Some(Token::new("open sesame"));
    let frontend = started(config).unwrap();
    let keys = Keys::of(&[Entry::new("viewer", Role::Read, Digest::of(b"viewer"))]);
    for (key, status) in
        [("open sesame", StatusCode::OK), ("viewer", StatusCode::OK), ("x", StatusCode::UNAUTHORIZED)]
    {
        let request = Request::get("/admin/v1/settings").header("authorization", format!("Bearer {key}"));
        let request = request.body(Body::empty()).unwrap();
        let answer = frontend.admin().guarded_by(keys.clone()).router().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status, "{key}");
    }
}
