//! Asks servers together, each within a limit of time, and tries the key that the configuration has for them.

use std::time::Duration;

use futures::{StreamExt, stream};
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Code, Error, InferRequest, ModelRef, Parameters};

/// Timeout of a request to a server.
const PATIENCE: Duration = Duration::from_secs(5);

/// Servers that are asked at a time.
const AT_ONCE: usize = 64;

pub(super) async fn within<T>(asked: impl Future<Output = T>) -> Result<T, Error> {
    let late = |_| Error::Unavailable { message: format!("no answer within {PATIENCE:?}") };
    tokio::time::timeout(PATIENCE, asked).await.map_err(late)
}

/// Asks all servers and returns their answers in the same order. Together, because each server that does not answer takes the
/// whole timeout.
pub(super) async fn together<T, A: Future>(servers: Vec<T>, ask: impl FnMut(T) -> A) -> Vec<A::Output> {
    stream::iter(servers).map(ask).buffered(AT_ONCE).collect().await
}

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
