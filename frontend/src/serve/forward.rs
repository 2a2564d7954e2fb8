//! Requests for upstream servers: queries of the pool of their route.
//!
//! A query's prediction is the beginning of its answer. What follows is passed on by the server that began it.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LOCATION, LOCATION};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt;
use parm_dispatcher::{Failure, Reject, Shape};
use parm_protocol::{
    Broken, Context, Error, FORWARDED_HOST, FORWARDED_SCHEME, InferRequest, ModelRef, OpaqueAnswer,
    OpaqueBody, OpaqueRequest, is_grpc, terms,
};
use parm_transport::keys;

use super::call::Failed;
use super::driver::Submission;
use super::inputs::Inputs;
use super::outputs::{Answers, Outcome};
use super::pool::Pool;
use super::service::{Frontend, age, refused};
use super::terms::Terms;
use super::trace;
use crate::upstreams::{Route, is_upstream};

/// The header of an answer that says how it was obtained.
const OUTCOME: HeaderName = HeaderName::from_static("parm-outcome");

/// The header of an answer whose request would not have been sent to a second server.
const SENT: HeaderName = HeaderName::from_static("parm-sent");

/// The error of a gRPC call that no server takes.
const NO_CALLS: &str = "no upstream server takes gRPC calls now: check --upstream grpc://HOST:PORT";

