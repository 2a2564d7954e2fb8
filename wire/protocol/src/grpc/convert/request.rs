//! Inference requests as messages.

use super::{TensorParts, model_ref, parameters_from, parameters_to, raw_for};
use crate::grpc::inference::ModelInferRequest;
use crate::grpc::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::{Error, InferRequest, RequestedOutput};

/// Reads a request; raw tensors share the message's bytes.
pub fn decode(message: ModelInferRequest) -> Result<InferRequest, Error> {
    let raw = raw_for("inputs", message.raw_input_contents, message.inputs.len())?;
    let inputs = message.inputs.into_iter().zip(raw).map(|(input, raw)| {
        let InferInputTensor { name, datatype, shape, parameters, contents } = input;
        TensorParts { name, datatype, shape, parameters, contents }.finish(raw)
    });
    let outputs = message.outputs.into_iter().map(|output| {
        Ok(RequestedOutput { name: output.name, parameters: parameters_from(output.parameters)? })
    });
    Ok(InferRequest {
        model: model_ref(message.model_name, message.model_version),
        id: message.id,
        parameters: parameters_from(message.parameters)?,
        inputs: inputs.collect::<Result<_, _>>()?,
        outputs: outputs.collect::<Result<_, Error>>()?,
    })
}

/// Writes a request with raw contents.
pub fn encode(request: InferRequest) -> ModelInferRequest {
    let mut raw = Vec::with_capacity(request.inputs.len());
    let inputs = request.inputs.into_iter().map(|input| {
        let TensorParts { name, datatype, shape, parameters, contents } = TensorParts::split(input, &mut raw);
        InferInputTensor { name, datatype, shape, parameters, contents }
    });
    let inputs = inputs.collect();
    let outputs = request.outputs.into_iter().map(|output| InferRequestedOutputTensor {
        name: output.name,
        parameters: parameters_to(output.parameters),
    });
    ModelInferRequest {
        model_name: request.model.name,
        model_version: request.model.version.unwrap_or_default(),
        id: request.id,
        parameters: parameters_to(request.parameters),
        inputs,
        outputs: outputs.collect(),
        raw_input_contents: raw,
    }
}
