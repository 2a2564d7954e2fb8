//! Calls over real HTTP/2: paused clocks stay exact, and no port is needed.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Frame;
use hyper::client::conn::http2::SendRequest;
use parking_lot::Mutex;
use parm_protocol::client::BoxFuture;
use parm_protocol::{
    DataType, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ModelStatistics,
    ServerMetadata,
};
use tonic::{Code, Status};

use super::*;
use crate::grpc::Method;
use crate::keys::Keys;
use crate::scripted::echo;
use crate::server::Config;
use crate::server::requests::tests::connect;
use crate::testing::http2;

const INFER: &str = proto::ModelInferRequest::PATH;

type Answered = BoxFuture<'static, Result<InferResponse, Error>>;

/// A service of one model, `m`, whose inference the test provides.
struct Script {
    infer: Box<dyn Fn(InferRequest, Context) -> Answered + Send + Sync>,
    ready: AtomicBool,
    /// The reasons of rejected requests, and the models that were loaded and unloaded.
    rejected: Mutex<Vec<&'static str>>,
    changed: Mutex<Vec<String>>,
}

impl Script {
    fn new<A>(infer: impl Fn(InferRequest, Context) -> A + Send + Sync + 'static) -> Self
    where
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
        Self::new(|request, _| async { Ok(echo(request)) })
    }

    fn known<T>(model: &ModelRef, of: T) -> Result<T, Error> {
        let unknown = || Error::UnknownModel { name: model.name.clone() };
        (model.name == "m").then_some(of).ok_or_else(unknown)
    }
}

impl InferenceService for Script {
    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
    fn is_model_ready(&self, model: &ModelRef) -> Result<bool, Error> {
        Self::known(model, true)
    }
    fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata { name: "script".into(), ..ServerMetadata::default() }
    }
    fn model_metadata(&self, model: &ModelRef) -> Result<ModelMetadata, Error> {
        Self::known(model, ModelMetadata { name: "m".into(), ..ModelMetadata::default() })
    }
    fn model_config(&self, model: &ModelRef) -> Result<ModelConfig, Error> {
        Self::known(model, ModelConfig { name: "m".into(), max_batch_size: 8, ..ModelConfig::default() })
    }
    fn statistics(&self, model: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Error> {
        model.map_or(Ok(()), |model| Self::known(model, ()))?;
        let name = if model.is_some() { "m" } else { "all" }.into();
        Ok(vec![ModelStatistics { name, ..ModelStatistics::default() }])
    }
    fn repository_index(&self, ready_only: bool) -> Result<Vec<ModelIndex>, Error> {
        let models = ["m", "b"].map(|name| ModelIndex { name: name.into(), ..ModelIndex::default() });
        Ok(models.into_iter().take(if ready_only { 1 } else { 2 }).collect())
    }
    async fn load_model(&self, name: &str) -> Result<(), Error> {
        self.changed.lock().push(Self::known(&ModelRef::latest(name), format!("+{name}"))?);
        Ok(())
    }
    async fn unload_model(&self, name: &str) -> Result<(), Error> {
        self.changed.lock().push(Self::known(&ModelRef::latest(name), format!("-{name}"))?);
        Ok(())
    }
    async fn infer(&self, request: InferRequest, context: Context) -> Result<InferResponse, Error> {
        (self.infer)(request, context).await
    }
    fn rejected(&self, error: &Error, transport: Transport) {
        assert_eq!(transport, Transport::Grpc);
        self.rejected.lock().push(error.reason());
    }
}

type AnyBody = BoxBody<Bytes, Infallible>;

struct Scene {
    shared: Arc<Shared<Script>>,
    sender: SendRequest<AnyBody>,
    headers: HeaderMap,
}

impl Scene {
    async fn new(script: Script) -> Self {
        Self::with(Config::default(), script).await
    }

