//! Tests of requests for upstream servers, over scripted ones.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::client::Client;
use parm_protocol::{
    Code, Context, Error, InferenceService, OpaqueAnswer, OpaqueBody, OpaqueRequest, RequestStream, Transport,
};
use parm_settings::PolicyKind;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::rig::{MS, Network, call, metric, ready, until};
use crate::scripted::{Act, Scripted};

/// Answers without a pause.
const AT_ONCE: Act = Act::Answer(Duration::ZERO);

async fn over(policy: PolicyKind, servers: &[&Arc<Scripted>]) -> Frontend {
    let mut config = Config::default();
    config.dispatch.policy = policy;
    start(config, servers).await
}

async fn start(mut config: Config, servers: &[&Arc<Scripted>]) -> Frontend {
    let plain = |server: &&Arc<Scripted>| server.peer().strip_prefix("upstream+").unwrap().to_owned();
    config.upstreams.urls = servers.iter().map(plain).collect();
    let frontend = Frontend::start(config, Network::with(servers), Timers::Runtime).unwrap();
    until("all servers joined", || ready(&frontend) == servers.len() as f64).await;
    frontend
}

fn request(method: Method, path: &str) -> OpaqueRequest {
    OpaqueRequest {
        method,
        target: path.parse().unwrap(),
        headers: HeaderMap::new(),
        body: "ask".into(),
        stream: None,
        repeatable: false,
        stall: Duration::ZERO,
    }
}

async fn send(frontend: &Frontend, request: OpaqueRequest) -> Result<OpaqueAnswer, Error> {
    frontend.forward(request, Context::new(Instant::now(), Transport::Http)).await
}

async fn chat(frontend: &Frontend) -> Result<OpaqueAnswer, Error> {
    send(frontend, request(Method::POST, "/v1/chat/completions")).await
}

/// The longest pause that the server's last answer may have.
async fn patience(frontend: &Frontend, server: &Scripted) -> Duration {
    if let OpaqueBody::Begun(_, rest) = chat(frontend).await.unwrap().body {
        rest.collect().await.unwrap();
    }
    server.forwarded.lock().last().unwrap().stall
}

#[tokio::test(start_paused = true)]
async fn patience_with_a_silent_server_is_learned() {
    let server = Scripted::upstream("a", Act::Answer(10 * MS));
    let frontend = over(PolicyKind::Hedge, &[&server]).await;
    assert_eq!(patience(&frontend, &server).await, 60_000 * MS, "nothing is known");
    for _ in 0..256 {
        patience(&frontend, &server).await;
    }
    assert_eq!(patience(&frontend, &server).await, 10_000 * MS, "its longest pause was 10 ms");
    server.becomes(Act::Answer(2_000 * MS));
    patience(&frontend, &server).await;
    assert_eq!(patience(&frontend, &server).await, 40_000 * MS);
    server.becomes(Act::Answer(30_000 * MS));
    drop(chat(&frontend).await.unwrap());
    assert_eq!(patience(&frontend, &server).await, 40_000 * MS, "a client that left before the pause");
    assert_eq!(patience(&frontend, &server).await, 60_000 * MS, "stall_ms is the most");
}

