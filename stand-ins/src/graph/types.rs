//! Element types of a graph's values.

use std::collections::HashMap;

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Value};

use super::NodeExt;

const TRUTHS: [&str; 11] = [
    "Equal",
    "Greater",
    "Less",
    "GreaterOrEqual",
    "LessOrEqual",
    "Not",
    "And",
    "Or",
    "Xor",
    "IsNaN",
    "IsInf",
];
const COUNTS: [&str; 5] = ["Shape", "Size", "NonZero", "ArgMax", "ArgMin"];

/// The operator set of classical models.
pub(super) const CLASSICAL: &str = "ai.onnx.ml";

/// The types of values; unknown for outputs of a node with a body, or of most nodes of other operator sets.
pub(crate) fn types(draft: &Draft) -> HashMap<String, DataType> {
    let mut types: HashMap<String, DataType> =
        draft.constants.iter().map(|(name, tensor)| (name.clone(), tensor.datatype())).collect();
    types.extend(draft.graph().input.iter().map(Value::from_proto).map(|value| (value.name, value.datatype)));
    for node in &draft.nodes {
        if node.domain == CLASSICAL {
            let of_node = node.output.iter().cloned().zip(classical(node));
            types.extend(of_node.filter(|(name, _)| !name.is_empty()));
            continue;
        }
        if !matches!(node.domain.as_str(), "" | "ai.onnx") || node.attribute.iter().any(|a| a.g.is_some()) {
            continue;
        }
        let of = |place: usize| node.at(place).and_then(|name| types.get(name)).copied();
        let first = match node.op_type.as_str() {
            op if TRUTHS.contains(&op) => Some(DataType::Bool),
            op if COUNTS.contains(&op) => Some(DataType::Int64),
            "Cast" => node.int("to").and_then(|code| DataType::try_from(code as i32).ok()),
            "Where" | "CastLike" | "DequantizeLinear" => of(1),
            "QuantizeLinear" => of(2).or(Some(DataType::Uint8)),
            "OneHot" => of(2),
            "ConstantOfShape" => match node.tensor("value") {
                Some(value) => DataType::try_from(value.data_type).ok(),
                None => Some(DataType::Float),
            },
            "MatMulInteger" | "ConvInteger" => Some(DataType::Int32),
            _ => of(0),
        };
        let Some(first) = first else { continue };
        for (at, output) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let is_index = at == 1 && node.is(&["MaxPool", "TopK"]);
            let is_mask = at == 1 && node.is(&["Dropout"]);
            let datatype = match () {
                () if is_index => DataType::Int64,
                () if is_mask => DataType::Bool,
                () => first,
            };
            types.insert(output.clone(), datatype);
        }
    }
    types
}

/// The types of a classical node's outputs; empty if unknown. Lists of maps have no size.
fn classical(node: &NodeProto) -> Vec<DataType> {
    match node.op_type.as_str() {
        "TreeEnsembleClassifier" => {
            let is_named = node.texts("classlabels_strings").is_some_and(|names| !names.is_empty());
            vec![if is_named { DataType::String } else { DataType::Int64 }, DataType::Float]
        }
        "TreeEnsembleRegressor" | "Scaler" | "Normalizer" => vec![DataType::Float],
        _ => Vec::new(),
    }
}
