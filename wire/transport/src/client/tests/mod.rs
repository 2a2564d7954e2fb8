//! Clients that detect a server's transport, and reconnect.

mod every;
mod grants;
mod grpc;
mod http;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ::http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use parm_protocol::client::CallContext;
use parm_protocol::{Code, Context, InferRequest, InferResponse, InferenceService, Transport};
use tokio::net::TcpListener;

use super::*;
use crate::frames::{EXTENSION, PATH, Socket};
use crate::keys::{Caller, Keys};
use crate::scripted::{Scripted, echo};
use crate::server::{self, Shared};
use crate::testing::request;

/// A minimal server for the detection of frames: metadata, the upgrade, and one response to every inference over HTTP.
struct Server<S> {
    shared: Arc<Shared<S>>,
    offers_frames: AtomicBool,
    asked: AtomicUsize,
    described: u16,
    extensions: Vec<&'static str>,
    /// Content types of inferences over HTTP.
    sent: parking_lot::Mutex<Vec<String>>,
}

impl<S: InferenceService> Server<S> {
    fn new(service: S) -> Self {
        Self {
            shared: Shared::new(server::Config::default(), Arc::new(service), Keys::none()),
            offers_frames: AtomicBool::new(true),
            asked: AtomicUsize::new(0),
            described: 200,
            extensions: Vec::new(),
            sent: parking_lot::Mutex::default(),
        }
    }

    fn answer(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let offers = self.offers_frames.load(Ordering::SeqCst);
        let body = match request.uri().path() {
            "/v2" => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                if self.described != 200 {
                    return Response::builder().status(self.described).body(Full::default()).unwrap();
                }
                let mut extensions = self.extensions.clone();
                extensions.extend(offers.then_some(EXTENSION));
                serde_json::json!({"name": "s", "version": "1", "extensions": extensions}).to_string()
            }
            PATH if offers => {
                let upgraded = server::upgrade(&self.shared, &mut request, Caller::default(), ());
                return upgraded.map(|()| Full::default());
            }
            PATH | "/v2/health/ready" => {
                return Response::builder().status(404).body(Full::default()).unwrap();
            }
            _ => {
                let kind = request.headers().get("content-type").and_then(|kind| kind.to_str().ok());
                self.sent.lock().extend(kind.map(str::to_owned));
                r#"{"model_name":"by http","model_version":"1","outputs":[]}"#.to_owned()
            }
        };
        Response::new(Full::new(Bytes::from(body)))
    }

    async fn serve(self: Arc<Self>, socket: Socket) {
        let service = hyper::service::service_fn(move |request| {
            let response = self.answer(request);
            async move { Ok::<_, Infallible>(response) }
        });
        let http = hyper::server::conn::http1::Builder::new();
        let _ = http.serve_connection(TokioIo::new(socket), service).with_upgrades().await;
    }
}

async fn over_tcp<S: InferenceService>(server: &Arc<Server<S>>) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let server = Arc::clone(server);
    tokio::spawn(async move {
        loop {
            tokio::spawn(Arc::clone(&server).serve(listener.accept().await.unwrap().0.into()));
        }
    });
    endpoint
}

/// A server that answers with the transport of the request.
fn naming() -> Server<impl InferenceService> {
    let service = Scripted(|request, context: Context| {
        let mut response = echo(request);
        response.model_name = format!("{:?}", context.transport);
        std::future::ready(Ok(response))
    });
    Server::new(service)
}

/// Serves over TCP. Returns the server and a client of it.
async fn meet<S: InferenceService>(server: Server<S>) -> (Arc<Server<S>>, Arc<dyn Client>) {
    let server = Arc::new(server);
    let client = connect(&over_tcp(&server).await, &Config::default()).unwrap();
    (server, client)
}

async fn ask(client: &dyn Client, id: &str) -> Result<String, Error> {
    Ok(client.infer(request(id, 8), CallContext::default()).await?.model_name)
}

#[tokio::test]
async fn frames_are_used_where_they_are_offered() {
    let (server, client) = meet(naming()).await;
    for _ in 0..3 {
        assert_eq!(ask(&*client, "").await.unwrap(), format!("{:?}", Transport::Frames));
    }
    assert_eq!(server.asked.load(Ordering::SeqCst), 1, "asked once");
    assert_eq!(client.server_metadata().await.unwrap().extensions, [EXTENSION]);
}

