//! `ModelInfer`: the hot path. Raw tensors share the message's bytes on the way in.

use std::sync::Arc;

use parm_protocol::bounds::Room;
use parm_protocol::grpc::{Bounded, convert, inference as proto};
use parm_protocol::{Context, Error, InferResponse, InferenceService, Parameter, Transport};
use tonic::metadata::{Ascii, MetadataValue};

use super::Response;
use super::call::GrpcCall;
use crate::budget::Share;
use crate::server::shared::Shared;

pub(super) async fn answer<S: InferenceService>(call: GrpcCall<'_, S>) -> Response {
    let shared = call.shared;
    let (arrived, deadline) = (call.started, call.deadline);
    let mut traceparent = call.header("traceparent").map(str::to_owned);
    let key = call.key();
    call.exchange(shared.config.max_body_bytes.get(), |message, share| {
        let traceparent = traceparent.take();
        let transport = Transport::Grpc;
        let context = Context { arrived, deadline, transport, traceparent, caller: None, key: key.clone() };
        predict(shared, message, share, context)
    })
    .await
}

async fn predict<S: InferenceService>(
    shared: &Shared<S>,
    message: Bounded,
    share: Arc<Share>,
    context: Context,
) -> Result<tonic::Response<proto::ModelInferResponse>, Error> {
    let request = message
        .into_message(Room::of(shared.config.max_body_bytes.get()))
        .and_then(convert::request::decode)
        .and_then(|request| shared.holds(&share, &request).map(|()| request))
        .map_err(|error| shared.rejected(error, Transport::Grpc))?;
    let response = shared.service.infer(request, context).await?;
    share.turn_into(response.data_bytes())?;
    let outcome = outcome(&response);
    let mut answer = tonic::Response::new(convert::response::encode(response));
    if let Some(outcome) = outcome {
        answer.metadata_mut().insert("parm-outcome", outcome);
    }
    Ok(answer)
}

/// The response's outcome, for proxies that count responses without reading them.
fn outcome(response: &InferResponse) -> Option<MetadataValue<Ascii>> {
    let outcome = response.parameters.get("parm_outcome").and_then(Parameter::as_str)?;
    MetadataValue::try_from(outcome).ok()
}
