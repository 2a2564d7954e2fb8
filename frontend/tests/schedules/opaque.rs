//! Requests for upstream servers, which the frontend forwards as they are: their clients and servers, and what must hold.
//!
//! Servers are clients as the transport makes them, so sockets are left to its own tests.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use http_body_util::{BodyDataStream, StreamBody};
use hyper::body::Frame;
use parm_frontend::{Frontend, upstreams};
use parm_protocol::{
    Broken, Code, Context, Error, FailedAnswer, InferenceService, OpaqueAnswer, OpaqueBody, OpaqueRequest,
    Transport,
};
use tokio::time::{Instant, sleep, timeout};

use crate::clients::LATE;
use crate::dice::Dice;
use crate::instances::Instance;
use crate::schedule::{Source, Temper};
use crate::world::{Truth, World};

/// The header with a request's number.
const NUMBER: HeaderName = HeaderName::from_static("x-number");
/// Longest pause of an answer that has begun, by the configuration.
const STALL: Duration = Duration::from_millis(1500);

/// A request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Errand {
    route: Route,
    /// Whether its answer comes in pieces. Otherwise parm waits for the end of the answer.
    streams: bool,
    pieces: usize,
    /// Milliseconds between two pieces.
    pause: u64,
    /// Milliseconds until the answer must begin.
    timeout: u64,
    /// Milliseconds after which the client leaves.
    patience: Option<u64>,
    /// Milliseconds for which the client waits before it reads a piece.
    slowness: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Predict,
    /// A route of the operator that must run once.
    Declared,
    /// A request without a route.
    Other,
    Read,
}

impl Route {
    pub(crate) const ALL: [Self; 5] = [Self::Chat, Self::Predict, Self::Declared, Self::Other, Self::Read];

    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Predict => "/predict",
            Self::Declared => "/declared",
            Self::Other => "/v1/files",
            Self::Read => "/v1/models",
        }
    }

    fn is_once(self) -> bool {
        matches!(self, Self::Declared | Self::Other)
    }
}

impl Errand {
    /// One that every server answers.
    pub(crate) fn plain(route: Route) -> Self {
        let (streams, pieces, pause, timeout) = (false, 1, 0, 4000);
        Self { route, streams, pieces, pause, timeout, patience: None, slowness: 0 }
    }

    pub(crate) fn of(dice: &mut Dice) -> Self {
        let streams = dice.percent(70);
        Self {
            route: if dice.percent(30) { Route::Chat } else { dice.pick(&Route::ALL) },
            streams,
            pieces: dice.range(1, 7) as usize,
            // A whole answer lasts about as long as its work, which differs little within a route.
            pause: if streams { dice.pick(&[0, 3, 20, 60]) } else { dice.pick(&[0, 3]) },
            timeout: dice.pick(&[300, 1000, 2000, 4000]),
            patience: dice.percent(15).then(|| dice.range(1, 300)),
            slowness: if dice.percent(10) { dice.range(20, 300) } else { 0 },
        }
    }
}

/// The settings of these upstream servers.
pub(crate) fn config(urls: Vec<String>, concurrency: u16) -> upstreams::Config {
    let concurrency = concurrency.try_into().expect("not zero");
    let mut config = upstreams::Config { urls, concurrency, ..upstreams::Config::default() };
    for (name, route) in [("chat", Route::Chat), ("predict", Route::Predict), ("declared", Route::Declared)] {
        let own = upstreams::RouteConfig {
            paths: vec![route.path().into()],
            repeatable: !route.is_once(),
            stall: STALL,
            ..upstreams::RouteConfig::default()
        };
        config.routes.insert(name.into(), own);
    }
    config
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    errand: Errand,
    at: Instant,
    /// Attempts that no server read, and those of them that were refused.
    unread: usize,
    refused: usize,
}

/// A request that a server read.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    request: usize,
    pub(crate) server: usize,
    /// Whether the server was well from its beginning to its end.
    pub(crate) well: bool,
    pub(crate) open: bool,
}

/// A run, until it is dropped.
struct Running(Arc<World>, usize);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.lock().runs[self.1].open = false;
    }
}

/// A piece of the answer that a run gives; no other run has an equal one.
fn content(run: usize, place: usize) -> Bytes {
    format!("run {run} piece {place}\n").into()
}

impl Instance {
    fn lost(&self) -> Error {
        Error::Transport { peer: self.address.clone(), message: "connection reset".into() }
    }

