//! Tests `parm serve --upstream grpc://`: calls whose clients send messages over time, over scripted servers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::channel::mpsc;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::{Status, Streaming};

use crate::opaque_calls::{STREAM, raw, serve};
use crate::support::Parm;
use crate::support::grpc::Raw;

/// The behaviour of a server's calls.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// Answers each message with itself.
    Echoes,
    /// Reads and never answers.
    Listens,
    /// Reads two messages, and then fails.
    Fails,
}

/// A scripted server, which adds its name to each message that it returns.
#[derive(Clone)]
struct Echo {
    name: u8,
    does: Arc<Mutex<Does>>,
    /// Bytes of messages so far.
    heard: Arc<watch::Sender<usize>>,
}

impl Echo {
    async fn start(name: u8, does: Does) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let echo = Self { name, does: Arc::new(Mutex::new(does)), heard: Arc::default() };
        let server = echo.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let is_call = request.method() == hyper::Method::POST;
                        tokio::spawn(server.clone().answer(is_call, request.into_body(), respond));
                    }
                });
            }
        });
        (echo, address)
    }

    fn does(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    async fn answer(self, is_call: bool, mut body: RecvStream, mut respond: SendResponse<Bytes>) {
        if !is_call {
            respond.send_response(hyper::Response::new(()), true).unwrap();
            return;
        }
        let does = *self.does.lock().unwrap();
        let head = || hyper::Response::builder().header("content-type", "application/grpc");
        let mut answer = None;
        let (mut unread, mut messages) = (Vec::new(), 0);
        // A call that is reset has an error for its end.
        while let Some(Ok(bytes)) = body.data().await {
            body.flow_control().release_capacity(bytes.len()).unwrap();
            unread.extend_from_slice(&bytes);
            while let Some(message) = first(&mut unread) {
                self.heard.send_modify(|heard| *heard += message.len());
                messages += 1;
                if does == Does::Fails && messages == 2 {
                    let failed = head().header("grpc-status", "14").body(()).unwrap();
                    respond.send_response(failed, true).unwrap();
                    return;
                }
                if does == Does::Echoes {
                    let stream = answer.get_or_insert_with(|| {
                        respond.send_response(head().body(()).unwrap(), false).unwrap()
                    });
                    send(stream, [&message[..], &[self.name]].concat());
                }
            }
        }
        if let Some(mut stream) = answer {
            let status = [("grpc-status".parse().unwrap(), "0".parse().unwrap())];
            let _ = stream.send_trailers(hyper::HeaderMap::from_iter(status));
        }
    }

    /// Waits until it has heard this many bytes.
    async fn until(&self, least: usize) {
        self.heard.subscribe().wait_for(|heard| *heard >= least).await.unwrap();
    }

    fn heard(&self) -> usize {
        *self.heard.borrow()
    }
}

/// Takes the first message.
fn first(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().unwrap()) as usize;
    let message = bytes.get(5..5 + length)?.to_vec();
    bytes.drain(..5 + length);
    Some(message)
}

fn send(stream: &mut SendStream<Bytes>, message: Vec<u8>) {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    // The client may have left.
    let _ = stream.send_data([&[0], &length[..], &message].concat().into(), false);
}

async fn over(servers: &[SocketAddr], arguments: &[&'static str]) -> Parm {
    let (servers, arguments) = (servers.to_vec(), arguments.to_vec());
    tokio::task::spawn_blocking(move || serve(&servers, &arguments)).await.unwrap()
}

type Messages = mpsc::Sender<Vec<u8>>;
type Answer = Result<Streaming<Vec<u8>>, Status>;

/// Begins a call. Its messages are what is sent to the channel.
async fn call(parm: &Parm, first: &[u8]) -> (Messages, impl Future<Output = Answer> + use<>) {
    let (mut messages, sent) = mpsc::channel(0);
    messages.try_send(first.to_vec()).unwrap();
    let mut client = raw(parm).await;
    let answer = async move {
        let request = tonic::Request::new(sent);
        client.streaming(request, STREAM.parse().unwrap(), Raw).await.map(tonic::Response::into_inner)
    };
    (messages, answer)
}

async fn say(messages: &mut Messages, message: impl Into<Vec<u8>>) {
    futures::SinkExt::send(messages, message.into()).await.unwrap();
}

/// Flags of the route of the calls.
const ROUTE: [&str; 4] = [
    "--set",
    "frontend.upstreams.routes.grpc-stream.grpc=true",
    "--set",
    "frontend.upstreams.routes.grpc-stream.paths=[\"/inference.GRPCInferenceService/ModelStreamInfer\"]",
];

/// Starts a call at one of two servers. Returns that server, the other one, and the call.
async fn begin<'a>(
    parm: &Parm,
    servers: [&'a Echo; 2],
) -> (&'a Echo, &'a Echo, Messages, tokio::task::JoinHandle<Answer>) {
    let before = servers.map(|server| server.heard() + 1);
    let (messages, answer) = call(parm, b"a").await;
    let answer = tokio::spawn(answer);
    let first = tokio::select! {
        () = servers[0].until(before[0]) => 0,
        () = servers[1].until(before[1]) => 1,
    };
    (servers[first], servers[1 - first], messages, answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_a_call_gets_all_its_messages() {
    let (first, one) = Echo::start(b'1', Does::Echoes).await;
    let (second, two) = Echo::start(b'2', Does::Echoes).await;
    let copies = ["--set", "frontend.upstreams.routes.grpc-stream.copies=1.0"];
    let parm = over(&[one, two], &[&ROUTE[..], &copies].concat()).await;
    // Until the usual time of an answer is known.
    for _ in 0..64 {
        let (messages, answer) = call(&parm, b"a").await;
        drop(messages);
        answer.await.unwrap().message().await.unwrap();
    }
    [&first, &second].iter().for_each(|server| server.does(Does::Listens));
    let (begun, other, mut messages, answer) = begin(&parm, [&first, &second]).await;
    let heard = begun.heard();
    other.does(Does::Echoes);
    let mut answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.message().await.unwrap().unwrap(), [b'a', other.name]);
    for _ in 0..3 {
        say(&mut messages, *b"b").await;
        assert_eq!(answer.message().await.unwrap().unwrap(), [b'b', other.name]);
    }
    assert_eq!(begun.heard(), heard, "only the server that answered gets more");
    drop(messages);
    assert_eq!(answer.message().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_call_begins_again_with_its_messages() {
    let (failing, one) = Echo::start(b'1', Does::Fails).await;
    let (other, two) = Echo::start(b'2', Does::Fails).await;
    let parm = over(&[one, two], &[]).await;
    let (_begun, other, mut messages, answer) = begin(&parm, [&failing, &other]).await;
    other.does(Does::Echoes);
    say(&mut messages, *b"b").await;
    let mut answer = answer.await.unwrap().unwrap();
    for message in [b'a', b'b'] {
        assert_eq!(answer.message().await.unwrap().unwrap(), [message, other.name]);
    }
}
