//! The emulated chat server over a real socket.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parm_backend::faults::{Plan, Replay, Wrong};
use parm_backend::{Chat, Config, Metrics, Worker, chat};
use parm_transport::keys::{Digest, Entry, Keys, Role};
use parm_transport::server::{self, Address, Server};
use parm_workload::{Fault, Faults, Targets, When};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

const PATH: &str = "/v1/chat/completions";

/// The key that requests have.
const KEY: &str = "hush";

/// A worker with an emulated chat server that takes no time, and with fault injection.
struct Scene {
    worker: Worker,
    registry: Registry,
    address: SocketAddr,
    _stop: DropGuard,
}

/// An answer, read to the end of its connection.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

fn settings() -> chat::Config {
    let model = Some("tiny".into());
    chat::Config { model, iteration_ms: 0.0, stream_ms: 0.0, prompt_token_ms: 0.0, ..chat::Config::default() }
}

impl Scene {
    async fn new() -> Self {
        Self::with(settings()).await
    }

    async fn with(chat: chat::Config) -> Self {
        Self::guarded(chat, Keys::none()).await
    }

    async fn guarded(chat: chat::Config, keys: Keys) -> Self {
        let registry = Registry::new();
        let config = Config { chat, faults: true, ..Config::default() };
        let worker = Worker::start(config, Metrics::worker(&registry).unwrap()).unwrap();
        worker.load().unwrap();
        let chat: Chat = worker.chat(&registry).unwrap().unwrap();
        let any = Address::local(0);
        let max_body_bytes = NonZeroUsize::new(100_000).unwrap();
        let config = server::Config {
            http: any,
            grpc: any,
            metrics: any,
            max_body_bytes,
            ..server::Config::default()
        };
        let server = Server::bind_for(keys, config, Arc::new(worker.clone())).await.unwrap();
        let server = server.with_guest(Arc::new(chat));
        let address = server.addresses().http;
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone()));
        Self { worker, registry, address, _stop: stop.drop_guard() }
    }

    /// Connects and sends a request of HTTP/1.0, whose answer ends with the connection.
    async fn send(&self, method: &str, path: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        stream
    }

    async fn ask(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let mut stream = self.send(method, path, body).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        Answer::read(&bytes)
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, body.to_string().as_bytes()).await
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

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The documents of a stream, which must end with `[DONE]`.
    fn events(&self) -> Vec<Value> {
        let mut events: Vec<&str> = self.body.split("\n\n").collect();
        assert_eq!(events.pop(), Some(""), "{}", self.body);
        assert_eq!(events.pop(), Some("data: [DONE]"), "{}", self.body);
        events
            .into_iter()
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect()
    }
}

fn chat_about(text: &str, tokens: u64) -> Value {
    let messages = json!([{ "role": "user", "content": text }]);
    json!({ "model": "tiny", "messages": messages, "max_tokens": tokens })
}

fn with(mut body: Value, name: &str, value: impl Into<Value>) -> Value {
    body[name] = value.into();
    body
}

