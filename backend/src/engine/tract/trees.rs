//! Finds tree classifiers with one score for two classes, of which tract returns wrong labels.
//!
//! In such a file, as scikit-learn's and LightGBM's exporters write it, all leaves belong to class 0, and their sum is
//! the score of the second label. tract 0.23.9 makes both probabilities from it, but takes the label from the score
//! alone: with the larger score it returns the first label. ONNX Runtime runs trees hundreds of times faster anyway.

use tract_onnx::pb::{ModelProto, NodeProto};

/// Whether a model has such a classifier.
pub(super) fn have_one_score(proto: &ModelProto) -> bool {
    let mut nodes = proto.graph.iter().flat_map(|graph| &graph.node);
    nodes.any(|node| node.op_type == "TreeEnsembleClassifier" && has_one_score(node))
}

fn has_one_score(node: &NodeProto) -> bool {
    let of = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
    let labels = ["classlabels_int64s", "classlabels_strings"].into_iter().filter_map(of);
    let labels: usize = labels.map(|labels| labels.ints.len() + labels.strings.len()).sum();
    labels == 2 && of("class_ids").is_some_and(|ids| ids.ints.iter().all(|id| *id == 0))
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::AttributeProto;

    use super::*;

    #[test]
    fn two_labels_whose_leaves_have_one_class_share_a_score() {
        let ints = |name: &str, ints: &[i64]| AttributeProto {
            name: name.into(),
            ints: ints.into(),
            ..AttributeProto::default()
        };
        let shares = |labels: &[i64], ids: &[i64]| {
            let attribute = vec![ints("classlabels_int64s", labels), ints("class_ids", ids)];
            has_one_score(&NodeProto { attribute, ..NodeProto::default() })
        };
        assert!(shares(&[5, 9], &[0, 0, 0]));
        assert!(!shares(&[5, 9], &[0, 1, 0]) && !shares(&[5, 9, 11], &[0, 0, 0]));
    }
}
