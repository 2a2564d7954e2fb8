//! Tests `parm serve --upstream grpc://`: calls whose clients send messages over time, over scripted servers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::channel::mpsc;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tonic::{Code, Status, Streaming};

use crate::opaque_calls::{Raw, STREAM, raw, serve};
use crate::support::Parm;

/// The behaviour of a server's calls.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// Answers each message with itself.
    Echoes,
    /// Reads and never answers.
    Listens,
    /// Reads two messages, and then fails.
    Fails,
    /// Does not read.
    Waits,
}

/// A scripted server.
#[derive(Clone)]
struct Echo {
    name: u8,
    does: Arc<Mutex<Does>>,
    /// Calls, bytes of messages, and calls that were reset.
    calls: Arc<AtomicUsize>,
    heard: Arc<AtomicUsize>,
    reset: Arc<AtomicUsize>,
    changed: Arc<Notify>,
}

impl Echo {
    async fn start(name: u8, does: Does) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (does, changed) = (Arc::new(Mutex::new(does)), Arc::default());
        let [calls, heard, reset] = [0; 3].map(|_| Arc::default());
        let echo = Self { name, does, calls, heard, reset, changed };
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
        self.count(&self.calls, 1);
        let does = *self.does.lock().unwrap();
        if does == Does::Waits {
            assert_eq!(std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap(), Reason::CANCEL);
            return self.count(&self.reset, 1);
        }
        let head = hyper::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut answer = None;
        let mut unanswered = Vec::new();
        let mut messages = 0;
        loop {
            let bytes = match body.data().await {
                None => break,
                Some(Ok(bytes)) => bytes,
                Some(Err(error)) => {
                    assert_eq!(error.reason(), Some(Reason::CANCEL));
                    self.count(&self.reset, 1);
                    return;
                }
            };
            body.flow_control().release_capacity(bytes.len()).unwrap();
            unanswered.extend_from_slice(&bytes);
            while let Some(message) = first(&mut unanswered) {
                self.count(&self.heard, message.len());
                messages += 1;
                if does == Does::Fails && messages == 2 {
                    let failed = hyper::Response::builder().header("content-type", "application/grpc");
                    let failed = failed.header("grpc-status", "14").header("grpc-message", "broken");
                    respond.send_response(failed.body(()).unwrap(), true).unwrap();
                    return;
                }
                if does == Does::Echoes {
                    let stream =
                        answer.get_or_insert_with(|| respond.send_response(head.clone(), false).unwrap());
                    send(stream, [&message[..], &[self.name]].concat());
                }
            }
        }
        let mut stream = answer.unwrap_or_else(|| respond.send_response(head, false).unwrap());
        let trailers = hyper::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        stream.send_trailers(trailers).unwrap();
    }

    fn count(&self, what: &AtomicUsize, by: usize) {
        what.fetch_add(by, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits until a count is at least this.
    async fn until(&self, what: &AtomicUsize, least: usize) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if what.load(Ordering::SeqCst) >= least {
                return;
            }
            changed.await;
        }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_and_server_of_a_call_take_turns() {
    let (echo, address) = Echo::start(b'!', Does::Echoes).await;
    let parm = over(&[address], &[]).await;
    let (mut messages, answer) = call(&parm, b"a").await;
    let mut answer = answer.await.unwrap();
    assert_eq!(answer.message().await.unwrap().unwrap(), b"a!");
    for _ in 0..20 {
        say(&mut messages, *b"more").await;
        assert_eq!(answer.message().await.unwrap().unwrap(), b"more!");
    }
    drop(messages);
    assert_eq!(answer.message().await.unwrap(), None);
    assert_eq!((echo.calls.load(Ordering::SeqCst), echo.reset.load(Ordering::SeqCst)), (1, 0));
}

/// Far more than is held for copies.
const MANY: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_call_passes_in_both_directions() {
    let (_echo, address) = Echo::start(b'!', Does::Echoes).await;
    let parm = over(&[address], &[]).await;
    let (mut messages, answer) = call(&parm, b"a").await;
    let mut answer = answer.await.unwrap();
    answer.message().await.unwrap();
    let sends = tokio::spawn(async move {
        for number in 0..MANY {
            say(&mut messages, vec![number as u8; 256 << 10]).await;
        }
    });
    for number in 0..MANY {
        let message = answer.message().await.unwrap().unwrap();
        assert_eq!(message.len(), (256 << 10) + 1);
        assert!(message[..256 << 10].iter().all(|byte| *byte == number as u8));
    }
    sends.await.unwrap();
    assert_eq!(answer.message().await.unwrap(), None);
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
    let before = servers.map(|server| server.heard.load(Ordering::SeqCst) + 1);
    let (messages, answer) = call(parm, b"a").await;
    let answer = tokio::spawn(answer);
    let first = tokio::select! {
        () = servers[0].until(&servers[0].heard, before[0]) => 0,
        () = servers[1].until(&servers[1].heard, before[1]) => 1,
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
    let heard = begun.heard.load(Ordering::SeqCst);
    other.does(Does::Echoes);
    let mut answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.message().await.unwrap().unwrap(), [b'a', other.name]);
    for _ in 0..3 {
        say(&mut messages, *b"b").await;
        assert_eq!(answer.message().await.unwrap().unwrap(), [b'b', other.name]);
    }
    assert_eq!(begun.heard.load(Ordering::SeqCst), heard, "only the server that answered gets more");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_is_too_long_for_a_copy_fails_as_its_server_does() {
    let (failing, one) = Echo::start(b'1', Does::Fails).await;
    let (other, two) = Echo::start(b'2', Does::Fails).await;
    let parm = over(&[one, two], &[]).await;
    let (mut messages, answer) = call(&parm, b"a").await;
    let answer = tokio::spawn(answer);
    // Its second message, after which the server fails, is more than is held.
    say(&mut messages, vec![0; 3 << 20]).await;
    let status = answer.await.unwrap().map(drop).unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "broken"));
    let calls = |server: &Echo| server.calls.load(Ordering::SeqCst);
    assert_eq!(calls(&failing) + calls(&other), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_leaves_ends_its_call_at_the_server() {
    for does in [Does::Echoes, Does::Listens] {
        let (echo, address) = Echo::start(b'!', does).await;
        let parm = over(&[address], &[]).await;
        let stream = tokio::net::TcpStream::connect(parm.grpc).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let request =
            hyper::Request::post(format!("http://a{STREAM}")).header("content-type", "application/grpc");
        let (response, mut sends) = client.send_request(request.body(()).unwrap(), false).unwrap();
        sends.send_data(Bytes::from_static(b"\0\0\0\0\x01a"), false).unwrap();
        if does == Does::Echoes {
            let mut body = response.await.unwrap().into_body();
            assert_eq!(body.data().await.unwrap().unwrap(), b"\0\0\0\0\x02a!"[..]);
            drop((body, sends));
        } else {
            echo.until(&echo.heard, 1).await;
            drop((response, sends));
        }
        echo.until(&echo.reset, 1).await;
        connection.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_is_held_back_by_a_server_that_does_not_read() {
    let (echo, address) = Echo::start(b'!', Does::Waits).await;
    let deadline = ["--set", "frontend.upstreams.routes.grpc-stream.deadline_ms=2000"];
    let parm = over(&[address], &[&ROUTE[..], &deadline].concat()).await;
    let (mut messages, answer) = call(&parm, b"a").await;
    let answer = tokio::spawn(answer);
    let mut sent = 0;
    while futures::SinkExt::send(&mut messages, vec![0; 64 << 10]).await.is_ok() {
        sent += 64 << 10;
    }
    let status = answer.await.unwrap().map(drop).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert!(sent < 4 << 20, "{sent} bytes were taken");
    echo.until(&echo.reset, 1).await;
}
