//! Test rig: a frontend with paused time over a scripted network, and the usual fake workers and settings.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use parm_encoder::Kind;
use parm_frontend::discovery::{Connect, Name};
use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::client::{BoxFuture, Client};
use parm_protocol::{
    Context, Error, InferRequest, InferResponse, InferenceService, ModelMetadata, ModelRef, NamedTensor,
    Parameter, Parameters, RequestedOutput, Tensor, Transport,
};
use parm_settings::{PolicyKind, PoolSettings, StandInSettings};
use parm_transport::client::Pipe;
use parm_transport::tls::Outgoing;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::cluster::Cluster;

use crate::scripted::{Scripted, doubler};

/// Servers by address; an address without a server refuses connections. Also answers DNS names and connects to a
/// cluster's API server.
#[derive(Default)]
pub(crate) struct Network {
    servers: Mutex<BTreeMap<String, Arc<Scripted>>>,
    names: Mutex<Option<Answer>>,
    cluster: Mutex<Option<Arc<Cluster>>>,
}

/// The answer for every name.
type Answer = Result<Vec<String>, String>;

impl Network {
    pub(crate) fn with(servers: &[&Arc<Scripted>]) -> Arc<Self> {
        let network = Self::default();
        servers.iter().for_each(|server| network.start(server));
        Arc::new(network)
    }

    pub(crate) fn start(&self, server: &Arc<Scripted>) {
        self.servers.lock().insert(server.peer().into(), server.clone());
    }

    /// Adds the API server of this cluster.
    pub(crate) fn has(&self, cluster: &Arc<Cluster>) {
        *self.cluster.lock() = Some(cluster.clone());
    }

    /// Sets the servers of every name.
    pub(crate) fn resolves(&self, answer: Result<&[&str], &str>) {
        let owned = |servers: &[&str]| servers.iter().map(|server| (*server).to_owned()).collect();
        *self.names.lock() = Some(answer.map(owned).map_err(str::to_owned));
    }

    /// Disconnects a server: new connections are refused and existing ones broken.
    pub(crate) fn kill(&self, server: &Scripted) {
        self.servers.lock().remove(server.peer());
        server.set_ready(Err(gone(server.peer())));
    }
}

impl Connect for Network {
    fn check(&self, url: &str) -> Result<(), String> {
        let known = ["test://", "upstream+", "frames://"].iter().any(|scheme| url.starts_with(scheme));
        if known { Ok(()) } else { Err("not an address of the tests".into()) }
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>> {
        let server = self.servers.lock().get(url).cloned();
        Box::pin(async move { server.map(|server| server as Arc<dyn Client>).ok_or_else(|| gone(url)) })
    }

    fn resolve<'a>(&'a self, _: &'a Name) -> BoxFuture<'a, Result<Vec<String>, String>> {
        let answer = self.names.lock().clone().unwrap_or_else(|| Ok(Vec::new()));
        Box::pin(async { answer })
    }

    fn dial<'a>(
        &'a self,
        _: &'a Outgoing,
        _: &'a str,
        _: Duration,
    ) -> BoxFuture<'a, io::Result<Box<dyn Pipe>>> {
        let cluster = self.cluster.lock().clone();
        Box::pin(async move {
            let cluster = cluster.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(Box::new(cluster.dialled()?) as Box<dyn Pipe>)
        })
    }
}

pub(crate) fn gone(peer: &str) -> Error {
    Error::Transport { peer: peer.into(), message: "connection refused".into() }
}

/// A configuration with a policy, and without ejection, which few tests need.
pub(crate) fn config(policy: PolicyKind) -> Config {
    let mut dispatch = PoolSettings { policy, ..PoolSettings::default() };
    dispatch.ejection.enabled = false;
    Config { dispatch, ..Config::default() }
}

/// A frontend with these embedded instances, once all have joined.
pub(crate) async fn frontend(config: Config, instances: &[&Arc<Scripted>]) -> Frontend {
    let frontend = started(config).unwrap();
    for instance in instances {
        frontend.embed((*instance).clone(), None).unwrap();
    }
    until("all instances joined", || ready(&frontend) == instances.len() as f64).await;
    frontend
}

/// A frontend without instances, or why it does not start.
pub(crate) fn started(config: Config) -> Result<Frontend, parm_frontend::Error> {
    Frontend::start(config, Network::with(&[]), Timers::Runtime)
}

/// A frontend that connects to these servers, once all have joined.
pub(crate) async fn connected(config: Config, servers: &[&Arc<Scripted>]) -> Frontend {
    let workers = servers.iter().map(|server| server.peer().to_owned()).collect();
    let config = Config { workers, ..config };
    let frontend = Frontend::start(config, Network::with(servers), Timers::Runtime).unwrap();
    until("all servers joined", || ready(&frontend) == servers.len() as f64).await;
    frontend
}

/// Number of ready instances.
pub(crate) fn ready(frontend: &Frontend) -> f64 {
    metric(frontend, "parm_instances", &["state=\"ready\""])
}

/// Sum of a metric's samples whose labels contain all of these.
pub(crate) fn metric(frontend: &Frontend, name: &str, labels: &[&str]) -> f64 {
    let page = frontend.metrics();
    let is_sample = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    page.lines()
        .filter(is_sample)
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// Advances the paused time until a condition holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("timed out waiting until {what}");
}

