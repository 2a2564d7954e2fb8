//! Calibrates the confidence of reconstructions on held-out groups.

use parm_parity_models::bundle::{Calibration, Case, Meaning};

use crate::Error;
use crate::distil::{Coder, Exam, largest};
use crate::loss::Scores;
use crate::network::Network;

/// Calibrates on held-out groups. `scores` is the form of a reconstruction. Servers withhold reconstructions that are not
/// finite, so they do not count.
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
        if answer.reconstruction.iter().all(|value| value.is_finite()) {
            answers.push((answer.reconstruction.to_vec(), truth[answer.row]));
        }
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

#[cfg(test)]
mod tests {
    use parm_encoder::{CodeSpec, Kind};
    use parm_parity_models::bundle::ClassScores;
    use parm_parity_models::onnx::{Builder, Value};

    use super::*;
    use crate::distil::Set;
    use crate::{Array, Device};

    /// The calibration of a network that answers logarithms, for rows of which four in five have the class that is said.
    fn fitted(rows: &[[f32; 2]]) -> Calibration {
        let mut builder = Builder::new("logarithms", 1);
        let x = builder.input(Value::batch_of_f32("x", &[2]));
        builder.node("Log", "y", &[&x]);
        builder.output(Value::batch_of_f32("y", &[2]));
        let network = Network::new(builder.build().unwrap(), Device::Cpu).unwrap();
        let said = (0..rows.len()).flat_map(|row| if row % 5 < 4 { [1.0, 0.0] } else { [0.0, 1.0] });
        let array = |values: Vec<f32>| Array::new(vec![rows.len(), 2], values).unwrap();
        let set = Set { inputs: array(rows.concat()), outputs: array(said.collect()), labels: None };
        let mut coder = Coder::new(&CodeSpec::new(Kind::Sum, 1, 1), set.dims()).unwrap();
        let exam = Exam::new(set, &mut coder, 3).unwrap();
        calibrate(&exam, &coder, &[network], Scores::Logits).unwrap()
    }

    #[test]
    fn reconstructions_that_servers_withhold_are_not_fitted() {
        let finite = vec![[5.0, 1.0]; 400];
        // Logarithms of negative numbers are not numbers.
        let withheld = [finite.as_slice(), &[[-5.0, 1.0]; 200]].concat();
        let scores = [5f32.ln(), 0.0];
        let confidence = |rows: &[[f32; 2]]| {
            fitted(rows).confidence(ClassScores::new(&scores, 2, Meaning::Logits)).unwrap()
        };
        let (alone, both) = (confidence(&finite), confidence(&withheld));
        assert!((alone - 0.8).abs() < 0.02 && (alone - both).abs() < 1e-3, "{alone} and {both}");
    }
}
