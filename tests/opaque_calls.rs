//! Tests `parm serve --upstream grpc://`: gRPC calls that parm does not read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use h2::RecvStream;
use h2::server::SendResponse;
use hyper::{Method, Request, Response};
use parm_protocol::grpc::convert;
use parm_protocol::grpc::inference::{
    ModelInferRequest, ModelMetadataRequest, RepositoryIndexRequest, ServerMetadataRequest,
};
use prost::Message;
use tokio::net::TcpListener;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::support::grpc::{Grpc, Raw};
use crate::support::{Parm, affine, http};

fn over(workers: &[&Parm], arguments: &[&str]) -> Parm {
    serve(&workers.iter().map(|worker| worker.grpc).collect::<Vec<_>>(), arguments)
}

fn serve(servers: &[SocketAddr], arguments: &[&str]) -> Parm {
    let urls: Vec<String> = servers.iter().map(|server| format!("grpc://{server}")).collect();
    let mut command = vec!["serve"];
    urls.iter().for_each(|url| command.extend(["--upstream", url]));
    let parm = Parm::start(&[&command, arguments].concat());
    parm.until("all servers joined", |parm| {
        parm.metric("parm_instances", &["state=\"ready\""]) == servers.len() as f64
    });
    parm
}

/// A client of any method.
async fn raw(parm: &Parm) -> tonic::client::Grpc<Channel> {
    Grpc::connect(parm.grpc).await.0
}

const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

fn message(rows: usize) -> ModelInferRequest {
    convert::request_to_message(affine::request(&affine::rows(rows, 3)))
}

/// The bytes of an answer's message, or its code and text.
fn plain<M: Message>(answer: Result<tonic::Response<M>, Status>) -> Result<Vec<u8>, (Code, String)> {
    match answer {
        Ok(answer) => Ok(answer.into_inner().encode_to_vec()),
        Err(status) => Err((status.code(), status.message().to_owned())),
    }
}

/// Answers of one server to calls of every kind.
async fn answers(parm: &Parm) -> Vec<Result<Vec<u8>, (Code, String)>> {
    let mut client = Grpc::connect(parm.grpc).await;
    let unknown = || "unknown".to_owned();
    let mut answers = Vec::new();
    for rows in [1, 3, 100] {
        answers.push(plain(client.ask(message(rows)).await));
    }
    let wrong = ModelInferRequest { model_name: unknown(), ..message(1) };
    answers.push(plain(client.ask(wrong).await));
    answers.push(plain(client.ask(ModelInferRequest::default()).await));
    for name in ["affine".to_owned(), unknown()] {
        let question = ModelMetadataRequest { name, version: String::new() };
        answers.push(plain(client.ask(question).await));
    }
    answers.push(plain(client.ask(ServerMetadataRequest {}).await));
    answers.push(plain(client.ask(RepositoryIndexRequest::default()).await));
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unmodified_client_gets_the_answers_of_the_workers() {
    let workers = [Parm::worker(&[]), Parm::worker(&[])];
    let parm = over(&workers.each_ref(), &[]);
    let own = answers(&workers[0]).await;
    assert!(own[0].is_ok() && own[3].is_err(), "{own:?}");
    for (number, (own, passed)) in own.iter().zip(answers(&parm).await).enumerate() {
        assert_eq!(*own, passed, "call {number}");
    }
    let success = |route: &str| parm.metric("nv_inference_request_success", &[route]);
    assert_eq!((success("model=\"grpc-infer\""), success("model=\"grpc-other\"")), (5.0, 4.0));
    // parm itself reports its health.
    let mut health = raw(&parm).await;
    let path = "/grpc.health.v1.Health/Check".parse().unwrap();
    let answer = health.unary(tonic::Request::new(Vec::new()), path, Raw).await.unwrap();
    assert_eq!(answer.into_inner(), [8, 1], "it is serving");
    // A server of HTTP/2 gets other requests as well.
    let [own, passed] = [&workers[0], &parm].map(|parm| http::get(parm.http, "/v2/models/affine"));
    assert_eq!((own.status, own.body), (passed.status, passed.body));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_parm_are_statuses() {
    let worker = Parm::worker(&[]);
    let parm = over(&[&worker], &["--set", "server.max_body_bytes=100000"]);
    let mut asking = Grpc::connect(parm.grpc).await;
    let code = |answer: Result<_, Status>| answer.map(drop).unwrap_err().code();
    assert_eq!(code(asking.ask(message(10_000)).await), Code::ResourceExhausted);
    let mut hasty = tonic::Request::new(message(1));
    hasty.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    assert_eq!(code(asking.ask::<ModelInferRequest>(hasty).await), Code::InvalidArgument);
    asking.ask(message(1)).await.unwrap();
    // Servers of HTTP/1.1 get no calls.
    let url = format!("http://{}", worker.http);
    let plain = Parm::start(&["serve", "--upstream", &url]);
    let status = Grpc::connect(plain.grpc).await.ask(message(1)).await.unwrap_err();
    assert!(status.code() == Code::Unavailable && status.message().contains("grpc://"), "{status:?}");
    worker.signal("KILL");
    let status = asking.ask(message(1)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_first_message_is_explained() {
    let worker = Parm::worker(&[]);
    let parm = over(&[&worker], &["--set", "server.body_timeout_ms=200"]);
    let mut conversation = raw(&parm).await;
    let silent = tonic::Request::new(futures::stream::pending::<Vec<u8>>());
    let answer = conversation.streaming(silent, STREAM.parse().unwrap(), Raw).await;
    let status = answer.map(drop).unwrap_err();
    assert!(
        status.code() == Code::InvalidArgument && status.message().contains("first message did not arrive"),
        "{status:?}"
    );
}

/// A server that echoes messages. Of all servers with this count of calls, the first call fails after its second message.
async fn echo(calls: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let calls = calls.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond, calls.clone()));
                }
            });
        }
    });
    address
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, calls: Arc<AtomicUsize>) {
    let head = || Response::builder().header("content-type", "application/grpc");
    if request.method() != Method::POST {
        respond.send_response(Response::new(()), true).unwrap();
        return;
    }
    let fails = calls.fetch_add(1, Ordering::SeqCst) == 0;
    let (mut body, mut bytes) = (request.into_body(), 0);
    let mut stream = (!fails).then(|| respond.send_response(head().body(()).unwrap(), false).unwrap());
    while let Some(Ok(piece)) = body.data().await {
        body.flow_control().release_capacity(piece.len()).unwrap();
        bytes += piece.len();
        match &mut stream {
            // The client may have left.
            Some(stream) => drop(stream.send_data(piece, false)),
            // Two messages of one byte have arrived.
            None if bytes >= 12 => {
                respond.send_response(head().header("grpc-status", "14").body(()).unwrap(), true).unwrap();
                return;
            }
            None => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_call_begins_again_with_its_messages() {
    let calls = Arc::new(AtomicUsize::new(0));
    let servers = [echo(calls.clone()).await, echo(calls.clone()).await];
    let parm = tokio::task::spawn_blocking(move || serve(&servers, &[])).await.unwrap();
    let mut client = raw(&parm).await;
    let messages = [b"a", b"b"].map(|message| message.to_vec());
    let sent = futures::stream::iter(messages.clone()).chain(futures::stream::pending());
    let answer = client.streaming(tonic::Request::new(sent), STREAM.parse().unwrap(), Raw).await;
    let mut answer = answer.unwrap().into_inner();
    for message in messages {
        assert_eq!(answer.message().await.unwrap().unwrap(), message);
    }
    assert!(calls.load(Ordering::SeqCst) >= 2, "the first one failed");
}
