//! Tests of requests for upstream servers, over scripted ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use parm_frontend::discovery::Connect;
use parm_frontend::{Config, Frontend, Timers, upstreams};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Broken, Code, Context, Error, InferRequest, InferResponse, InferenceService, ModelIndex, ModelMetadata,
    ModelRef, OpaqueAnswer, OpaqueBody, OpaqueRequest, RequestStream, ServerMetadata, Transport,
};
use parm_settings::PolicyKind;
use parm_transport::client::ROUTE;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::rig::{MS, call, metric, ready, until};
use crate::scripted::{Act, Scripted};

/// Reaction of a server to a request.
#[derive(Clone, Debug)]
enum Does {
    /// Answers at once.
    Answers,
    /// Begins an answer at once, and ends it after a while.
    Pauses(Duration),
    Fails(Error),
}

/// A scripted upstream server.
struct Server {
    name: String,
    does: Mutex<Does>,
    seen: Mutex<Vec<Arc<OpaqueRequest>>>,
}

impl Server {
    fn new(name: &str, does: Does) -> Arc<Self> {
        let name = format!("upstream+http://{name}:1");
        Arc::new(Self { name, does: Mutex::new(does), seen: Mutex::default() })
    }

    fn now(&self, does: Does) {
        *self.does.lock() = does;
    }

    fn answer(&self, request: Arc<OpaqueRequest>) -> Result<OpaqueAnswer, Error> {
        // A client that still sends sends more than is held.
        request.stream.iter().for_each(|stream| stream.push(vec![0; 2 << 20].into()));
        self.seen.lock().push(request);
        let name = Bytes::from(self.name.clone());
        let body = match self.does.lock().clone() {
            Does::Answers => OpaqueBody::Whole(name),
            Does::Pauses(pause) => {
                let rest = futures::stream::once(async move {
                    tokio::time::sleep(pause).await;
                    Ok(Frame::data(Bytes::from(" ends")))
                });
                OpaqueBody::Begun(name, Box::pin(StreamBody::new(rest)))
            }
            Does::Fails(error) => return Err(error),
        };
        let (status, headers, broken) = (StatusCode::OK, HeaderMap::new(), Broken::default());
        Ok(OpaqueAnswer { status, headers, body, broken })
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
        Box::pin(async { self.answer(request) })
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
        let routes = upstreams::Config::default().client().unwrap().routes;
        Box::pin(async move { Ok(routes.iter().map(index).collect()) })
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

async fn over(policy: PolicyKind, servers: &[&Arc<Server>]) -> Frontend {
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
async fn patience(frontend: &Frontend, server: &Server) -> Duration {
    if let OpaqueBody::Begun(_, rest) = chat(frontend).await.unwrap().body {
        rest.collect().await.unwrap();
    }
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

#[tokio::test(start_paused = true)]
async fn only_own_paths_stay_here() {
    let server = Server::new("a", Does::Answers);
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
    let servers = ["a", "b"].map(|name| Server::new(name, Does::Answers));
    let frontend = over(PolicyKind::Hedge, &[&servers[0], &servers[1]]).await;
    let sent = |answer: OpaqueAnswer| answer.headers.get("parm-sent").cloned();
    let answer = send(&frontend, request(Method::POST, "/mine")).await.unwrap();
    assert_eq!(sent(answer).unwrap(), "once");
    assert_eq!(sent(chat(&frontend).await.unwrap()), None);
    servers.iter().for_each(|server| server.now(Does::Fails(broken.clone())));
    let error = send(&frontend, request(Method::POST, "/mine")).await.unwrap_err().to_string();
    assert!(error.contains("POST /mine was not sent") && error.contains("--repeatable"), "{error}");
    let seen = servers.iter().map(|server| server.seen.lock().len()).sum::<usize>();
    assert_eq!(seen, 3, "each once");
}

#[tokio::test(start_paused = true)]
async fn paths_of_the_protocol_return_when_its_last_server_leaves() {
    let server = Server::new("a", Does::Answers);
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
    let server = Server::new("a", Does::Answers);
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
    let servers = [Server::new("a", Does::Fails(lost)), Server::new("b", Does::Answers)];
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
