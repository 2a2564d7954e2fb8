//! Requests for upstream servers: passed on as they are, and answered as the servers answer.
//!
//! The whole body is read first, because a copy of the request may be needed; of a gRPC call it is the first message (`call`).
//! The answer is passed on while it arrives, no faster than the client reads it.
//!
//! The headers `X-Forwarded-For`, `-Host` and `-Proto` state the client's side, because a server behind parm logs its clients, and
//! makes absolute links and redirects for them. As usual for nginx, the client's address follows those that the client states itself,
//! so the server decides how many of the last ones to trust. Host and scheme are one value each, of which parm knows the true one: a
//! client's own are replaced. Rejected: `Forwarded` (RFC 7239), which few model servers read; a client's own passes unchanged.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Uri, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Frame, Incoming};
use parm_protocol::rest::shorten;
use parm_protocol::terms::TIMEOUT_HEADER;
use parm_protocol::{
    Context, Error, FORWARDED_HOST, FORWARDED_SCHEME, InferenceService, OpaqueAnswer, OpaqueBody,
    OpaqueRequest, RestOfBody, Transport, is_grpc, rounded,
};
use tokio::time::Instant;

use super::call::{self, Asking};
use super::rest::{self, json, traceparent};
use super::shared::Shared;
use super::{body, status};
use crate::keys::{Caller, Visit};
use crate::listening::{ClientEnd, Connection, Lent};
use crate::{end_to_end, grpc};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Forwards a request of a known caller, or of anyone if keys are not required.
pub(super) async fn answer<S: InferenceService>(
    shared: &Shared<S>,
    request: Request<Lent<Incoming>>,
    visit: &Visit,
    connection: &Connection,
) -> Response {
    let form = ErrorForm::of(request.uri().path(), request.headers());
    let origin = Origin::of(connection.activity().client());
    match answered(shared, request, (visit.caller(), &origin)).await {
        Ok(response) => response,
        Err(error) => problem(&error, form),
    }
}

/// The form of an error. Client libraries of OpenAI's interface show no message in another form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorForm {
    OpenAi,
    /// The Open Inference Protocol.
    Protocol,
    /// A status of gRPC.
    Grpc,
}

impl ErrorForm {
    /// The form for a request that is forwarded.
    pub(super) fn of(path: &str, headers: &HeaderMap) -> Self {
        match path {
            _ if is_grpc(headers) => Self::Grpc,
            _ if path.starts_with("/v2/models/") => Self::Protocol,
            _ => Self::OpenAi,
        }
    }
}

/// The response of an error.
pub(super) fn problem(error: &Error, form: ErrorForm) -> Response {
    match form {
        ErrorForm::Protocol => return rest::problem(error),
        ErrorForm::Grpc => return status::grpc(error).into_http(),
        ErrorForm::OpenAi => {}
    }
    let mut message = match error {
        Error::DeadlineExceeded { waited } => {
            let waited = rounded(*waited);
            format!("the deadline passed after {waited:?}: raise the header {TIMEOUT_HEADER}, or add servers")
        }
        other => other.to_string(),
    };
    shorten(&mut message);
    let code = error.stable_code().map(|code| code.name());
    let fields = serde_json::json!({ "message": message, "type": "parm_error", "param": null, "code": code });
    let body = serde_json::json!({ "error": fields }).to_string();
    let mut response = json(status::of(error.code()).0, body.into());
    response.headers_mut().extend(status::headers(error));
    response
}

