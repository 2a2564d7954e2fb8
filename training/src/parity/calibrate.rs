//! Calibrates the confidence of reconstructions on held-out groups.

use parm_parity_models::bundle::{Calibration, Case, Meaning};

use crate::Error;
use crate::distil::{Coder, Exam, largest};
use crate::loss::Scores;
use crate::network::Network;

/// Calibrates on held-out groups. `scores` is the form of a reconstruction.
pub(crate) fn calibrate(
    exam: &Exam,
    coder: &Coder,
    networks: &[Network],
    scores: Scores,
) -> Result<Calibration, Error> {
    let set = exam.set();
    let said: Vec<usize> = set.outputs.data().chunks_exact(set.values()).map(largest).collect();
    let truth = set.labels.as_ref().unwrap_or(&said);
    let available = said.iter().zip(truth).filter(|(said, truth)| said == truth).count() as f64;
    let mut answers: Vec<(Vec<f32>, usize)> = Vec::new();
    exam.reconstruct(coder, networks, |answer| {
        answers.push((answer.reconstruction.to_vec(), truth[answer.row]));
    })?;
    // A softmax behind the network's scores changes nothing: its logarithms are the scores, up to a constant.
    let meaning = match scores {
        Scores::Logits => Meaning::Logits,
        Scores::Probabilities => Meaning::Probabilities,
    };
    let cases: Vec<Case<'_>> =
        answers.iter().map(|(scores, truth)| Case::single(scores, meaning, *truth)).collect();
    Ok(Calibration::fit(&cases, available / truth.len() as f64))
}
