//! Evaluates codes: how good reconstructions are.
//!
//! Three easily confused numbers are always reported together: A_a, the accuracy of available predictions; A_d, the
//! accuracy of reconstructions alone; A_o, the accuracy of all answers if a fraction of the predictions is
//! unavailable. A code is also compared with simpler alternatives: a constant answer, and a backup model with 1/k of
//! the cost.
//!
//! [`parity`] works on arrays, so the models may run here or elsewhere. [`encode`] makes the coded queries over
//! [`Groups`], which depend only on a seed, so evaluations with one seed are comparable. [`Bench`] does all of it for
//! models that it can run.

mod baseline;
mod bench;
mod confidence;
mod losses;
mod metric;
mod pairs;
pub(crate) mod reconstruct;
mod report;
mod table;
mod truth;

pub use baseline::constant_answer;
pub(crate) use baseline::score;
pub use bench::{Bench, Contender, Model, Order, Rules};
pub use confidence::Confidence;
pub(crate) use losses::single_losses;
pub use metric::Metric;
pub(crate) use pairs::Pairs;
pub use report::{Degraded, Overall, Report};
pub use table::Table;
pub use truth::Truth;

use parm_encoder::Code;

pub use crate::groups::{Groups, encode};
use crate::{Array, Error};

/// Fractions of unavailable predictions for A_o.
pub const UNAVAILABLE: [f64; 5] = [0.0, 0.01, 0.05, 0.1, 0.2];

/// Outputs of a deployed model and of its parity models, with the true answers.
#[derive(Clone, Copy, Debug)]
pub struct Evaluation<'a> {
    /// The code that made the coded queries and decodes their outputs.
    pub code: &'a dyn Code,
    /// The rows that were coded together.
    pub groups: &'a Groups,
    /// The deployed model's outputs, `[rows, ..]`; raw if the parity models' are.
    pub deployed: &'a Array<f32>,
    /// The outputs for each coded query of a group, `[groups, ..]`, in the order of [`encode`].
    pub parities: &'a [Array<f32>],
    /// The true answers, row by row.
    pub truth: &'a Truth,
    /// The score of an answer.
    pub metric: Metric,
    /// The confidence of reconstructions; `None` unless outputs are scores of classes.
    pub confidence: Option<Confidence>,
    /// Outputs of a cheaper model on the same rows, to compare with.
    pub backup: Option<&'a Array<f32>>,
}

/// Evaluates a code: every loss of one prediction, then of two, up to r, in every group.
pub fn parity(evaluation: &Evaluation<'_>) -> Result<Report, Error> {
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
        calibration_error: outcomes.calibration_error,
    };
    let overall = |&unavailable: &f64| Overall { unavailable, score: report.overall_at(unavailable) };
    report.overall = UNAVAILABLE.iter().map(overall).collect();
    Ok(report)
}
