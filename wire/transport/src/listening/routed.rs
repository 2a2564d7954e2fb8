//! A handler for any `tower` service: routers and functions without knowledge of connections.
//!
//! A response of known size is one piece, and its request ends when it is made. Any other response is a stream, and its
//! request ends with the last part.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::{Body, Incoming};
use hyper::service::Service;

use super::activity::{Activity, Running, Told};
use super::room::Place;
use super::station::Handler;
use super::unfinished::{Lent, Unfinished};

/// Most bytes of a body that are read after the answer: twice the largest body of the addresses for operators.
const PASSED_BYTES: usize = 2 << 20;
/// Time for such a body, as for those that are read.
const PASSED_FOR: Duration = Duration::from_secs(10);

/// Answers requests with a `tower` service. Each part of a response has the answer timeout, so a stream may last as
/// long as its client reads.
#[derive(Clone, Debug)]
pub struct Routed<S>(pub S);

/// The requests of one connection.
#[derive(Debug)]
pub struct RoutedRequests<S> {
    service: S,
    activity: Arc<Activity>,
    _place: Place,
}

impl<S, B> Handler for Routed<S>
where
    S: tower::Service<Request<Lent<Incoming>>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Body = Told<B>;
    type Service = RoutedRequests<S>;

    fn connection(&self, activity: &Arc<Activity>, place: Place) -> RoutedRequests<S> {
        RoutedRequests { service: self.0.clone(), activity: activity.clone(), _place: place }
    }
}

impl<S, B> Service<Request<Incoming>> for RoutedRequests<S>
where
    S: tower::Service<Request<Lent<Incoming>>, Response = Response<B>, Error = Infallible> + Clone,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    type Response = Response<Told<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let activity = self.activity.clone();
        let running = Running::new(activity.clone());
        activity.note_version(request.version());
        let (request, unfinished) = Unfinished::lend(request);
        let answer = self.service.clone().call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            if response.version() < Version::HTTP_2 && activity.is_old() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().entry(header::CONNECTION).or_insert(close);
            }
            if response.body().size_hint().exact().is_none() {
                return Ok(response.map(|body| Told::messages(body, running)));
            }
            // A client that sends the rest slowly does not keep its connection from making room for another.
            let running = match unfinished.is_left(PASSED_BYTES) {
                true => {
                    drop(running);
                    unfinished.pass_over(PASSED_BYTES, PASSED_FOR).await;
                    None
                }
                false => Some(running),
            };
            let response = response.map(|body| Told::whole(body, &activity, None));
            drop(running);
            Ok(response)
        })
    }
}
