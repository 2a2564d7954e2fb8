//! The service over real HTTP/2 on in-memory pipes: paused clocks stay exact, and no port is needed.

mod errors;
mod hostile;
mod inference;
mod lifetime;
mod services;
mod watches;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use parm_protocol::grpc::inference as proto;
use parm_protocol::{
    BatchStatistics, Context, DataType, DurationStatistics, Error, InferRequest, InferResponse,
    InferenceService, ModelConfig, ModelConfigTensor, ModelIndex, ModelMetadata, ModelRef, ModelStatistics,
    ServerMetadata, TensorMetadata, Transport,
};
use tokio::io::DuplexStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::grpc::inference::grpc_inference_service_client::GrpcInferenceServiceClient;

use super::GrpcService;
use crate::keys::Keys;
use crate::server::Config;
use crate::server::auth::Reach;
use crate::server::shared::Shared;

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

type Answer = BoxFuture<'static, Result<InferResponse, Error>>;

/// A service of one model, `m`, whose inference the test provides.
struct Script {
    infer: Box<dyn Fn(InferRequest, Context) -> Answer + Send + Sync>,
    ready: AtomicBool,
    /// The reasons of rejected requests, and the models that were loaded and unloaded.
    rejected: Mutex<Vec<&'static str>>,
    changed: Mutex<Vec<String>>,
}

impl Script {
    fn new<F, A>(infer: F) -> Self
    where
        F: Fn(InferRequest, Context) -> A + Send + Sync + 'static,
        A: Future<Output = Result<InferResponse, Error>> + Send + 'static,
    {
        Self {
            infer: Box::new(move |request, context| Box::pin(infer(request, context))),
            ready: AtomicBool::new(true),
            rejected: Mutex::default(),
            changed: Mutex::default(),
        }
    }

    fn echo() -> Self {
        Self::new(|request, _| async { Ok(crate::scripted::echo(request)) })
    }

    fn known(model: &ModelRef) -> Result<(), Error> {
        match (model.name.as_str(), model.version.as_deref()) {
            ("m", None | Some("1")) => Ok(()),
            ("m", Some(version)) => {
                let (name, available) = (model.name.clone(), vec!["1".into()]);
                Err(Error::UnknownVersion { name, version: version.into(), available })
            }
            _ => Err(Error::UnknownModel { name: model.name.clone() }),
        }
    }
}

impl InferenceService for Script {
    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn is_model_ready(&self, model: &ModelRef) -> Result<bool, Error> {
        Self::known(model).map(|()| true)
    }

    fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata {
            name: "script".into(),
            version: "9".into(),
            extensions: vec!["statistics".into()],
            ..ServerMetadata::default()
        }
    }

    fn model_metadata(&self, model: &ModelRef) -> Result<ModelMetadata, Error> {
        Self::known(model)?;
        let tensor = |name: &str| TensorMetadata {
            name: name.into(),
            datatype: DataType::Fp32.to_string(),
            shape: vec![-1, 4],
        };
        Ok(ModelMetadata {
            name: "m".into(),
            versions: vec!["1".into()],
            platform: "script".into(),
            inputs: vec![tensor("x")],
            outputs: vec![tensor("y")],
        })
    }

    fn model_config(&self, model: &ModelRef) -> Result<ModelConfig, Error> {
        Self::known(model)?;
        let input = ModelConfigTensor { name: "x".into(), data_type: "TYPE_FP32".into(), dims: vec![4] };
        Ok(ModelConfig { name: "m".into(), max_batch_size: 8, input: vec![input], ..ModelConfig::default() })
    }

    fn statistics(&self, model: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Error> {
        model.map_or(Ok(()), Self::known)?;
        let compute_infer = DurationStatistics { count: 3, ns: 900 };
        let batch = BatchStatistics { batch_size: 2, compute_infer, ..BatchStatistics::default() };
        Ok(vec![ModelStatistics {
            name: if model.is_some() { "m" } else { "all" }.into(),
            inference_count: 5,
            compute_infer,
            batch_stats: vec![batch],
            ..ModelStatistics::default()
        }])
    }

    fn repository_index(&self, ready_only: bool) -> Result<Vec<ModelIndex>, Error> {
        let ready = ModelIndex { name: "m".into(), state: "READY".into(), ..ModelIndex::default() };
        let broken = ModelIndex { name: "b".into(), reason: "no file".into(), ..ModelIndex::default() };
        Ok(if ready_only { vec![ready] } else { vec![ready, broken] })
    }

    async fn load_model(&self, name: &str) -> Result<(), Error> {
        Self::known(&ModelRef::latest(name))?;
        self.changed.lock().push(format!("+{name}"));
        Ok(())
    }

    async fn unload_model(&self, name: &str) -> Result<(), Error> {
        Self::known(&ModelRef::latest(name))?;
        self.changed.lock().push(format!("-{name}"));
        Ok(())
    }

    fn infer(
        &self,
        request: InferRequest,
        context: Context,
    ) -> impl Future<Output = Result<InferResponse, Error>> + Send {
        (self.infer)(request, context)
    }

    fn rejected(&self, error: &Error, transport: Transport) {
        assert_eq!(transport, Transport::Grpc);
        self.rejected.lock().push(error.reason());
    }
}

