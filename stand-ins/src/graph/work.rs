//! Divides a graph's work among its operators.

use std::collections::BTreeMap;

use parm_parity_models::onnx::ops;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use serde::Serialize;

use super::{Look, Survey};

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
        let Some(count) = multiplications(node, look) else { return Vec::new() };
        *kinds.entry(name(draft, node)).or_default() += count;
    }
    let total = kinds.values().sum::<f64>().max(1.0);
    let all = kinds.into_iter().map(|(operator, count)| Work { operator, share: count / total });
    let mut all: Vec<Work> = all.filter(|work| work.share >= 0.005).collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all.truncate(MOST);
    all
}

/// The multiplications of a node; `None` if sizes are unknown.
pub(crate) fn multiplications(node: &NodeProto, look: &Look) -> Option<f64> {
    ops::multiplications(node, |name| look.get(name).map(Vec::as_slice))
}

/// The name of an operator in sentences: grouped convolutions and products of two values have names of their own.
pub(crate) fn name(draft: &Draft, node: &NodeProto) -> String {
    let is_constant = |place: usize| node.at(place).is_some_and(|name| draft.constants.contains_key(name));
    match node.op_type.as_str() {
        "Conv" if node.int("group").unwrap_or(1) > 1 => "Conv in groups".into(),
        "MatMul" if !is_constant(0) && !is_constant(1) => "MatMul of two values".into(),
        op => op.into(),
    }
}
