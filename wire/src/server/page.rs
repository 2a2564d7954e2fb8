//! Pages beside the protocol, on an address for operators: metrics, and what the process adds to them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parm_protocol::{Error, rest};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::listener::Listener;
use super::status;
use crate::unread::Unread;

/// Largest body that a page accepts: a settings document, not tensors.
const MAX_BODY: usize = 1 << 20;
/// How long a client may take over its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take over its request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take over an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a page answers with: its text, or an error.
type Answered = Result<String, Error>;

type Read = dyn Fn() -> Answered + Send + Sync;
type Write = dyn Fn(&[u8]) -> Answered + Send + Sync;

/// A page of text.
pub struct Page {
    path: &'static str,
    content_type: &'static str,
    read: Box<Read>,
    write: Option<Box<Write>>,
}

impl Page {
    /// `GET /metrics`, in Prometheus' text format.
    pub fn metrics(read: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let read = Box::new(move || Ok(read()));
        Self { path: "/metrics", content_type: "text/plain; version=0.0.4", read, write: None }
    }

    /// A JSON document that can be read with `GET` and replaced with `POST`; both answer with the document.
    pub fn document(
        path: &'static str,
        read: impl Fn() -> Answered + Send + Sync + 'static,
        write: impl Fn(&[u8]) -> Answered + Send + Sync + 'static,
    ) -> Self {
        Self { path, content_type: "application/json", read: Box::new(read), write: Some(Box::new(write)) }
    }
}

/// Serves the pages until `ended`.
pub(super) async fn serve(listener: Listener, pages: Arc<Vec<Page>>, limit: usize, ended: CancellationToken) {
    let room = Arc::new(Semaphore::new(limit));
    let accept = async {
        while let Ok(permit) = room.clone().acquire_owned().await {
            let (socket, pages) = (listener.accept().await, pages.clone());
            tokio::spawn(async move {
                let unread = Arc::new(Unread::default());
                let (pages, told) = (&pages, &unread);
                let service = service_fn(|request| async move {
                    let response = answer(pages, request).await?;
                    let told = told.answer(None);
                    Ok::<_, Infallible>(response.map(|text| Full::new(told.part(text))))
                });
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
                // A scraper that goes away is no news, nor is one that does not read.
                tokio::select! {
                    _ = http.serve_connection(TokioIo::new(socket), service) => {}
                    () = unread.overdue(ANSWER_TIMEOUT) => {}
                }
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = ended.cancelled() => {}
        () = accept => {}
    }
}

async fn answer(pages: &[Page], request: Request<Incoming>) -> Result<Response<Bytes>, Infallible> {
    let path = request.uri().path();
    let Some(page) = pages.iter().find(|page| page.path == path) else {
        return Ok(problem(&Error::UnknownPath { path: path.to_owned() }));
    };
    let answer = match (request.method(), &page.write) {
        (&Method::GET | &Method::HEAD, _) => (page.read)(),
        (&Method::POST | &Method::PUT, Some(write)) => {
            read(request.into_body()).await.and_then(|body| write(&body))
        }
        (method, _) => Err(Error::Unimplemented { what: format!("{method} on {path}") }),
    };
    Ok(match answer {
        Ok(text) => respond(StatusCode::OK, page.content_type, text.into()),
        Err(error) => problem(&error),
    })
}

async fn read(body: Incoming) -> Result<Bytes, Error> {
    let malformed = |message| Error::Malformed { message };
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::BodyTooLarge { limit: MAX_BODY }),
        Ok(Err(error)) => Err(malformed(format!("the body broke off: {error}"))),
        Err(_) => Err(malformed(format!("the body did not arrive within {BODY_TIMEOUT:?}: send it faster"))),
    }
}

fn problem(error: &Error) -> Response<Bytes> {
    respond(status::of(error.code()).0, "application/json", rest::encode_error(error))
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
