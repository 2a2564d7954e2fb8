//! A network's answer to rows: the numbers of one output, or of all outputs side by side.

use std::collections::BTreeSet;

use parm_parity_models::onnx::Graph;

use super::Network;
use crate::data::Samples;
use crate::graph::{Mode, Real, Value};
use crate::{Array, Error};

/// Rows per run if no gradient is needed.
const TOGETHER: usize = 250;

/// The outputs that make up the answer.
pub(super) struct Speech {
    /// Their positions.
    outputs: Vec<usize>,
    /// A factor for each number, if any.
    factors: Option<Array<f32>>,
    /// Rows per run if no gradient is needed.
    together: usize,
}

impl Speech {
    /// The first output of floats.
    pub(super) fn of(outputs: &[parm_parity_models::onnx::Value]) -> Self {
        let first = outputs.iter().position(|output| output.datatype.is_float());
        Self { outputs: vec![first.unwrap_or(0)], factors: None, together: TOGETHER }
    }
}

impl Network {
    /// Answers with all outputs of floats, not only the first. Integers, such as a class, cannot be taught: the
    /// weights that make them must also make the other outputs.
    pub fn saying_all(mut self) -> Result<Self, Error> {
        let graph = self.model.graph()?;
        let (floats, others): (Vec<usize>, Vec<usize>) =
            (0..graph.outputs.len()).partition(|&at| graph.outputs[at].datatype.is_float());
        let weights =
            |outputs: &[usize]| makers(&graph, outputs.iter().map(|&at| graph.outputs[at].name.as_str()));
        let taught = weights(&floats);
        let is_weight = |name: &&String| self.weights.contains_key(*name);
        for &at in &others {
            if weights(&[at]).iter().filter(is_weight).any(|weight| !taught.contains(weight)) {
                return Err(Error::Untaught { output: graph.outputs[at].name.clone() });
            }
        }
        self.speech.outputs = floats;
        Ok(self)
    }

    /// Multiplies every number of the answer by its factor.
    pub(crate) fn scaled(mut self, factors: &[f32]) -> Self {
        self.speech.factors = Array::new(vec![1, factors.len()], factors.to_vec());
        self
    }

    /// Runs at most so many rows at a time if no gradient is needed.
    pub(crate) fn running(mut self, rows: usize) -> Self {
        self.speech.together = rows.clamp(1, TOGETHER);
        self
    }

    pub(crate) fn together(&self) -> usize {
        self.speech.together
    }

    /// How many numbers the answer to a row has, by output.
    pub(crate) fn widths(&self, samples: &Samples) -> Result<Vec<usize>, Error> {
        let outputs = self.pass(samples.inputs.range(0, samples.len().min(1)))?;
        let parts = self.speech.outputs.iter().map(|&at| Ok(real(&outputs, at)?.count()));
        parts.collect()
    }

    /// The answer to rows.
    pub(crate) fn say(&self, rows: Array<f32>) -> Result<Real, Error> {
        let count = rows.shape()[0];
        self.said(&self.pass(rows)?, count)
    }

    /// The answer in the outputs of a pass over `rows` rows. With several outputs, each must have one row per query.
    pub(crate) fn said(&self, outputs: &[Value], rows: usize) -> Result<Real, Error> {
        let Speech { outputs: places, factors, .. } = &self.speech;
        let said = match places[..] {
            [only] => real(outputs, only)?.clone(),
            _ => {
                let rows_of = |&at: &usize| {
                    let (part, name) = (real(outputs, at)?, &self.outputs[at]);
                    if part.shape().first() != Some(&rows) {
                        return Err(Error::RowsOfOutput { output: name.clone(), shape: part.shape() });
                    }
                    let width = part.count() / rows.max(1);
                    let fault = |problem| Error::Node { node: format!("output '{name}'"), problem };
                    part.clone().reshape(&[rows, width]).map_err(fault)
                };
                let parts = places.iter().map(rows_of).collect::<Result<_, Error>>()?;
                Real::concat(parts, 1).map_err(|_| Error::OutputKind)?
            }
        };
        let Some(factors) = factors else { return Ok(said) };
        let fault = |problem| Error::Node { node: "the outputs".into(), problem };
        Real::upload(factors, &self.device).and_then(|factors| said.mul(factors)).map_err(fault)
    }

    fn pass(&self, rows: Array<f32>) -> Result<Vec<Value>, Error> {
        Ok(self.forward(&self.frozen(), self.rows(rows)?, Mode::Evaluate)?.outputs)
    }
}

/// All values that these values are computed from.
fn makers<'a>(graph: &Graph, values: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut made: BTreeSet<String> = BTreeSet::new();
    let mut left: Vec<String> = values.map(str::to_owned).collect();
    while let Some(value) = left.pop() {
        if let (true, Some(node)) = (made.insert(value.clone()), graph.producer(&value)) {
            left.extend(node.inputs.iter().filter(|name| !name.is_empty()).cloned());
        }
    }
    made
}

fn real(outputs: &[Value], at: usize) -> Result<&Real, Error> {
    match outputs.get(at) {
        Some(Value::Real(real)) => Ok(real),
        _ => Err(Error::OutputKind),
    }
}
