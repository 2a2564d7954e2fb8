//! Tries the key that the configuration has for workers.

use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Code, Error, InferRequest, ModelRef, Parameters};

use super::asking::within;

/// The remedy of a worker that does not accept the frontend's key, if that is the fault.
pub(super) fn key_remedy(code: Code) -> Option<&'static str> {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied)
        .then_some("set frontend.client.token to one of its keys that has the role infer")
}

/// Requests a prediction without inputs, which each server rejects, and returns the rejection of the key.
pub(super) async fn rejection(client: &dyn Client, model: ModelRef) -> Option<Error> {
    let request = InferRequest {
        model,
        id: String::new(),
        parameters: Parameters::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let answer = within(client.infer(request, CallContext::default())).await.ok()?;
    answer.err().filter(|error| key_remedy(error.code()).is_some())
}
