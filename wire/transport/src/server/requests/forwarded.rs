//! Requests that are passed on, and clients that do not read the answers.

use std::sync::OnceLock;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use parm_protocol::{
    Broken, Context, Error, InferRequest, InferResponse, OpaqueAnswer, OpaqueBody, OpaqueRequest,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::tests::connect;
use super::*;
use crate::budget::Budget;
use crate::keys::Keys;
use crate::server::Config;
use crate::testing::http2;

/// A service whose requests are all for upstream servers, with this answer.
struct Passing(Box<dyn Fn(OpaqueRequest) -> BoxFuture<'static, OpaqueAnswer> + Send + Sync>);

impl InferenceService for Passing {
    fn forwards(&self, _: &str) -> bool {
        true
    }
    async fn infer(&self, _: InferRequest, _: Context) -> Result<InferResponse, Error> {
        panic!("everything is forwarded")
    }
    async fn forward(&self, request: OpaqueRequest, _: Context) -> Result<OpaqueAnswer, Error> {
        Ok((self.0)(request).await)
    }
}

impl Passing {
    fn at_once(answer: fn(OpaqueRequest) -> OpaqueAnswer) -> Arc<Self> {
        Arc::new(Self(Box::new(move |request| Box::pin(std::future::ready(answer(request))))))
    }
}

fn passing(config: Config, answer: fn(OpaqueRequest) -> OpaqueAnswer) -> Arc<Shared<Passing>> {
    Shared::new(config, Passing::at_once(answer), Keys::none())
}

/// More than a socket holds.
const LARGE: usize = 4 << 20;

/// The first part of an answer that never ends.
fn begun(_: OpaqueRequest) -> OpaqueAnswer {
    let rest = Box::pin(StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Error>>()));
    let body = OpaqueBody::Begun(vec![b'x'; LARGE].into(), rest);
    OpaqueAnswer { status: StatusCode::OK, headers: HeaderMap::new(), body, broken: Broken::default() }
}

/// Asks on a connection, and returns the beginning of the answer.
async fn begin(stream: &mut UnixStream, head: &str) -> String {
    stream.write_all(format!("{head}\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    let mut begun = vec![0; 15];
    stream.read_exact(&mut begun).await.unwrap();
    String::from_utf8(begun).unwrap()
}

const GET: &str = "GET /v1/models HTTP/1.1";

#[tokio::test]
async fn first_part_of_an_answer_counts_until_it_is_read() {
    let limit = (1 << 20).try_into().unwrap();
    let config = Config { max_bytes_in_flight: limit, max_body_bytes: limit, ..Config::default() };
    let shared = passing(config, begun);
    let (mut first, _first) = connect(&shared);
    assert_eq!(begin(&mut first, GET).await, "HTTP/1.1 200 OK", "an answer that has begun is not refused");
    assert_eq!(shared.budget.held(), LARGE);
    let (mut second, _second) = connect(&shared);
    assert_eq!(begin(&mut second, GET).await, "HTTP/1.1 503 Se", "no further answer begins");
    let mut rest = vec![0; LARGE];
    first.read_exact(&mut rest).await.unwrap();
    let mut tail = Vec::new();
    while shared.budget.held() > 0 {
        first.read_buf(&mut tail).await.unwrap();
    }
}

#[tokio::test]
async fn what_would_change_its_meaning_is_not_passed_on() {
    let shared = passing(Config::default(), |_| panic!("it was passed on"));
    let coded =
        |coding| format!("POST /embed HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n1\r\nx\r\n0");
    for (asked, status, words) in [
        ("CONNECT a:1 HTTP/1.1\r\nhost: a:1".to_owned(), "400", "CONNECT is not passed on"),
        (coded("gzip, chunked"), "501", "gzip, chunked"),
        (coded("chunked, chunked"), "501", "chunked, chunked"),
    ] {
        let (mut stream, _served) = connect(&shared);
        stream.write_all(format!("{asked}\r\n\r\n").as_bytes()).await.unwrap();
        let mut heard = vec![0; 1024];
        let count = stream.read(&mut heard).await.unwrap();
        let heard = String::from_utf8_lossy(&heard[..count]);
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}")) && heard.contains(words), "{heard}");
    }
}

/// An answer without a body that states the length of the one that it does not have.
fn bodiless(request: OpaqueRequest) -> OpaqueAnswer {
    let status = request.target.path()[1..].parse().unwrap();
    let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from_static("5"))]);
    OpaqueAnswer { status, headers, body: OpaqueBody::Whole(Bytes::new()), broken: Broken::default() }
}

