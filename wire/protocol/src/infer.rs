//! Inference requests and responses, independent of the transport.

use crate::{Parameters, Tensor};

/// A model by name, and by version if the client requested one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelRef {
    /// The model's name.
    pub name: String,
    /// The version; `None` lets the server choose (the newest).
    pub version: Option<String>,
}

/// A tensor with its name and parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// The tensor's name in the model.
    pub name: String,
    /// The values.
    pub tensor: Tensor,
    /// Protocol parameters other than those of the binary extension, which stop at the codec.
    pub parameters: Parameters,
}

/// An output that the client requested.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedOutput {
    /// The tensor's name in the model.
    pub name: String,
    /// Protocol parameters other than those of the binary extension.
    pub parameters: Parameters,
}

/// A request for predictions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferRequest {
    /// The model.
    pub model: ModelRef,
    /// The client's name for this request, echoed in the response; may be empty.
    pub id: String,
    /// Request parameters (`timeout`, `priority`, `parm_accept`, ...).
    pub parameters: Parameters,
    /// Input tensors.
    pub inputs: Vec<NamedTensor>,
    /// Requested outputs; empty means all.
    pub outputs: Vec<RequestedOutput>,
}

/// Predictions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferResponse {
    /// The model that answered.
    pub model_name: String,
    /// Its version.
    pub model_version: String,
    /// The request's id.
    pub id: String,
    /// Response parameters (`parm_outcome`, `parm_confidence`, ...).
    pub parameters: Parameters,
    /// Output tensors.
    pub outputs: Vec<NamedTensor>,
}

impl ModelRef {
    /// The newest version of a model.
    pub fn latest(name: impl Into<String>) -> Self {
        Self { name: name.into(), version: None }
    }
}

impl InferResponse {
    /// Bytes of the output tensors.
    pub fn data_bytes(&self) -> usize {
        self.outputs.iter().map(|output| output.tensor.data().len()).sum()
    }
}

impl NamedTensor {
    /// A tensor without parameters.
    pub fn new(name: impl Into<String>, tensor: Tensor) -> Self {
        Self { name: name.into(), tensor, parameters: Parameters::new() }
    }
}