impl Frontend {
    /// Whether requests of this path are for upstream servers: all but parm's own, and those of the protocol if there are
    /// servers of the protocol. Reflection is a conversation, which needs a server that reads while it answers: parm describes
    /// its own services.
    pub(super) fn is_forwarded(&self, path: &str) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let reach = &self.core.reach;
        let is_own = || {
            matches!(path, "/v2/health/live" | "/v2/health/ready")
                || path.starts_with("/grpc.health.v1.Health/")
                || path.starts_with("/grpc.reflection.")
                || (reach.models.load(Relaxed) && is_of_the_protocol(path))
        };
        reach.upstreams.load(Relaxed) && !is_own()
    }

    /// Forwards a request and counts how it ended.
    pub(super) async fn pass_on(
        &self,
        request: OpaqueRequest,
        context: Context,
    ) -> Result<OpaqueAnswer, Error> {
        let _active = self.core.requests.token();
        let is_call = is_grpc(&request.headers);
        let (path, body) = (request.target.path(), &request.body);
        let route = self.core.routes.find(&request.method, path, body, is_call).clone();
        self.core.routes.tell_once(&route, &request.method, path);
        let model = ModelRef::latest(&*route.name);
        let pool = self.core.catalog.find(&model).map_err(|_| match is_call {
            true => Error::Unavailable { message: NO_CALLS.into() },
            false => Error::NoInstance { model: model.name.clone() },
        });
        let pool = pool.inspect_err(|error| self.core.metrics.models.rejected(error))?;
        let asked = Addressed::of(&request.headers);
        let mut answered = self.ask(&pool, &route, request, &context).await;
        match &mut answered {
            Ok((_, answer)) => asked.correct(&mut answer.headers, || self.upstreams()),
            Err(Error::Answered(answer)) => asked.correct(&mut answer.headers, || self.upstreams()),
            Err(_) => {}
        }
        match answered {
            Ok((outcome, answer)) => {
                // Its duration is that of its beginning, but only its end says whether it is an answer.
                let (core, took) = (self.core.clone(), age(&context));
                Ok(watch(answer, move |error| match error {
                    None => {
                        pool.metrics.answered(outcome, 1, took);
                        pool.sums.answered(outcome, 1, took);
                    }
                    Some(error) => {
                        core.failed(&pool, error, took);
                        pool.sums.rejected(Reject::Failed(Failure::Instance), 1, took);
                    }
                }))
            }
            Err(error) => {
                self.core.failed(&pool, &error, age(&context));
                // The client sees what the server said; only the counts know that it is a failure.
                if let Error::Answered(answer) = error { Ok((*answer).into()) } else { Err(error) }
            }
        }
    }

    /// The addresses of the upstream servers.
    fn upstreams(&self) -> Vec<String> {
        let members = self.fleet.members();
        let upstreams = members.iter().filter(|member| is_upstream(&member.name));
        upstreams.map(|member| member.name.clone()).collect()
    }

    async fn ask(
        &self,
        pool: &Arc<Pool>,
        route: &Route,
        mut request: OpaqueRequest,
        context: &Context,
    ) -> Result<(Outcome, OpaqueAnswer), Error> {
        let terms = self.terms_of(route, &mut request.headers, context)?;
        // In a conversation the silence may be the client's.
        let talks = request.stream.is_some();
        request.repeatable = route.repeatable;
        request.stall = if talks { route.stall } else { route.patience() };
        let span = trace::query(&route.name, "", Some(&request), context);
        let once = (!route.repeatable).then(|| (request.method.clone(), request.target.clone()));
        let opaque = Some(Arc::new(request));
        let inputs = Arc::new(Inputs { span, opaque, ..Inputs::of(Vec::new(), 1) });
        let shape = Shape { name: pool.shapes.alone(), size: inputs.size() };
        let submission = Submission { pool: pool.clone(), inputs, shape, terms, codable: false };
        pool.sums.objective.allows(terms.deadline.since(self.core.driver.now()));
        let failed = match self.core.driver.submit(submission).verdict().await {
            Ok(answers) => {
                let (outcome, mut answer) = opened(answers)?;
                if once.is_some() {
                    answer.headers.insert(SENT, HeaderValue::from_static("once"));
                }
                answer.body = match answer.body {
                    OpaqueBody::Begun(first, rest) if !talks => OpaqueBody::Begun(first, route.paced(rest)),
                    other => other,
                };
                return Ok((outcome, answer));
            }
            Err(failed) => failed,
        };
        self.count_rejected(pool, failed.why, 1, age(context));
        Err(match (failed, once) {
            (Failed { last: Some(Error::Answered(answer)), .. }, _) => Error::Answered(answer),
            (Failed { why: Reject::Failed(failure), last, .. }, Some((method, target)))
                if failure != Failure::Unsent =>
            {
                let path = target.path();
                let advice = format!(
                    "{method} {path} was not sent to another server, which might run it twice: if that does no harm, its operator \
                     can declare the path with --repeatable"
                );
                match last {
                    Some(Error::Transport { peer, message }) => {
                        let message = format!("{message}: {advice}");
                        Error::Attempts { last: Box::new(Error::Transport { peer, message }) }
                    }
                    last => {
                        let cause = last.map_or("its server hung or died".into(), |last| last.to_string());
                        Error::Unavailable { message: format!("{cause}: {advice}") }
                    }
                }
            }
            // A server that closed the connection may be the only one: its health check has taken it out of service since.
            (Failed { why: Reject::NoInstance, last: Some(last), .. }, _) => {
                Error::Attempts { last: Box::new(last) }
            }
            (failed, _) => refused(pool, failed, age(context), self.core.config.requests.retry_after),
        })
    }

    /// The terms of a request, by its route and its headers for parm, which are removed.
    fn terms_of(&self, route: &Route, headers: &mut HeaderMap, context: &Context) -> Result<Terms, Error> {
        let parameters = terms::take(headers)?;
        let limit = |deadline: Duration| Some(context.arrived + deadline);
        let deadline = match context.deadline {
            None if !parameters.contains_key("timeout") => limit(route.deadline),
            own => own,
        };
        let (arrived, key) = (context.arrived, context.key.clone());
        let context = Context { deadline, key, ..Context::new(arrived, context.transport) };
        let request = InferRequest {
            model: ModelRef::latest(&*route.name),
            id: String::new(),
            parameters,
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        let core = &self.core;
        Terms::read(&request, &context, &core.config.requests, &core.driver.shares, &core.driver.clock)
    }
}

/// Whether a path is of the Open Inference Protocol, over HTTP or gRPC.
fn is_of_the_protocol(path: &str) -> bool {
    let service = |path: &str| path.rsplit_once('/').map(|(service, _)| service.to_owned());
    let own = || keys::GRPC.iter().any(|route| service(route.path) == service(path));
    path == "/v2" || path.starts_with("/v2/") || own()
}

