//! Requests for upstream servers: queries of the pool of their route.
//!
//! A query's prediction is the beginning of its answer. What follows is passed on by the server that began it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use parm_dispatcher::{Failure, Reject, Shape};
use parm_protocol::{
    Context, Error, InferRequest, ModelRef, OpaqueAnswer, OpaqueBody, OpaqueRequest, Parameters, is_grpc,
    terms,
};
use parm_transport::keys;

use super::call::Failed;
use super::driver::Submission;
use super::endings;
use super::inputs::Inputs;
use super::outcome::Outcome;
use super::outputs::Answers;
use super::pool::Pool;
use super::redirect::Addressed;
use super::refusal;
use super::service::{Frontend, age};
use super::terms::Terms;
use super::trace;
use crate::upstreams::{Route, is_upstream};

/// The header of an answer that says how it was obtained.
const OUTCOME: HeaderName = HeaderName::from_static("parm-outcome");

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
        let _active = self.core.activity.enter();
        let is_call = is_grpc(&request.headers);
        let (path, body) = (request.target.path(), &request.body);
        let route = self.core.routes.find(&request.method, path, body, is_call).clone();
        let model = ModelRef::latest(&*route.name);
        let pool = self.core.catalog.find(&model).map_err(|_| match is_call {
            true => Error::Unavailable { message: NO_CALLS.into() },
            false => Error::NoInstance { model: model.name.clone() },
        });
        let pool = pool.inspect_err(|error| self.core.metrics.rejected(error))?;
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
                Ok(endings::watch(answer, move |error| match error {
                    None => {
                        pool.metrics.answered(outcome, 1, took);
                        pool.sums.answered(outcome, 1, took);
                    }
                    Some(error) => {
                        core.metrics.failed(&pool.metrics, error);
                        pool.sums.rejected(Reject::Failed(Failure::Instance), 1, took);
                        pool.failed(took);
                        pool.troubled(error);
                    }
                }))
            }
            Err(error) => {
                self.core.metrics.failed(&pool.metrics, &error);
                pool.failed(age(&context));
                pool.troubled(&error);
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
        let inputs = Arc::new(Inputs {
            id: String::new(),
            parameters: Parameters::new(),
            tensors: Vec::new(),
            outputs: Vec::new(),
            rows: 1,
            guarded_by: 0,
            span: trace::forwarded(&route.name, &request, context),
            opaque: Some(Arc::new(request)),
        });
        let shape = Shape { name: pool.shapes.alone(), size: inputs.size() };
        let submission = Submission { pool: pool.clone(), inputs, shape, terms, codable: false };
        pool.sums.objective.allows(terms.deadline.since(self.core.driver.now()));
        let failed = match self.core.driver.submit(submission).verdict().await {
            Ok(answers) => {
                let (outcome, mut answer) = opened(answers)?;
                answer.body = match answer.body {
                    OpaqueBody::Begun(first, rest) if !talks => OpaqueBody::Begun(first, route.paced(rest)),
                    other => other,
                };
                return Ok((outcome, answer));
            }
            Err(failed) => failed,
        };
        self.count_rejected(pool, failed.why, 1, age(context));
        Err(match failed {
            Failed { last: Some(Error::Answered(answer)), .. } => Error::Answered(answer),
            // A server that closed the connection may be the only one: its health check has taken it out of service since.
            Failed { why: Reject::NoInstance, last: Some(last), .. } => {
                Error::Attempts { last: Box::new(last) }
            }
            failed => refusal::error(pool, failed, age(context), self.core.config.requests.retry_after),
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
    let answer = answers.into_iter().next().ok_or_else(lost)?;
    let mut opaque = answer.outputs.opaque.lock().take().ok_or_else(lost)?;
    opaque.headers.insert(OUTCOME, HeaderValue::from_static(answer.outcome.name()));
    Ok((answer.outcome, *opaque))
}