#[tokio::test]
async fn replicas_answer_whole_and_with_the_same_bytes() {
    let (one, other) = (Scene::new().await, Scene::new().await);
    let body = chat_about("How late is it?", 5);
    let answer = one.post(PATH, &body).await;
    assert_eq!(answer.body, other.post(PATH, &body).await.body);
    let choice = &answer.json()["choices"][0];
    assert_eq!(
        (&answer.json()["object"], &choice["finish_reason"]),
        (&json!("chat.completion"), &json!("length"))
    );
    assert_eq!(choice["message"]["content"].as_str().unwrap().split(' ').count(), 5);
    let usage = json!({ "prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9 });
    assert_eq!(answer.json()["usage"], usage);
    assert_ne!(answer.body, one.post(PATH, &chat_about("How long is it?", 5)).await.body);
    let unlimited = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "Hi" }] });
    let unlimited = one.post(PATH, &unlimited).await.json();
    assert_eq!(unlimited["usage"]["completion_tokens"], 16);
    assert_eq!(unlimited["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn models_health_and_own_protocol_are_next_to_the_chat() {
    let scene = Scene::new().await;
    assert_eq!(scene.ask("GET", "/health", b"").await.status, 200);
    assert_eq!(scene.ask("GET", "/v1/models", b"").await.json()["data"][0]["id"], "tiny");
    assert_eq!(scene.ask("GET", "/v2/health/ready", b"").await.status, 200);
    assert_eq!(scene.ask("GET", "/v1/nothing", b"").await.status, 404);
}

#[tokio::test]
async fn bad_requests_are_answered_in_the_clients_shape() {
    let scene = Scene::new().await;
    let ok = || chat_about("Hi", 3);
    for (body, status, reason) in [
        (json!("text"), 400, "invalid body"),
        (with(ok(), "messages", json!([])), 400, "one message"),
        (with(ok(), "max_tokens", 0), 400, "one token of max_tokens"),
        (with(ok(), "max_tokens", u32::MAX), 400, "shorten"),
        (with(ok(), "max_completion_tokens", 262_144), 400, "262144 tokens at most"),
        (with(ok(), "model", "huge"), 404, "use `tiny`"),
        (chat_about(&"x".repeat(200_000), 3), 413, "100000"),
    ] {
        let answer = scene.post(PATH, &body).await;
        let error = answer.json()["error"].clone();
        let message = error["message"].as_str().unwrap_or_default();
        assert_eq!((answer.status, &error["type"]), (status, &json!("invalid_request_error")), "{message}");
        assert!(message.contains(reason), "{reason}: {message}");
    }
    let deep = scene.ask("POST", PATH, "[".repeat(50_000).as_bytes()).await;
    assert_eq!(deep.status, 400);
    assert_eq!(scene.ask("GET", PATH, b"").await.status, 405);
    assert_eq!(scene.count("parm_chat_waiting") + scene.count("parm_chat_running"), 0.0);
}

#[tokio::test]
async fn chunks_are_role_content_reason_usage_and_done() {
    let scene = Scene::new().await;
    let body = with(chat_about("How late is it?", 4), "stream", true);
    let whole = scene.post(PATH, &chat_about("How late is it?", 4)).await.json();
    let answer =
        scene.post(PATH, &with(body.clone(), "stream_options", json!({ "include_usage": true }))).await;
    assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
    let events = answer.events();
    assert_eq!(events.len(), 1 + 4 + 1 + 1, "{}", answer.body);
    let delta = |at: usize| events[at]["choices"][0]["delta"].clone();
    assert_eq!(delta(0), json!({ "role": "assistant", "content": "" }));
    let text: String = (1..5).map(|at| delta(at)["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    assert_eq!((delta(5), &events[5]["choices"][0]["finish_reason"]), (json!({}), &json!("length")));
    assert!((0..6).all(|at| events[at]["usage"].is_null() && events[at]["id"] == whole["id"]));
    assert_eq!((&events[6]["choices"], &events[6]["usage"]), (&json!([]), &whole["usage"]));
    let plain = scene.post(PATH, &body).await.events();
    assert!(plain.len() == 6 && plain.iter().all(|event| event.get("usage").is_none()), "{plain:?}");
}

/// Iterations that never end within a test.
fn slow() -> chat::Config {
    chat::Config { iteration_ms: 60_000.0, ..settings() }
}

#[tokio::test]
async fn client_that_leaves_frees_its_place_at_once() {
    let scene = Scene::with(slow()).await;
    for streams in [true, false] {
        let body = with(chat_about("Hi", 1000), "stream", streams).to_string();
        let mut client = scene.send("POST", PATH, body.as_bytes()).await;
        // The iteration of the first client goes on, so that the second one waits.
        scene.until(if streams { "parm_chat_running" } else { "parm_chat_waiting" }, 1.0).await;
        if streams {
            let mut head = [0; 12];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.0 200", "the head does not wait for a token");
        }
        drop(client);
        scene.until("parm_chat_running", 0.0).await;
        scene.until("parm_chat_waiting", 0.0).await;
    }
}

#[tokio::test]
async fn stream_counts_for_its_key_until_it_ends() {
    let concurrency = std::num::NonZeroU32::new(1);
    let key = Entry { concurrency, ..Entry::new("a", Role::Infer, Digest::of(KEY.as_bytes())) };
    let scene = Scene::guarded(slow(), Keys::of(&[key])).await;
    let body = with(chat_about("Hi", 1000), "stream", true).to_string();
    let (path, body) = (PATH, body.as_bytes());
    let mut first = scene.send("POST", path, body).await;
    let mut head = [0; 12];
    first.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.0 200");
    assert_eq!(scene.ask("POST", path, body).await.status, 429, "the stream is in progress");
    drop(first);
    // Until the server has noticed it.
    loop {
        let mut next = scene.send("POST", path, body).await;
        next.read_exact(&mut head).await.unwrap();
        if &head == b"HTTP/1.0 200" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn client_that_reads_slowly_gets_every_token() {
    let scene = Scene::new().await;
    let body = with(chat_about("Hi", 20_000), "stream", true).to_string();
    let mut client = scene.send("POST", PATH, body.as_bytes()).await;
    // The server generates all of them meanwhile.
    scene.until("parm_chat_output_tokens_total", 20_000.0).await;
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(Answer::read(&bytes).events().len(), 20_002);
}

fn set(scene: &Scene, plan: Plan) {
    scene.worker.faults().unwrap().set(plan).unwrap();
}

/// A replica with a fault from now on.
fn scheduled(fault: Fault) -> Plan {
    let faults = Faults(vec![fault]);
    let schedule = Replay { scenario: None, faults, seed: 1, first: 0, instances: 1, starts_in_ms: -1 };
    Plan { schedule: Some(schedule), ..Plan::default() }
}

#[tokio::test]
async fn standing_replica_continues_with_the_next_plan() {
    let on = Targets::Each;
    let hang = Fault::Hang { when: When::Always, on: on.clone() };
    // An iteration then takes a quarter of an hour.
    let slow = Fault::Slow { factor: 1e6, when: When::Always, on };
    let stall = Plan { stall: Duration::from_secs(3600), ..Plan::default() };
    for plan in [scheduled(hang), scheduled(slow), stall] {
        let scene = Scene::with(chat::Config { iteration_ms: 1.0, ..settings() }).await;
        set(&scene, plan);
        let body = chat_about("Hi", 2).to_string();
        let mut client = scene.send("POST", PATH, body.as_bytes()).await;
        scene.until("parm_chat_running", 1.0).await;
        assert_eq!(scene.count("parm_chat_output_tokens_total"), 0.0);
        assert_eq!(scene.ask("GET", "/health", b"").await.status, 200);
        set(&scene, Plan::default());
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(Answer::read(&bytes).status, 200);
    }
}

#[tokio::test]
async fn share_of_the_requests_fails_or_is_wrong() {
    let scene = Scene::new().await;
    let right = scene.post(PATH, &chat_about("Hi", 5)).await.body;
    set(&scene, Plan { error_rate: 1.0, ..Plan::default() });
    let failed = scene.post(PATH, &chat_about("Hi", 5)).await;
    assert_eq!((failed.status, &failed.json()["error"]["type"]), (500, &json!("server_error")));
    set(&scene, Plan { wrong: Some(Wrong::Random), ..Plan::default() });
    let wrong = scene.post(PATH, &chat_about("Hi", 5)).await;
    assert_eq!(wrong.status, 200);
    assert_ne!(wrong.body, right);
    set(&scene, Plan { instance: Some(1), error_rate: 1.0, ..Plan::default() });
    assert_eq!(scene.post(PATH, &chat_about("Hi", 5)).await.body, right, "the replica is number 0");
}
