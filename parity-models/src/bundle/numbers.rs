//! Checks the numbers of a manifest that no type rules out.

use super::signature::row_size;
use super::{Manifest, Parity, Problem};

impl Manifest {
    /// Checks the deployed model's numbers, without opening any file.
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for input in &self.deployed.inputs {
            if let Some(range) = input.range
                && !(range.low.is_finite() && range.high.is_finite() && range.low < range.high)
            {
                let (input, low, high) = (input.name.clone(), range.low, range.high);
                problems.push(Problem::Range { input, low, high });
            }
        }
        let inputs = self.deployed.inputs.iter().map(|input| (&input.name, &input.shape));
        let outputs = self.deployed.outputs.iter().map(|output| (&output.name, &output.shape));
        let odd = inputs.chain(outputs).filter(|(_, shape)| shape.iter().any(|size| *size < -1));
        let odd = odd.map(|(tensor, shape)| Problem::Shape { tensor: tensor.clone(), shape: shape.clone() });
        problems.extend(odd);
        for output in &self.deployed.outputs {
            if let (Some(answer), Some(wanted)) = (&output.default_answer, row_size(&output.shape))
                && answer.len() != wanted
            {
                let (output, actual) = (output.name.clone(), answer.len());
                problems.push(Problem::DefaultAnswer { output, wanted, actual });
            }
        }
        problems
    }
}

impl Parity {
    /// Checks its numbers, without opening any file.
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let (wanted, named) = (self.models_wanted(), self.models.len());
        if wanted != named {
            let code = self.code.kind.to_string();
            problems.push(Problem::Models { code, wanted, named });
        }
        if self.code.kind.runs_nets() != self.learned.is_some() {
            problems.push(Problem::Learned);
        }
        problems.extend(self.calibration.and_then(|calibration| calibration.check()));
        let fractions = self.accuracy.iter().flat_map(|accuracy| {
            let overall = accuracy.overall.iter();
            let overall = overall.flat_map(|at| [("unavailable", at.unavailable), ("overall", at.overall)]);
            let measured = [("available", accuracy.available), ("degraded", accuracy.degraded)];
            measured.into_iter().chain(overall)
        });
        let outside = fractions.filter(|(_, value)| !(0.0..=1.0).contains(value));
        problems.extend(outside.map(|(what, value)| Problem::Fraction { what: what.into(), value }));
        problems
    }
}