/// The answer in the outputs of the job that began it.
fn opened(answers: Answers) -> Result<(Outcome, OpaqueAnswer), Error> {
    let lost = || Error::Internal { message: "an answer was lost: please report this bug".into() };
    let (outcome, output) = answers.into_iter().next().ok_or_else(lost)?;
    let mut opaque = output.outputs.opaque.lock().take().ok_or_else(lost)?;
    opaque.headers.insert(OUTCOME, HeaderValue::from_static(outcome.name()));
    Ok((outcome, *opaque))
}

/// Tells how an answer ended, once it has.
struct Ended<F: FnOnce(Option<&Error>)> {
    told: Option<F>,
    broken: Broken,
}

impl<F: FnOnce(Option<&Error>)> Drop for Ended<F> {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            told(self.broken.error());
        }
    }
}

/// Reports the end of an answer, with the error if its server cut it: at once if it is whole, and otherwise after its rest.
pub(super) fn watch(
    mut answer: OpaqueAnswer,
    told: impl FnOnce(Option<&Error>) + Send + 'static,
) -> OpaqueAnswer {
    let ended = Ended { told: Some(told), broken: answer.broken.clone() };
    answer.body = match answer.body {
        OpaqueBody::Begun(first, rest) => {
            let note = move |error: Error| {
                ended.broken.set(error.clone());
                error
            };
            OpaqueBody::Begun(first, Box::pin(rest.map_err(note)))
        }
        whole @ OpaqueBody::Whole(_) => whole,
    };
    answer
}

/// The address that a client used: redirects to an upstream server's own address lead to it.
///
/// Problem: a server makes absolute redirects for the host that it was asked as, its own. A client that follows one leaves parm,
/// or cannot reach the server at all.
///
/// Choice: as nginx does by default. If the address is that of any upstream server, host and scheme become those that the
/// client used; path and query stay byte by byte. Other addresses, such as those of storage, stay.
///
/// Rejected: the client's host as the server's `Host`. Servers that choose by it, or check it, would refuse requests that they
/// answer without parm.
struct Addressed {
    scheme: Option<HeaderValue>,
    host: Option<HeaderValue>,
}

impl Addressed {
    /// Reads the address from a request's headers. Does not allocate.
    fn of(headers: &HeaderMap) -> Self {
        let own = |name| headers.get(name).cloned();
        Self { scheme: own(FORWARDED_SCHEME), host: own(FORWARDED_HOST) }
    }

    /// Corrects the addresses in an answer. `servers` lists the addresses of the upstream servers, and is called only if the
    /// answer has an absolute one.
    fn correct(&self, headers: &mut HeaderMap, servers: impl Fn() -> Vec<String>) {
        for name in [LOCATION, CONTENT_LOCATION] {
            let corrected =
                headers.get(&name).and_then(|value| self.corrected(value.to_str().ok()?, &servers));
            if let Some(corrected) = corrected {
                headers.insert(name, corrected);
            }
        }
    }

    /// The address for the client; `None` if it stays.
    fn corrected(&self, address: &str, servers: impl Fn() -> Vec<String>) -> Option<HeaderValue> {
        let (scheme, authority, rest) = parts(address)?;
        let is_own = servers().iter().any(|server| is_of(server, scheme, authority));
        if !is_own {
            return None;
        }
        let text = |value: &Option<HeaderValue>| value.as_ref()?.to_str().ok().map(str::to_owned);
        let corrected = match (text(&self.scheme), text(&self.host)) {
            (Some(scheme), Some(host)) => format!("{scheme}://{host}{rest}"),
            // A client of HTTP/1.0 may state no host. A path alone leads back to where it asked.
            _ if rest.starts_with('/') => rest.to_owned(),
            _ => format!("/{rest}"),
        };
        HeaderValue::try_from(corrected).ok()
    }
}

