//! Tests of requests for upstream servers, over scripted ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use parm_frontend::discovery::Connect;
use parm_frontend::{Config, Frontend, Timers, upstreams};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Broken, Code, Context, Error, FailedAnswer, InferRequest, InferResponse, InferenceService, ModelIndex,
    ModelMetadata, ModelRef, OpaqueAnswer, OpaqueBody, OpaqueRequest, ServerMetadata, Transport,
};
use parm_settings::PolicyKind;
use parm_transport::client::ROUTE;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::fleet::MS;
use crate::rig::{metric, ready, until};
use crate::scripted::{Act, Scripted};

/// Reaction of a server to a request.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Answers after a while with its name.
    Answers(Duration),
    /// Begins an answer after a while, and ends it 10 ms later.
    Streams(Duration),
    /// Begins an answer at once, and ends it after a while.
    Pauses(Duration),
    Fails(Error),
    Hangs,
}

/// A scripted upstream server.
pub(crate) struct Server {
    pub(crate) name: String,
    does: Mutex<Does>,
    pub(crate) seen: Mutex<Vec<Arc<OpaqueRequest>>>,
    cancelled: Mutex<usize>,
    routes: Arc<[String]>,
}

struct Pending<'a>(&'a Server, bool);

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        *self.0.cancelled.lock() += usize::from(!self.1);
    }
}

impl Server {
    pub(crate) fn new(name: &str, does: Does) -> Arc<Self> {
        let routes = upstreams::Config::default().client().unwrap().routes;
        Self::at(format!("upstream+http://{name}:1"), routes, does)
    }

    /// A server of gRPC, next to one of HTTP.
    pub(crate) fn of_grpc(name: &str, does: Does) -> Arc<Self> {
        let urls = vec!["http://a:1".into(), format!("grpc://{name}:1")];
        let client = upstreams::Config { urls, ..upstreams::Config::default() }.client().unwrap();
        Self::at(format!("upstream+grpc://{name}:1"), client.over_http2, does)
    }

    fn at(name: String, routes: Arc<[String]>, does: Does) -> Arc<Self> {
        let (does, seen, cancelled) = (Mutex::new(does), Mutex::default(), Mutex::default());
        Arc::new(Self { name, does, seen, cancelled, routes })
    }

    pub(crate) fn now(&self, does: Does) {
        *self.does.lock() = does;
    }

    fn seen(&self) -> usize {
        self.seen.lock().len()
    }

    async fn answer(&self, request: Arc<OpaqueRequest>) -> Result<OpaqueAnswer, Error> {
        // A client that still sends sends more than is held.
        request.stream.iter().for_each(|stream| stream.push(vec![0; 2 << 20].into()));
        self.seen.lock().push(request);
        let mut pending = Pending(self, false);
        let does = self.does.lock().clone();
        let (status, headers) = (StatusCode::OK, HeaderMap::new());
        let name = Bytes::from(self.name.clone());
        let answer = match does {
            Does::Answers(after) => {
                tokio::time::sleep(after).await;
                Ok(OpaqueAnswer { status, headers, body: OpaqueBody::Whole(name), broken: Broken::default() })
            }
            Does::Streams(_) | Does::Pauses(_) => {
                let (after, pause) = match does {
                    Does::Pauses(pause) => (Duration::ZERO, pause),
                    Does::Streams(after) => (after, 10 * MS),
                    _ => unreachable!(),
                };
                tokio::time::sleep(after).await;
                let rest = futures::stream::once(async move {
                    tokio::time::sleep(pause).await;
                    Ok(Frame::data(Bytes::from(" ends")))
                });
                let body = OpaqueBody::Begun(name, Box::pin(StreamBody::new(rest)));
                Ok(OpaqueAnswer { status, headers, body, broken: Broken::default() })
            }
            Does::Fails(error) => Err(error),
            Does::Hangs => std::future::pending().await,
        };
        pending.1 = true;
        answer
    }
}

impl Client for Server {
    fn peer(&self) -> &str {
        &self.name
    }

    fn infer(&self, _: InferRequest, _: CallContext) -> BoxFuture<'_, Result<InferResponse, Error>> {
        panic!("an upstream server gets no tensors")
    }

    fn forward(
        &self,
        request: Arc<OpaqueRequest>,
        _: CallContext,
    ) -> BoxFuture<'_, Result<OpaqueAnswer, Error>> {
        Box::pin(self.answer(request))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async { Ok(true) })
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(async { Ok(ServerMetadata::default()) })
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        let (name, platform) = (model.name.clone(), ROUTE.to_owned());
        Box::pin(async { Ok(ModelMetadata { name, platform, ..ModelMetadata::default() }) })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        let index =
            |name: &String| ModelIndex { name: name.clone(), state: "READY".into(), ..ModelIndex::default() };
        Box::pin(async move { Ok(self.routes.iter().map(index).collect()) })
    }
}

