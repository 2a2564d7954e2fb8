//! Conversion of messages to our types and back.
//!
//! Raw contents are shared without copying; typed contents are converted element by element. Both are read. Like
//! Triton, we always send raw contents.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::contents;
use super::inference as pb;
use super::inference::InferParameter;
use super::inference::infer_parameter::ParameterChoice;
use super::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::{
    DataType, Error, InferRequest, InferResponse, ModelConfig, ModelConfigTensor, ModelRef, NamedTensor,
    Parameter, Parameters, Place, RequestedOutput, ServerMetadata, Shape, Tensor,
};

/// A request from its message; raw tensors share the message's bytes.
pub fn request_from_message(message: pb::ModelInferRequest) -> Result<InferRequest, Error> {
    let outputs = message.outputs.into_iter().map(|output| {
        Ok(RequestedOutput { name: output.name, parameters: parameters_from(output.parameters)? })
    });
    Ok(InferRequest {
        inputs: tensors_from("inputs", message.inputs, message.raw_input_contents)?,
        model: model_ref(message.model_name, message.model_version),
        id: message.id,
        parameters: parameters_from(message.parameters)?,
        outputs: outputs.collect::<Result<_, Error>>()?,
    })
}

/// A request to its message, with raw contents.
pub fn request_to_message(request: InferRequest) -> pb::ModelInferRequest {
    let (inputs, raw_input_contents) = tensors_to(request.inputs);
    let outputs = request.outputs.into_iter().map(|output| InferRequestedOutputTensor {
        name: output.name,
        parameters: parameters_to(output.parameters),
    });
    pb::ModelInferRequest {
        model_name: request.model.name,
        model_version: request.model.version.unwrap_or_default(),
        id: request.id,
        parameters: parameters_to(request.parameters),
        inputs,
        outputs: outputs.collect(),
        raw_input_contents,
    }
}

/// A response from its message; raw tensors share the message's bytes.
pub fn response_from_message(message: pb::ModelInferResponse) -> Result<InferResponse, Error> {
    Ok(InferResponse {
        outputs: tensors_from("outputs", message.outputs, message.raw_output_contents)?,
        model_name: message.model_name,
        model_version: message.model_version,
        id: message.id,
        parameters: parameters_from(message.parameters)?,
    })
}

/// A response to its message, with raw contents.
pub fn response_to_message(response: InferResponse) -> pb::ModelInferResponse {
    let (outputs, raw_output_contents) = tensors_to(response.outputs);
    pb::ModelInferResponse {
        model_name: response.model_name,
        model_version: response.model_version,
        id: response.id,
        parameters: parameters_to(response.parameters),
        outputs,
        raw_output_contents,
    }
}

/// Server metadata to its message.
pub fn server_to_message(from: ServerMetadata) -> pb::ServerMetadataResponse {
    let Place { node, zone, card } = from.place;
    pb::ServerMetadataResponse {
        name: from.name,
        version: from.version,
        extensions: from.extensions,
        node: node.unwrap_or_default(),
        zone: zone.unwrap_or_default(),
        card: card.unwrap_or_default(),
    }
}

/// Server metadata from its message.
pub fn server_from_message(from: pb::ServerMetadataResponse) -> ServerMetadata {
    let place = Place::announced(&from.node, &from.zone, &from.card);
    ServerMetadata { name: from.name, version: from.version, extensions: from.extensions, place }
}

/// A model's configuration to its message; a datatype that the message has no name for becomes `TYPE_INVALID`.
pub fn config_to_message(from: ModelConfig) -> pb::ModelConfig {
    let data_type =
        |name: &str| pb::DataType::from_str_name(name).unwrap_or(pb::DataType::TypeInvalid).into();
    let tensors = |from: Vec<ModelConfigTensor>| {
        from.into_iter().map(|tensor| (tensor.name, data_type(&tensor.data_type), tensor.dims))
    };
    let input = |(name, data_type, dims)| pb::ModelInput { name, data_type, dims };
    let output = |(name, data_type, dims)| pb::ModelOutput { name, data_type, dims };
    pb::ModelConfig {
        name: from.name,
        platform: from.platform,
        max_batch_size: from.max_batch_size,
        input: tensors(from.input).map(input).collect(),
        output: tensors(from.output).map(output).collect(),
        parameters: from.parameters,
    }
}

/// A model's configuration from its message.
pub fn config_from_message(from: pb::ModelConfig) -> ModelConfig {
    let tensor = |data_type: pb::DataType, name, dims| {
        let data_type = data_type.as_str_name().to_owned();
        ModelConfigTensor { name, data_type, dims }
    };
    let input = |from: pb::ModelInput| tensor(from.data_type(), from.name, from.dims);
    let output = |from: pb::ModelOutput| tensor(from.data_type(), from.name, from.dims);
    ModelConfig {
        name: from.name,
        platform: from.platform,
        max_batch_size: from.max_batch_size,
        input: from.input.into_iter().map(input).collect(),
        output: from.output.into_iter().map(output).collect(),
        parameters: from.parameters,
    }
}

/// A model by the name and version of a message, where an empty version lets the server choose.
pub fn model_ref(name: String, version: String) -> ModelRef {
    ModelRef { name, version: Some(version).filter(|version| !version.is_empty()) }
}