#[tokio::test]
async fn http_is_used_if_frames_are_not_offered_or_not_preferred() {
    let server = Arc::new(naming());
    let endpoint = over_tcp(&server).await;
    let plain = Config { transport: Prefer::Http, ..Config::default() };
    assert_eq!(ask(&*connect(&endpoint, &plain).unwrap(), "").await.unwrap(), "by http");
    server.offers_frames.store(false, Ordering::SeqCst);
    assert_eq!(ask(&*connect(&endpoint, &Config::default()).unwrap(), "").await.unwrap(), "by http");
}

#[tokio::test]
async fn a_crowd_of_first_requests_opens_one_connection() {
    let (server, client) = meet(naming()).await;
    let crowd = (0..50).map(|n| {
        let client = &client;
        async move { ask(&**client, &n.to_string()).await.unwrap() }
    });
    futures::future::join_all(crowd).await;
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
    assert_eq!(server.shared.drain.connections.len(), 1);
}

/// Ends the frames of a server, and waits until its client uses HTTP.
async fn take_frames_away<S: InferenceService>(server: &Server<S>, client: &dyn Client) {
    assert_eq!(ask(client, "").await.unwrap(), "Frames");
    server.offers_frames.store(false, Ordering::SeqCst);
    server.shared.drain.begun.cancel();
    server.shared.drain.connections.close();
    server.shared.drain.connections.wait().await;
    while ask(client, "").await.unwrap() != "by http" {}
}

/// A server at the address of one with frames need not read binary tensors.
#[tokio::test]
async fn server_is_described_anew_when_its_frames_are_gone() {
    for (extensions, kind) in
        [(vec![], "application/json"), (vec!["binary_tensor_data"], "application/octet-stream")]
    {
        let (server, client) = meet(Server { extensions, ..naming() }).await;
        take_frames_away(&server, &*client).await;
        assert_eq!(ask(&*client, "").await.unwrap(), "by http");
        assert_eq!(*server.sent.lock(), [kind; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn negotiation_of_frames_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("frames://{}", listener.local_addr().unwrap()).parse().unwrap();
    let client = connect(&endpoint, &Config::default()).unwrap();
    let error = ask(&*client, "").await.unwrap_err();
    assert!(error.to_string().contains("timed out negotiating frames after 1s"), "{error}");
    let deadline = tokio::time::Instant::now() + Duration::from_millis(50);
    let context = CallContext { deadline: Some(deadline), ..CallContext::default() };
    let error = client.infer(request("", 8), context).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
}

#[tokio::test]
async fn error_names_an_unreachable_server() {
    for scheme in ["unix", "frames+unix", "grpc+unix"] {
        let endpoint: Endpoint = format!("{scheme}:/nowhere/at-all.sock").parse().unwrap();
        let client = connect(&endpoint, &Config::default()).unwrap();
        let error = ask(&*client, "").await.unwrap_err();
        assert!(
            matches!(&error, Error::Transport { peer, .. } if peer == "/nowhere/at-all.sock"),
            "{error:?}"
        );
    }
}

/// A server without `GET /v2` is asked for it once, and gets JSON, as does one that does not list binary tensors.
#[tokio::test]
async fn tensors_are_json_unless_the_server_lists_binary_ones() {
    for (described, extensions, kind) in [
        (200, vec!["binary_tensor_data"], "application/octet-stream"),
        (200, vec![], "application/json"),
        (404, vec![], "application/json"),
    ] {
        let server = naming();
        let (server, client) =
            meet(Server { described, extensions, offers_frames: false.into(), ..server }).await;
        for _ in 0..3 {
            assert_eq!(ask(&*client, "").await.unwrap(), "by http");
        }
        assert_eq!(*server.sent.lock(), [kind; 3], "{described}");
        assert_eq!(server.asked.load(Ordering::SeqCst), 1, "asked once");
    }
}

#[tokio::test]
async fn server_without_the_protocol_is_named_as_such() {
    let (_, client) = meet(naming()).await;
    let error = client.is_ready().await.unwrap_err().to_string();
    let said = "it answered 404 to GET /v2/health/ready: it does not speak the Open Inference Protocol";
    assert!(error.starts_with(said) && error.contains("docs/interop.md"), "{error}");
}
