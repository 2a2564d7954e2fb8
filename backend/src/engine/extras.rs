//! The parts of a request that only another server reads.

use parm_protocol::{NamedTensor, Parameters, Tensor};
use tokio::time::Instant;

/// A request for one run.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    /// In declared order.
    pub inputs: &'a [Tensor],
    /// Its parameters.
    pub extras: &'a Extras,
    /// The end of the last client's wait.
    pub deadline: Instant,
}

/// Parameters of a request and of its inputs, for a model of another server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// Parameters of the request.
    pub parameters: Parameters,
    /// Parameters of each input, in the model's order.
    pub inputs: Vec<Parameters>,
}

impl Extras {
    /// The parameters of a request that this worker has not obeyed itself: it obeys priority and timeout, and reads
    /// those of our frontends.
    pub(crate) fn of(parameters: &Parameters, inputs: &[NamedTensor]) -> Self {
        let obeyed = |name: &str| matches!(name, "priority" | "timeout") || name.starts_with("parm_");
        let others = parameters.iter().filter(|(name, _)| !obeyed(name));
        Self {
            parameters: others.map(|(name, value)| (name.clone(), value.clone())).collect(),
            inputs: inputs.iter().map(|input| input.parameters.clone()).collect(),
        }
    }
}