    /// Answers a request for an upstream server.
    pub(crate) async fn answers(self, request: Arc<OpaqueRequest>) -> Result<OpaqueAnswer, Error> {
        let number = request.headers[NUMBER].to_str().ok().and_then(|text| text.parse().ok());
        let number: usize = number.expect("every request has a number");
        self.world.0.lock().sent[number].unread += 1;
        let refused = |_| {
            self.world.0.lock().sent[number].refused += 1;
            Error::Unsent { peer: self.address.clone(), message: "connection refused".into() }
        };
        let temper = self.listens().await.map_err(refused)?;
        let (run, Errand { pieces: count, streams, pause, .. }) = {
            let mut truth = self.world.0.lock();
            truth.sent[number].unread -= 1;
            let blips = std::mem::take(&mut truth.servers[self.number].blips);
            let well = temper == Temper::Well && !blips;
            truth.runs.push(Run { request: number, server: self.number, well, open: true });
            let run = truth.runs.len() - 1;
            if blips {
                truth.runs[run].open = false;
                return failure(StatusCode::SERVICE_UNAVAILABLE, run);
            }
            (run, truth.sent[number].errand.clone())
        };
        let running = Running(self.world.clone(), run);
        let factor = if let Temper::Slow(factor) = temper { factor } else { 1 };
        sleep(self.took(factor)).await;
        let awake = |temper: &Temper| !matches!(temper, Temper::Hung | Temper::Deaf);
        let temper = *self.temper().wait_for(awake).await.map_err(|_| self.lost())?;
        match temper {
            Temper::Gone => return Err(self.lost()),
            Temper::NotReady | Temper::Failing => return failure(StatusCode::SERVICE_UNAVAILABLE, run),
            Temper::Fails(status) => return failure(StatusCode::from_u16(status).expect("a status"), run),
            _ => {}
        }
        let (broken, stall) = (Broken::default(), request.stall);
        let (noted, pause) = (broken.clone(), Duration::from_millis(pause * factor));
        let pieces = futures::stream::try_unfold((running, self, 0), move |(running, own, place)| {
            let noted = noted.clone();
            async move {
                if place == count {
                    return Ok(None);
                }
                let next = timeout(stall, own.piece(place, pause)).await.unwrap_or_else(|_| Err(own.lost()));
                next.inspect_err(|error| noted.set(error.clone()))?;
                Ok::<_, Error>(Some((content(run, place), (running, own, place + 1))))
            }
        });
        let mut pieces = Box::pin(pieces);
        let body = if streams {
            let first = pieces.try_next().await?.unwrap_or_default();
            OpaqueBody::Begun(first, Box::pin(StreamBody::new(pieces.map_ok(Frame::data))))
        } else {
            OpaqueBody::Whole(pieces.try_collect::<Vec<_>>().await?.concat().into())
        };
        Ok(OpaqueAnswer { status: StatusCode::OK, headers: HeaderMap::new(), body, broken })
    }