    async fn with(config: Config, script: Script) -> Self {
        let shared = Shared::new(config, Arc::new(script), Keys::none());
        let sender = sender(&shared).await;
        Self { shared, sender, headers: HeaderMap::new() }
    }

    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// The reasons of requests that were rejected since the last call.
    fn rejected(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.shared.service.rejected.lock())
    }

    /// Calls a method with a body of any bytes. Returns its status, `OK` included, and its answer.
    async fn call(&mut self, path: &str, body: AnyBody) -> (Status, HeaderMap, Bytes) {
        let (head, body) = begin(&mut self.sender, path, self.headers.clone(), body).await.into_parts();
        if let Some(status) = Status::from_header_map(&head.headers) {
            return (status, head.headers, Bytes::new());
        }
        let collected = body.collect().await.unwrap();
        let status = Status::from_header_map(collected.trailers().unwrap()).unwrap();
        (status, head.headers, collected.to_bytes())
    }

    async fn send(&mut self, path: &str, body: impl Into<Bytes>) -> Status {
        self.call(path, whole(body)).await.0
    }

    async fn ask<M: Method>(&mut self, message: M) -> Result<M::Answer, Status> {
        match self.call(M::PATH, whole(grpc::frame(&message))).await {
            (status, _, body) if status.code() == Code::Ok => Ok(grpc::only(body).unwrap()),
            (status, ..) => Err(status),
        }
    }
}

async fn sender(shared: &Arc<Shared<Script>>) -> SendRequest<AnyBody> {
    http2(connect(shared).0).await
}

async fn begin(
    sender: &mut SendRequest<AnyBody>,
    path: &str,
    headers: HeaderMap,
    body: AnyBody,
) -> Response<Incoming> {
    let mut request = Request::post(format!("http://scene{path}")).body(body).unwrap();
    *request.headers_mut() = headers;
    request.headers_mut().insert("content-type", GRPC);
    let response = sender.send_request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (200, &GRPC));
    response
}

fn whole(body: impl Into<Bytes>) -> AnyBody {
    Full::new(body.into()).boxed()
}

