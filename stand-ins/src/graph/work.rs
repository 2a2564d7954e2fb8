//! Divides a graph's work among its operators.

use std::collections::BTreeMap;

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use serde::Serialize;

use super::trees::comparisons;
use super::types::CLASSICAL;
use super::{Look, NodeExt, Survey};

/// The number of operators that are listed; the others are small.
const MOST: usize = 5;

/// An operator's share of the work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// The operator; its name tells variants apart.
    pub operator: String,
    /// Its share of the multiplications; any other operation on a value counts as one.
    pub share: f64,
}

/// The operators with the most work, in descending order. Empty if a size is unknown, since shares would be untrue.
pub(crate) fn work(draft: &Draft, survey: &Survey) -> Vec<Work> {
    let Some(look) = survey.looks().first() else { return Vec::new() };
    let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
    for node in &draft.nodes {
        let Some(count) = multiplications_of(node, look) else { return Vec::new() };
        *kinds.entry(kind(draft, node)).or_default() += count;
    }
    let total: f64 = kinds.values().sum();
    let mut all: Vec<Work> = kinds
        .into_iter()
        .map(|(operator, count)| Work { operator, share: count / total.max(1.0) })
        .filter(|work| work.share >= 0.005)
        .collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all.truncate(MOST);
    all
}

/// The multiplications of a run; `None` if sizes are unknown.
#[cfg(test)]
pub(crate) fn multiplications(draft: &Draft, survey: &Survey) -> Option<f64> {
    let look = survey.looks().first()?;
    let all = draft.nodes.iter().filter_map(|node| multiplications_of(node, look));
    Some(all.sum()).filter(|count| *count > 0.0)
}

/// The name of an operator: grouped convolutions and products of two values have names of their own.
fn kind(draft: &Draft, node: &NodeProto) -> String {
    let is_constant = |place: usize| node.at(place).is_some_and(|name| draft.constants.contains_key(name));
    match node.op_type.as_str() {
        "Conv" if node.int("group").unwrap_or(1) > 1 => "Conv in groups".into(),
        "MatMul" if !is_constant(0) && !is_constant(1) => "MatMul of two values".into(),
        op => op.into(),
    }
}

