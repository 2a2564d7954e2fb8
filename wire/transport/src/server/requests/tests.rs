//! Idle connections, connections that only look idle, and requests that are answered before their bodies have arrived.

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http2::SendRequest;
use parm_protocol::{Context, DataType, Error, InferRequest, InferResponse, NamedTensor, Tensor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::*;
use crate::keys::{Digest, Entry, Keys, Role};
use crate::listening::serve_one;
use crate::scripted::{Scripted, echo};
use crate::server::Config;
use crate::testing::http2;

/// A connection to a server, served like those of its listeners.
pub(in crate::server) fn connect<S: InferenceService>(
    shared: &Arc<Shared<S>>,
) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let app = service(shared.clone(), None, Reach::Local);
    let limits = shared.config.limits();
    (theirs, tokio::spawn(serve_one(ours.into(), app, limits, shared.drain.clone())))
}

/// A server that answers with its inputs, and a connection to it.
fn echoing(config: Config) -> (UnixStream, JoinHandle<()>) {
    let service = Scripted(|request, _| async { Ok(echo(request)) });
    connect(&Shared::new(config, Arc::new(service), Keys::none()))
}

/// Asks on a connection whether the server is well.
async fn check(stream: UnixStream) -> SendRequest<Empty<Bytes>> {
    let mut sender = http2(stream).await;
    let request = Request::get("http://a/v2/health/ready").body(Empty::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::OK);
    sender
}

#[tokio::test(start_paused = true)]
async fn connection_ends_when_it_is_idle_or_old() {
    let idle = Config { idle_timeout: Duration::from_secs(1), ..Config::default() };
    let old = Config { max_connection_age: Duration::from_secs(1), ..Config::default() };
    for config in [idle, old] {
        let (stream, served) = echoing(config);
        let _sender = check(stream).await;
        // Its clock is coarse.
        tokio::time::timeout(Duration::from_secs(60), served).await.unwrap().unwrap();
    }
}

/// Bytes of every answer of the service below, far more than a socket takes by itself.
const ANSWER: usize = 4 << 20;

type Large = Scripted<fn(InferRequest, Context) -> Ready>;
type Ready = std::future::Ready<Result<InferResponse, Error>>;

fn large(request: InferRequest, _: Context) -> Ready {
    let data = Bytes::from(vec![1; ANSWER]);
    let tensor = Tensor::new(DataType::Uint8, [ANSWER].as_slice(), data).unwrap();
    let mut answer = echo(request);
    answer.outputs = vec![NamedTensor::new("y", tensor)];
    std::future::ready(Ok(answer))
}

/// A server that may hold four of its responses.
fn crowded() -> Arc<Shared<Large>> {
    let config = Config {
        max_body_bytes: NonZeroUsize::new(1 << 20).unwrap(),
        max_bytes_in_flight: NonZeroUsize::new(4 * ANSWER + ANSWER / 2).unwrap(),
        ..Config::default()
    };
    Shared::new(config, Arc::new(Scripted(large as fn(_, _) -> _)), Keys::none())
}

const ASK: &str = r#"{"parameters":{"binary_data_output":true},"inputs":[]}"#;

#[tokio::test(start_paused = true)]
async fn clients_that_do_not_read_stay_within_the_byte_budget() {
    let shared = crowded();
    let mut clients = Vec::new();
    for _ in 0..30 {
        let (mut client, served) = connect(&shared);
        let head =
            format!("POST /v2/models/m/infer HTTP/1.1\r\nhost: m\r\ncontent-length: {}\r\n\r\n", ASK.len());
        client.write_all(format!("{head}{ASK}").as_bytes()).await.unwrap();
        client.readable().await.unwrap();
        clients.push((client, served));
    }
    assert!(
        (4 * ANSWER..=4 * ANSWER + ANSWER / 2).contains(&shared.budget.held()),
        "{} bytes held",
        shared.budget.held()
    );
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
    assert!(shared.budget.held() < 4 * ANSWER, "{} bytes held", shared.budget.held());
    tokio::time::sleep(Duration::from_secs(62)).await;
    assert_eq!(shared.budget.held(), 0);
    for (number, (_, served)) in clients.iter().enumerate() {
        let slow = statuses[number] == "200" && number > 0;
        assert_eq!(served.is_finished(), slow, "client {number}, which was told {}", statuses[number]);
    }
}

