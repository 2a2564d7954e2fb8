//! Inference responses as messages.

use super::{TensorParts, parameters_from, parameters_to, raw_for};
use crate::grpc::inference::ModelInferResponse;
use crate::grpc::inference::model_infer_response::InferOutputTensor;
use crate::{Error, InferResponse};

/// Writes a response with raw contents.
pub fn encode(response: InferResponse) -> ModelInferResponse {
    let mut raw = Vec::with_capacity(response.outputs.len());
    let outputs = response.outputs.into_iter().map(|output| {
        let TensorParts { name, datatype, shape, parameters, contents } =
            TensorParts::split(output, &mut raw);
        InferOutputTensor { name, datatype, shape, parameters, contents }
    });
    let outputs = outputs.collect();
    ModelInferResponse {
        model_name: response.model_name,
        model_version: response.model_version,
        id: response.id,
        parameters: parameters_to(response.parameters),
        outputs,
        raw_output_contents: raw,
    }
}

/// Reads a response; raw tensors share the message's bytes.
pub fn decode(message: ModelInferResponse) -> Result<InferResponse, Error> {
    let raw = raw_for("outputs", message.raw_output_contents, message.outputs.len())?;
    let outputs = message.outputs.into_iter().zip(raw).map(|(output, raw)| {
        let InferOutputTensor { name, datatype, shape, parameters, contents } = output;
        TensorParts { name, datatype, shape, parameters, contents }.finish(raw)
    });
    Ok(InferResponse {
        model_name: message.model_name,
        model_version: message.model_version,
        id: message.id,
        parameters: parameters_from(message.parameters)?,
        outputs: outputs.collect::<Result<_, _>>()?,
    })
}
