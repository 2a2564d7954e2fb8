//! The client against upstream servers that answer, stream and fail in the ways that real servers do.

pub(in crate::client) mod calls;
mod crowds;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Code, Error, OpaqueAnswer, OpaqueBody, OpaqueRequest};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::client::{Config, connect};
use crate::testing::hear;

async fn pair() -> (TcpListener, Arc<dyn Client>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("upstream+http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let client = connect(&endpoint, &Config::default()).unwrap();
    (listener, client)
}

fn request(repeatable: bool) -> Arc<OpaqueRequest> {
    Arc::new(OpaqueRequest {
        method: Method::POST,
        target: "/v1/chat/completions?a=b%20c".parse().unwrap(),
        headers: HeaderMap::from_iter([("x-mine".parse().unwrap(), "1".parse().unwrap())]),
        body: "ask".into(),
        stream: None,
        repeatable,
        stall: Duration::from_secs(5),
    })
}

async fn ask(client: &dyn Client) -> Result<OpaqueAnswer, Error> {
    client.forward(request(true), CallContext::default()).await
}

/// Accepts a connection, reads its request and sends these bytes.
async fn serve(listener: &TcpListener, bytes: &[u8]) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let heard = hear(&mut stream).await.unwrap();
    // The client may close before all is sent.
    let _ = stream.write_all(bytes).await;
    (stream, heard)
}

/// The client's result for a request, and the request as a server heard it that says this.
async fn passed(asked: OpaqueRequest, bytes: &[u8]) -> (OpaqueAnswer, String) {
    let (listener, client) = pair().await;
    let asked = client.forward(Arc::new(asked), CallContext::default());
    let (answer, (_, heard)) = tokio::join!(asked, serve(&listener, bytes));
    (answer.unwrap(), heard)
}

/// The client's result, and the connection of a server that says this and then stays silent.
async fn told(bytes: &'static [u8]) -> (Result<OpaqueAnswer, Error>, TcpStream) {
    let (listener, client) = pair().await;
    let (answer, (stream, _)) = tokio::join!(ask(&*client), serve(&listener, bytes));
    (answer, stream)
}

/// The client's result with a server that says this and closes.
async fn told_all(bytes: &'static [u8]) -> Result<OpaqueAnswer, Error> {
    let (listener, client) = pair().await;
    let server = async {
        loop {
            drop(serve(&listener, bytes).await);
        }
    };
    tokio::select! {
        answer = ask(&*client) => answer,
        () = server => unreachable!(),
    }
}

fn whole(answer: OpaqueAnswer) -> String {
    match answer.body {
        OpaqueBody::Whole(body) => String::from_utf8(body.to_vec()).unwrap(),
        begun @ OpaqueBody::Begun(..) => panic!("it should be whole: {begun:?}"),
    }
}

#[tokio::test]
async fn servers_failure_is_an_error_with_its_answer() {
    for (text, status, code) in [
        (&b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\nno"[..], 500, Code::Internal),
        (b"HTTP/1.1 502 Bad\r\ncontent-length: 2\r\n\r\nno", 502, Code::Unavailable),
        (b"HTTP/1.1 429 Slow\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\nno", 429, Code::Internal),
    ] {
        let error = told(text).await.0.unwrap_err();
        assert_eq!(error.code(), code);
        let Error::Answered(answer) = error else { panic!("{error:?}") };
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (status, &b"no"[..]));
    }
    for text in [
        &b"HTTP/1.1 429 Slow\r\ncontent-length: 2\r\n\r\nno"[..],
        b"HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\nno",
        b"HTTP/1.1 501 No\r\ncontent-length: 2\r\n\r\nno",
    ] {
        assert_eq!(whole(told(text).await.0.unwrap()), "no", "that is an answer for the client");
    }
}

#[tokio::test]
async fn broken_answers_are_errors_of_the_server() {
    let endless = Box::leak(format!("HTTP/1.1 200 OK\r\n{}", "x-h: 1\r\n".repeat(100_000)).into_boxed_str());
    for bytes in [
        &b"nonsense\r\n\r\n"[..],
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nx",
        endless.as_bytes(),
    ] {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let error = told_all(bytes).await.unwrap_err();
        assert!(matches!(error, Error::Transport { .. }), "{shown}: {error:?}");
    }
}

#[tokio::test]
async fn answer_with_two_framings_has_the_length_of_its_body() {
    let text =
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n";
    let (answer, _stream) = told(text).await;
    let answer = answer.unwrap();
    assert_eq!(answer.headers.get("content-length"), None, "a client would read the rest as its next answer");
    let body = match answer.body {
        OpaqueBody::Whole(body) => body.to_vec(),
        OpaqueBody::Begun(first, rest) => [first, rest.collect().await.unwrap().to_bytes()].concat(),
    };
    assert_eq!(body, b"whole");
}

#[tokio::test]
async fn answer_may_have_more_than_a_hundred_headers() {
    for (count, passes) in [(200, true), (300, false)] {
        let (listener, client) = pair().await;
        let headers: String = (0..count).map(|number| format!("x-{number}: 1\r\n")).collect();
        let text = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n");
        let (answer, _stream) = tokio::join!(ask(&*client), serve(&listener, text.as_bytes()));
        match answer {
            Ok(answer) => assert!(passes && answer.headers.contains_key("x-199"), "{count}"),
            Err(error) => {
                assert!(!passes && error.to_string().contains("at most 256 headers"), "{count}: {error}")
            }
        }
    }
}

#[tokio::test]
async fn cookies_of_http2_are_one_header_of_http1() {
    let mut asked = (*request(true)).clone();
    asked.headers.append("cookie", "a=1".parse().unwrap());
    asked.headers.append("cookie", "b=2".parse().unwrap());
    let (_, heard) = passed(asked, b"HTTP/1.1 204 No Content\r\n\r\n").await;
    assert!(heard.contains("cookie: a=1; b=2\r\n"), "{heard}");
}

#[tokio::test]
async fn empty_body_has_a_length_where_one_is_expected() {
    for (method, has_length) in [(Method::POST, true), (Method::PUT, true), (Method::GET, false)] {
        let asked = OpaqueRequest { method, body: Default::default(), ..(*request(true)).clone() };
        let (_, heard) = passed(asked, b"HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(heard.contains("content-length: 0\r\n"), has_length, "{heard}");
    }
}

#[tokio::test]
async fn long_page_of_a_failed_server_is_no_fault_of_the_request() {
    let (listener, client) = pair().await;
    let length = super::content::LARGEST_WHOLE + 1;
    let text = format!("HTTP/1.1 500 Oh\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(length));
    let (answer, _) = tokio::join!(ask(&*client), serve(&listener, text.as_bytes()));
    assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
}
