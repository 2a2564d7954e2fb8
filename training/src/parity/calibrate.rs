//! How sure a reconstruction is, and how sure it should be.
//!
//! Networks are surer than they are right. One number, by which scores are divided before the softmax, mends most of
//! that: the one under which the held-out truth is least surprising. The threshold is the least confidence from which
//! on reconstructions are about as right as predictions are; at most half of them are ever held back.

use parm_parity_models::bundle::{Calibration, Meaning};

use crate::Error;
use crate::distil::{Coder, Exam, largest};
use crate::loss::{Scores, Softening, soften};
use crate::network::Network;

/// How far below predictions the accuracy of what is not held back may be.
const SLACK: f64 = 0.005;
/// Halvings of the interval in which the temperature is sought.
const HALVINGS: usize = 40;

/// One reconstruction: its scores and the right class.
struct Case {
    scores: Vec<f32>,
    truth: usize,
}

/// Calibrates on held-out groups. `scores`: what a reconstruction holds.
pub(crate) fn calibrate(
    exam: &Exam,
    coder: &Coder,
    networks: &[Network],
    scores: Scores,
    meaning: Meaning,
) -> Result<Calibration, Error> {
    let set = exam.set();
    let said: Vec<usize> = set.outputs.data().chunks_exact(set.values()).map(largest).collect();
    let truth = set.labels.as_ref().unwrap_or(&said);
    let available = said.iter().zip(truth).filter(|(said, truth)| said == truth).count() as f64;
    let mut cases = Vec::new();
    exam.reconstruct(coder, networks, |answer| {
        cases.push(Case { scores: answer.reconstruction.to_vec(), truth: truth[answer.row] });
    })?;
    // Where the deployed model gives probabilities, so do its reconstructions, and their largest is taken as it is.
    let temperature = match meaning {
        Meaning::Probabilities => 1.0,
        _ => coolest(&cases),
    };
    let sure = |case: &Case| {
        let mut shares = case.scores.clone();
        if scores == Scores::Logits {
            let values = shares.len();
            soften(&mut shares, values, Softening { scores: Scores::Logits, temperature });
        }
        let best = largest(&shares);
        (shares[best], best == case.truth)
    };
    let threshold = threshold(cases.iter().map(sure).collect(), available / truth.len() as f64);
    Ok(Calibration { temperature, threshold: threshold.clamp(0.0, 1.0) })
}

/// The temperature of least surprise, by golden section over its logarithm.
fn coolest(cases: &[Case]) -> f32 {
    let surprise = |log: f64| -> f64 {
        let inverse = (-log).exp();
        let of = |case: &Case| {
            let largest = case.scores.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            let exp = |&score: &f32| (f64::from(score - largest) * inverse).exp();
            let sum: f64 = case.scores.iter().map(exp).sum();
            sum.ln() - f64::from(case.scores[case.truth] - largest) * inverse
        };
        cases.iter().map(of).sum()
    };
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (0.05f64.ln(), 20f64.ln());
    for _ in 0..HALVINGS {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if surprise(left) < surprise(right) { high = right } else { low = left }
    }
    ((low + high) / 2.0).exp() as f32
}

/// The least confidence from which on reconstructions are right as often as `available`, less some slack. Each is
/// given as its confidence and whether it is right.
fn threshold(mut sure: Vec<(f32, bool)>, available: f64) -> f32 {
    sure.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut right, mut kept) = (0, None);
    for (at, (confidence, is_right)) in sure.iter().enumerate() {
        right += usize::from(*is_right);
        // Equal confidences are kept or held back together.
        let is_last = sure.get(at + 1).is_none_or(|next| next.0 < *confidence);
        if is_last && right as f64 >= (available - SLACK) * (at + 1) as f64 {
            kept = Some((at + 1, *confidence));
        }
    }
    match kept {
        Some((count, _)) if count == sure.len() => 0.0,
        Some((count, confidence)) if count * 2 >= sure.len() => confidence,
        _ => sure.get(sure.len() / 2).map_or(0.0, |case| case.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores that claim far more than the 70 % that are right.
    fn boastful() -> Vec<Case> {
        let case = |at: usize| Case { scores: vec![9.0, 0.0], truth: usize::from(at % 10 >= 7) };
        (0..1000).map(case).collect()
    }

    #[test]
    fn a_boastful_network_is_cooled_to_what_it_gets_right() {
        let cases = boastful();
        let temperature = coolest(&cases);
        let mut shares = cases[0].scores.clone();
        soften(&mut shares, 2, Softening { scores: Scores::Logits, temperature });
        assert!((shares[0] - 0.7).abs() < 0.01, "{shares:?}");
    }

    #[test]
    fn nothing_is_held_back_where_all_is_as_right_as_predictions() {
        let sure = (0..1000).map(|at| (0.9, at % 10 < 7)).collect();
        assert_eq!(threshold(sure, 0.70), 0.0);
    }

    #[test]
    fn what_is_unsure_and_wrong_is_held_back() {
        let sure = (0..400).map(|at| if at % 4 == 0 { (0.62, false) } else { (0.99, true) });
        assert_eq!(threshold(sure.collect(), 1.0), 0.99);
    }
}
