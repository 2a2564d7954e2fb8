//! Rewrites tree classifiers with one score for two classes, of which tract returns wrong labels.
//!
//! In such a file, as scikit-learn's and LightGBM's exporters write it, all leaves belong to class 0, and their sum is
//! the score of the second label. tract 0.23.9 makes both probabilities from it, but takes the label from the score
//! alone: with the larger score it returns the first label. It also expects two base values. With a leaf for each class
//! tract needs no such case.

use tract_onnx::pb::{AttributeProto, ModelProto, NodeProto, attribute_proto::AttributeType};

/// The attributes of leaves, which have one entry for each.
const OF_LEAVES: [&str; 3] = ["class_treeids", "class_nodeids", "class_ids"];

/// Gives each leaf of a classifier with one score its counterpart for the other class.
pub(super) fn complete(proto: &mut ModelProto) {
    let nodes = proto.graph.iter_mut().flat_map(|graph| &mut graph.node);
    for node in nodes.filter(|node| node.op_type == "TreeEnsembleClassifier" && has_one_score(node)) {
        complete_node(node);
    }
}

fn has_one_score(node: &NodeProto) -> bool {
    let labels = ["classlabels_int64s", "classlabels_strings"]
        .iter()
        .filter_map(|name| attribute(node, name))
        .map(|labels| labels.ints.len() + labels.strings.len());
    let ids = attribute(node, "class_ids").map(|ids| &ids.ints[..]).unwrap_or_default();
    let weights = attribute(node, "class_weights").map_or(0, |weights| weights.floats.len());
    let bases = attribute(node, "base_values").map_or(0, |base| base.floats.len());
    let transform = attribute(node, "post_transform").map_or(&b"NONE"[..], |transform| &transform.s[..]);
    labels.sum::<usize>() == 2
        && matches!(transform, b"NONE" | b"LOGISTIC" | b"SOFTMAX")
        && !ids.is_empty()
        && ids.iter().all(|id| *id == 0)
        && OF_LEAVES.iter().all(|name| attribute(node, name).is_some_and(|at| at.ints.len() == ids.len()))
        && weights == ids.len()
        && bases < 2
}

/// Follows ONNX Runtime: weights that are probabilities belong to the second class, and the first has the rest. Other
/// weights add to the margin between the classes.
fn complete_node(node: &mut NodeProto) {
    let weights = attribute(node, "class_weights").map(|weights| weights.floats.clone()).unwrap_or_default();
    let base = attribute(node, "base_values").and_then(|base| base.floats.first()).copied().unwrap_or(0.0);
    let transform =
        attribute(node, "post_transform").map(|transform| transform.s.clone()).unwrap_or_default();
    let is_logistic = transform == b"LOGISTIC";
    let are_probabilities = !is_logistic && weights.iter().all(|weight| *weight >= 0.0);
    node.attribute.retain(|attribute| !matches!(&*attribute.name, "base_values" | "class_weights"));
    for attribute in &mut node.attribute {
        match &*attribute.name {
            "class_ids" => attribute.ints = [0, 1].repeat(weights.len()),
            name if OF_LEAVES.contains(&name) => {
                attribute.ints = attribute.ints.iter().flat_map(|id| [*id; 2]).collect();
            }
            // A softmax of one score is not applied.
            "post_transform" if !is_logistic => attribute.s = b"NONE".to_vec(),
            _ => {}
        }
    }
    let whole = if are_probabilities { 1.0 } else { 0.0 };
    node.attribute.extend([
        floats("class_weights", weights.iter().flat_map(|weight| [-weight, *weight]).collect()),
        floats("base_values", vec![whole - base, base]),
    ]);
}

fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