async fn answered<S: InferenceService>(
    shared: &Shared<S>,
    request: Request<Lent<Incoming>>,
    (caller, origin): (&Caller, &Origin),
) -> Result<Response, Error> {
    let arrived = Instant::now();
    let transport = if is_grpc(request.headers()) { Transport::Grpc } else { Transport::Http };
    if request.method() == Method::CONNECT {
        let message = "CONNECT is not passed on: parm is a proxy of model servers only";
        return Err(shared.rejected(Error::malformed(message), transport));
    }
    // A timeout beyond the range of the clock counts as none.
    let timeout = match transport {
        Transport::Grpc => {
            grpc::timeout_of(request.headers()).map_err(|error| shared.rejected(error, transport))?
        }
        Transport::Http | Transport::Frames => None,
    };
    let deadline = timeout.and_then(|timeout| arrived.checked_add(timeout));
    let (method, target) = (request.method().clone(), target(request.uri()));
    let headers = passed_on(request.headers().clone(), request.uri(), caller, origin);
    let traceparent = traceparent(&headers);
    let read = match transport {
        Transport::Grpc if request.version() == Version::HTTP_2 => call::read(request, shared).await,
        _ => body::read_as_sent(request, shared).await.map(|held| (held, None)),
    };
    // Answers that have begun may exceed the byte budget, and then no further request adds to them.
    let read = read.and_then(|(held, asking)| held.share.grow(0).map(|()| (held, asking)));
    let (held, mut asking) = read.map_err(|error| shared.rejected(error, transport))?;
    let stream = asking.as_ref().map(|asking| asking.stream.clone());
    // The stream drops and counts the first message by itself.
    let body = if stream.is_some() { Bytes::new() } else { held.bytes };
    // The service decides whether it may be repeated.
    let (repeatable, stall) = (false, Duration::ZERO);
    let request = OpaqueRequest { method, target, headers, body, stream, repeatable, stall };
    let key = caller.name();
    let context = Context { arrived, deadline, transport, traceparent, caller: None, key };
    let answer = shared.service.forward(request, context);
    let OpaqueAnswer { status, headers, body, .. } = match &mut asking {
        None => answer.await?,
        Some(asking) => tokio::select! {
            biased;
            answer = answer => answer?,
            error = asking.failed() => return Err(shared.rejected(error, transport)),
        },
    };
    let mut response = match body {
        OpaqueBody::Whole(bytes) => {
            held.share.turn_into(bytes.len())?;
            let mut response = Response::new(Body::from(bytes));
            response.extensions_mut().insert(held.share);
            response
        }
        OpaqueBody::Begun(first, rest) => {
            let first = Some(held.share.hold(first));
            Response::new(Body::new(Joined { first, rest, asking }))
        }
    };
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Path and query of a request; a proxy's client may send the whole address.
fn target(uri: &Uri) -> PathAndQuery {
    uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// The headers that the upstream server gets. A key of parm's is none of the server's.
fn passed_on(mut headers: HeaderMap, uri: &Uri, caller: &Caller, origin: &Origin) -> HeaderMap {
    let over_http2 = || uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    let host = headers.get(HOST).cloned().or_else(over_http2);
    end_to_end::of_request(&mut headers);
    if caller.is_known() {
        headers.remove(AUTHORIZATION);
    }
    origin.state(host, &mut headers);
    headers
}

/// The client's side of a connection, as header values. Cheap to clone.
#[derive(Clone, Debug)]
struct Origin {
    address: Option<HeaderValue>,
    scheme: HeaderValue,
}

impl Origin {
    fn of(client: ClientEnd) -> Self {
        let scheme = HeaderValue::from_static(if client.secured { "https" } else { "http" });
        let address = client.address.and_then(|address| HeaderValue::try_from(address.to_string()).ok());
        Self { address, scheme }
    }

    /// Writes the headers of a request. `host` is the one that the client addressed.
    fn state(&self, host: Option<HeaderValue>, headers: &mut HeaderMap) {
        if let Some(address) = &self.address {
            let all = match headers.contains_key(FOR) {
                true => followed_by(headers.get_all(FOR).iter(), address),
                false => address.clone(),
            };
            headers.insert(FOR, all);
        }
        headers.insert(FORWARDED_SCHEME, self.scheme.clone());
        match host {
            Some(host) => headers.insert(FORWARDED_HOST, host),
            None => headers.remove(FORWARDED_HOST),
        };
    }
}

/// The list of the client's headers and the last address. Many servers read one header only.
fn followed_by<'a>(stated: impl Iterator<Item = &'a HeaderValue>, address: &'a HeaderValue) -> HeaderValue {
    let all: Vec<&[u8]> = stated.chain([address]).map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&all.join(&b", "[..])).unwrap_or_else(|_| address.clone())
}

/// The beginning of a body and its rest.
struct Joined {
    first: Option<Bytes>,
    rest: RestOfBody,
    /// The request, if its client may send more.
    asking: Option<Asking>,
}

impl Joined {
    /// The rest, or the end of an answer whose request holds too much.
    fn poll_rest(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let next = self.rest.as_mut().poll_frame(cx);
        if let (true, Some(asking)) = (next.is_pending(), &mut self.asking)
            && let Poll::Ready(error) = asking.poll_failed(cx)
        {
            (self.rest, self.asking) = (Box::pin(Empty::new().map_err(|never| match never {})), None);
            return Poll::Ready(Some(Ok(Frame::trailers(status::trailers(&error)))));
        }
        next
    }
}

impl hyper::body::Body for Joined {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.first.take().filter(|first| !first.is_empty()) {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => self.poll_rest(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(client: ClientEnd, host: Option<&'static str>, own: &[(&'static str, &str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in own {
            headers.append(*name, value.parse().unwrap());
        }
        Origin::of(client).state(host.map(HeaderValue::from_static), &mut headers);
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn client_is_stated_and_its_own_claims_are_not_trusted() {
        let client = ClientEnd { address: Some([192, 0, 2, 7].into()), secured: true };
        let [host, scheme] = ["x-forwarded-host: api.example.com", "x-forwarded-proto: https"];
        let alone = stated(client, Some("api.example.com"), &[]);
        assert_eq!(alone, ["x-forwarded-for: 192.0.2.7", host, scheme]);
        let claims = [
            ("x-forwarded-for", "203.0.113.9, 10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-proto", "gopher"),
        ];
        let claimed = stated(client, Some("api.example.com"), &claims);
        assert_eq!(claimed, ["x-forwarded-for: 203.0.113.9, 10.0.0.1, 10.0.0.2, 192.0.2.7", host, scheme]);
        assert_eq!(stated(ClientEnd::default(), None, &claims[2..]), ["x-forwarded-proto: http"]);
    }
}