    /// Waits for the next piece of an answer.
    async fn piece(&self, place: usize, pause: Duration) -> Result<(), Error> {
        if place > 0 {
            sleep(pause).await;
        }
        match self.listens().await.map_err(|_| self.lost())? {
            Temper::Cuts(after) if place >= after => Err(self.lost()),
            Temper::Stalls(after) if place >= after => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

/// An answer that says that its server failed. The client of such servers makes it an error if another one might do better.
fn failure(status: StatusCode, run: usize) -> Result<OpaqueAnswer, Error> {
    let (headers, body) = (HeaderMap::new(), Bytes::from(refusal(run)));
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        return Err(Error::Answered(Box::new(FailedAnswer { status, headers, body })));
    }
    Ok(OpaqueAnswer { status, headers, body: OpaqueBody::Whole(body), broken: Broken::default() })
}

fn refusal(run: usize) -> String {
    format!("failed by run {run}")
}

/// Sends a request, and compares its answer with its runs.
pub(crate) async fn forward(frontend: Frontend, world: Arc<World>, errand: Errand) {
    let number = {
        let mut truth = world.0.lock();
        truth.sent.push(Sent { errand: errand.clone(), at: Instant::now(), unread: 0, refused: 0 });
        truth.sent.len() - 1
    };
    let patience = errand.patience.map_or(Duration::MAX, Duration::from_millis);
    let end = timeout(patience, exchange(&frontend, &errand, number)).await;
    let truth = &mut *world.0.lock();
    let runs = truth.runs.iter().filter(|run| run.request == number).count();
    if errand.route.is_once() && runs > 1 {
        truth.breach("a request that must run once runs once", || {
            format!("request {number} ran {runs} times")
        });
    }
    if let Ok(end) = end {
        judge(truth, number, end);
    }
}

/// How a request ended at its client.
struct End {
    /// Time until its answer began.
    after: Duration,
    answer: Result<Answer, Error>,
}

struct Answer {
    /// Whether it says how it was obtained. Otherwise it is the failure of a server.
    outcome: bool,
    body: Bytes,
    /// Why it ended early.
    cut: Option<String>,
    /// Whether a piece did not come in time.
    stalled: bool,
}

async fn exchange(frontend: &Frontend, errand: &Errand, number: usize) -> End {
    let began = Instant::now();
    let mut headers = HeaderMap::from_iter([(NUMBER, number.into())]);
    headers.insert("parm-timeout-ms", errand.timeout.into());
    let request = OpaqueRequest {
        method: if errand.route == Route::Read { Method::GET } else { Method::POST },
        target: errand.route.path().parse().expect("a path"),
        headers,
        body: "ask".into(),
        stream: None,
        repeatable: false,
        stall: Duration::ZERO,
    };
    let answer = frontend.forward(request, Context::new(began, Transport::Http)).await;
    let after = began.elapsed();
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return End { after, answer: Err(error) },
    };
    let outcome = answer.headers.contains_key("parm-outcome");
    let (mut body, mut rest) = match answer.body {
        OpaqueBody::Whole(body) => (BytesMut::from(body), None),
        OpaqueBody::Begun(first, rest) => (BytesMut::from(first), Some(BodyDataStream::new(rest))),
    };
    let (mut cut, mut stalled) = (None, false);
    while let Some(pieces) = &mut rest {
        sleep(Duration::from_millis(errand.slowness)).await;
        match timeout(STALL + LATE, pieces.try_next()).await {
            Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
            Ok(Ok(None)) => rest = None,
            Ok(Err(error)) => (cut, rest) = (Some(error.to_string()), None),
            Err(_) => (stalled, rest) = (true, None),
        }
    }
    End { after, answer: Ok(Answer { outcome, body: body.freeze(), cut, stalled }) }
}

fn judge(truth: &mut Truth, number: usize, End { after, answer }: End) {
    let Sent { errand, at, unread, refused } = truth.sent[number].clone();
    let runs = truth.runs.iter().enumerate().filter(|(_, run)| run.request == number);
    let runs: Vec<(usize, Run)> = runs.map(|(place, run)| (place, run.clone())).collect();
    let failed = unread + runs.iter().filter(|(_, run)| !run.well).count();
    if after > Duration::from_millis(errand.timeout) + LATE {
        let what = || format!("request {number} ({errand:?}) after {after:?}");
        truth.breach("answers begin by their deadline", what);
    }
    let error = match answer {
        Err(error) => error,
        Ok(Answer { stalled: true, .. }) => {
            // Other routes may pause for a minute.
            if matches!(errand.route, Route::Chat | Route::Predict | Route::Declared) {
                truth.breach("a broken answer ends", || format!("request {number} ({errand:?})"));
            }
            return;
        }
        Ok(Answer { outcome, body, cut, .. }) => {
            let fits = |(run, _): &(usize, Run)| {
                let whole: Vec<Bytes> = (0..errand.pieces).map(|place| content(*run, place)).collect();
                let whole = whole.concat();
                let is_given =
                    outcome && if cut.is_some() { whole.starts_with(&body) } else { whole == body };
                is_given || body == refusal(*run)
            };
            if !runs.iter().any(fits) {
                truth.breach("an answer is that of one run", || {
                    format!("request {number} ({errand:?}), {outcome}, cut: {cut:?}: {body:?}")
                });
            }
            if cut.is_some() && failed == 0 {
                truth
                    .breach("no healthy answer is cut", || format!("request {number} ({errand:?}): {cut:?}"));
            }
            if outcome {
                return;
            }
            Error::Unavailable { message: String::from_utf8_lossy(&body).into_owned() }
        }
    };
    let told = || format!("request {number} ({errand:?}): {error} after {:?}; {runs:?}", at.elapsed());
    let was_ill = truth.servers.iter().any(|server| server.source == Source::Upstream && server.was_ill);
    match error.code() {
        Code::DeadlineExceeded if at.elapsed() + LATE < Duration::from_millis(errand.timeout) => {
            truth.breach("no request expires early", told);
        }
        // The dispatcher's own schedules say when a query may be rejected, and when it may fail.
        Code::Overloaded | Code::DeadlineExceeded => {}
        _ if failed == 0 && !was_ill => truth.breach("failures have a cause", told),
        _ if errand.route.is_once() && runs.is_empty() && unread == refused => {
            truth.breach("a request that nothing ran runs at a healthy server", told);
        }
        // The settings allow two attempts at least.
        _ if failed < 2 && !errand.route.is_once() && !truth.once => {
            truth.breach("a repeatable request is answered by a healthy server", told);
        }
        _ => {}
    }
}
