//! A stand-in, as described by a bundle: a cheaper model that answers queries whose predictions are late.

use parm_protocol::TensorMetadata;
use serde::{Deserialize, Serialize};

use super::verify::Side;
use super::{Calibration, ModelFile, Problem, Signature};

/// A cheaper model with the deployed model's inputs and outputs, and its measured properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandIn {
    /// The model.
    pub model: ModelFile,
    /// Its origin, such as the command that made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provenance: String,
    /// Share of held-out inputs for which it agrees with the deployed model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// Its accuracy on held-out data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<StandInAccuracy>,
    /// The calibration of its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Its cost, by engine and processor. A worker of another kind measures the cost when it loads the models.
    #[serde(default, rename = "cost", skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<MeasuredCost>,
}

/// Accuracies on held-out data, as fractions of 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandInAccuracy {
    /// The metric, such as `top-1`.
    pub metric: String,
    /// Accuracy of the deployed model's predictions.
    pub deployed: f64,
    /// Accuracy of the stand-in's answers.
    pub stand_in: f64,
}

/// The run time of a stand-in, as a share of that of one query on the deployed model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCost {
    /// The engine, such as `tract`.
    pub engine: String,
    /// The processor. Frontends prefer this cost to the one that a worker of the same processor measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// The cost of 1, 2, 4 and 8 rows.
    pub rows: [f64; 4],
}

impl StandIn {
    /// The lowest measured cost of a single row, on any engine.
    pub fn cost(&self) -> Option<f64> {
        self.costs.iter().map(|cost| cost.rows[0]).min_by(f64::total_cmp)
    }

    /// Checks its numbers.
    pub fn check(&self) -> Vec<Problem> {
        let fraction = |what: &str, value: f64| {
            let what = format!("{what} of stand-in '{}'", self.model.name);
            (!(0.0..=1.0).contains(&value)).then_some(Problem::Fraction { what, value })
        };
        let mut problems: Vec<Problem> =
            self.agreement.iter().filter_map(|value| fraction("the agreement", *value)).collect();
        if let Some(accuracy) = &self.accuracy {
            problems.extend(fraction("the accuracy", accuracy.stand_in));
            problems.extend(fraction("the deployed model's accuracy next to it", accuracy.deployed));
        }
        problems.extend(self.calibration.and_then(|calibration| calibration.check()));
        let bad = |cost: &&MeasuredCost| !cost.rows.iter().all(|share| share.is_finite() && *share > 0.0);
        problems.extend(
            self.costs
                .iter()
                .filter(bad)
                .map(|cost| Problem::Cost { model: self.model.name.clone(), engine: cost.engine.clone() }),
        );
        problems
    }
}

/// The side on which two files have the same tensors in a different order. Servers match tensors by name; programs that
/// compare files match them by position.
pub fn misplaced(deployed: &Signature, stand_in: &Signature) -> Option<&'static str> {
    let names =
        |tensors: &[TensorMetadata]| tensors.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
    match () {
        () if names(&deployed.inputs) != names(&stand_in.inputs) => Some("inputs"),
        () if names(&deployed.outputs) != names(&stand_in.outputs) => Some("outputs"),
        () => None,
    }
}

/// The first difference between the tensors of a stand-in and of the deployed model, if any. Works on the metadata of
/// workers as well as on files.
pub fn misfit(deployed: &Signature, stand_in: &Signature, name: &str) -> Option<Problem> {
    let sides =
        [("input", &deployed.inputs, &stand_in.inputs), ("output", &deployed.outputs, &stand_in.outputs)];
    for (side, wanted, actual) in sides {
        let held = Side { model: name, side, tensors: actual };
        if let Some(problem) = wanted.iter().find_map(|tensor| held.hold(tensor, super::signature::agree)) {
            return Some(problem);
        }
        if let Some(extra) = actual.iter().find(|tensor| !wanted.iter().any(|own| own.name == tensor.name)) {
            return Some(Problem::Extra { model: name.into(), side, tensor: extra.name.clone() });
        }
    }
    None
}