#[tokio::test(start_paused = true)]
async fn only_own_paths_stay_here() {
    let server = Scripted::upstream("a", AT_ONCE);
    let frontend = over(PolicyKind::Hedge, &[&server]).await;
    let own = [
        "/v2/health/live",
        "/v2/health/ready",
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ];
    assert!(own.iter().all(|path| !frontend.forwards(path)));
    let infer = "/inference.GRPCInferenceService/ModelInfer";
    let others = ["/", "/v1/chat/completions", "/v2/models/m/infer", "/v2", infer];
    assert!(others.iter().all(|path| frontend.forwards(path)));
    frontend.embed(Scripted::new("e", Act::Answer(MS)), None).unwrap();
    assert!(!frontend.forwards("/v2/models/m/infer") && !frontend.forwards("/v2"));
    assert!(!frontend.forwards(infer) && !frontend.forwards("/inference.GRPCInferenceService/Unknown"));
    assert!(frontend.forwards("/tensorflow.serving.PredictionService/Predict"));
    assert!(frontend.forwards("/v1/chat/completions") && frontend.forwards("/v2x"));
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_are_sent_once_and_say_so() {
    let broken = Error::Transport { peer: "a".into(), message: "it hung".into() };
    let servers = ["a", "b"].map(|name| Scripted::upstream(name, AT_ONCE));
    let frontend = over(PolicyKind::Hedge, &[&servers[0], &servers[1]]).await;
    let sent = |answer: OpaqueAnswer| answer.headers.get("parm-sent").cloned();
    let answer = send(&frontend, request(Method::POST, "/mine")).await.unwrap();
    assert_eq!(sent(answer).unwrap(), "once");
    assert_eq!(sent(chat(&frontend).await.unwrap()), None);
    servers.iter().for_each(|server| server.becomes(Act::Fail(Duration::ZERO, broken.clone())));
    let error = send(&frontend, request(Method::POST, "/mine")).await.unwrap_err().to_string();
    assert!(error.contains("POST /mine was not sent") && error.contains("--repeatable"), "{error}");
    let seen = servers.iter().map(|server| server.forwarded.lock().len()).sum::<usize>();
    assert_eq!(seen, 3, "each once");
}

#[tokio::test(start_paused = true)]
async fn paths_of_the_protocol_return_when_its_last_server_leaves() {
    let server = Scripted::upstream("a", AT_ONCE);
    let mut config = Config::default();
    config.instances.limit = std::num::NonZeroU32::new(2).unwrap();
    let frontend = start(config, &[&server]).await;
    let path = "/v2/models/m/infer";
    let worker = |name: &str| json!({ "url": format!("frames://{name}:1") });
    let (status, added) = call(&frontend, "POST", "/instances", worker("b")).await;
    assert!(status == 201 && !frontend.forwards(path), "{added}");
    let added = format!("/instances/{}", added["number"]);
    let (status, _) = call(&frontend, "DELETE", &added, Value::Null).await;
    assert!(status == 202 && frontend.forwards(path));
    let other = json!({ "url": "http://a:2" });
    let (status, added) = call(&frontend, "POST", "/instances", other).await;
    assert!(status == 201 && added["address"] == "upstream+http://a:2", "{added}");
    let (status, refused) = call(&frontend, "POST", "/instances", worker("c")).await;
    assert!(status != 201 && frontend.forwards(path), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn policies_without_whole_copies_become_hedges() {
    let server = Scripted::upstream("a", AT_ONCE);
    let frontend = over(PolicyKind::Equal, &[&server]).await;
    for (method, path, route, policy) in [
        (Method::POST, "/v1/chat/completions", "chat", "equal"),
        (Method::POST, "/v1/files", "other", "once"),
        (Method::GET, "/v1/models", "read", "equal"),
    ] {
        send(&frontend, request(method, path)).await.unwrap();
        let labels = [format!("model=\"{route}\""), format!("policy=\"{policy}\"")];
        let labels = labels.each_ref().map(String::as_str);
        assert_eq!(metric(&frontend, "parm_request_duration_seconds_count", &labels), 1.0, "{route}");
    }
    let mut config = Config::default();
    config.dispatch.policy = PolicyKind::ParmPlus;
    config.dispatch.coding.code = Some(parm_encoder::Kind::Mds);
    let coded = start(config, &[&server]).await;
    chat(&coded).await.unwrap();
    let labels = ["model=\"chat\"", "policy=\"hedge\""];
    assert_eq!(metric(&coded, "parm_request_duration_seconds_count", &labels), 1.0);
}

/// A server loses a call that it read more slowly than another one.
#[tokio::test(start_paused = true)]
async fn server_that_lost_calls_stays_in_service() {
    let lost = Error::Unsent { peer: "a".into(), message: "its client has sent too much for a copy".into() };
    let servers =
        [Scripted::upstream("a", Act::Fail(Duration::ZERO, lost)), Scripted::upstream("b", AT_ONCE)];
    let frontend = over(PolicyKind::Hedge, &servers.each_ref()).await;
    let mut failed = 0;
    for _ in 0..16 {
        let stream = Some(RequestStream::new("a".into()));
        let call = OpaqueRequest { stream, ..request(Method::POST, "/v1/chat/completions") };
        if let Err(error) = send(&frontend, call).await {
            assert_eq!(error.code(), Code::Unavailable, "{error}");
            failed += 1;
        }
    }
    assert_eq!((failed, metric(&frontend, "parm_ejections_total", &["reason=\"failing\""])), (8, 0.0));
}
