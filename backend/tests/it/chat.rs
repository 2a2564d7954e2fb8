//! The emulated chat server as its HTTP server calls it.

use std::time::Duration;

use http_body_util::BodyExt;
use parm_backend::faults::{Plan, Replay};
use parm_backend::{Chat, Config, Metrics, Worker, chat};
use parm_protocol::Error as Refusal;
use parm_transport::server::{Guest, GuestBody};
use parm_workload::{Fault, Faults, Targets, When};
use prometheus::Registry;
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";

/// A worker with an emulated chat server, and with fault injection.
struct Scene {
    worker: Worker,
    registry: Registry,
    chat: Chat,
}

/// A server that takes no time.
fn settings() -> chat::Config {
    let model = Some("tiny".into());
    chat::Config { model, iteration_ms: 0.0 }
}

/// A server whose iterations never end within a test.
fn slow() -> chat::Config {
    chat::Config { iteration_ms: 60_000.0, ..settings() }
}

impl Scene {
    fn new(chat: chat::Config) -> Self {
        let registry = Registry::new();
        let config = Config { chat, faults: true, ..Config::default() };
        let worker = Worker::start(config, Metrics::worker(&registry).unwrap()).unwrap();
        worker.load().unwrap();
        let chat = worker.chat(&registry).unwrap().unwrap();
        Self { worker, registry, chat }
    }

    /// Asks as the server does, which may have refused the body.
    async fn ask(&self, path: &str, body: Result<Vec<u8>, Refusal>) -> http::Response<GuestBody> {
        let (head, ()) = http::Request::post(path).body(()).unwrap().into_parts();
        self.chat.answer(head, body.map(Into::into)).await
    }

    /// The status and the whole body of an answer.
    async fn post(&self, body: &Value) -> (u16, String) {
        whole(self.ask(PATH, Ok(body.to_string().into())).await).await
    }

    async fn json(&self, body: &Value) -> Value {
        serde_json::from_str(&self.post(body).await.1).unwrap()
    }

    /// The documents of a stream, which must end with `[DONE]`.
    async fn events(&self, body: &Value) -> Vec<Value> {
        let (status, body) = self.post(&with(body, "stream", true)).await;
        let mut events: Vec<&str> = body.split("\n\n").collect();
        assert_eq!((status, events.pop(), events.pop()), (200, Some(""), Some("data: [DONE]")), "{body}");
        let document = |event: &str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        events.into_iter().map(document).collect()
    }

    fn set(&self, plan: Plan) {
        self.worker.faults().unwrap().set(plan).unwrap();
    }

    /// A metric's value.
    fn count(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = &family.get_metric()[0];
        metric.get_gauge().get_value() + metric.get_counter().get_value()
    }

