//! Element types of a graph's values.

use std::collections::HashMap;

use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Kind, Value};

/// The types of values; unknown for outputs of a node with a body, or of other operator sets.
pub(crate) fn types(draft: &Draft) -> HashMap<String, DataType> {
    let mut types: HashMap<String, DataType> =
        draft.constants.iter().map(|(name, tensor)| (name.clone(), tensor.datatype())).collect();
    types.extend(draft.graph().input.iter().map(Value::from_proto).map(|value| (value.name, value.datatype)));
    for node in &draft.nodes {
        if !matches!(node.domain.as_str(), "" | "ai.onnx") || node.attribute.iter().any(|a| a.g.is_some()) {
            continue;
        }
        let of = |place: usize| node.at(place).and_then(|name| types.get(name)).copied();
        let first = match (Kind::of(node), node.op_type.as_str()) {
            (Kind::Truth, _) => Some(DataType::Bool),
            (Kind::Count, _) => Some(DataType::Int64),
            (_, "Cast") => node.int("to").and_then(|code| DataType::try_from(code as i32).ok()),
            (_, "Where" | "CastLike" | "DequantizeLinear") => of(1),
            (_, "QuantizeLinear") => of(2).or(Some(DataType::Uint8)),
            (_, "OneHot") => of(2),
            (_, "ConstantOfShape") => {
                let value = node.attribute("value").and_then(|value| value.t.as_ref());
                value.map_or(Some(DataType::Float), |value| DataType::try_from(value.data_type).ok())
            }
            (_, "MatMulInteger" | "ConvInteger") => Some(DataType::Int32),
            _ => of(0),
        };
        let Some(first) = first else { continue };
        for (at, output) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let datatype = match at {
                1 if node.is(&["MaxPool", "TopK"]) => DataType::Int64,
                1 if node.is(&["Dropout"]) => DataType::Bool,
                _ => first,
            };
            types.insert(output.clone(), datatype);
        }
    }
    types
}