fn floats(name: &str, floats: Vec<f32>) -> AttributeProto {
    let kind = AttributeType::Floats as i32;
    AttributeProto { name: name.into(), r#type: kind, floats, ..AttributeProto::default() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use parm_parity_models::onnx::{Attribute, DataType, Dim, Value, proto};
    use parm_protocol::Tensor;
    use prost::Message;

    use super::*;
    use crate::EngineConfig;
    use crate::engine::Model;
    use crate::engine::tract::TractModel;

    /// Two trees of two leaves each, which compare the first value with 0.
    fn trees(weights: [f32; 4], transform: &str, base: Option<f32>) -> ModelProto {
        let ints = |name: &str, ints: &[i64]| Attribute::Ints(ints.to_vec()).to_proto(name);
        let floats = |name: &str, floats: &[f32]| Attribute::Floats(floats.to_vec()).to_proto(name);
        let modes = ["BRANCH_LEQ", "LEAF", "LEAF"].repeat(2).into_iter().map(String::from).collect();
        let mut attribute = vec![
            ints("nodes_treeids", &[0, 0, 0, 1, 1, 1]),
            ints("nodes_nodeids", &[0, 1, 2, 0, 1, 2]),
            ints("nodes_featureids", &[0, 0, 0, 1, 0, 0]),
            ints("nodes_truenodeids", &[1, 0, 0, 1, 0, 0]),
            ints("nodes_falsenodeids", &[2, 0, 0, 2, 0, 0]),
            ints("class_treeids", &[0, 0, 1, 1]),
            ints("class_nodeids", &[1, 2, 1, 2]),
            ints("class_ids", &[0; 4]),
            ints("classlabels_int64s", &[5, 9]),
            floats("nodes_values", &[0.0; 6]),
            floats("class_weights", &weights),
            Attribute::Strings(modes).to_proto("nodes_modes"),
            Attribute::String(transform.into()).to_proto("post_transform"),
        ];
        attribute.extend(base.map(|base| floats("base_values", &[base])));
        let value = |name: &str, datatype, columns: Option<usize>| {
            let batch = Dim::Symbol("n".into());
            let shape = Some([batch].into_iter().chain(columns.map(Dim::Fixed)).collect());
            Value { name: name.into(), datatype, shape }.to_proto()
        };
        let node = proto::NodeProto {
            op_type: "TreeEnsembleClassifier".into(),
            domain: "ai.onnx.ml".into(),
            input: vec!["x".into()],
            output: vec!["label".into(), "scores".into()],
            attribute,
            ..Default::default()
        };
        let graph = proto::GraphProto {
            node: vec![node],
            input: vec![value("x", DataType::Float, Some(2))],
            output: vec![value("label", DataType::Int64, None), value("scores", DataType::Float, Some(2))],
            ..Default::default()
        };
        let set = |domain: &str, version| proto::OperatorSetIdProto { domain: domain.into(), version };
        let opset_import = vec![set("", 17), set("ai.onnx.ml", 1)];
        let model =
            proto::ModelProto { ir_version: 8, opset_import, graph: Some(graph), ..Default::default() };
        ModelProto::decode(&*model.encode_to_vec()).unwrap()
    }

    /// The expected values are those of ONNX Runtime 1.32.
    #[test]
    fn two_classes_with_one_score_have_the_labels_of_their_scores() {
        let rows =
            Tensor::from_f32([4, 2].as_slice(), &[-1.0, -1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0]).unwrap();
        let (shares, margins) = ([0.1, 0.3, 0.15, 0.45], [-1.0, 0.6, 0.2, 0.7]);
        for (weights, transform, base, labels, seconds) in [
            (shares, "NONE", None, [5i64, 9, 5, 9], [0.25f32, 0.55, 0.45, 0.75]),
            (shares, "NONE", Some(0.2), [5, 9, 9, 9], [0.45, 0.75, 0.65, 0.95]),
            (shares, "SOFTMAX", None, [5, 9, 5, 9], [0.25, 0.55, 0.45, 0.75]),
            (margins, "NONE", None, [5, 5, 9, 9], [-0.8, -0.3, 0.8, 1.3]),
            (margins, "LOGISTIC", None, [5, 5, 9, 9], [0.31, 0.4256, 0.69, 0.7858]),
            (margins, "LOGISTIC", Some(0.2), [5, 5, 9, 9], [0.3543, 0.475, 0.7311, 0.8176]),
        ] {
            for optimises in [true, false] {
                let proto = trees(weights, transform, base);
                let config = EngineConfig::default();
                let mut model = TractModel::of(proto, Path::new("model.onnx"), &config, optimises).unwrap();
                let outputs = model.run(std::slice::from_ref(&rows)).unwrap();
                let found: Vec<i64> = outputs[0]
                    .data()
                    .chunks(8)
                    .map(|at| i64::from_le_bytes(at.try_into().unwrap()))
                    .collect();
                assert_eq!(found, labels, "{transform} {base:?}: {:?}", outputs[1].as_f32());
                let whole = if weights == shares || transform == "LOGISTIC" { 1.0 } else { 0.0 };
                for (scores, second) in outputs[1].as_f32().unwrap().chunks(2).zip(seconds) {
                    let near = (scores[1] - second).abs() < 1e-4 && (scores[0] + second - whole).abs() < 1e-4;
                    assert!(near, "{transform} {base:?}: {scores:?} is not {second}");
                }
            }
        }
    }
}