    /// Waits until a metric has this value.
    async fn until(&self, name: &str, value: f64) {
        while self.count(name) != value {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn whole(answer: http::Response<GuestBody>) -> (u16, String) {
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.into()).unwrap())
}

fn chat_about(text: &str, tokens: u64) -> Value {
    let messages = json!([{ "role": "user", "content": text }]);
    json!({ "model": "tiny", "messages": messages, "max_tokens": tokens })
}

fn with(body: &Value, name: &str, value: impl Into<Value>) -> Value {
    let mut body = body.clone();
    body[name] = value.into();
    body
}

#[tokio::test]
async fn replicas_answer_whole_and_with_the_same_bytes() {
    let (one, other) = (Scene::new(settings()), Scene::new(settings()));
    let body = chat_about("How late is it?", 5);
    assert_eq!(one.post(&body).await, other.post(&body).await);
    assert_ne!(one.post(&body).await, one.post(&chat_about("How long is it?", 5)).await);
    let answer = one.json(&body).await;
    let choice = &answer["choices"][0];
    assert_eq!((&answer["object"], &choice["finish_reason"]), (&json!("chat.completion"), &json!("length")));
    assert_eq!(choice["message"]["content"].as_str().unwrap().split(' ').count(), 5);
    let usage = json!({ "prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9 });
    assert_eq!(answer["usage"], usage);
    let unlimited = one.json(&with(&chat_about("Hi", 0), "max_tokens", Value::Null)).await;
    assert_eq!(
        (&unlimited["usage"]["completion_tokens"], &unlimited["choices"][0]["finish_reason"]),
        (&json!(16), &json!("stop"))
    );
    let (status, models) = whole(one.ask("/v1/models", Ok(vec![])).await).await;
    assert!(status == 200 && models.contains("\"id\":\"tiny\""), "{models}");
    assert_eq!(one.ask("/health", Ok(vec![])).await.status(), 200);
}

#[tokio::test]
async fn bad_requests_are_answered_in_the_clients_shape() {
    let scene = Scene::new(settings());
    let ok = chat_about("Hi", 3);
    let unsupported = Refusal::Unimplemented { what: "GET".into() };
    for (body, status, reason) in [
        (Ok(json!("text")), 400, "invalid body"),
        (Ok(with(&ok, "messages", json!([]))), 400, "one message"),
        (Ok(with(&ok, "max_tokens", 0)), 400, "one token of max_tokens"),
        (Ok(with(&ok, "max_tokens", u32::MAX)), 400, "shorten"),
        (Ok(with(&ok, "max_completion_tokens", 262_144)), 400, "262144 tokens at most"),
        (Ok(with(&ok, "model", "huge")), 404, "use `tiny`"),
        (Err(unsupported), 405, "GET is not supported"),
        (Err(Refusal::Malformed { message: "no".into() }), 400, "no"),
    ] {
        let (answered, answer) = whole(scene.ask(PATH, body.map(|body| body.to_string().into())).await).await;
        let error = &serde_json::from_str::<Value>(&answer).unwrap()["error"];
        assert_eq!((answered, &error["type"]), (status, &json!("invalid_request_error")), "{answer}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(reason)), "{answer}");
    }
    assert_eq!(scene.ask(PATH, Ok("[".repeat(50_000).into())).await.status(), 400);
    assert_eq!(scene.count("parm_chat_waiting") + scene.count("parm_chat_running"), 0.0);
}

#[tokio::test]
async fn chunks_are_role_content_reason_usage_and_done() {
    let scene = Scene::new(settings());
    let body = chat_about("How late is it?", 4);
    let whole = scene.json(&body).await;
    let events = scene.events(&with(&body, "stream_options", json!({ "include_usage": true }))).await;
    assert_eq!(events.len(), 1 + 4 + 1 + 1, "{events:?}");
    let delta = |at: usize| events[at]["choices"][0]["delta"].clone();
    assert_eq!(delta(0), json!({ "role": "assistant", "content": "" }));
    let text: String = (1..5).map(|at| delta(at)["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    assert_eq!((delta(5), &events[5]["choices"][0]["finish_reason"]), (json!({}), &json!("length")));
    assert!((0..6).all(|at| events[at]["usage"].is_null() && events[at]["id"] == whole["id"]));
    assert_eq!((&events[6]["choices"], &events[6]["usage"]), (&json!([]), &whole["usage"]));
    let plain = scene.events(&body).await;
    assert!(plain.len() == 6 && plain.iter().all(|event| event.get("usage").is_none()), "{plain:?}");
}

#[tokio::test]
async fn client_that_leaves_frees_its_place_at_once() {
    let scene = Scene::new(slow());
    let body = with(&chat_about("Hi", 1000), "stream", true).to_string();
    // The head does not wait for a token.
    let streaming = scene.ask(PATH, Ok(body.into())).await;
    assert_eq!(
        (streaming.status().as_u16(), &streaming.headers()["content-type"]),
        (200, &http::HeaderValue::from_static("text/event-stream; charset=utf-8"))
    );
    scene.until("parm_chat_running", 1.0).await;
    let mut waiting = Box::pin(scene.ask(PATH, Ok(chat_about("Hi", 1000).to_string().into())));
    let polled = std::future::poll_fn(|task| std::task::Poll::Ready(waiting.as_mut().poll(task))).await;
    assert!(polled.is_pending() && scene.count("parm_chat_waiting") == 1.0);
    drop(waiting);
    assert_eq!((scene.count("parm_chat_running"), scene.count("parm_chat_waiting")), (1.0, 0.0));
    drop(streaming);
    assert_eq!(scene.count("parm_chat_running"), 0.0);
}

#[tokio::test]
async fn client_that_reads_slowly_gets_every_token() {
    let scene = Scene::new(settings());
    let body = with(&chat_about("Hi", 20_000), "stream", true).to_string();
    let answer = scene.ask(PATH, Ok(body.into())).await;
    // The server generates all of them meanwhile.
    scene.until("parm_chat_output_tokens_total", 20_000.0).await;
    assert_eq!(whole(answer).await.1.matches("data: ").count(), 20_003);
}

#[tokio::test]
async fn standing_replica_continues_with_the_next_plan() {
    let scheduled = |fault: Fault| {
        let faults = Faults(vec![fault]);
        let schedule = Replay { scenario: None, faults, seed: 1, first: 0, instances: 1, starts_in_ms: -1 };
        Plan { schedule: Some(schedule), ..Plan::default() }
    };
    let hang = Fault::Hang { when: When::Always, on: Targets::Each };
    // An iteration then takes a quarter of an hour.
    let slow = Fault::Slow { factor: 1e6, when: When::Always, on: Targets::Each };
    let stall = Plan { stall: Duration::from_secs(3600), ..Plan::default() };
    for plan in [scheduled(hang), scheduled(slow), stall] {
        let scene = Scene::new(chat::Config { iteration_ms: 1.0, ..settings() });
        scene.set(plan);
        let body = with(&chat_about("Hi", 2), "stream", true).to_string();
        let answer = scene.ask(PATH, Ok(body.into())).await;
        scene.until("parm_chat_running", 1.0).await;
        assert_eq!(scene.count("parm_chat_output_tokens_total"), 0.0);
        assert_eq!(scene.ask("/health", Ok(vec![])).await.status(), 200);
        scene.set(Plan::default());
        assert!(whole(answer).await.1.ends_with("data: [DONE]\n\n"));
    }
}

#[tokio::test]
async fn share_of_the_requests_fails_or_is_wrong() {
    let scene = Scene::new(settings());
    let body = chat_about("Hi", 5);
    let right = scene.post(&body).await;
    scene.set(Plan { error_rate: 1.0, ..Plan::default() });
    let (status, failed) = scene.post(&body).await;
    assert!(status == 500 && failed.contains("server_error"), "{status} {failed}");
    scene.set(Plan { wrong_rate: 1.0, ..Plan::default() });
    let (status, wrong) = scene.post(&body).await;
    assert!(status == 200 && wrong != right.1, "{wrong}");
    scene.set(Plan { instance: Some(1), error_rate: 1.0, ..Plan::default() });
    assert_eq!(scene.post(&body).await, right, "the replica is number 0");
}
