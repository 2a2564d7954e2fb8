//! Conversion of messages to our types and back.
//!
//! Raw contents are shared without copying; typed contents are converted element by element. Both are read. Like
//! Triton, we always send raw contents.

mod contents;
mod metadata;
pub mod request;
pub mod response;

pub use metadata::{config_from_message, config_to_message, server_from_message, server_to_message};

use std::collections::BTreeMap;

use bytes::Bytes;

use super::inference::infer_parameter::ParameterChoice;
use super::inference::{InferParameter, InferTensorContents};
use crate::{DataType, Error, ModelRef, NamedTensor, Parameter, Parameters, Shape, Tensor};

/// A model by the name and version of a message, where an empty version lets the server choose.
pub fn model_ref(name: String, version: String) -> ModelRef {
    ModelRef { name, version: Some(version).filter(|version| !version.is_empty()) }
}

fn malformed(message: impl Into<String>) -> Error {
    Error::Malformed { message: message.into() }
}

fn parameters_from(message: BTreeMap<String, InferParameter>) -> Result<Parameters, Error> {
    let convert = |(name, parameter): (String, InferParameter)| {
        let value = match parameter.parameter_choice {
            Some(ParameterChoice::BoolParam(value)) => Parameter::Bool(value),
            Some(ParameterChoice::Int64Param(value)) => Parameter::Int64(value),
            Some(ParameterChoice::StringParam(value)) => Parameter::String(value),
            // JSON cannot express these values, and a server behind a frontend may be reached over either.
            Some(ParameterChoice::DoubleParam(value)) if !value.is_finite() => {
                return Err(malformed(format!("parameter '{name}' is {value}: give a finite number")));
            }
            Some(ParameterChoice::DoubleParam(value)) => Parameter::Double(value),
            Some(ParameterChoice::Uint64Param(value)) => Parameter::Uint64(value),
            None => return Err(malformed(format!("parameter '{name}' has no value"))),
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

/// The parts that an input and an output tensor have in common.
struct TensorParts {
    name: String,
    datatype: String,
    shape: Vec<i64>,
    parameters: BTreeMap<String, InferParameter>,
    contents: Option<InferTensorContents>,
}

impl TensorParts {
    /// Checks the tensor, whose values are `raw` or its typed contents.
    fn finish(self, raw: Option<Bytes>) -> Result<NamedTensor, Error> {
        let TensorParts { name, datatype, shape, parameters, contents } = self;
        let datatype: DataType = datatype.parse()?;
        let dims: Option<Shape> = shape.iter().map(|&dim| usize::try_from(dim).ok()).collect();
        let dims =
            dims.ok_or_else(|| malformed(format!("tensor '{name}' has a negative size in {shape:?}")))?;
        let data = match (raw, contents) {
            (Some(_), Some(contents)) if contents != InferTensorContents::default() => {
                return Err(malformed(format!(
                    "tensor '{name}' has both contents and raw contents: send one"
                )));
            }
            (Some(raw), _) => raw,
            (None, contents) => contents::to_bytes(&name, datatype, contents.unwrap_or_default())?,
        };
        let tensor = Tensor::new(datatype, dims, data)?;
        Ok(NamedTensor { name, tensor, parameters: parameters_from(parameters)? })
    }

    /// Splits a tensor; its bytes go to the raw contents.
    fn split(tensor: NamedTensor, raw: &mut Vec<Bytes>) -> Self {
        let NamedTensor { name, tensor, parameters } = tensor;
        let shape = tensor.shape().iter().map(|&dim| dim as i64).collect();
        let datatype = tensor.datatype().to_string();
        raw.push(tensor.into_data());
        TensorParts { name, datatype, shape, parameters: parameters_to(parameters), contents: None }
    }
}

/// Raw contents in the order of the tensors: one each, or none at all.
fn raw_for(
    what: &str,
    raw: Vec<Bytes>,
    tensors: usize,
) -> Result<impl Iterator<Item = Option<Bytes>>, Error> {
    if !raw.is_empty() && raw.len() != tensors {
        return Err(malformed(format!(
            "{} raw contents for {tensors} {what}: send one for each, or none",
            raw.len()
        )));
    }
    Ok(raw.into_iter().map(Some).chain(std::iter::repeat_with(|| None)))
}