/// Scheme, authority and rest of an absolute address of HTTP. The scheme is empty if it is that of the request.
fn parts(address: &str) -> Option<(&str, &str, &str)> {
    let (scheme, after) = address.split_once("//")?;
    let scheme = match scheme.strip_suffix(':') {
        Some(scheme) if ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) => scheme,
        None if scheme.is_empty() => scheme,
        _ => return None,
    };
    let end = after.find(['/', '?', '#', '\\']).unwrap_or(after.len());
    let (authority, rest) = after.split_at(end);
    Some((scheme, authority, rest))
}

/// Whether an authority is that of a server, such as `upstream+http://10.0.0.5:8000`.
fn is_of(server: &str, scheme: &str, authority: &str) -> bool {
    let server = server.strip_prefix("upstream+").unwrap_or(server);
    // A server at a Unix socket is asked as `localhost`.
    let (own_scheme, own) = server.split_once("://").unwrap_or(("http", "localhost:80"));
    let own_scheme = if own_scheme.ends_with('s') { "https" } else { "http" };
    let scheme = if scheme.is_empty() { own_scheme } else { scheme };
    let asked = host_and_port(authority, scheme);
    asked.is_some() && asked == host_and_port(own.trim_end_matches('/'), own_scheme)
}

/// Host and port of an authority without a user.
fn host_and_port(authority: &str, scheme: &str) -> Option<(String, u16)> {
    let usual = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    let read: Authority = authority.parse().ok().filter(|_| !authority.contains('@'))?;
    Some((read.host().to_ascii_lowercase(), read.port_u16().unwrap_or(usual)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [&str; 4] = [
        "upstream+http://10.0.0.5:8000",
        "upstream+https://secure.local:443",
        "upstream+http://[2001:db8::1]:80",
        "upstream+unix:/run/model.sock",
    ];

    fn corrected(address: &str) -> Option<String> {
        let asked = Addressed {
            scheme: Some(HeaderValue::from_static("https")),
            host: Some(HeaderValue::from_static("api.example.com:8443")),
        };
        let servers = || SERVERS.map(str::to_owned).to_vec();
        let mut headers = HeaderMap::from_iter([(LOCATION, address.parse().unwrap())]);
        headers.insert(CONTENT_LOCATION, address.parse().unwrap());
        asked.correct(&mut headers, servers);
        assert_eq!(headers[LOCATION], headers[CONTENT_LOCATION]);
        (headers[LOCATION] != address).then(|| headers[LOCATION].to_str().unwrap().to_owned())
    }

    #[test]
    fn redirect_to_a_server_leads_to_the_address_asked() {
        for (address, rest) in [
            ("http://10.0.0.5:8000/who?a=%20b#c", "/who?a=%20b#c"),
            ("HTTP://10.0.0.5:8000", ""),
            ("http://10.0.0.5:8000?a", "?a"),
            ("//10.0.0.5:8000/who", "/who"),
            ("https://Secure.Local/a//b", "/a//b"),
            ("https://secure.local:443/", "/"),
            ("http://[2001:DB8::1]/v6", "/v6"),
            ("http://localhost/socket", "/socket"),
        ] {
            let expected = format!("https://api.example.com:8443{rest}");
            assert_eq!(corrected(address).as_deref(), Some(&*expected), "{address}");
        }
    }

    #[test]
    fn redirect_elsewhere_stays() {
        for address in [
            "/who",
            "who//there",
            "?a=http://10.0.0.5:8000/",
            "http://10.0.0.5:8001/who",
            "http://10.0.0.5/who",
            "https://10.0.0.5:8000.example.com/",
            "http://user@10.0.0.5:8000/",
            "http://secure.local/plain",
            "ftp://10.0.0.5:8000/",
            "https://storage.example.com/a",
        ] {
            assert_eq!(corrected(address), None, "{address}");
        }
    }

    #[test]
    fn client_without_a_host_gets_a_path() {
        let asked = Addressed { scheme: Some(HeaderValue::from_static("http")), host: None };
        let servers = || SERVERS.map(str::to_owned).to_vec();
        for (address, expected) in [("http://10.0.0.5:8000/a?b", "/a?b"), ("http://10.0.0.5:8000?b", "/?b")] {
            assert_eq!(asked.corrected(address, servers).unwrap(), expected);
        }
    }
}
