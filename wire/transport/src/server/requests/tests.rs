//! Idle connections, and connections that only look idle.

use std::num::NonZeroUsize;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::*;
use crate::keys::Keys;
use crate::listening::serve_one;
use crate::scripted::{Scripted, echo};
use crate::server::Config;

/// A connection to a server, served like those of its listeners.
pub(in crate::server) fn connect<S: InferenceService>(
    shared: &Arc<Shared<S>>,
) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let app = App::new(shared.clone(), None).reached(Reach::Local);
    let limits = shared.config.limits();
    (theirs, tokio::spawn(serve_one(ours.into(), app, limits, shared.drain.clone())))
}

/// A connection that may be idle for a second.
struct Scene {
    drain: CancellationToken,
    served: JoinHandle<()>,
    client: HealthClient<Channel>,
}

impl Scene {
    async fn new() -> Self {
        let config = Config { idle_timeout: Duration::from_secs(1), ..Config::default() };
        let service = Scripted(|request, _| async { Ok(echo(request)) });
        let shared = Shared::new(config, Arc::new(service), Keys::none());
        let drain = shared.drain.begun.clone();
        let (theirs, served) = connect(&shared);
        let mut only = Some(TokioIo::new(theirs));
        let connector = tower::service_fn(move |_| {
            std::future::ready(only.take().ok_or_else(|| std::io::Error::other("it was closed")))
        });
        let channel = Endpoint::from_static("http://scene").connect_with_connector(connector).await.unwrap();
        Self { drain, served, client: HealthClient::new(channel) }
    }

    /// Watches the health, which is reported once and then does not change.
    async fn watch(&mut self) -> Streaming<HealthCheckResponse> {
        let mut watch = self.client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
        assert!(watch.message().await.unwrap().is_some());
        watch
    }

    /// Whether the connection closes soon: its clock is coarse.
    async fn closes(self) -> bool {
        tokio::time::timeout(Duration::from_secs(60), self.served).await.is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn quiet_watch_keeps_its_connection() {
    let mut scene = Scene::new().await;
    let mut watch = scene.watch().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    scene.drain.cancel();
    let end = watch.message().await;
    assert!(matches!(end, Ok(None)), "the watch was cut, not ended: {end:?}");
    assert!(scene.closes().await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_idle_once_its_call_is_answered() {
    let mut scene = Scene::new().await;
    scene.client.check(HealthCheckRequest::default()).await.unwrap();
    assert!(scene.closes().await);
}

/// Bytes of every answer of the service below, far more than a socket takes by itself.
const ANSWER: usize = 4 << 20;

/// A server that may hold four of its responses, and connections to it.
struct Crowd {
    shared: Arc<Shared<Large>>,
}

type Large = Scripted<fn(parm_protocol::InferRequest, parm_protocol::Context) -> Ready>;
type Ready = std::future::Ready<Result<parm_protocol::InferResponse, parm_protocol::Error>>;

fn large(request: parm_protocol::InferRequest, _: parm_protocol::Context) -> Ready {
    let data = bytes::Bytes::from(vec![1; ANSWER]);
    let tensor =
        parm_protocol::Tensor::new(parm_protocol::DataType::Uint8, [ANSWER].as_slice(), data).unwrap();
    let mut answer = echo(request);
    answer.outputs = vec![parm_protocol::NamedTensor::new("y", tensor)];
    std::future::ready(Ok(answer))
}

impl Crowd {
    fn new() -> Self {
        let config = Config {
            max_body_bytes: NonZeroUsize::new(1 << 20).unwrap(),
            max_bytes_in_flight: NonZeroUsize::new(4 * ANSWER + ANSWER / 2).unwrap(),
            ..Config::default()
        };
        let shared = Shared::new(config, Arc::new(Scripted(large as fn(_, _) -> _)), Keys::none());
        Self { shared }
    }

    fn connect(&self) -> (UnixStream, JoinHandle<()>) {
        connect(&self.shared)
    }

    fn held(&self) -> usize {
        self.shared.budget.held()
    }
}

const ASK: &str = r#"{"parameters":{"binary_data_output":true},"inputs":[]}"#;

#[tokio::test(start_paused = true)]
async fn clients_that_do_not_read_stay_within_the_byte_budget() {
    let crowd = Crowd::new();
    let mut clients = Vec::new();
    for _ in 0..30 {
        let (mut client, served) = crowd.connect();
        let head =
            format!("POST /v2/models/m/infer HTTP/1.1\r\nhost: m\r\ncontent-length: {}\r\n\r\n", ASK.len());
        client.write_all(format!("{head}{ASK}").as_bytes()).await.unwrap();
        client.readable().await.unwrap();
        clients.push((client, served));
    }
    assert!((4 * ANSWER..=4 * ANSWER + ANSWER / 2).contains(&crowd.held()), "{} bytes held", crowd.held());
    let mut statuses = Vec::new();
    for (client, _) in &mut clients {
        let mut line = [0; 12];
        client.read_exact(&mut line).await.unwrap();
        statuses.push(String::from_utf8(line[9..].to_vec()).unwrap());
    }
    let served = statuses.iter().filter(|status| *status == "200").count();
    let refused = statuses.iter().filter(|status| *status == "503").count();
    assert_eq!((served, refused), (4, 26), "{statuses:?}");

    // One client reads its response; the server does not wait for the others.
    let (client, _) = &mut clients[0];
    let mut answer = vec![0; ANSWER];
    client.read_exact(&mut answer).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(crowd.held() < 4 * ANSWER, "{} bytes held", crowd.held());
    tokio::time::sleep(Duration::from_secs(62)).await;
    assert_eq!(crowd.held(), 0);
    for (number, (_, served)) in clients.iter().enumerate() {
        let slow = statuses[number] == "200" && number > 0;
        assert_eq!(served.is_finished(), slow, "client {number}, which was told {}", statuses[number]);
    }
}

#[tokio::test(start_paused = true)]
async fn unread_answer_ends_its_connection_and_frees_its_bytes() {
    let crowd = Crowd::new();
    let (client, served) = crowd.connect();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection);
    let message =
        parm_protocol::grpc::inference::ModelInferRequest { model_name: "m".into(), ..Default::default() };
    let message = prost::Message::encode_to_vec(&message);
    let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
    let request = Request::post("http://m/inference.GRPCInferenceService/ModelInfer")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(http_body_util::Full::new(bytes::Bytes::from(framed)))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(crowd.held() >= ANSWER, "{} bytes held", crowd.held());
    tokio::time::timeout(Duration::from_secs(60), served).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(crowd.held(), 0);
    drop(response);
}

/// A connection to a server whose connections end after ten seconds.
async fn aged() -> (UnixStream, JoinHandle<()>) {
    let config = Config { max_connection_age: Duration::from_secs(10), ..Config::default() };
    let service = Scripted(|request, _| async { Ok(echo(request)) });
    let shared = Shared::new(config, Arc::new(service), Keys::none());
    connect(&shared)
}

#[tokio::test(start_paused = true)]
async fn old_http2_connection_ends_after_its_open_calls() {
    let (client, served) = aged().await;
    let mut only = Some(TokioIo::new(client));
    let connector = tower::service_fn(move |_| {
        std::future::ready(only.take().ok_or_else(|| std::io::Error::other("it was closed")))
    });
    let channel = Endpoint::from_static("http://scene").connect_with_connector(connector).await.unwrap();
    let mut client = HealthClient::new(channel);
    client.check(HealthCheckRequest::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    tokio::time::timeout(Duration::from_secs(2), served).await.unwrap().unwrap();
}
