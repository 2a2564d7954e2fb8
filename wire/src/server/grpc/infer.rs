//! `ModelInfer`: the hot path. Raw tensors share the message's bytes on the way in.

use parm_protocol::grpc::{Bounded, convert, inference as proto};
use parm_protocol::{Context, Error, InferResponse, InferenceService, Parameter, Transport};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};

use super::Response;
use super::call::Call;
use crate::server::shared::Shared;

pub(super) async fn answer<S: InferenceService>(call: Call<'_, S>) -> Response {
    let shared = call.shared;
    let (arrived, deadline) = (call.started.into_std(), call.deadline.map(Instant::into_std));
    let mut traceparent = call.header("traceparent").map(str::to_owned);
    call.unary(|message| {
        let traceparent = traceparent.take();
        predict(shared, message, Context { arrived, deadline, transport: Transport::Grpc, traceparent })
    })
    .await
}

async fn predict<S: InferenceService>(
    shared: &Shared<S>,
    message: Bounded,
    context: Context,
) -> Result<tonic::Response<proto::ModelInferResponse>, Error> {
    let request = message
        .into_message()
        .and_then(convert::request::decode)
        .map_err(|error| shared.rejected(error, Transport::Grpc))?;
    let response = shared.service.infer(request, context).await?;
    let outcome = outcome(&response);
    let mut answer = tonic::Response::new(convert::response::encode(response));
    if let Some(outcome) = outcome {
        answer.metadata_mut().insert("parm-outcome", outcome);
    }
    Ok(answer)
}

/// The response's outcome, for those who count answers without reading them.
fn outcome(response: &InferResponse) -> Option<MetadataValue<Ascii>> {
    let outcome = response.parameters.get("parm_outcome").and_then(Parameter::as_str)?;
    MetadataValue::try_from(outcome).ok()
}