/// A server of a script.
struct Scene {
    script: Arc<Script>,
    grpc: GrpcService<Script>,
}

impl Scene {
    fn new(script: Script) -> Self {
        Self::with(Config::default(), script)
    }

    fn with(config: Config, script: Script) -> Self {
        Self::guarded(Keys::none(), config, script)
    }

    /// A server that requires these keys.
    fn guarded(keys: Keys, config: Config, script: Script) -> Self {
        let script = Arc::new(script);
        let shared = Shared::new(config, script.clone(), keys);
        Self { grpc: super::service(shared).reached(Reach::Local), script }
    }

    /// The reasons of requests that were rejected since the last call.
    fn rejected(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.script.rejected.lock())
    }

    fn channel(&self) -> Channel {
        let grpc = self.grpc.clone();
        let connector = tower::service_fn(move |_| {
            let stream = connect(grpc.clone());
            async { Ok::<_, std::io::Error>(TokioIo::new(stream)) }
        });
        Endpoint::from_static("http://scene").connect_with_connector_lazy(connector)
    }

    fn client(&self) -> GrpcInferenceServiceClient<Channel> {
        GrpcInferenceServiceClient::new(self.channel())
    }

    /// A client that sends arbitrary bytes.
    async fn raw(&self) -> Raw {
        let io = TokioIo::new(connect(self.grpc.clone()));
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Raw { sender, headers: HeaderMap::new() }
    }
}

/// Serves one end of a pipe and returns the other.
fn connect(grpc: GrpcService<Script>) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let grpc = grpc.on_connection();
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new()).http2_only();
    builder.http2().timer(TokioTimer::new());
    tokio::spawn(async move {
        // A client that disconnects in the middle is an error here, and a case of the tests.
        let _ = builder.serve_connection(TokioIo::new(theirs), TowerToHyperService::new(grpc)).await;
    });
    ours
}

type RawBody = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;

struct Raw {
    sender: SendRequest<RawBody>,
    headers: HeaderMap,
}

impl Raw {
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Calls a method and returns its status, `OK` included.
    async fn call(&mut self, path: &str, body: impl Into<Bytes>) -> Status {
        self.send(path, Full::new(body.into()).boxed()).await
    }

    async fn send(&mut self, path: &str, body: RawBody) -> Status {
        let mut request = http::Request::post(format!("http://scene{path}")).body(body).unwrap();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        let response = self.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        if let Some(status) = Status::from_header_map(response.headers()) {
            return status;
        }
        let collected = response.into_body().collect().await.unwrap();
        Status::from_header_map(collected.trailers().unwrap()).unwrap()
    }
}

/// A message with its prefix, as in the stream.
fn framed(message: &impl prost::Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
}

/// A request for one row of four numbers.
fn row() -> proto::ModelInferRequest {
    proto::ModelInferRequest {
        model_name: "m".into(),
        id: "q".into(),
        inputs: vec![proto::model_infer_request::InferInputTensor {
            name: "x".into(),
            datatype: DataType::Fp32.to_string(),
            shape: vec![1, 4],
            ..Default::default()
        }],
        raw_input_contents: vec![Bytes::from([0.5f32, 1.0, -2.0, 4.0].map(f32::to_le_bytes).concat())],
        ..Default::default()
    }
}

fn says(status: &Status, code: Code, words: &str) {
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(words), "{status:?} does not say '{words}'");
}