/// A server that requires a key, and a connection to it.
fn locked(config: Config) -> UnixStream {
    let keys = Keys::of(&[Entry::new("a", Role::Infer, Digest::of(b"hush"))]);
    let service = Scripted(|request, _| async { Ok(echo(request)) });
    connect(&Shared::new(config, Arc::new(service), keys)).0
}

const PATHS: [&str; 3] = ["/v2/models/m/infer", "/v1/embeddings", "/nothing"];

/// Sends a body as far as the server's window allows it, and then the rest.
async fn send(stream: &mut h2::SendStream<Bytes>, mut left: usize) -> Result<(), h2::Error> {
    while left > 0 {
        stream.reserve_capacity(left);
        // It tells only of room that is new.
        let room = match stream.capacity() {
            0 => poll_fn(|cx| stream.poll_capacity(cx)).await.expect("the stream ended")?,
            room => room,
        };
        let size = room.min(left).min(16 << 10);
        left -= size;
        stream.send_data(vec![b'x'; size].into(), left == 0)?;
    }
    Ok(())
}

#[tokio::test]
async fn refusal_over_http2_is_no_reset_of_its_stream() {
    let (mut client, connection) = h2::client::handshake(locked(Config::default())).await.unwrap();
    tokio::spawn(connection);
    for path in PATHS {
        for size in [1, 200_000, 3 << 20] {
            client = client.ready().await.unwrap();
            let request = Request::builder().method(Method::POST).uri(format!("http://a{path}"));
            let (answer, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
            // The server sees the head before the body, as of most clients.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            send(&mut stream, size).await.unwrap_or_else(|error| panic!("{path}, {size} bytes: {error}"));
            let answer = answer.await.unwrap();
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
            let mut body = answer.into_body();
            while let Some(piece) = body.data().await {
                body.flow_control().release_capacity(piece.unwrap().len()).unwrap();
            }
        }
    }
}

/// Reads an answer of HTTP/1.1 with a length.
async fn hear(stream: &mut UnixStream) -> String {
    let mut heard = Vec::new();
    while !heard.windows(4).any(|end| end == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut heard).await.unwrap() > 0, "{}", String::from_utf8_lossy(&heard));
    }
    let head = String::from_utf8(heard).unwrap().to_lowercase();
    let (head, begun) = head.split_once("\r\n\r\n").unwrap();
    let length = head.split_once("content-length: ").unwrap().1;
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut rest = vec![0; length - begun.len()];
    stream.read_exact(&mut rest).await.unwrap();
    head.to_owned()
}

#[tokio::test]
async fn refused_body_of_http1_leaves_its_connection_open() {
    let mut stream = locked(Config::default());
    for path in PATHS {
        let body = vec![b'x'; 3 << 20];
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let head = hear(&mut stream).await;
        assert!(head.starts_with("http/1.1 401"), "{path}: {head}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_that_waits_for_its_answer_gets_it() {
    // With `Expect` nothing may be read: the client would send the body.
    for (expect, least) in [("expect: 100-continue\r\n", Duration::ZERO), ("", Duration::from_millis(900))] {
        let mut stream = locked(Config::default());
        let head = format!("POST /v1/embeddings HTTP/1.1\r\nhost: a\r\n{expect}content-length: 5\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let began = tokio::time::Instant::now();
        let head = hear(&mut stream).await;
        assert!(head.starts_with("http/1.1 401"), "{head}");
        let waited = began.elapsed();
        assert!((least..Duration::from_secs(2)).contains(&waited), "{expect}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn body_that_is_too_long_to_pass_over_is_refused_at_once() {
    let mut stream = locked(Config::default());
    let head = "POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 10000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let began = tokio::time::Instant::now();
    assert!(hear(&mut stream).await.starts_with("http/1.1 401"));
    assert!(began.elapsed() < Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn body_that_trickles_is_not_read_for_ever() {
    let mut stream = locked(Config::default());
    let head = "POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let began = tokio::time::Instant::now();
    let (mut from, mut to) = stream.into_split();
    tokio::spawn(async move {
        while to.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let mut heard = [0; 12];
    from.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"HTTP/1.1 401");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}
