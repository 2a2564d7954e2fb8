//! How good reconstructions are.
//!
//! Three numbers that are easily mistaken for each other are always given together: A_a, the accuracy of predictions
//! that are available; A_d, the accuracy of reconstructions alone; A_o, that of all answers when a fraction of the
//! predictions is unavailable. A code is also held to what costs less thought: the same answer to everybody, and a
//! backup model of 1/k of the cost.
//!
//! [`parity`] works on arrays: whoever ran the models, here or elsewhere, can ask. [`encode`] makes the coded queries
//! that the outputs must come from, over [`Groups`] that a seed decides, so that two evaluations with one seed are
//! the same. [`Bench`] does all of it for models that it can run.

mod baseline;
mod bench;
mod confidence;
mod error;
mod groups;
mod losses;
mod metric;
mod nets;
mod pairs;
mod picture;
mod reconstruct;
mod report;
mod table;
mod truth;

pub use baseline::constant_answer;
pub(crate) use baseline::score;
pub use bench::{Bench, Contender, Order, Rules};
pub use confidence::{Confidence, Kept};
pub use error::Mismatch;
pub use groups::{Groups, encode};
pub use metric::Metric;
pub use nets::{Model, Pair};
pub(crate) use pairs::Pairs;
pub use picture::picture;
pub use report::{Degraded, Overall, Report};
pub use table::Table;
pub use truth::Truth;

use parm_encoder::Code;

use crate::Array;

/// Fractions of unavailable predictions that A_o is given for.
pub const UNAVAILABLE: [f64; 5] = [0.0, 0.01, 0.05, 0.1, 0.2];

/// Outputs of a deployed model and of its parity models, and what they should have been.
#[derive(Clone, Copy, Debug)]
pub struct Evaluation<'a> {
    /// The code that made the coded queries and reads their outputs.
    pub code: &'a dyn Code,
    /// Which rows were coded together.
    pub groups: &'a Groups,
    /// The deployed model's outputs, `[rows, ..]`, raw where the parity models' are.
    pub deployed: &'a Array<f32>,
    /// For each coded query of a group the outputs, `[groups, ..]`, in the order of [`encode`].
    pub parities: &'a [Array<f32>],
    /// What the answers should have been, row by row.
    pub truth: &'a Truth,
    /// How an answer is judged.
    pub metric: Metric,
    /// How sure a reconstruction is; `None` where outputs are no scores of classes.
    pub confidence: Option<Confidence>,
    /// Outputs of a cheaper model on the same rows, to compare with.
    pub backup: Option<&'a Array<f32>>,
}

/// Evaluates a code: every loss of one prediction, then of two, up to r, in every group.
pub fn parity(evaluation: &Evaluation<'_>) -> Result<Report, Mismatch> {
    let Evaluation { code, groups, deployed, truth, metric, .. } = *evaluation;
    truth.check(metric, deployed)?;
    let scores = |outputs: &Array<f32>| baseline::score(metric, outputs, truth);
    let outcomes = reconstruct::outcomes(evaluation)?;
    let systematic = code.recovery().is_systematic();
    let available = if systematic { scores(deployed)? } else { outcomes.undisturbed };
    let mut report = Report {
        code: code.spec().clone(),
        metric,
        rows: deployed.shape().first().copied().unwrap_or(0),
        groups: groups.len(),
        systematic,
        available,
        deployed: scores(deployed)?,
        degraded: outcomes.degraded,
        overall: Vec::new(),
        constant_answer: constant_answer(metric, truth),
        backup: evaluation.backup.map(scores).transpose()?,
        confidence: outcomes.confidence,
        calibration_error: outcomes.calibration_error,
    };
    let overall = |&unavailable: &f64| Overall { unavailable, score: report.overall_at(unavailable) };
    report.overall = UNAVAILABLE.iter().map(overall).collect();
    Ok(report)
}
