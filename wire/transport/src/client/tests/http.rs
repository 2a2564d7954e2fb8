//! The client over HTTP against servers that fail in the ways that real servers do.

use std::time::Duration;

use parm_protocol::rest::Encoded;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::client::http1::HttpConnection;
use crate::client::pool::Failure;
use crate::testing::{Served, answer, hear, serve_at};

const ANSWER: &str = r#"{"model_name":"m","model_version":"3","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[0.25,-4]}]}"#;

/// As Python's `json` writes it.
const NOT_A_NUMBER: &str =
    r#"{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[NaN]}]}"#;

fn client_of(address: std::net::SocketAddr) -> std::sync::Arc<dyn Client> {
    let endpoint: Endpoint = format!("http://{address}").parse().unwrap();
    let config = Config {
        transport: Prefer::Http,
        token: Some(crate::client::Token::new("hush")),
        max_body_bytes: std::num::NonZeroUsize::new(10_000).unwrap(),
        ..Config::default()
    };
    connect(&endpoint, &config).unwrap()
}

fn well() -> String {
    answer("200 OK", ANSWER)
}

/// Serves connections one after the other, each with these answers. An empty one closes its connection after the request.
async fn serve<const N: usize>(
    connections: [Vec<String>; N],
) -> (JoinHandle<Served>, std::sync::Arc<dyn Client>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client_of(listener.local_addr().unwrap());
    (tokio::spawn(serve_at(listener, connections.into())), client)
}

async fn infer(client: &dyn Client) -> Result<InferResponse, Error> {
    client.infer(request("", 8), CallContext::default()).await
}

