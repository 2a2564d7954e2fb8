//! `grpc.health.v1`: the server's current readiness, for orchestrators and client-side balancers.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use parm_protocol::grpc::SERVICE;
use parm_protocol::{Error, InferenceService};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::Response;
use super::call::{self, GrpcCall};
use super::watches::{WatchPermit, Watches};
use crate::server::shared::Shared;

/// Interval at which readiness is polled for watches. The end of serving, which is urgent, is reported at once.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn check<S: InferenceService>(call: GrpcCall<'_, S>) -> Response {
    let shared = call.shared;
    call.read(|asked: HealthCheckRequest| match status(shared, is_ours(&asked.service)) {
        ServingStatus::ServiceUnknown => Err(Error::UnknownService { service: asked.service }),
        status => Ok(response(status)),
    })
    .await
}

pub(super) async fn watch<S: InferenceService>(call: GrpcCall<'_, S>, watches: &Watches) -> Response {
    let shared = call.shared;
    let permit = match watches.take() {
        Ok(permit) => Arc::new(permit),
        Err(error) => return call::refuse(shared, error),
    };
    call.stream(|asked: HealthCheckRequest| changes(shared.clone(), is_ours(&asked.service), permit.clone()))
        .await
}

/// The status now, and then every change, until the server drains. As the protocol requires, an unknown service is not
/// an error for watches. The service's name is not kept: a watch lasts, needs no key, and a name may be long.
fn changes<S: InferenceService>(
    shared: Arc<Shared<S>>,
    ours: bool,
    permit: Arc<WatchPermit>,
) -> impl Stream<Item = Result<HealthCheckResponse, tonic::Status>> + Send + 'static {
    stream::unfold((shared, permit, None), move |(shared, permit, told)| async move {
        let drain = shared.drain.begun.clone();
        let mut now = status(&shared, ours);
        while told == Some(now) {
            let drains = drain.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_none();
            now = status(&shared, ours);
            // Drained connections close when nothing is in progress on them, and a watch would never end.
            if drains && told == Some(now) {
                return None;
            }
        }
        Some((Ok(response(now)), (shared, permit, Some(now))))
    })
}

/// Whether a name is the server's or its service's.
fn is_ours(service: &str) -> bool {
    matches!(service, "" | SERVICE)
}

fn status<S: InferenceService>(shared: &Shared<S>, ours: bool) -> ServingStatus {
    match ours {
        true if shared.service.is_ready() => ServingStatus::Serving,
        true => ServingStatus::NotServing,
        false => ServingStatus::ServiceUnknown,
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