fn parameters_from(message: BTreeMap<String, InferParameter>) -> Result<Parameters, Error> {
    let convert = |(name, parameter): (String, InferParameter)| {
        let value = match parameter.parameter_choice {
            Some(ParameterChoice::BoolParam(value)) => Parameter::Bool(value),
            Some(ParameterChoice::Int64Param(value)) => Parameter::Int64(value),
            Some(ParameterChoice::StringParam(value)) => Parameter::String(value),
            // JSON cannot express these values, and a server behind a frontend may be reached over either.
            Some(ParameterChoice::DoubleParam(value)) if !value.is_finite() => {
                return Err(Error::malformed(format!("parameter '{name}' is {value}: give a finite number")));
            }
            Some(ParameterChoice::DoubleParam(value)) => Parameter::Double(value),
            Some(ParameterChoice::Uint64Param(value)) => Parameter::Uint64(value),
            None => return Err(Error::malformed(format!("parameter '{name}' has no value"))),
        };
        Ok((name, value))
    };
    message.into_iter().map(convert).collect()
}

fn parameters_to(parameters: Parameters) -> BTreeMap<String, InferParameter> {
    let convert = |(name, parameter)| {
        let choice = match parameter {
            Parameter::Bool(value) => ParameterChoice::BoolParam(value),
            Parameter::Int64(value) => ParameterChoice::Int64Param(value),
            Parameter::Uint64(value) => ParameterChoice::Uint64Param(value),
            Parameter::Double(value) => ParameterChoice::DoubleParam(value),
            Parameter::String(value) => ParameterChoice::StringParam(value),
        };
        (name, InferParameter { parameter_choice: Some(choice) })
    };
    parameters.into_iter().map(convert).collect()
}

/// Tensors from their messages, whose values are the raw contents, one for each in the same order, or their typed contents.
fn tensors_from(
    what: &str,
    tensors: Vec<InferInputTensor>,
    raw: Vec<Bytes>,
) -> Result<Vec<NamedTensor>, Error> {
    if !raw.is_empty() && raw.len() != tensors.len() {
        let (raw, tensors) = (raw.len(), tensors.len());
        return Err(Error::malformed(format!(
            "{raw} raw contents for {tensors} {what}: send one for each, or none"
        )));
    }
    let raw = raw.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    tensors.into_iter().zip(raw).map(|(tensor, raw)| tensor_from(tensor, raw)).collect()
}

fn tensor_from(tensor: InferInputTensor, raw: Option<Bytes>) -> Result<NamedTensor, Error> {
    let InferInputTensor { name, datatype, shape, parameters, contents } = tensor;
    let datatype: DataType = datatype.parse()?;
    let dims: Option<Shape> = shape.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let dims =
        dims.ok_or_else(|| Error::malformed(format!("tensor '{name}' has a negative size in {shape:?}")))?;
    let data = match (raw, contents) {
        (Some(_), Some(contents)) if contents != pb::InferTensorContents::default() => {
            let message = format!("tensor '{name}' has both contents and raw contents: send one");
            return Err(Error::malformed(message));
        }
        (Some(raw), _) => raw,
        (None, contents) => contents::to_bytes(&name, datatype, contents.unwrap_or_default())?,
    };
    let tensor = Tensor::new(datatype, dims, data)?;
    Ok(NamedTensor { name, tensor, parameters: parameters_from(parameters)? })
}

/// The messages of tensors, and their raw contents.
fn tensors_to(tensors: Vec<NamedTensor>) -> (Vec<InferInputTensor>, Vec<Bytes>) {
    let message = |NamedTensor { name, tensor, parameters }: NamedTensor| {
        let shape = tensor.shape().iter().map(|&dim| dim as i64).collect();
        let (datatype, parameters) = (tensor.datatype().to_string(), parameters_to(parameters));
        (InferInputTensor { name, datatype, shape, parameters, contents: None }, tensor.into_data())
    };
    tensors.into_iter().map(message).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelParameter;

    #[test]
    fn server_metadata_survives_the_wire() {
        let server = ServerMetadata {
            name: "parm".into(),
            version: "1".into(),
            extensions: vec!["binary_tensor_data".into()],
            place: Place::announced("n1", "", "GPU-1"),
        };
        assert_eq!(server_from_message(server_to_message(server.clone())), server);
    }

    #[test]
    fn every_datatype_of_a_configuration_survives_the_wire() {
        let types = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"];
        let types = types.into_iter().chain(["FP16", "FP32", "FP64", "STRING", "BF16"]);
        let tensors: Vec<_> = types
            .map(|name| ModelConfigTensor {
                name: name.to_lowercase(),
                data_type: format!("TYPE_{name}"),
                dims: vec![-1, 2],
            })
            .collect();
        let config = ModelConfig {
            name: "m".into(),
            platform: "onnx".into(),
            max_batch_size: 8,
            input: tensors.clone(),
            output: tensors,
            parameters: [("a".into(), ModelParameter { string_value: "1".into() })].into(),
        };
        let mut message = config_to_message(config.clone());
        assert_eq!(config_from_message(message.clone()), config);
        message.input[0].data_type = 999;
        let newer = config_from_message(message).input.remove(0);
        assert_eq!(newer.data_type, "TYPE_INVALID", "a newer server's number");
    }
}
