//! Pages on an address for operators: metrics, and pages that the process adds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use parm_protocol::{Code, Error};

use super::shared::{self, Reach};
use super::{ModelControl, rest};
use crate::keys::{self, Access, Keys, METRICS, Route};
use crate::listening::{Answers, Lent};

/// Largest body that a page accepts: a settings document, not tensors.
const MAX_BODY: usize = 1 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

type Answered = Result<String, Error>;

type Read = dyn Fn() -> Answered + Send + Sync;
type Write = dyn Fn(&[u8]) -> Answered + Send + Sync;

/// A page of text.
pub struct Page {
    routes: &'static [Route],
    content_type: &'static str,
    read: Box<Read>,
    write: Option<Box<Write>>,
}

impl Page {
    /// `GET /metrics`, in Prometheus' text format.
    pub fn metrics(read: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let read = Box::new(move || Ok(read()));
        Self { routes: METRICS, content_type: "text/plain; version=0.0.4", read, write: None }
    }

    /// A JSON document that is read with `GET` and replaced with `POST` or `PUT`; all return the document. The routes are the
    /// methods of one path.
    pub fn document(
        routes: &'static [Route],
        read: impl Fn() -> Answered + Send + Sync + 'static,
        write: impl Fn(&[u8]) -> Answered + Send + Sync + 'static,
    ) -> Self {
        Self { routes, content_type: "application/json", read: Box::new(read), write: Some(Box::new(write)) }
    }
}

pub(super) struct Pages {
    pages: Vec<Page>,
    keys: Keys,
}

impl Pages {
    pub(super) fn new(pages: Vec<Page>, keys: &Keys, reach: Reach) -> Self {
        let writes = pages.iter().find(|page| page.write.is_some());
        if let Some(page) = writes.filter(|_| reach == Reach::Open && !keys.are_asked_for()) {
            tracing::warn!(
                path = page.routes[0].path,
                "any client of the metrics address may change this page: set server.keys_file"
            );
        }
        Self { pages, keys: keys.clone() }
    }
}

pub(super) fn service(pages: Pages) -> impl Answers<Body> {
    let pages = Arc::new(pages);
    tower::service_fn(move |request| {
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(answer(&pages, request).await) }
    })
}

async fn answer(pages: &Pages, request: Request<Lent<Incoming>>) -> Response<Body> {
    match told(pages, request).await {
        Ok((content_type, text)) => {
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            response
        }
        Err(error) => rest::problem(&error),
    }
}

async fn told(pages: &Pages, request: Request<Lent<Incoming>>) -> Result<(&'static str, String), Error> {
    let (method, path) = (request.method(), request.uri().path());
    let found = pages.pages.iter().find_map(|page| keys::find(page.routes, method, path));
    let access = found.map(|route| route.access);
    // A worker with faults enabled, for an experiment, accepts them from other machines too.
    let (needed, local) = (access.unwrap_or(Access::AnyKey), ModelControl::Local);
    let _visit = shared::check(&pages.keys, local, request.headers(), needed, Reach::Local)?;
    let Some(page) = pages.pages.iter().find(|page| keys::methods(page.routes, path).next().is_some()) else {
        let known: Vec<_> = pages.pages.iter().flat_map(|page| page.routes).map(|route| route.path).collect();
        let message = format!("unknown path '{path}': this address has {}", known.join(", "));
        return Err(Error::Remote { code: Code::NotFound, message });
    };
    let text = match (access.and(Some(method)), &page.write) {
        (Some(&Method::GET | &Method::HEAD), _) => (page.read)(),
        (Some(&Method::POST | &Method::PUT), Some(write)) => {
            read(request.into_body()).await.and_then(|body| write(&body))
        }
        _ => Err(Error::Unimplemented { what: format!("{method} on {path}") }),
    };
    text.map(|text| (page.content_type, text))
}

async fn read(body: Lent<Incoming>) -> Result<Bytes, Error> {
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::BodyTooLarge { limit: MAX_BODY }),
        Ok(Err(error)) => Err(Error::malformed(format!("the body ended early: {error}"))),
        Err(_) => {
            Err(Error::malformed(format!("the body did not arrive within {BODY_TIMEOUT:?}: send it faster")))
        }
    }
}