/// A request with these values in the first column; the second is one more.
pub(crate) fn request(values: &[f32]) -> InferRequest {
    let data: Vec<f32> = values.iter().flat_map(|value| [*value, value + 1.0]).collect();
    InferRequest {
        model: ModelRef::latest("double"),
        id: "q".into(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", Tensor::from_f32([values.len(), 2].as_slice(), &data).unwrap())],
        outputs: Vec::new(),
    }
}

pub(crate) fn with(mut request: InferRequest, name: &str, value: impl Into<Parameter>) -> InferRequest {
    request.parameters.insert(name.into(), value.into());
    request
}

pub(crate) fn wanting(mut request: InferRequest, outputs: &[&str]) -> InferRequest {
    let output = |name: &&str| RequestedOutput { name: (*name).into(), parameters: Parameters::new() };
    request.outputs = outputs.iter().map(output).collect();
    request
}

pub(crate) async fn infer(frontend: &Frontend, request: InferRequest) -> Result<InferResponse, Error> {
    let arrived = Instant::now();
    let context = Context::new(arrived, Transport::Http);
    frontend.infer(request, context).await
}

/// Like `infer`, in a task.
pub(crate) fn start(frontend: &Frontend, request: InferRequest) -> JoinHandle<Result<InferResponse, Error>> {
    let frontend = frontend.clone();
    tokio::spawn(async move { infer(&frontend, request).await })
}

/// First column of output `y`, which is twice the input.
pub(crate) fn column(response: &InferResponse) -> Vec<f32> {
    let output = response.outputs.iter().find(|output| output.name == "y").expect("the response has y");
    output.tensor.as_f32().unwrap().chunks(2).map(|row| row[0]).collect()
}

pub(crate) fn outcome(response: &InferResponse) -> &str {
    response.parameters["parm_outcome"].as_str().unwrap()
}

/// Changes the dispatch settings of all models through the admin API.
pub(crate) async fn change(frontend: &Frontend, settings: &PoolSettings) {
    let (status, answer) = call(frontend, "PATCH", "/settings", json!(settings)).await;
    assert_eq!(status, 200, "{answer}");
}

/// Sends a request to the admin address, with a body if it is not null.
pub(crate) async fn send(
    frontend: &Frontend,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &Value,
) -> Response {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    frontend.admin().router().oneshot(request.body(body).unwrap()).await.unwrap()
}

/// Calls the admin API; returns status and answer.
pub(crate) async fn call(frontend: &Frontend, method: &str, path: &str, body: Value) -> (u16, Value) {
    let response = send(frontend, (method, &format!("/admin/v1{path}")), &[], &body).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

/// Reads a path of the admin API; returns status and answer.
pub(crate) async fn get(frontend: &Frontend, path: &str) -> (u16, Value) {
    call(frontend, "GET", path, Value::Null).await
}

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Workers `i0`, `i1` and so on, with the model `double` and jobs of this many milliseconds.
pub(crate) fn workers(count: usize, millis: u64) -> Vec<Arc<Scripted>> {
    (0..count).map(|number| Scripted::quick(&format!("i{number}"), millis)).collect()
}

/// Workers with these models and jobs of 10 ms.
pub(crate) fn workers_with(count: usize, models: &[ModelMetadata]) -> Vec<Arc<Scripted>> {
    let workers = workers(count, 10);
    workers.iter().for_each(|worker| worker.serve(models));
    workers
}

/// Workers with queries of 10 ms and the stand-in `small`, whose jobs take 2 ms.
pub(crate) fn workers_with_stand_ins(count: usize) -> Vec<Arc<Scripted>> {
    let workers = workers_with(count, &[doubler("double"), doubler("small")]);
    workers.iter().for_each(|worker| worker.model_takes("small", 2 * MS));
    workers
}

/// A frontend with these workers as embedded instances, once all have joined.
pub(crate) async fn over(config: Config, workers: &[Arc<Scripted>]) -> Frontend {
    frontend(config, &workers.iter().collect::<Vec<_>>()).await
}

/// Lets a frontend learn from requests like this one how long a run takes.
pub(crate) async fn warm(frontend: &Frontend, request: &InferRequest) {
    for _ in 0..40 {
        infer(frontend, request.clone()).await.expect("an answer");
    }
}

/// The policy `stand-in` with the model `small`.
pub(crate) fn stand_in(change: impl FnOnce(&mut StandInSettings)) -> Config {
    let mut config = config(PolicyKind::StandIn);
    config.dispatch.stand_in.model = Some("small".into());
    change(&mut config.dispatch.stand_in);
    config
}

/// A coding policy with groups of `k` at any load and without hedges.
pub(crate) fn coding(policy: PolicyKind, k: u8) -> Config {
    let mut config = config(policy);
    let coding = &mut config.dispatch.coding;
    coding.k = NonZeroU8::new(k).unwrap();
    coding.parm_plus.k_follows_load = false;
    coding.parm_plus.hedge = false;
    config
}

/// Like `coding`, with `r` parities by the code for linear models.
pub(crate) fn coded(policy: PolicyKind, k: u8, r: u8) -> Config {
    let mut config = coding(policy, k);
    config.dispatch.coding.r = NonZeroU8::new(r).unwrap();
    config.dispatch.coding.code = Some(Kind::Mds);
    config
}
