//! The way to an upstream server: connections of HTTP/1.1 with one request each, or one of HTTP/2.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::{Body as _, Frame, Incoming};
use parm_protocol::rest::Encoded;
use parm_protocol::{Error, ReaderHandle};
use tokio::sync::OwnedSemaphorePermit;

use super::http2::{Asked, Http2, OpenStream};
use crate::client::dial::Dialer;
use crate::client::http::connection::{Failure, HttpConnection};
use crate::client::http::pool::Pool;

/// The way to a server.
pub(super) enum Uplink {
    Http1 { pool: Arc<Pool>, host: HeaderValue },
    Http2(Box<Http2>),
}

impl Uplink {
    pub(super) fn dialer(&self) -> &Dialer {
        match self {
            Self::Http1 { pool, .. } => pool.dialer(),
            Self::Http2(shared) => shared.dialer(),
        }
    }

    /// A place for a request; `None` at the limit.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        match self {
            Self::Http1 { pool, .. } => pool.permit(),
            Self::Http2(shared) => shared.permit(),
        }
    }

    pub(super) fn explain(&self, failure: Failure) -> Error {
        match self {
            Self::Http1 { pool, .. } => explain(pool.dialer(), failure),
            Self::Http2(shared) => shared.explain(failure),
        }
    }

    /// Sends a request and waits for the head of its answer. `permit` is kept until the answer has ended.
    pub(super) async fn send(
        &self,
        asked: Asked,
        repeatable: bool,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<OpenAnswer>, Error> {
        let (line, response) = match self {
            Self::Http1 { .. } if asked.stream.is_some() => {
                let what = "a call whose client still sends, over HTTP/1.1";
                return Err(Error::Unimplemented { what: what.into() });
            }
            Self::Http1 { pool, host } => {
                let request = over_http1(asked, host);
                let (connection, response) = self.converse(pool, request, repeatable).await?;
                (Line::Http1(Box::new(connection), pool.clone()), response)
            }
            Self::Http2(shared) => {
                let (response, stream) = shared.converse(asked, repeatable).await?;
                (Line::Http2 { dialer: shared.dialer().clone(), stream }, response)
            }
        };
        Ok(response.map(|body| OpenAnswer { body, line, _permit: permit }))
    }

    /// Whether the server answers this request in any way.
    pub(super) async fn answers(&self, asked: Asked) -> Result<bool, Error> {
        match self {
            Self::Http1 { pool, host } => {
                let answer = pool.ask(&over_http1(asked, host)).await?;
                // A server without this path works as well.
                Ok(!answer.status.is_server_error())
            }
            Self::Http2(shared) => shared.answers(asked).await,
        }
    }

    /// A server may close an idle connection at the very moment it is used again: then a new connection gets the request, if
    /// the server cannot have run it or may run it twice.
    async fn converse(
        &self,
        pool: &Pool,
        request: Request<Encoded>,
        repeatable: bool,
    ) -> Result<(HttpConnection, Response<Incoming>), Error> {
        let mut connection = self.connect(pool, false).await?;
        let was_used = connection.used;
        match connection.head(request.clone()).await {
            Ok(response) => return Ok((connection, response)),
            Err(Failure::Unsent(_)) => {}
            Err(Failure::NoAnswer(_)) if was_used && repeatable => {}
            Err(failure) => return Err(self.explain(failure)),
        }
        let mut connection = self.connect(pool, true).await?;
        match connection.head(request).await {
            Ok(response) => Ok((connection, response)),
            Err(failure) => Err(self.explain(failure)),
        }
    }

    async fn connect(&self, pool: &Pool, fresh: bool) -> Result<HttpConnection, Error> {
        pool.connection(fresh).await.map_err(|error| match error {
            Error::Transport { message, .. } => self.explain(Failure::Unsent(message)),
            // It did not connect in time.
            other => self.explain(Failure::Unsent(other.to_string())),
        })
    }
}

/// The error of a request to this server.
pub(super) fn explain(dialer: &Dialer, failure: Failure) -> Error {
    match failure {
        Failure::Unsent(message) => Error::Unsent { peer: dialer.peer().to_owned(), message },
        Failure::NoAnswer(message) | Failure::Broken(message) => dialer.transport(message),
        Failure::TooLarge => dialer.transport("the answer to a failed request is too large"),
    }
}

fn over_http1(asked: Asked, host: &HeaderValue) -> Request<Encoded> {
    let Asked { method, target, mut headers, body, stream: _ } = asked;
    headers.insert(HOST, host.clone());
    join_cookies(&mut headers);
    // Some servers read the length of each such request.
    if body.is_empty() && matches!(method, Method::POST | Method::PUT | Method::PATCH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let mut request = Request::new(Encoded::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = target.into();
    *request.headers_mut() = headers;
    request
}

/// Joins the cookies, which HTTP/2 may split into several headers (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// The body of an answer while it arrives. Dropping it cancels the request: it closes a connection of HTTP/1.1, and resets
/// the stream of one of HTTP/2.
pub(super) struct OpenAnswer {
    body: Incoming,
    line: Line,
    _permit: OwnedSemaphorePermit,
}

enum Line {
    Http1(Box<HttpConnection>, Arc<Pool>),
    Http2 { dialer: Dialer, stream: OpenStream },
}

impl OpenAnswer {
    pub(super) fn peer(&self) -> &str {
        match &self.line {
            Line::Http1(_, pool) => pool.dialer().peer(),
            Line::Http2 { dialer, .. } => dialer.peer(),
        }
    }

    /// The request, if its client may send more.
    pub(super) fn asking(&self) -> Option<&ReaderHandle> {
        match &self.line {
            Line::Http1(..) => None,
            Line::Http2 { stream, .. } => stream.asking.as_ref(),
        }
    }

    /// Whether nothing follows, as far as is known.
    pub(super) fn is_end(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(super) async fn frame(&mut self) -> Result<Option<Frame<Bytes>>, Failure> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// The next data, or the trailers of HTTP/2.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        match &mut self.line {
            Line::Http1(connection, _) => {
                connection.poll_chunk(&mut self.body, cx).map_ok(|bytes| bytes.map(Frame::data))
            }
            Line::Http2 { stream, .. } => {
                let frame = std::pin::Pin::new(&mut self.body).poll_frame(cx);
                if matches!(frame, Poll::Pending | Poll::Ready(Some(Err(_)))) && stream.is_lost(cx) {
                    return Poll::Ready(Err(OpenStream::lost()));
                }
                frame.map(|frame| frame.transpose().map_err(|error| Failure::of(&error)))
            }
        }
    }

    /// Makes the connection free for another request, after the end of the answer.
    pub(super) fn end(self) {
        if let Line::Http1(mut connection, pool) = self.line {
            connection.used = true;
            pool.put_back(*connection);
        }
    }
}