#[tokio::test]
async fn answer_without_a_body_may_state_a_length() {
    let shared = passing(Config::default(), bodiless);
    let (stream, _served) = connect(&shared);
    let (mut http1, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let mut http2 = http2(connect(&shared).0).await;
    for (method, status) in [(Method::GET, 204), (Method::GET, 304), (Method::HEAD, 200), (Method::HEAD, 404)]
    {
        let request = Request::builder().method(method).uri(format!("http://a/{status}"));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        for response in [http1.send_request(request.clone()).await, http2.send_request(request).await] {
            let response = response.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
        }
    }
}

#[tokio::test]
async fn first_message_of_a_call_counts_while_it_is_kept() {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let server_budget = Arc::new(OnceLock::<Arc<Budget>>::new());
    let budget = server_budget.clone();
    // Reads the call as fast as it comes, and tells how many bytes of it are kept and how many are counted.
    let reads = move |request: OpaqueRequest| -> BoxFuture<'static, OpaqueAnswer> {
        let (tell, budget) = (tell.clone(), budget.clone());
        Box::pin(async move {
            let stream = request.stream.clone().expect("its client sends more");
            let (mut reader, _handle) = stream.reader().expect("copies have not ended");
            let mut read = 0;
            while read < 2 * LARGE {
                read += std::future::poll_fn(|cx| reader.poll_next(cx)).await.unwrap().unwrap().len();
            }
            // What came last is counted by another task.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let held = budget.get().expect("the server has one").held();
            tell.try_send((request.body.len() + stream.held(), held)).unwrap();
            std::future::pending().await
        })
    };
    let shared = Shared::new(Config::default(), Arc::new(Passing(Box::new(reads))), Keys::none());
    server_budget.set(shared.budget.clone()).unwrap();
    let mut client = http2(connect(&shared).0).await;
    let length = u32::try_from(LARGE).unwrap().to_be_bytes();
    let message: Bytes = [&[0], &length[..], &vec![7; LARGE]].concat().into();
    let messages = futures::stream::iter([message.clone(), message]).chain(futures::stream::pending());
    let body = StreamBody::new(messages.map(|message| Ok::<_, Error>(Frame::data(message))));
    let request = Request::post("http://a/S/Call").header(header::CONTENT_TYPE, "application/grpc");
    let _answer = tokio::spawn(client.send_request(request.body(body).unwrap()));
    let (kept, counted) = told.recv().await.unwrap();
    assert!(counted >= kept, "{kept} bytes are kept, {counted} are counted");
}

#[tokio::test]
async fn stream_counts_for_the_limit_of_its_key_until_it_ends() {
    use crate::keys::{Digest, Entry, Role};
    let one =
        Entry { concurrency: std::num::NonZeroU32::new(1), ..Entry::new("c", Role::Infer, Digest::of(b"k")) };
    let shared = Shared::new(Config::default(), Passing::at_once(begun), Keys::of(&[one]));
    let get = format!("{GET}\r\nauthorization: Bearer k");
    let (mut first, _first) = connect(&shared);
    assert_eq!(begin(&mut first, &get).await, "HTTP/1.1 200 OK");
    let (mut second, _second) = connect(&shared);
    assert_eq!(begin(&mut second, &get).await, "HTTP/1.1 429 To", "the first is in progress");
    // Its place is free once the client leaves.
    drop(first);
    while begin(&mut connect(&shared).0, &get).await != "HTTP/1.1 200 OK" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
