//! Test kit of the crate: an engine in a temporary folder, models and their answers.

use parm_backend::EngineConfig;
use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::Tensor;

use crate::{Candidate, Comparison, Meanings, Progress, Rows, Setting, Share, Stored, Work, Workshop};

pub(crate) struct Stage {
    pub(crate) workshop: Workshop,
    _folder: tempfile::TempDir,
}

/// A progress listener that ignores everything and never stops the search.
pub(crate) struct Alone;

impl Progress for Alone {
    fn doing(&self, _: &str) {}

    fn is_stopped(&self) -> bool {
        false
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workshop = Workshop::new("tract", EngineConfig::default(), folder.path()).unwrap();
        Self { workshop, _folder: folder }
    }

    pub(crate) fn rows(&self, model: &Model, arrays: &[Tensor]) -> Rows {
        let runner = self.workshop.load("signature", model.bytes()).unwrap();
        Rows::new(runner.signature(), arrays).unwrap()
    }

    /// The first output's numbers for all rows.
    pub(crate) fn answers(&self, model: &Model, rows: &Rows) -> Vec<f32> {
        let mut runner = self.workshop.load("answers", model.bytes()).unwrap();
        let outputs = runner.run(rows, 0..rows.len()).unwrap();
        outputs[0].as_f32().unwrap().into_owned()
    }
}

/// The operators of a draft's nodes, in alphabetical order.
pub(crate) fn operators(draft: &Draft) -> Vec<String> {
    let mut operators: Vec<String> = draft.nodes.iter().map(|node| node.op_type.clone()).collect();
    operators.sort();
    operators
}

pub(crate) fn candidate(name: &str, cost: f64, agreement: f64) -> Candidate {
    Candidate {
        name: name.into(),
        how: String::new(),
        cost: [cost; 4],
        compared: Comparison {
            agreement: Share { value: agreement, low: agreement, high: agreement },
            difference: None,
            accuracy: None,
            cosine: None,
            neighbours: None,
        },
        is_no_better: false,
        sureness: None,
        model: Stored::default(),
    }
}

/// The setting of a small classifier, without labels.
pub(crate) fn setting() -> Setting {
    Setting {
        deployed_us: 30.0,
        rows: 164,
        distinct_rows: 164,
        calibration_rows: 64,
        fitted_rows: 0,
        judged_rows: 100,
        meanings: Meanings::all(Meaning::Logits),
        answers: 3,
        constant: Share { value: 0.4, low: 0.3, high: 0.5 },
        work: vec![Work { operator: "Conv in groups".into(), share: 0.83 }],
        accuracy: None,
        sureness: None,
        interruption: None,
        doubt: None,
    }
}