#[tokio::test]
async fn connection_is_reused_and_json_is_read() {
    let (server, client) = serve([vec![well(); 3]]).await;
    for _ in 0..3 {
        let answer = infer(&*client).await.unwrap();
        assert_eq!((answer.model_name.as_str(), answer.model_version.as_str()), ("m", "3"));
        assert_eq!(answer.outputs[0].tensor.as_f32().unwrap().as_ref(), [0.25, -4.0]);
    }
    let Served(_, open, heads) = server.await.unwrap();
    assert_eq!(open.len(), 1, "it stays open");
    for head in heads {
        assert!(head.starts_with("POST /v2/models/m/infer HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("authorization: Bearer hush\r\n"), "{head}");
        assert!(head.contains("inference-header-content-length: "), "{head}");
    }
}

#[tokio::test]
async fn request_that_runs_once_is_not_repeated_after_it_was_read() {
    // The server may have done the work of the second request when it ends.
    let (server, client) = serve([vec![well(), String::new()]]).await;
    infer(&*client).await.unwrap();
    let deadline = Some(Instant::now() + Duration::from_secs(5));
    let context = CallContext { deadline, once: true, ..CallContext::default() };
    let error = client.infer(request("", 8), context).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    let Served(listener, ..) = server.await.unwrap();
    assert!(futures::FutureExt::now_or_never(listener.accept()).is_none(), "sent again");
}

/// Closes the next connection before its client has written, as a server does whose timeout for the first byte has passed.
pub(super) fn refuse(listener: &std::net::TcpListener) {
    drop(listener.accept().unwrap());
}

#[tokio::test]
async fn request_that_was_not_sent_gets_another_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client_of(listener.local_addr().unwrap());
    let mut call = Box::pin(infer(&*client));
    assert!(futures::poll!(&mut call).is_pending(), "it connects");
    refuse(&listener);
    listener.set_nonblocking(true).unwrap();
    let server = tokio::spawn(serve_at(TcpListener::from_std(listener).unwrap(), vec![vec![well()]]));
    call.await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn request_that_is_never_sent_is_an_error_soon() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client_of(listener.local_addr().unwrap());
    let mut call = Box::pin(infer(&*client));
    for number in 1..=4 {
        assert!(futures::poll!(&mut call).is_pending(), "connection {number}");
        refuse(&listener);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = call.await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
}

#[tokio::test]
async fn request_after_an_unnoticed_end_is_unsent() {
    for keeps in [false, true] {
        let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
        let mut connection = HttpConnection::open(ours.into()).await.unwrap();
        let request = || Request::get("/").body(Encoded::default()).unwrap();
        let server = tokio::spawn(async move {
            let mut heard = Vec::new();
            while keeps && !heard.ends_with(b"\r\n\r\n") {
                theirs.read_buf(&mut heard).await.unwrap();
                let _ = theirs.try_write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
            theirs
        });
        if keeps {
            connection.head(request()).await.unwrap();
        }
        let theirs = server.await.unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
        // The runtime does not get the time to notice it.
        drop(theirs);
        let failed = connection.head(request()).await.err().unwrap();
        assert!(matches!(failed, Failure::Unsent(_)), "kept: {keeps}: {failed:?}");
    }
}

#[tokio::test]
async fn stray_answer_is_not_that_of_the_next_request() {
    let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
    let mut connection = HttpConnection::open(ours.into()).await.unwrap();
    theirs.write_all(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let request = Request::get("/").body(Encoded::default()).unwrap();
    let failed = connection.head(request).await.map(|answer| answer.status()).unwrap_err();
    assert!(matches!(failed, Failure::Unsent(_)), "{failed:?}");
}

#[tokio::test]
async fn errors_are_told_apart() {
    let cases = [
        ("400 Bad Request", r#"{"error":"wrong shape"}"#, Code::InvalidArgument),
        ("401 Unauthorized", r#"{"error":"no key"}"#, Code::Unauthenticated),
        ("403 Forbidden", r#"{"error":"its role"}"#, Code::PermissionDenied),
        ("404 Not Found", r#"{"error":"no such model"}"#, Code::NotFound),
        ("404 Not Found", "404 page not found", Code::Unimplemented),
        ("405 Method Not Allowed", r#"{"error":"GET only"}"#, Code::Unimplemented),
        ("413 Content Too Large", r#"{"error":"less"}"#, Code::TooLarge),
        ("422 Unprocessable Content", r#"{"error":"wrong"}"#, Code::InvalidArgument),
        ("429 Too Many Requests", r#"{"error":"slower"}"#, Code::TooManyRequests),
        ("500 Internal Server Error", "<html>", Code::Internal),
        ("502 Bad Gateway", "<html>", Code::Unavailable),
        ("504 Gateway Timeout", r#"{"error":"late"}"#, Code::DeadlineExceeded),
        ("503 Service Unavailable\r\nretry-after: 1", r#"{"error":"busy"}"#, Code::Overloaded),
        (
            "503 Service Unavailable\r\nretry-after: 1\r\nparm-error-code: PARM-0032",
            r#"{"error":"busy"}"#,
            Code::Overloaded,
        ),
        (
            "503 Service Unavailable\r\nretry-after: 1\r\nparm-error-code: PARM-0034",
            r#"{"error":"none"}"#,
            Code::Unavailable,
        ),
        ("503 Service Unavailable", r#"{"error":"none"}"#, Code::Unavailable),
        ("200 OK", "no json", Code::Internal),
        ("200 OK", NOT_A_NUMBER, Code::Internal),
    ];
    let answers = cases.iter().map(|(status, body, _)| answer(status, body)).collect();
    let (server, client) = serve([answers]).await;
    for (status, body, code) in cases {
        let error = infer(&*client).await.unwrap_err();
        assert_eq!(error.code(), code, "{status} {body}: {error}");
    }
    server.await.unwrap();
}

#[tokio::test]
async fn response_over_the_limit_is_rejected() {
    let body = "x".repeat(10_001);
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked";
    let chunked = format!("{head}\r\n\r\n2711\r\n{body}\r\n0\r\n\r\n");
    let (server, client) = serve([vec![answer("200 OK", &body)], vec![chunked]]).await;
    for _ in 0..2 {
        let error = infer(&*client).await.unwrap_err();
        assert_eq!(error.code(), Code::TooLarge, "{error}");
    }
    server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn call_to_a_silent_server_times_out_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client_of(listener.local_addr().unwrap());
    let deadline = Some(Instant::now() + Duration::from_millis(30));
    let error =
        client.infer(request("", 8), CallContext { deadline, ..CallContext::default() }).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error:?}");
    let error = client.server_metadata().await.unwrap_err();
    assert!(error.to_string().contains("timed out after 5s"), "{error}");
    let error = client.load_model("m").await.unwrap_err();
    assert!(error.to_string().contains("timed out after 300s"), "{error}");
}

#[tokio::test]
async fn a_dropped_call_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client_of(listener.local_addr().unwrap());
    let call = tokio::spawn(async move { infer(&*client).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    hear(&mut stream).await.unwrap();
    call.abort();
    assert!(hear(&mut stream).await.is_none());
}

#[tokio::test]
async fn readiness_is_reported_while_all_connections_are_busy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint: Endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let max_connections = std::num::NonZeroU32::new(1).unwrap();
    let config = Config { transport: Prefer::Http, max_connections, ..Config::default() };
    let client = connect(&endpoint, &config).unwrap();
    let busy = tokio::spawn({
        let client = client.clone();
        async move { infer(&*client).await }
    });
    let (mut predicting, _) = listener.accept().await.unwrap();
    hear(&mut predicting).await.unwrap();
    assert_eq!(infer(&*client).await.map_err(|error| error.code()), Err(Code::Overloaded));

    let server = tokio::spawn(serve_at(listener, vec![vec![answer("200 OK", "")]]));
    assert_eq!(client.is_ready().await, Ok(true));
    assert!(server.await.unwrap().2[0].starts_with("GET /v2/health/ready "));
    predicting.write_all(well().as_bytes()).await.unwrap();
    assert!(busy.await.unwrap().is_ok());
}

#[tokio::test]
async fn bytes_beyond_an_answer_are_not_the_next_answer() {
    let beyond = well() + &answer("200 OK", &ANSWER.replace("0.25", "7"));
    let (server, client) = serve([vec![beyond], vec![well()]]).await;
    for _ in 0..2 {
        let answer = tokio::time::timeout(Duration::from_secs(5), infer(&*client)).await.unwrap().unwrap();
        assert_eq!(answer.outputs[0].tensor.as_f32().unwrap().as_ref(), [0.25, -4.0]);
    }
    server.await.unwrap();
}
