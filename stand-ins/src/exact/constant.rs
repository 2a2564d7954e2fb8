//! Replaces nodes that only read constants by their results.
//!
//! Exporters reshape biases, convert weights and compute sizes in the graph; no family recognises a weight behind such a
//! node. The engine computes them, so no operator needs a rule here.

use std::collections::BTreeSet;

use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Tensor};

use crate::Error;
use crate::graph::{probe, types};
use crate::rows::Rows;
use crate::workshop::Workshop;

/// The most elements of a result.
const LARGEST: usize = 1 << 26;

/// Replaces such nodes. A graph whose results the engine cannot return stays as it is.
pub(crate) fn settle(workshop: &Workshop, draft: Draft, rows: &Rows) -> Result<Draft, Error> {
    let types = types(&draft);
    let outputs: BTreeSet<&str> = draft.graph().output.iter().map(|output| output.name.as_str()).collect();
    let mut settled: BTreeSet<String> = BTreeSet::new();
    for node in &draft.nodes {
        let mut reads = node.input.iter().filter(|name| !name.is_empty());
        let is_constant = reads.all(|name| draft.constants.contains_key(name) || settled.contains(name));
        let is_random = node.op_type.starts_with("Random") || node.is(&["Bernoulli", "Multinomial"]);
        let is_known = |name: &str| types.get(name).is_some_and(|kind| kind.to_protocol().is_some());
        let made = node.only_output().filter(|made| is_known(made) && !outputs.contains(made));
        if is_constant && !node.input.is_empty() && !is_random {
            settled.extend(made.map(str::to_owned));
        }
    }
    // Only results that other nodes read are wanted.
    let is_read = |name: &String| {
        draft.nodes.iter().any(|node| {
            node.input.contains(name) && !node.only_output().is_some_and(|made| settled.contains(made))
        })
    };
    let values: Vec<String> = settled.iter().filter(|name| is_read(name)).cloned().collect();
    if values.is_empty() {
        return Ok(draft);
    }
    let model = probe(&draft, &values, &types)?;
    let Ok(mut runner) = workshop.load("constants", model.bytes()) else { return Ok(draft) };
    let Ok(results) = runner.run(&rows.first(1)?, 0..1) else { return Ok(draft) };
    let mut folded = draft.clone();
    for (name, result) in values.iter().zip(results) {
        let datatype = types.get(name).copied().unwrap_or(DataType::Float);
        if datatype.to_protocol() != Some(result.datatype()) || result.len() > LARGEST {
            return Ok(draft);
        }
        let tensor = Tensor::new(name, datatype, result.shape(), result.data().clone())?;
        folded.constants.insert(name.clone(), tensor);
    }
    folded.nodes.retain(|node| !node.only_output().is_some_and(|made| settled.contains(made)));
    folded.forget(|_| true);
    // Several nodes may have read one result: each gets its own copy again.
    Ok(Draft::new(&folded.finish()?)?)
}
