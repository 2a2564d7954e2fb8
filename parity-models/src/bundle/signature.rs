//! The tensors of a model, from its file, its manifest or the worker that serves it.

use parm_protocol::{ModelMetadata, TensorMetadata};

use super::Deployed;
use crate::onnx::{self, Value};

/// Inputs and outputs of a model, in the protocol's form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Inputs.
    pub inputs: Vec<TensorMetadata>,
    /// Outputs.
    pub outputs: Vec<TensorMetadata>,
}

impl From<&onnx::Inspection> for Signature {
    fn from(report: &onnx::Inspection) -> Self {
        Self { inputs: declared(&report.inputs), outputs: declared(&report.outputs) }
    }
}

impl From<&ModelMetadata> for Signature {
    fn from(model: &ModelMetadata) -> Self {
        Self { inputs: model.inputs.clone(), outputs: model.outputs.clone() }
    }
}

impl From<&Deployed> for Signature {
    fn from(deployed: &Deployed) -> Self {
        let tensor = |name: &str, datatype: parm_protocol::DataType, shape: &[i64]| TensorMetadata {
            name: name.into(),
            datatype: datatype.to_string(),
            shape: shape.into(),
        };
        Self {
            inputs: deployed
                .inputs
                .iter()
                .map(|input| tensor(&input.name, input.datatype, &input.shape))
                .collect(),
            outputs: deployed.outputs.iter().map(|out| tensor(&out.name, out.datatype, &out.shape)).collect(),
        }
    }
}

fn declared(values: &[Value]) -> Vec<TensorMetadata> {
    let tensor = |value: &Value| TensorMetadata {
        name: value.name.clone(),
        datatype: value.datatype.to_string(),
        shape: value.protocol_shape().unwrap_or_default(),
    };
    values.iter().map(tensor).collect()
}

/// Whether two declarations can describe one tensor: -1 agrees with any size.
pub(super) fn agree(one: &TensorMetadata, other: &TensorMetadata) -> bool {
    let dims = one.shape.iter().zip(&other.shape);
    one.datatype == other.datatype
        && one.shape.len() == other.shape.len()
        && dims.into_iter().all(|(a, b)| a == b || *a < 0 || *b < 0)
}

/// Values in a row, if all dimensions after the batch are fixed.
pub(super) fn row_size(shape: &[i64]) -> Option<usize> {
    shape.iter().skip(1).try_fold(1usize, |size, &dim| size.checked_mul(usize::try_from(dim).ok()?))
}
