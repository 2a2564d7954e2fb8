//! One HTTP/1.1 connection, driven by its caller.
//!
//! No task stands between the caller and the socket, so an exchange costs no task switch, and dropping the caller's
//! future closes the connection.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parm_protocol::rest::Encoded;

use super::checked_socket::{CheckedSocket, Turn};
use crate::frames::Socket;

/// Most headers of a response: servers of any kind send more than hyper's 100, such as one for each limit or feature.
const HEADERS: usize = 256;

pub(in crate::client) struct HttpConnection {
    sender: http1::SendRequest<Encoded>,
    driver: http1::Connection<TokioIo<CheckedSocket>, Encoded>,
    turn: Turn,
    /// Whether an exchange succeeded here already.
    pub(in crate::client) used: bool,
}

/// A response with its whole body.
pub(in crate::client) struct Answer {
    pub(in crate::client) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The failure of an exchange.
#[derive(Debug)]
pub(in crate::client) enum Failure {
    /// The request was not sent.
    Unsent(String),
    /// No byte of a response arrived.
    NoAnswer(String),
    /// The response ended early.
    Broken(String),
    /// The response exceeds the limit.
    TooLarge,
}

impl Failure {
    /// The failure of a response in its middle.
    pub(in crate::client) fn of(error: &hyper::Error) -> Self {
        Self::Broken(describe(error))
    }
}

impl HttpConnection {
    pub(in crate::client) async fn open(socket: Socket) -> Result<Self, hyper::Error> {
        let turn = Turn::default();
        let socket = TokioIo::new(CheckedSocket::new(socket, turn.clone()));
        let (sender, driver) =
            http1::Builder::new().writev(true).max_headers(HEADERS).handshake(socket).await?;
        Ok(Self { sender, driver, turn, used: false })
    }

    /// Whether the server still listens, as far as is known: an idle connection may have been closed meanwhile.
    pub(super) fn is_alive(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.driver.poll_without_shutdown(&mut cx).is_pending() && !self.sender.is_closed()
    }

    /// Whether another request may follow.
    pub(in crate::client) fn is_reusable(&mut self) -> bool {
        self.is_alive() && self.sender.is_ready()
    }

    pub(super) async fn exchange(
        &mut self,
        request: Request<Encoded>,
        limit: usize,
    ) -> Result<Answer, Failure> {
        let mut response = self.head(request).await?;
        self.answer(&mut response, limit).await
    }

    /// Reads the rest of a response.
    pub(super) async fn answer(
        &mut self,
        response: &mut Response<Incoming>,
        limit: usize,
    ) -> Result<Answer, Failure> {
        let body = self.body(response.body_mut(), limit).await?;
        self.used = true;
        let headers = std::mem::take(response.headers_mut());
        Ok(Answer { status: response.status(), headers, body })
    }

    /// Sends a request and waits for the head of its response. Data arrives while the driver is polled here, so no task
    /// needs waking.
    pub(in crate::client) async fn head(
        &mut self,
        request: Request<Encoded>,
    ) -> Result<Response<Incoming>, Failure> {
        self.turn.begin();
        let mut response = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            let end = self.driver.poll_without_shutdown(cx);
            if let Poll::Ready(answer) = response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Poll::Ready(answer.map_err(|mut error| {
                    let is_unsent = error.take_message().is_some() || self.turn.is_ended();
                    let message = describe(error.error());
                    if is_unsent { Failure::Unsent(message) } else { Failure::NoAnswer(message) }
                }));
            }
            match end {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(())) => {
                    let message = "closed by the server".into();
                    let is_sent = self.turn.is_sending();
                    Poll::Ready(Err(if is_sent {
                        Failure::NoAnswer(message)
                    } else {
                        Failure::Unsent(message)
                    }))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(Failure::NoAnswer(describe(&error)))),
            }
        })
        .await
    }

    async fn body(&mut self, body: &mut Incoming, limit: usize) -> Result<Bytes, Failure> {
        let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if expected > limit {
            return Err(Failure::TooLarge);
        }
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        let mut total = 0usize;
        while let Some(chunk) = self.chunk(body).await? {
            total += chunk.len();
            if total > limit {
                return Err(Failure::TooLarge);
            }
            if first.is_empty() && rest.is_empty() {
                first = chunk;
                continue;
            }
            if rest.is_empty() {
                rest.reserve(expected.max(total));
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&chunk);
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }

    pub(in crate::client) async fn chunk(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
        poll_fn(|cx| self.poll_chunk(body, cx)).await
    }

    /// The next bytes of a body. Trailers are dropped.
    pub(in crate::client) fn poll_chunk(
        &mut self,
        mut body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Failure>> {
        loop {
            // The driver's end shows in the body, unless the body is complete.
            let _ = self.driver.poll_without_shutdown(cx);
            match Pin::new(&mut body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Failure::of(&error)));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Ok(Some(data)));
                    }
                }
            }
        }
    }

    /// Sends a request for another protocol. Returns the response, and after a `101` the socket with the bytes that the
    /// server sent on it already.
    pub(super) async fn upgrade(
        mut self,
        request: Request<Encoded>,
        limit: usize,
    ) -> Result<Upgrade, Failure> {
        let mut response = self.head(request).await?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let body = self.body(response.body_mut(), limit).await?;
            return Ok(Upgrade::Refused(status, body));
        }
        let parts =
            self.driver.without_shutdown().await.map_err(|error| Failure::Broken(describe(&error)))?;
        let headers = std::mem::take(response.headers_mut());
        Ok(Upgrade::Agreed {
            headers,
            socket: parts.io.into_inner().into_socket(),
            already_read: parts.read_buf,
        })
    }
}

/// The result of a request for another protocol.
pub(in crate::client) enum Upgrade {
    Agreed { headers: HeaderMap, socket: Socket, already_read: Bytes },
    Refused(StatusCode, Bytes),
}

pub(in crate::client) fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None if error.is_parse_too_large() => format!("{error}: at most {HEADERS} headers are accepted"),
        None => error.to_string(),
    }
}
