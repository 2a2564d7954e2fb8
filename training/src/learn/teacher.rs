//! Teachers, whose answers count as the truth, and checks of what they say before a run: mistakes in the data would show
//! late or never.

use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::{Graph, Model, rewrite};
use sha2::{Digest, Sha256};

use super::{Set, largest};
use crate::data::Samples;
use crate::network::Network;
use crate::{Array, Error};

/// A model that answers rows. A graph that this crate can interpret is one; an engine can run the others.
pub trait Teacher {
    /// Its answer to each row, flat: `[rows, values]`. With several outputs, the first, or all of them side by side if
    /// all are taught.
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error>;
}

impl Teacher for Network {
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error> {
        predictions(self, rows)
    }
}

/// The inputs of a training that imitates a deployed model.
#[derive(Clone, Copy)]
pub struct Materials<'a> {
    /// Rows, with labels or without.
    pub samples: &'a Samples,
    /// The graph to derive networks from: the deployed one, or another architecture for its task.
    pub graph: &'a Model,
    /// Gives the true answer to a row; `None`: the graph itself.
    pub teacher: Option<&'a dyn Teacher>,
    /// The teacher's answer to each row, if known already.
    pub outputs: Option<&'a Array<f32>>,
}

/// A network's answer to every row, flat: `[rows, values]`.
pub(crate) fn predictions(network: &Network, rows: &Array<f32>) -> Result<Array<f32>, Error> {
    let count = rows.shape()[0];
    let mut all = Vec::new();
    let together = network.together();
    for start in (0..count).step_by(together) {
        let chunk = rows.range(start, (start + together).min(count));
        all.extend(network.say(chunk)?.download().into_data());
    }
    let values = all.len() / count.max(1);
    Array::new(vec![count, values], all).ok_or(Error::OutputKind)
}

/// The rows with the teacher's answers.
pub(crate) fn taught(materials: Materials<'_>, teacher: &dyn Teacher) -> Result<Set, Error> {
    let Samples { inputs, labels, .. } = materials.samples;
    let rows = inputs.shape()[0];
    if rows == 0 {
        return Err(Error::TooFew { rows, wanted: 1 });
    }
    let outputs = match materials.outputs {
        Some(outputs) if outputs.shape().first() == Some(&rows) => {
            let values = outputs.data().len() / rows;
            outputs.clone().reshape(vec![rows, values]).expect("as many rows")
        }
        Some(outputs) => {
            return Err(Error::OutputRows { rows, outputs: outputs.shape().first().copied().unwrap_or(0) });
        }
        None => teacher.predict(inputs)?,
    };
    Ok(Set { inputs: inputs.clone(), outputs, labels: labels.clone() })
}

/// With fewer rows, a low agreement with the labels may be chance and is accepted.
const ENOUGH_ROWS: usize = 500;
/// An agreement with the labels below this multiple of chance means a wrong file.
const BETTER_THAN_CHANCE: f64 = 1.5;

/// Compares a teacher's answers with the labels.
pub(crate) fn hold(set: &Set, is_classifier: bool) -> Result<(), Error> {
    let values = set.values();
    if let Some(at) = set.outputs.data().iter().position(|value| !value.is_finite()) {
        return Err(Error::Output { row: at / values, value: set.outputs.data()[at] });
    }
    let Some(labels) = set.labels.as_ref().filter(|_| is_classifier) else { return Ok(()) };
    if let Some(row) = labels.iter().position(|&label| label >= values) {
        return Err(Error::Label { row, label: labels[row], classes: values });
    }
    let right = (0..set.len()).filter(|&row| largest(set.output(row)) == labels[row]).count();
    let agreement = right as f64 / labels.len() as f64;
    if labels.len() >= ENOUGH_ROWS && agreement < BETTER_THAN_CHANCE / values as f64 {
        return Err(Error::WrongLabels { agreement });
    }
    Ok(())
}

/// A digest of everything that the weights of a run depend on: words, data and models.
pub(crate) fn fingerprint(words: &[&str], set: &Set, models: &[&Model]) -> String {
    let mut digest = Sha256::new();
    for word in words {
        digest.update((word.len() as u64).to_le_bytes());
        digest.update(word);
    }
    for array in [&set.inputs, &set.outputs] {
        array.shape().iter().for_each(|&size| digest.update((size as u64).to_le_bytes()));
        digest.update(bytemuck::cast_slice::<f32, u8>(array.data()));
    }
    set.labels.iter().flatten().for_each(|&label| digest.update((label as u64).to_le_bytes()));
    models.iter().for_each(|model| digest.update(model.bytes()));
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The meaning of a graph's output, as far as its last node shows.
pub(crate) fn meaning(graph: &Model) -> Meaning {
    match last(graph).as_deref() {
        Some("Softmax") => Meaning::Probabilities,
        _ => Meaning::Logits,
    }
}

/// The operator that makes a graph's first output of floats.
pub(crate) fn last(graph: &Model) -> Option<String> {
    let graph = graph.graph().ok()?;
    let output = graph.outputs.iter().find(|output| output.datatype.is_float())?.name.clone();
    graph.producer(&output).map(|node| node.op.clone())
}

/// Whether a softmax makes the first output: only there it can be removed and added again.
pub(crate) fn ends_in_softmax(graph: &Model) -> bool {
    let is_softmax = |graph: Graph| {
        let first = graph.outputs.first()?;
        graph.producer(&first.name).map(|node| node.op == "Softmax")
    };
    graph.graph().ok().and_then(is_softmax).unwrap_or(false)
}

/// The model with its external weights included.
pub(crate) fn copy(model: &Model) -> Result<Model, Error> {
    Ok(rewrite::Draft::new(model)?.finish()?)
}
