//! Compares candidates of a model that answers labels alone by the scores behind these.
//!
//! Most copies give the same label for most rows, so labels hardly tell which of two copies is nearer. The scores that
//! the last ArgMax reads do. They are an output of the graphs that are compared, not of the candidates.

use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Value};

use super::answers;
use super::candidates::Bench;
use crate::Error;
use crate::graph::{Links, NodeExt, Survey, types};
use crate::measure::{finite, is_float};

/// The most bytes of scores that are kept. Pictures with a label for each pixel have more.
const MOST_BYTES: u64 = 64 << 20;
/// Operators that change the form of a label.
const FORMS: [&str; 6] = ["Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten"];

impl Bench<'_> {
    /// Adds the scores behind labels to the deployed model's answers, if these are labels alone.
    pub(super) fn add_scores(&mut self) -> Result<(), Error> {
        if self.said.iter().any(is_float) {
            return Ok(());
        }
        let Some((draft, scores)) = with_scores(&self.deployed) else { return Ok(()) };
        let values: Vec<String> = scores.iter().map(|(value, _)| value.clone()).collect();
        let bytes = Survey::bytes(self.workshop, &self.deployed, &values, &self.rows);
        if bytes.saturating_mul(self.rows.len() as u64) > MOST_BYTES {
            return Ok(());
        }
        // An engine that cannot return the scores still compares labels.
        let Ok(mut runner) = self.workshop.load("scores", draft.finish()?.bytes()) else { return Ok(()) };
        let said = match answers(&mut runner, &self.rows, self.progress) {
            Ok(mut said) => said.split_off(self.said.len()),
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(_) => return Ok(()),
        };
        if finite(&said).contains(&false) {
            return Ok(());
        }
        let meaning = |(said, (_, axis)): (&parm_protocol::Tensor, &(String, i64))| {
            let last = said.shape().len() as i64 - 1;
            if [-1, last].contains(axis) { Meaning::Logits } else { Meaning::Values }
        };
        self.meanings.extend(said.iter().zip(&scores).map(meaning));
        self.said.extend(said);
        self.is_scored = true;
        Ok(())
    }

    /// The graph whose answers are compared.
    pub(super) fn compared(&self, draft: Draft) -> Draft {
        match with_scores(&draft).filter(|_| self.is_scored) {
            Some((scored, _)) => scored,
            None => draft,
        }
    }
}

/// The graph with the scores behind its labels as further outputs, and the scores with the axis of their classes. `None`
/// if an output is not a choice from scores.
fn with_scores(draft: &Draft) -> Option<(Draft, Vec<(String, i64)>)> {
    let (links, types) = (Links::of(draft), types(draft));
    let maker = |value: &str| links.maker(value).map(|at| &draft.nodes[at]);
    let score = |output: &str| -> Option<(String, i64)> {
        let mut node: &NodeProto = maker(output)?;
        while node.is(&FORMS) {
            node = maker(node.at(0)?)?;
        }
        let value = node.at(0).filter(|_| node.is(&["ArgMax"]))?;
        // Engines do not return an input as an output.
        let is_inner = maker(value).is_some() && types.get(value) == Some(&DataType::Float);
        is_inner.then(|| (value.to_owned(), node.int("axis").unwrap_or(0)))
    };
    let outputs = &draft.graph().output;
    let mut scores = outputs.iter().map(|output| score(&output.name)).collect::<Option<Vec<_>>>()?;
    // Two outputs may choose from the same scores.
    scores.dedup_by(|a, b| a.0 == b.0);
    let mut scored = draft.clone();
    let declared = scores
        .iter()
        .map(|(value, _)| Value { name: value.clone(), datatype: DataType::Float, shape: None }.to_proto());
    scored.graph_mut().output.extend(declared);
    Some((scored, scores))
}
