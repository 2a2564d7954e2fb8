//! Turns inner values of a graph into outputs, so that an engine returns them.

use std::collections::HashMap;

use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Model, Value};

use super::sweep;
use crate::Error;

/// A model that outputs these values only. Their types must be known.
pub(crate) fn probe(
    draft: &Draft,
    values: &[String],
    types: &HashMap<String, DataType>,
) -> Result<Model, Error> {
    let mut probe = draft.clone();
    let declared = values.iter().map(|name| {
        let datatype = types.get(name).copied().unwrap_or(DataType::Float);
        Value { name: name.clone(), datatype, shape: None }.to_proto()
    });
    probe.graph_mut().output = declared.collect();
    sweep(&mut probe);
    Ok(probe.finish()?)
}