/// The multiplications of one node; any other operation on a value counts as one, and so does a comparison in a tree.
/// `None` if sizes are unknown.
pub(crate) fn multiplications_of(node: &NodeProto, look: &Look) -> Option<f64> {
    let sizes = |name: &str| look.get(name).map(Vec::as_slice);
    let count = |dims: &[usize]| dims.iter().product::<usize>() as f64;
    // Some exporters assemble weights from slices: their sizes are known from the survey.
    let weight = |place: usize| sizes(node.at(place)?);
    let each = match node.op_type.as_str() {
        "Conv" => count(weight(1)?.get(1..)?),
        "ConvTranspose" => return Some(count(sizes(node.at(0)?)?) * count(weight(1)?.get(1..)?)),
        "TreeEnsembleClassifier" | "TreeEnsembleRegressor" if node.domain == CLASSICAL => {
            let input = sizes(node.at(0)?)?;
            return Some(count(&input[..input.len().checked_sub(1)?]) * comparisons(node)?);
        }
        // Each step's input and state are multiplied with matrices.
        "LSTM" | "GRU" | "RNN" => {
            let (input, matrices) = (sizes(node.at(0)?)?, count(weight(1)?) + count(weight(2)?));
            return Some(count(&input[..input.len().checked_sub(1)?]) * matrices);
        }
        "MatMul" => *sizes(node.at(0)?)?.last()? as f64,
        "Gemm" => {
            let dims = sizes(node.at(0)?)?;
            let axis = usize::from(node.int("transA").unwrap_or(0) == 0);
            *dims.get(axis)? as f64
        }
        // These compute nothing.
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Shape" | "Identity" | "Constant" => {
            return Some(0.0);
        }
        _ => 1.0,
    };
    let made = node.output.iter().find(|name| !name.is_empty())?;
    Some(count(sizes(made)?) * each)
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Attribute, Builder, Tensor, Value};

    use super::*;
    use crate::testing::Stage;

    #[test]
    fn comparisons_in_trees_are_work() {
        let mut builder = Builder::new("trees", 1);
        let x = builder.input(Value::batch_of_f32("x", &[2]));
        let ints = |values: &[i64]| Attribute::Ints(values.to_vec());
        let modes = ["BRANCH_LEQ", "LEAF", "LEAF"].repeat(2).into_iter().map(str::to_owned).collect();
        let attributes = [
            ("nodes_treeids", ints(&[0, 0, 0, 1, 1, 1])),
            ("nodes_nodeids", ints(&[0, 1, 2, 0, 1, 2])),
            ("nodes_featureids", ints(&[0, 0, 0, 1, 0, 0])),
            ("nodes_truenodeids", ints(&[1, 0, 0, 1, 0, 0])),
            ("nodes_falsenodeids", ints(&[2, 0, 0, 2, 0, 0])),
            ("class_treeids", ints(&[0, 0, 1, 1])),
            ("class_nodeids", ints(&[1, 2, 1, 2])),
            ("class_ids", ints(&[0, 1, 0, 1])),
            ("classlabels_int64s", ints(&[5, 9])),
            ("nodes_values", Attribute::Floats(vec![0.0; 6])),
            ("class_weights", Attribute::Floats(vec![0.1, 0.3, 0.15, 0.45])),
            ("nodes_modes", Attribute::Strings(modes)),
            ("post_transform", Attribute::String("NONE".into())),
        ];
        builder.node_with("TreeEnsembleClassifier", "label", &[&x], attributes);
        builder.node_with("Cast", "y", &["label"], [("to", Attribute::Int(1))]);
        builder.output(Value::batch_of_f32("y", &[]));
        let mut draft = Draft::new(&builder.build().unwrap()).unwrap();
        draft.nodes[0].domain = CLASSICAL.into();
        draft.nodes[0].output.push("scores".into());
        let (stage, model) = (Stage::new(), draft.clone().finish().unwrap());
        let values = parm_protocol::Tensor::from_f32([4, 2].as_slice(), &[0.5; 8]).unwrap();
        let survey = Survey::of(&stage.workshop, &draft, &stage.rows(&model, &[values])).unwrap();
        let found = work(&draft, &survey);
        let shares: Vec<(&str, f64)> = found.iter().map(|one| (one.operator.as_str(), one.share)).collect();
        assert_eq!(shares, [("TreeEnsembleClassifier", 2.0 / 3.0), ("Cast", 1.0 / 3.0)]);
        // The size of another classical node is unknown, and so is its share.
        draft.nodes[0].op_type = "SVMClassifier".into();
        draft.nodes[0].output[0] = "unknown".into();
        assert_eq!(work(&draft, &survey), []);
    }

    #[test]
    fn recurrent_layer_multiplies_each_step() {
        let mut builder = Builder::new("recurrent", 1);
        let x = builder.input(Value::batch_of_f32("x", &[2, 4]));
        let input = builder.constant(Tensor::from_f32("w", &[1, 12, 4], &[0.1; 48]).unwrap());
        let state = builder.constant(Tensor::from_f32("r", &[1, 12, 3], &[0.1; 36]).unwrap());
        builder.node("LSTM", "states", &[&x, &input, &state]);
        builder.node("Relu", "y", &["states"]);
        builder.output(Value::batch_of_f32("y", &[1, 2, 3]));
        let draft = Draft::new(&builder.build().unwrap()).unwrap();
        let sizes = |name: &str, dims: &[usize]| (name.to_owned(), dims.to_vec());
        let values = [sizes("x", &[5, 2, 4]), sizes("states", &[5, 1, 2, 3]), sizes("y", &[5, 1, 2, 3])];
        let weights = [sizes("w", &[1, 12, 4]), sizes("r", &[1, 12, 3])];
        let look: Look = values.into_iter().chain(weights).collect();
        let all: Vec<f64> = draft.nodes.iter().filter_map(|node| multiplications_of(node, &look)).collect();
        assert_eq!(all, [10.0 * 84.0, 30.0]);
    }
}
