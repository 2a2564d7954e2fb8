//! Reads the tensors that an ONNX file declares.

use std::path::Path;

use parm_parity_models::onnx;
use parm_protocol::DataType;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as Dim;
use tract_onnx::pb::type_proto::{Tensor, Value};
use tract_onnx::pb::{ModelProto, ValueInfoProto};
use tract_onnx::prelude::TypedModel;

use crate::Error;
use crate::engine::{Declared, NOT_A_TENSOR, Signature};

/// Inputs without an initialiser, and outputs; `typed` has output shapes that the file omits.
pub(super) fn signature(
    path: &Path,
    proto: &ModelProto,
    typed: Option<&TypedModel>,
) -> Result<Signature, Error> {
    let Some(graph) = &proto.graph else {
        return Err(Error::Load {
            path: path.into(),
            message: "the file has no graph: export the model again".into(),
        });
    };
    let given = |input: &&ValueInfoProto| !graph.initializer.iter().any(|tensor| tensor.name == input.name);
    let inputs = graph.input.iter().filter(given).map(|input| {
        declared(path, input)?.ok_or_else(|| Error::Load {
            path: path.into(),
            message: format!("input '{}' declares no shape: export it with one", input.name),
        })
    });
    let outputs = graph.output.iter().enumerate().map(|(at, output)| {
        let declared = declared(path, output)?;
        let inferred = || Declared {
            name: output.name.clone(),
            datatype: tensor_type(output).and_then(datatype).unwrap_or(DataType::Fp32),
            shape: typed.map(|model| inferred_shape(model, at)).unwrap_or_default(),
        };
        Ok::<_, Error>(declared.unwrap_or_else(inferred))
    });
    Ok(Signature { inputs: inputs.collect::<Result<_, _>>()?, outputs: outputs.collect::<Result<_, _>>()? })
}

/// `None` if the file declares no shape.
fn declared(path: &Path, value: &ValueInfoProto) -> Result<Option<Declared>, Error> {
    let unknown = |found: String| Error::TensorType { path: path.into(), tensor: value.name.clone(), found };
    let Some(tensor) = tensor_type(value) else {
        return Err(unknown(NOT_A_TENSOR.into()));
    };
    let datatype = datatype(tensor).ok_or_else(|| unknown(format!("of type {}", tensor.elem_type)))?;
    let Some(shape) = &tensor.shape else {
        return Ok(None);
    };
    let dims = shape.dim.iter().map(|dim| match dim.value {
        Some(Dim::DimValue(size)) if size >= 0 => size,
        _ => -1,
    });
    Ok(Some(Declared { name: value.name.clone(), datatype, shape: dims.collect() }))
}

fn tensor_type(value: &ValueInfoProto) -> Option<&Tensor> {
    value.r#type.as_ref().and_then(|kind| kind.value.as_ref()).map(|value| match value {
        Value::TensorType(tensor) => tensor,
    })
}

fn datatype(tensor: &Tensor) -> Option<DataType> {
    onnx::DataType::try_from(tensor.elem_type).ok()?.to_protocol()
}

fn inferred_shape(model: &TypedModel, output: usize) -> Vec<i64> {
    let Ok(fact) = model.output_fact(output) else {
        return Vec::new();
    };
    fact.shape.iter().map(|dim| dim.to_i64().unwrap_or(-1)).collect()
}
