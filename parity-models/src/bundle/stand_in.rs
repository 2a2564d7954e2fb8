//! A stand-in, as a bundle describes it: a cheaper model that answers queries by itself when their predictions are late.

use parm_protocol::TensorMetadata;
use serde::{Deserialize, Serialize};

use super::verify::Side;
use super::{Calibration, ModelFile, Problem, Signature};

/// A cheaper model with the deployed model's inputs and outputs, and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandIn {
    /// The model.
    pub model: ModelFile,
    /// Where it comes from, such as the command that made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provenance: String,
    /// Share of held-out inputs for which it says the same as the deployed model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// Its accuracy on held-out data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<StandInAccuracy>,
    /// How sure its answers are and must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What it costs, by engine. A worker measures that again when it loads the models.
    #[serde(default, rename = "cost", skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<MeasuredCost>,
}

/// Accuracies on held-out data, as fractions of 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandInAccuracy {
    /// What is measured, such as `top-1`.
    pub metric: String,
    /// Of the deployed model's predictions.
    pub deployed: f64,
    /// Of the stand-in's answers.
    pub stand_in: f64,
}

/// The time of a stand-in's runs, as a share of that of one query on the deployed model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCost {
    /// The engine, such as `tract`.
    pub engine: String,
    /// For 1, 2, 4 and 8 rows.
    pub rows: [f64; 4],
}

impl StandIn {
    /// The least that a row alone was measured to cost, on any engine.
    pub fn cost(&self) -> Option<f64> {
        self.costs.iter().map(|cost| cost.rows[0]).min_by(f64::total_cmp)
    }

    /// What is wrong with its numbers.
    pub fn check(&self) -> Vec<Problem> {
        let fraction = |what: &str, value: f64| {
            let what = format!("{what} of stand-in '{}'", self.model.name);
            (!(0.0..=1.0).contains(&value)).then_some(Problem::Fraction { what, value })
        };
        let mut problems: Vec<Problem> =
            self.agreement.iter().filter_map(|value| fraction("the agreement", *value)).collect();
        if let Some(accuracy) = &self.accuracy {
            problems.extend(fraction("the accuracy", accuracy.stand_in));
            problems.extend(fraction("the deployed model's accuracy beside that", accuracy.deployed));
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

/// The side on which files have the same tensors in another order. Servers find tensors by name; whoever runs files side by side takes
/// them by their places.
pub fn misplaced(deployed: &Signature, stand_in: &Signature) -> Option<&'static str> {
    let names =
        |tensors: &[TensorMetadata]| tensors.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
    match () {
        () if names(&deployed.inputs) != names(&stand_in.inputs) => Some("inputs"),
        () if names(&deployed.outputs) != names(&stand_in.outputs) => Some("outputs"),
        () => None,
    }
}

/// What keeps a model from standing in for the deployed one: it must take the same inputs and give the same outputs. Works
/// on what workers say of their models as well as on files.
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