/// Servers by address.
struct Servers(BTreeMap<String, Arc<dyn Client>>);

impl Connect for Servers {
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>> {
        let refused = move || Error::Unavailable { message: format!("nothing listens at {url}") };
        Box::pin(async move { self.0.get(url).cloned().ok_or_else(refused) })
    }
}

pub(crate) async fn over(policy: PolicyKind, servers: &[&Arc<Server>]) -> Frontend {
    let mut config = Config::default();
    config.dispatch.policy = policy;
    start(config, servers).await
}

async fn start(mut config: Config, servers: &[&Arc<Server>]) -> Frontend {
    let plain = |server: &&Arc<Server>| server.name.strip_prefix("upstream+").unwrap().to_owned();
    config.upstreams.urls = servers.iter().map(plain).collect();
    let known = servers.iter().map(|server| (server.name.clone(), Arc::clone(server) as Arc<dyn Client>));
    let frontend = Frontend::start(config, Arc::new(Servers(known.collect())), Timers::Runtime).unwrap();
    until("all servers joined", || ready(&frontend) == servers.len() as f64).await;
    frontend
}

pub(crate) fn request(method: Method, path: &str) -> OpaqueRequest {
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

pub(crate) fn context() -> Context {
    let (arrived, transport) = (Instant::now(), Transport::Http);
    Context::new(arrived, transport)
}

pub(crate) async fn send(frontend: &Frontend, request: OpaqueRequest) -> Result<OpaqueAnswer, Error> {
    frontend.forward(request, context()).await
}

async fn chat(frontend: &Frontend) -> Result<OpaqueAnswer, Error> {
    send(frontend, request(Method::POST, "/v1/chat/completions")).await
}

pub(crate) async fn text(answer: OpaqueAnswer) -> String {
    let bytes = match answer.body {
        OpaqueBody::Whole(bytes) => bytes.to_vec(),
        OpaqueBody::Begun(first, rest) => [first, rest.collect().await.unwrap().to_bytes()].concat(),
    };
    String::from_utf8(bytes).unwrap()
}

/// The longest pause that the server's last answer may have.
async fn patience(frontend: &Frontend, server: &Server) -> Duration {
    text(chat(frontend).await.unwrap()).await;
    server.seen.lock().last().unwrap().stall
}

#[tokio::test(start_paused = true)]
async fn patience_with_a_silent_server_is_learned() {
    let server = Server::new("a", Does::Pauses(10 * MS));
    let frontend = over(PolicyKind::Hedge, &[&server]).await;
    assert_eq!(patience(&frontend, &server).await, 60_000 * MS, "nothing is known");
    for _ in 0..256 {
        patience(&frontend, &server).await;
    }
    assert_eq!(patience(&frontend, &server).await, 10_000 * MS, "its longest pause was 10 ms");
    server.now(Does::Pauses(2_000 * MS));
    patience(&frontend, &server).await;
    assert_eq!(patience(&frontend, &server).await, 40_000 * MS);
    server.now(Does::Pauses(30_000 * MS));
    drop(chat(&frontend).await.unwrap());
    assert_eq!(patience(&frontend, &server).await, 40_000 * MS, "a client that left before the pause");
    assert_eq!(patience(&frontend, &server).await, 60_000 * MS, "stall_ms is the most");
}

/// Answers requests until service times are known.
async fn warm(frontend: &Frontend) {
    for _ in 0..64 {
        chat(frontend).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn request_arrives_as_it_is_and_its_answer_too() {
    let server = Server::new("a", Does::Answers(5 * MS));
    let frontend = over(PolicyKind::Hedge, &[&server]).await;
    let mut asked = request(Method::POST, "/v1/chat/completions?x=1");
    asked.headers.insert("x-mine", "1".parse().unwrap());
    asked.headers.insert("parm-timeout-ms", "500".parse().unwrap());
    let answer = send(&frontend, asked).await.unwrap();
    assert_eq!(answer.headers["parm-outcome"], "exact");
    assert_eq!(text(answer).await, server.name);
    let seen = server.seen.lock()[0].clone();
    assert_eq!((seen.target.as_str(), &seen.body[..]), ("/v1/chat/completions?x=1", &b"ask"[..]));
    assert_eq!(seen.headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-mine"]);
    assert!(seen.repeatable);
    assert_eq!(metric(&frontend, "nv_inference_request_success", &["model=\"chat\""]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn model_of_the_body_chooses_the_pool() {
    let big = upstreams::RouteConfig {
        paths: vec!["/v1/chat/completions?model=big".into()],
        repeatable: false,
        ..upstreams::RouteConfig::default()
    };
    let mut config = Config::default();
    config.upstreams.routes.insert("big".into(), big);
    let routes = config.upstreams.client().unwrap().routes;
    let server = Server::at("upstream+http://a:1".into(), routes, Does::Answers(5 * MS));
    let frontend = start(config, &[&server]).await;
    for (model, is_repeatable) in [("big", false), ("small", true)] {
        let mut asked = request(Method::POST, "/v1/chat/completions");
        asked.body = json!({ "messages": [], "model": model }).to_string().into();
        send(&frontend, asked).await.unwrap();
        assert_eq!(server.seen.lock().last().unwrap().repeatable, is_repeatable, "{model}");
    }
    for pool in ["model=\"big\"", "model=\"chat\""] {
        assert_eq!(metric(&frontend, "nv_inference_request_success", &[pool]), 1.0, "{pool}");
    }
}

#[tokio::test(start_paused = true)]
async fn stream_passes_on_and_frees_its_place_with_its_first_content() {
    let server = Server::new("a", Does::Streams(5 * MS));
    let mut config = Config::default();
    config.upstreams.concurrency = std::num::NonZeroU16::MIN;
    let frontend = start(config, &[&server]).await;
    let first = chat(&frontend).await.unwrap();
    let second = chat(&frontend).await.unwrap();
    assert_eq!(text(first).await, format!("{} ends", server.name));
    assert_eq!(text(second).await, format!("{} ends", server.name));
}

#[tokio::test(start_paused = true)]
async fn late_request_is_answered_by_another_server() {
    let servers = [Server::new("a", Does::Answers(20 * MS)), Server::new("b", Does::Answers(20 * MS))];
    let frontend = over(PolicyKind::Hedge, &servers.each_ref()).await;
    warm(&frontend).await;
    servers[0].now(Does::Hangs);
    let began = Instant::now();
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        let answer = chat(&frontend).await.unwrap();
        outcomes.push(answer.headers["parm-outcome"].to_str().unwrap().to_owned());
        assert_eq!(text(answer).await, servers[1].name);
    }
    outcomes.sort();
    assert_eq!(outcomes, ["exact", "hedged"]);
    assert!(began.elapsed() < 200 * MS, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn request_that_changes_something_is_sent_once() {
    let servers = [Server::new("a", Does::Answers(20 * MS)), Server::new("b", Does::Answers(20 * MS))];
    let frontend = over(PolicyKind::Hedge, &servers.each_ref()).await;
    let sent = || servers.iter().map(|server| server.seen()).sum::<usize>();
    let create = || request(Method::POST, "/v1/files");
    for _ in 0..64 {
        send(&frontend, create()).await.unwrap();
    }
    servers.iter().for_each(|server| server.now(Does::Hangs));
    let before = sent();
    let mut slow = create();
    slow.headers.insert("parm-timeout-ms", "2000".parse().unwrap());
    let error = send(&frontend, slow).await.unwrap_err();
    assert_eq!((error.code(), sent() - before), (Code::DeadlineExceeded, 1));
    let broke = Error::Transport { peer: "a".into(), message: "reset".into() };
    servers.iter().for_each(|server| server.now(Does::Fails(broke.clone())));
    let before = sent();
    let error = send(&frontend, create()).await.unwrap_err();
    assert_eq!((error.code(), sent() - before), (Code::Unavailable, 1));
    let unsent = Error::Unsent { peer: "a".into(), message: "refused".into() };
    servers.iter().for_each(|server| server.now(Does::Answers(MS)));
    servers[0].now(Does::Fails(unsent));
    for _ in 0..4 {
        let answer = send(&frontend, create()).await.unwrap();
        assert_eq!(text(answer).await, servers[1].name, "a request that was not sent goes elsewhere");
    }
}

#[tokio::test(start_paused = true)]
async fn failure_is_tried_elsewhere_and_the_last_answer_is_shown() {
    let failed = |status: u16| {
        let status = StatusCode::from_u16(status).unwrap();
        let answer = FailedAnswer { status, headers: HeaderMap::new(), body: "no".into() };
        Does::Fails(Error::Answered(Box::new(answer)))
    };
    for status in [500, 502, 503, 429] {
        let servers = [Server::new("a", failed(status)), Server::new("b", Does::Answers(MS))];
        let frontend = over(PolicyKind::Hedge, &servers.each_ref()).await;
        for _ in 0..4 {
            assert_eq!(text(chat(&frontend).await.unwrap()).await, servers[1].name, "{status}");
        }
        servers[1].now(failed(status));
        let answer = chat(&frontend).await.unwrap();
        assert_eq!((answer.status.as_u16(), &*text(answer).await), (status, "no"));
        assert!(metric(&frontend, "nv_inference_request_failure", &["model=\"chat\""]) == 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn client_that_goes_away_cancels_its_request() {
    let server = Server::new("a", Does::Hangs);
    let frontend = over(PolicyKind::Hedge, &[&server]).await;
    let asked = tokio::spawn({
        let frontend = frontend.clone();
        async move { chat(&frontend).await }
    });
    until("the server has the request", || server.seen() == 1).await;
    asked.abort();
    until("the server's call is dropped", || *server.cancelled.lock() == 1).await;
    server.now(Does::Answers(MS));
    chat(&frontend).await.unwrap();
    assert_eq!(frontend.held().jobs, 0);
}

#[tokio::test(start_paused = true)]
async fn only_own_paths_stay_here() {
    let server = Server::new("a", Does::Answers(MS));
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

/// Asks the admin API; returns its status and its answer.
async fn admin(frontend: &Frontend, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let request = http::Request::builder().method(method).uri(format!("/admin/v1{path}"));
    let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
    let response = frontend.admin().router().oneshot(request.unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn paths_of_the_protocol_return_when_its_last_server_leaves() {
    let server = Server::new("a", Does::Answers(MS));
    let mut config = Config::default();
    config.instances.limit = std::num::NonZeroU32::new(2).unwrap();
    let frontend = start(config, &[&server]).await;
    let path = "/v2/models/m/infer";
    let worker = |name: &str| json!({ "url": format!("http://{name}:1") });
    let (status, added) = admin(&frontend, Method::POST, "/instances", worker("b")).await;
    assert!(status.is_success() && !frontend.forwards(path), "{added}");
    let (status, _) =
        admin(&frontend, Method::DELETE, &format!("/instances/{}", added["number"]), Value::Null).await;
    assert!(status.is_success() && frontend.forwards(path));
    let other = json!({ "url": "upstream+http://a:2" });
    assert!(admin(&frontend, Method::POST, "/instances", other).await.0.is_success());
    let (status, refused) = admin(&frontend, Method::POST, "/instances", worker("c")).await;
    assert!(!status.is_success() && frontend.forwards(path), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn wrong_header_for_parm_is_an_error() {
    let server = Server::new("a", Does::Answers(MS));
    let frontend = over(PolicyKind::Hedge, &[&server]).await;
    for (name, value) in [("parm-timeout-ms", "soon"), ("parm-priority", "-1"), ("parm-share", "nobody")] {
        let mut asked = request(Method::POST, "/v1/chat/completions");
        asked.headers.insert(name, value.parse().unwrap());
        let error = send(&frontend, asked).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{name}: {error}");
    }
    assert_eq!(server.seen(), 0);
}

#[tokio::test(start_paused = true)]
async fn policies_without_whole_copies_become_hedges() {
    let server = Server::new("a", Does::Answers(MS));
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

#[tokio::test(start_paused = true)]
async fn request_that_was_not_sent_waits_for_a_server_that_takes_it() {
    let servers = [Server::new("a", Does::Answers(20 * MS)), Server::new("b", Does::Answers(20 * MS))];
    let mut config = Config::default();
    config.upstreams.concurrency = std::num::NonZeroU16::MIN;
    let frontend = start(config, &servers.each_ref()).await;
    let create = || send(&frontend, request(Method::POST, "/v1/files"));
    for _ in 0..64 {
        create().await.unwrap();
    }
    servers[0].now(Does::Fails(Error::Unsent { peer: "a".into(), message: "refused".into() }));
    for answer in futures::future::join_all((0..2).map(|_| create())).await {
        assert_eq!(text(answer.unwrap()).await, servers[1].name);
    }
}