fn endless(begin: impl Into<Bytes>) -> AnyBody {
    let frames = stream::iter([Ok(Frame::data(begin.into()))]).chain(stream::pending());
    BodyExt::boxed(StreamBody::new(frames))
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

#[tokio::test]
async fn outcome_is_in_the_head_of_an_answer() {
    let mut scene = Scene::new(Script::new(|request, _| async move {
        let mut answer = echo(request);
        answer.parameters.insert("parm_outcome".into(), "reconstructed".into());
        Ok(answer)
    }))
    .await;
    let (_, headers, body) = scene.call(INFER, whole(grpc::frame(&row()))).await;
    assert_eq!(headers["parm-outcome"], "reconstructed");
    let answer: proto::ModelInferResponse = grpc::only(body).unwrap();
    assert_eq!(answer.raw_output_contents, row().raw_input_contents);
}

#[tokio::test]
async fn every_method_asks_the_service() {
    let mut scene = Scene::new(Script::echo()).await;
    assert!(scene.ask(proto::ServerLiveRequest {}).await.unwrap().live);
    assert!(scene.ask(proto::ServerReadyRequest {}).await.unwrap().ready);
    assert_eq!(scene.ask(proto::ServerMetadataRequest {}).await.unwrap().name, "script");
    for (name, code) in [("m", Code::Ok), ("w", Code::NotFound)] {
        let (name, version) = (name.to_owned(), String::new());
        let model_name = name.clone();
        let load = proto::RepositoryModelLoadRequest { model_name: name.clone(), ..Default::default() };
        let unload = proto::RepositoryModelUnloadRequest { model_name, ..Default::default() };
        let ready = proto::ModelReadyRequest { name: name.clone(), version: version.clone() };
        let metadata = proto::ModelMetadataRequest { name: name.clone(), version: version.clone() };
        let config = proto::ModelConfigRequest { name: name.clone(), version: version.clone() };
        let statistics = proto::ModelStatisticsRequest { name, version };
        let outcomes = [
            scene.ask(ready).await.map(|answer| assert!(answer.ready)),
            scene.ask(metadata).await.map(|answer| assert_eq!(answer.name, "m")),
            scene.ask(config).await.map(|answer| assert_eq!(answer.config.unwrap().max_batch_size, 8)),
            scene.ask(statistics).await.map(|answer| assert_eq!(answer.model_stats[0].name, "m")),
            scene.ask(load).await.map(drop),
            scene.ask(unload).await.map(drop),
        ];
        let codes = outcomes.map(|outcome| outcome.err().map_or(Code::Ok, |status| status.code()));
        assert_eq!(codes, [code; 6]);
    }
    let all = scene.ask(proto::ModelStatisticsRequest::default()).await.unwrap();
    assert_eq!(all.model_stats[0].name, "all");
    for (ready, count) in [(true, 1), (false, 2)] {
        let asked = proto::RepositoryIndexRequest { ready, ..Default::default() };
        assert_eq!(scene.ask(asked).await.unwrap().models.len(), count);
    }
    let parameters = [("config".to_owned(), Default::default())].into_iter().collect();
    let replacing =
        proto::RepositoryModelLoadRequest { model_name: "m".into(), parameters, ..Default::default() };
    let status = scene.ask(replacing).await.unwrap_err();
    says(&status, Code::InvalidArgument, "a load cannot replace 'config'");
    assert_eq!(*scene.shared.service.changed.lock(), ["+m", "-m"]);
}

#[tokio::test]
async fn unknown_methods_are_unimplemented() {
    let mut scene = Scene::new(Script::echo()).await;
    for path in ["/", "/inference.GRPCInferenceService/Nothing", "/other.Service/ModelInfer"] {
        says(&scene.send(path, Bytes::new()).await, Code::Unimplemented, path);
        assert_eq!(scene.rejected(), ["unimplemented"]);
    }
    let status = scene.send(&format!("/{}", "é%20/".repeat(2000)), Bytes::new()).await;
    assert!(status.message().len() < 500, "{status:?}");
}

#[tokio::test]
async fn broken_messages_are_malformed() {
    let script = Script::new(|request, _| async move { panic!("reached with {request:?}") });
    let mut scene = Scene::new(script).await;
    let message = grpc::frame(&row());
    let two = [&message[..], &message[..]].concat();
    for (body, words) in [
        (&b""[..], "request message"),
        (b"\0\0", "EOF"),
        (b"\0\0\0\0\x09short", "EOF"),
        (b"\0\0\0\0\x04\xff\xff\xff\xff", "invalid"),
        (b"\x01\0\0\0\x01x", "compressed"),
        (b"GET / HTTP/1.1\r\n\r\n", "flag"),
        (&message[..message.len() - 1], "EOF"),
        (&two, "one message"),
    ] {
        let status = scene.send(INFER, Bytes::copy_from_slice(body)).await;
        says(&status, Code::InvalidArgument, words);
        assert_eq!(scene.rejected(), ["invalid_argument"]);
    }
    let mut scene = scene.header("grpc-encoding", "gzip");
    says(&scene.send(INFER, message).await, Code::Unimplemented, "compression");
}

#[tokio::test(start_paused = true)]
async fn deadline_and_trace_reach_the_service() {
    let (seen, mut contexts) = tokio::sync::mpsc::channel(2);
    let script = Script::new(move |request, context| {
        seen.try_send(context).unwrap();
        async { Ok(echo(request)) }
    });
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut scene =
        Scene::new(script).await.header("grpc-timeout", "250m").header("traceparent", traceparent);
    scene.ask(row()).await.unwrap();
    let context = contexts.recv().await.unwrap();
    assert_eq!((context.transport, context.traceparent.as_deref()), (Transport::Grpc, Some(traceparent)));
    assert_eq!(context.deadline, Some(context.arrived + Duration::from_millis(250)));
    let mut scene = scene.header("grpc-timeout", "soon");
    says(&scene.ask(row()).await.unwrap_err(), Code::InvalidArgument, "grpc-timeout");
}

#[tokio::test]
async fn cancelled_call_is_given_up_and_its_connection_lives() {
    struct Guard(tokio::sync::mpsc::Sender<&'static str>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.try_send("dropped").unwrap();
        }
    }
    let (told, mut events) = tokio::sync::mpsc::channel(16);
    let mut scene = Scene::new(Script::new(move |_, _| {
        let guard = Guard(told.clone());
        async move {
            guard.0.try_send("begun").unwrap();
            std::future::pending().await
        }
    }))
    .await;
    tokio::select! {
        answer = scene.ask(row()) => panic!("{answer:?}"),
        begun = events.recv() => assert_eq!(begun, Some("begun")),
    }
    assert_eq!(events.recv().await, Some("dropped"));
    assert!(scene.ask(proto::ServerLiveRequest {}).await.unwrap().live);
}

