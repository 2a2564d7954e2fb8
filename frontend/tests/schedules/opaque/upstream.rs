//! Upstream server that behaves as the plan says, on a Unix socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::plan::{Form, Mood, Plan};
use super::record::{Shared, pieces};
use crate::dice::Dice;

/// The header with a request's number.
pub(super) const NUMBER: HeaderName = HeaderName::from_static("x-number");

/// A server that a test controls.
pub(super) struct Upstream {
    number: usize,
    path: PathBuf,
    over_http2: bool,
    streams: u32,
    record: Shared,
    mood: watch::Sender<Mood>,
    dice: Mutex<Dice>,
    /// Its listener and connections, while it is there.
    listening: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// The reason why a connection breaks.
#[derive(Debug, thiserror::Error)]
#[error("as planned")]
pub(super) struct Broken;

/// A run, until it is dropped.
struct Running(Shared, usize);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().runs[self.1].open = false;
    }
}

impl Upstream {
    pub(super) fn new(number: usize, folder: &Path, plan: &Plan, record: Shared) -> Arc<Self> {
        let server = Arc::new(Self {
            number,
            path: folder.join(format!("upstream{number}")),
            over_http2: plan.over_http2,
            streams: plan.streams,
            record,
            mood: watch::channel(Mood::Well).0,
            dice: Mutex::new(Dice::new(plan.seed ^ (number as u64) << 24)),
            listening: Mutex::default(),
        });
        server.listens();
        server
    }

    /// Its address, as operators write it.
    pub(super) fn url(&self) -> String {
        let scheme = if self.over_http2 { "grpc+unix" } else { "unix" };
        format!("{scheme}:{}", self.path.display())
    }

    pub(super) fn becomes(self: &Arc<Self>, mood: Mood) {
        self.record.lock().becomes(self.number, mood);
        self.mood.send_replace(mood);
        match mood {
            Mood::Gone => {
                self.listening.lock().take();
                let _ = std::fs::remove_file(&self.path);
            }
            _ if self.listening.lock().is_none() => self.listens(),
            _ => {}
        }
    }

    fn listens(self: &Arc<Self>) {
        let listener = UnixListener::bind(&self.path).expect("a socket can be bound");
        let own = self.clone();
        let accepts = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(own.clone().serves(socket));
                while connections.try_join_next().is_some() {}
            }
        });
        *self.listening.lock() = Some(AbortOnDropHandle::new(accepts));
    }

    async fn serves(self: Arc<Self>, socket: UnixStream) {
        let socket = TokioIo::new(socket);
        let (over_http2, streams) = (self.over_http2, self.streams);
        let service = service_fn(move |request| self.clone().answers(request));
        // Broken connections are part of the plan.
        if over_http2 {
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(streams);
            let _ = builder.serve_connection(socket, service).await;
        } else {
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(socket, service).await;
        }
    }

    async fn listens_again(&self) -> Mood {
        let mut mood = self.mood.subscribe();
        let now = mood.wait_for(|mood| *mood != Mood::Paused).await;
        now.map_or(Mood::Gone, |mood| *mood)
    }

    async fn answers(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = Box<dyn std::error::Error + Send + Sync>>>, Broken>
    {
        let mood = self.listens_again().await;
        let whole = |status: u16, text: String| {
            let mut response = Response::new(Either::Left(Full::from(text)));
            *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            response
        };
        if request.uri().path() == "/health" {
            return Ok(whole(if mood == Mood::NotReady { 503 } else { 200 }, String::new()));
        }
        let number = request.headers()[NUMBER].to_str().ok().and_then(|text| text.parse().ok());
        let number: usize = number.expect("every request has a number");
        request.into_body().collect().await.map_err(|_| Broken)?;
        let (run, errand) = {
            let mut record = self.record.lock();
            (record.begins(number, self.number), record.requests[number].errand.clone())
        };
        let running = Running(self.record.clone(), run);
        let pace = self.dice.lock().range(4, 20);
        let factor = if let Mood::Slow(factor) = mood { factor } else { 1 };
        sleep(Duration::from_millis(pace * factor)).await;
        let mood = self.listens_again().await;
        let is_call = errand.form == Form::Messages;
        match mood {
            Mood::NotReady | Mood::Fails(..) if is_call => {
                let mut response = whole(200, String::new());
                *response.headers_mut() = status(14, format!("failed by run {run}"));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                return Ok(response);
            }
            Mood::Hung => std::future::pending().await,
            Mood::Breaks | Mood::Gone => return Err(Broken),
            Mood::NotReady => return Ok(whole(503, format!("failed by run {run}"))),
            Mood::Fails(status, later) => {
                let mut response = whole(status, format!("failed by run {run}"));
                if later {
                    response.headers_mut().insert(RETRY_AFTER, 1.into());
                }
                return Ok(response);
            }
            Mood::Well | Mood::Slow(_) | Mood::Paused | Mood::Cuts(_) | Mood::Stalls(_) => {}
        }
        let all = pieces(&errand, run);
        let length: usize = all.iter().map(Bytes::len).sum();
        let pause = Duration::from_millis(errand.pause * factor);
        let end = is_call.then(|| Frame::trailers(status(0, String::new())));
        let frames = all.into_iter().map(Frame::data).chain(end);
        let state = (running, frames.enumerate(), self.clone());
        let stream = futures::stream::unfold(Some(state), move |state| async move {
            let (running, mut rest, own) = state?;
            let (place, piece) = rest.next()?;
            if place > 0 {
                sleep(pause).await;
            }
            let mood = own.listens_again().await;
            match mood {
                Mood::Cuts(after) if place >= after => return Some((Err(Broken), None)),
                Mood::Stalls(after) if place >= after => std::future::pending().await,
                _ => {}
            }
            Some((Ok(piece), Some((running, rest, own))))
        });
        let mut response = Response::new(Either::Right(StreamBody::new(Box::pin(stream))));
        let kind = match errand.form {
            Form::Whole | Form::Chunks => "application/json",
            Form::Events => "text/event-stream",
            Form::Lines => "application/x-ndjson",
            Form::Bytes => "text/plain",
            Form::Messages => "application/grpc",
        };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if errand.form == Form::Whole {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        Ok(response)
    }
}

/// The status of a gRPC answer.
fn status(code: u32, message: String) -> HeaderMap {
    let message = HeaderValue::from_str(&message).expect("plain text");
    HeaderMap::from_iter([("grpc-status", code.into()), ("grpc-message", message)].map(named))
}

fn named((name, value): (&'static str, HeaderValue)) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), value)
}
