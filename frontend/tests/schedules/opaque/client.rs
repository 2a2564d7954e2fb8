//! Client that sends a request over a real connection, reads the answer and leaves when it likes.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::plan::{Errand, Line, Route};
use super::upstream::NUMBER;

/// Longest pause of an answer that has begun, by the configuration.
pub(super) const STALL: Duration = Duration::from_millis(1500);
/// Time that messages and timers may take on top.
pub(super) const LATE: Duration = Duration::from_millis(150);

/// A connection of HTTP/2 for several clients.
pub(super) type SharedLine = http2::SendRequest<Full<Bytes>>;

/// How a request ended at its client.
#[derive(Debug)]
pub(super) enum End {
    /// The client left.
    Left,
    /// No head came, or none in time.
    NoHead(String),
    Answer {
        status: StatusCode,
        outcome: Option<String>,
        after: Duration,
        body: Bytes,
        /// Why the body ended early.
        cut: Option<String>,
        /// Whether a part did not come in time.
        stalled: bool,
        /// The status and message of a gRPC call.
        call: Option<(String, String)>,
    },
}

pub(super) async fn shared_line(socket: &Path) -> SharedLine {
    let stream = UnixStream::connect(socket).await.expect("the server listens");
    let mut builder = http2::Builder::new(TokioExecutor::new());
    // The library ends a connection with too many small frames that nobody reads, by its window.
    builder.initial_connection_window_size((1 << 31) - 1);
    let (sender, driver) = builder.handshake(TokioIo::new(stream)).await.expect("the server speaks HTTP/2");
    tokio::spawn(driver);
    sender
}

pub(super) async fn send(errand: &Errand, number: usize, socket: &Path, shared: SharedLine) -> End {
    let whole = exchange(errand, number, socket, shared);
    match errand.patience {
        Some(patience) => timeout(Duration::from_millis(patience), whole).await.unwrap_or(End::Left),
        None => whole.await,
    }
}

async fn exchange(errand: &Errand, number: usize, socket: &Path, mut shared: SharedLine) -> End {
    let began = Instant::now();
    let method = if errand.route == Route::Read { Method::GET } else { Method::POST };
    let request =
        Request::builder().method(method).header(NUMBER, number).header("parm-timeout-ms", errand.timeout);
    let request = match errand.route {
        Route::Call => request.header("content-type", "application/grpc"),
        _ => request,
    };
    let body = Full::new(Bytes::from(if errand.route == Route::Read { "" } else { "ask" }));
    let path = errand.route.path();
    let far = format!("http://parm{path}");
    let limit = Duration::from_millis(errand.timeout) + Duration::from_secs(5);
    // The connection ends with the request, so a client that leaves closes it.
    let mut driver = tokio::task::JoinSet::new();
    let head = timeout(limit, async {
        match errand.line {
            Line::Http1 => {
                let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
                let opened = http1::handshake(TokioIo::new(stream)).await;
                let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
                driver.spawn(connection);
                let request = request.uri(path).header("host", "parm").body(body).expect("a request");
                let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
                // Its connection lasts as long as its sender.
                Ok::<_, String>((answer, Some(sender)))
            }
            Line::Http2 | Line::Narrow => {
                let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
                let mut builder = http2::Builder::new(TokioExecutor::new());
                if errand.line == Line::Narrow {
                    builder.initial_stream_window_size(1 << 10).initial_connection_window_size(1 << 16);
                }
                let opened = builder.handshake(TokioIo::new(stream)).await;
                let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
                driver.spawn(connection);
                let request = request.uri(far).body(body).expect("a request");
                Ok((sender.send_request(request).await.map_err(|error| error.to_string())?, None))
            }
            Line::Shared => {
                let request = request.uri(far).body(body).expect("a request");
                Ok((shared.send_request(request).await.map_err(|error| error.to_string())?, None))
            }
        }
    });
    match head.await {
        Err(_) => End::NoHead(format!("no head in {limit:?}")),
        Ok(Err(error)) => End::NoHead(error),
        Ok(Ok((answer, _sender))) => read(errand, answer, began.elapsed()).await,
    }
}

async fn read(errand: &Errand, answer: Response<Incoming>, after: Duration) -> End {
    let (parts, mut rest) = answer.into_parts();
    let outcome = parts.headers.get("parm-outcome").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let text = |fields: &HeaderMap, name| {
        fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let status_in = |fields: &HeaderMap| {
        fields
            .contains_key("grpc-status")
            .then(|| (text(fields, "grpc-status"), text(fields, "grpc-message")))
    };
    let mut call = status_in(&parts.headers);
    let (mut body, mut cut, mut stalled) = (Vec::new(), None, false);
    loop {
        sleep(Duration::from_millis(errand.slowness)).await;
        match timeout(STALL + LATE, rest.frame()).await {
            Err(_) => {
                stalled = true;
                break;
            }
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                cut = Some(error.to_string());
                break;
            }
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    body.extend_from_slice(data);
                }
                call = frame.trailers_ref().and_then(status_in).or(call);
            }
        }
    }
    End::Answer { status: parts.status, outcome, after, body: body.into(), cut, stalled, call }
}