#[tokio::test(start_paused = true)]
async fn service_that_exceeds_its_deadline_is_cut_off() {
    for (late, code) in [(Duration::ZERO, Code::Ok), (Duration::from_secs(1), Code::DeadlineExceeded)] {
        let script = Script::new(move |request, context| async move {
            tokio::time::sleep_until(context.deadline.unwrap() + late).await;
            Ok(echo(request))
        });
        let mut scene = Scene::new(script).await.header("grpc-timeout", "80m");
        assert_eq!(scene.send(INFER, grpc::frame(&row())).await.code(), code);
        assert_eq!(scene.rejected(), [""; 0], "the service saw it");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_body_times_out() {
    let config = Config { body_timeout: Duration::from_millis(700), ..Config::default() };
    let mut scene = Scene::with(config, Script::echo()).await;
    let begun = || endless(grpc::frame(&row()).slice(..9));
    says(&scene.call(INFER, begun()).await.0, Code::InvalidArgument, "did not arrive within 700ms");
    let mut scene = scene.header("grpc-timeout", "80m");
    says(&scene.call(INFER, begun()).await.0, Code::DeadlineExceeded, "deadline");
    assert_eq!(scene.rejected(), ["invalid_argument", "deadline"], "the service never saw them");
}

const CHECK: &str = "/grpc.health.v1.Health/Check";
fn health(service: &str) -> Bytes {
    grpc::frame(&HealthCheckRequest { service: service.into() })
}

#[tokio::test]
async fn health_is_readiness() {
    let mut scene = Scene::new(Script::echo()).await;
    for (ready, expected) in [(false, ServingStatus::NotServing), (true, ServingStatus::Serving)] {
        scene.shared.service.ready.store(ready, Ordering::Relaxed);
        for service in ["", SERVICE] {
            let (_, _, body) = scene.call(CHECK, whole(health(service))).await;
            assert_eq!(grpc::only::<HealthCheckResponse>(body).unwrap().status(), expected);
        }
    }
    says(&scene.send(CHECK, health("other")).await, Code::NotFound, "unknown service 'other'");
    says(&scene.send(CHECK, &b"\0\0\0\0\x01\xff"[..]).await, Code::InvalidArgument, "invalid");
    let watch = "/grpc.health.v1.Health/Watch";
    says(&scene.send(watch, health("")).await, Code::Unimplemented, watch);
}

/// Lists services and finds the file of a method, over one version of reflection.
macro_rules! reflects {
    ($scene:ident, $version:ident) => {{
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        use tonic_reflection::pb::$version::{ServerReflectionRequest, ServerReflectionResponse};

        let path =
            concat!("/grpc.reflection.", stringify!($version), ".ServerReflection/ServerReflectionInfo");
        for (asked, found) in [
            (MessageRequest::ListServices(String::new()), SERVICE),
            (MessageRequest::FileContainingSymbol(format!("{SERVICE}.ModelInfer")), "ModelInferRequest"),
        ] {
            let asked = ServerReflectionRequest { message_request: Some(asked), ..Default::default() };
            let (_, _, body) = $scene.call(path, whole(grpc::frame(&asked))).await;
            let answer: ServerReflectionResponse = grpc::only(body).unwrap();
            assert!(!matches!(answer.message_response, Some(MessageResponse::ErrorResponse(_))));
            assert!(String::from_utf8_lossy(&answer.encode_to_vec()).contains(found), "{found}");
        }
    }};
}

#[tokio::test]
async fn reflection_describes_the_services_in_both_versions() {
    let mut scene = Scene::new(Script::echo()).await;
    reflects!(scene, v1);
    reflects!(scene, v1alpha);
}

#[tokio::test]
async fn reflection_holds_bounded_bytes_when_asked_without_end() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    const SIZE: usize = 10_000;

    let mut scene = Scene::new(Script::echo()).await;
    let question = grpc::frame(&ServerReflectionRequest {
        host: "x".repeat(SIZE),
        message_request: Some(MessageRequest::ListServices(String::new())),
    });
    let questions = stream::repeat_with(move || Ok(Frame::data(question.clone())));
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let body = BodyExt::boxed(StreamBody::new(questions));
    let mut answers = begin(&mut scene.sender, path, HeaderMap::new(), body).await.into_body();
    let mut most = 0;
    while let Some(Ok(_)) = answers.frame().await {
        most = most.max(scene.shared.budget.held());
    }
    assert!((SIZE..=LONGEST_QUESTION + 2 * SIZE).contains(&most), "{most} bytes were held");
}
