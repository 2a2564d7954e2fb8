//! A frontend whose admin API is called without a network: two instances, one model, a few answers, and a clock that runs
//! only while a task waits.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use hyper::{Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use parm_frontend::discovery::Connect;
use parm_frontend::{Config, Frontend, Timers};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Context, Error, InferRequest, InferResponse, InferenceService, ModelIndex, ModelMetadata, ModelRef,
    NamedTensor, Parameters, ServerMetadata, Tensor, TensorMetadata, Transport,
};
use parm_transport::keys::{Digest, Entry, Keys, Role};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

/// The only model.
pub(super) const MODEL: &str = "double";

/// Initial instances; added ones have higher numbers.
pub(super) const INSTANCES: usize = 2;

/// A key with read access only.
pub(super) const READER: &str = "parm_reader";

/// Streams continue as long as they are read. This many pieces, with a timeout for each, include a complete frame.
const PIECES: usize = 8;
const PATIENCE: Duration = Duration::from_millis(1100);

/// The handler of requests: the admin API without keys, or with them.
type Api = Box<dyn Fn(Request<Full<Bytes>>) -> Answered>;
type Answered = Pin<Box<dyn Future<Output = (StatusCode, Bytes)>>>;

/// The frontend, and its admin API twice.
pub(super) struct World {
    runtime: Runtime,
    open: Api,
    guarded: Api,
}

impl World {
    pub(super) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime of one thread can be made");
        let frontend = runtime.block_on(frontend());
        let reader = Entry::new("reader", Role::Read, Digest::of(READER.as_bytes()));
        let open = TowerToHyperService::new(frontend.admin().router());
        let guarded = TowerToHyperService::new(frontend.admin().guarded_by(Keys::of(&[reader])).router());
        Self {
            runtime,
            open: Box::new(move |request| {
                let answer = open.call(request);
                Box::pin(async { whole(answer.await.expect("it always answers")).await })
            }),
            guarded: Box::new(move |request| {
                let answer = guarded.call(request);
                Box::pin(async { whole(answer.await.expect("it always answers")).await })
            }),
        }
    }

    /// Returns the response to a request.
    pub(super) fn asked(&self, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
        self.runtime.block_on(async { (self.open)(request).await })
    }

    /// The same with keys required.
    pub(super) fn asked_for_a_key(&self, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
        self.runtime.block_on(async { (self.guarded)(request).await })
    }

    /// Waits until ordered changes are applied.
    pub(super) fn settles(&self) {
        self.runtime.block_on(async { sleep(Duration::from_millis(1)).await });
    }
}

async fn whole<B>(answer: hyper::Response<B>) -> (StatusCode, Bytes)
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Debug,
{
    let (head, body) = answer.into_parts();
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    for _ in 0..PIECES {
        let Ok(Some(piece)) = timeout(PATIENCE, body.frame()).await else { break };
        bytes.extend_from_slice(piece.expect("the body can be read").data_ref().unwrap_or(&Bytes::new()));
    }
    (head.status, bytes.into())
}

async fn frontend() -> Frontend {
    let mut config = Config::default();
    // Few enough to be reached.
    config.instances.limit = 6.try_into().expect("six is not zero");
    let frontend =
        Frontend::start(config, Arc::new(Nobody), Timers::Runtime).expect("the defaults can be used");
    for _ in 0..INSTANCES {
        frontend.embed(Arc::new(Doubler), None).expect("there is room");
    }
    while !frontend.is_ready() {
        sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..10 {
        let x = Tensor::from_f32([1, 2].as_slice(), &[1.0, 2.0]).expect("two values");
        let request = InferRequest {
            model: ModelRef::latest(MODEL),
            id: "q".into(),
            parameters: Parameters::new(),
            inputs: vec![NamedTensor::new("x", x)],
            outputs: Vec::new(),
        };
        let context = Context::new(tokio::time::Instant::now(), Transport::Http);
        frontend.infer(request, context).await.expect("it is answered");
    }
    frontend
}

/// Addresses of servers that do not exist.
struct Nobody;

impl Connect for Nobody {
    fn check(&self, url: &str) -> Result<(), String> {
        if url.starts_with("http://") { Ok(()) } else { Err("it does not begin with http://".into()) }
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>> {
        Box::pin(
            async move { Err(Error::Transport { peer: url.into(), message: "connection refused".into() }) },
        )
    }
}

/// An instance that answers with its input.
struct Doubler;

impl Client for Doubler {
    fn peer(&self) -> &str {
        "doubler"
    }

    fn infer(&self, request: InferRequest, _: CallContext) -> BoxFuture<'_, Result<InferResponse, Error>> {
        let outputs =
            request.inputs.iter().map(|input| NamedTensor::new("y", input.tensor.clone())).collect();
        let response = InferResponse {
            model_name: request.model.name,
            model_version: "1".into(),
            id: request.id,
            outputs,
            ..Default::default()
        };
        Box::pin(std::future::ready(Ok(response)))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(std::future::ready(Ok(ServerMetadata::default())))
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        let tensor =
            |name: &str| TensorMetadata { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 2] };
        let metadata = ModelMetadata {
            name: MODEL.into(),
            versions: vec!["1".into()],
            platform: "fuzz".into(),
            inputs: vec![tensor("x")],
            outputs: vec![tensor("y")],
        };
        let unknown = || Error::UnknownModel { name: model.name.clone() };
        Box::pin(std::future::ready((model.name == MODEL).then_some(metadata).ok_or_else(unknown)))
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        let (name, version) = (MODEL.into(), "1".into());
        let entry = ModelIndex { name, version, state: "READY".into(), reason: String::new() };
        Box::pin(std::future::ready(Ok(vec![entry])))
    }
}
