//! Stand-in of a pool: requirements on the model, and the quality of its answers.

use std::sync::Arc;
use std::time::Duration;

use parm_dispatch::{Cost, Judgement, Output, Pair, QueryId};
use parm_parity_models::bundle::{Calibration, Meaning, misfit};
use parm_protocol::{ModelConfig, ModelMetadata, ModelRef, Tensor};
use smallvec::SmallVec;

use super::equality;
use crate::serve::inputs::Inputs;
use crate::serve::outputs::Outputs;
use crate::serve::pool::{Description, Pool, takes_batches};

/// Relative tolerance for equal values.
const TOLERANCE: f32 = 0.1;

/// A pool's stand-in.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) model: ModelRef,
    /// SHA-256 of its file, if a bundle chose it.
    pub(super) digest: Option<String>,
    pub(super) calibration: Calibration,
    /// Meanings of outputs, by name; empty without a bundle, and answers then have no confidence.
    pub(super) meanings: Vec<(String, Meaning)>,
}

/// An answer of a stand-in to judge before a client may receive it.
pub(crate) struct Judging {
    pub(crate) query: QueryId,
    pub(crate) output: Output,
    pub(crate) pool: Arc<Pool>,
    pub(crate) stand_in: Arc<StandIn>,
    pub(crate) outputs: Arc<Outputs>,
    /// The query's request, with the requested outputs.
    pub(crate) inputs: Arc<Inputs>,
}

/// Predictions to compare with their stand-ins' answers.
pub(crate) struct Checking {
    pub(crate) twins: SmallVec<[Twin; 2]>,
}

/// A prediction and its stand-in's answer.
pub(crate) struct Twin {
    pub(crate) pair: Pair,
    pub(crate) pool: Arc<Pool>,
    pub(crate) stand_in: Arc<StandIn>,
    pub(crate) prediction: Arc<Outputs>,
    pub(crate) answer: Arc<Outputs>,
}

impl StandIn {
    /// A model of which only the name is known.
    pub(super) fn named(model: ModelRef) -> Self {
        Self { model, digest: None, calibration: Calibration::default(), meanings: Vec::new() }
    }

    /// Why a served model cannot stand in for the pool's.
    pub(crate) fn misfit(pool: &Pool, served: &Description) -> Option<String> {
        misfit_of(&pool.metadata, pool.batched, served)
    }

    /// Why an instance's model is not the expected one. A model that was remade under the same version number looks the
    /// same, but its agreement differs from the bundle's.
    pub(crate) fn problem(&self, pool: &Pool, served: &Description) -> Option<String> {
        let actual = served.config.as_ref().and_then(|config| config.digest());
        match (actual, &self.digest) {
            (Some(actual), Some(digest)) if !actual.eq_ignore_ascii_case(digest) => Some(format!(
                "stand-in '{}' has sha256 {actual}, the bundle has {digest}: deploy the same files everywhere",
                self.model.name
            )),
            _ => Self::misfit(pool, served),
        }
    }

    /// Whether its answers have a confidence: the bundle declares an output as classes.
    pub(crate) fn has_confidence(&self) -> bool {
        self.meanings.iter().any(|(_, meaning)| matches!(meaning, Meaning::Logits | Meaning::Probabilities))
    }

    fn meaning(&self, output: &str) -> Option<Meaning> {
        self.meanings.iter().find(|(name, _)| name == output).map(|(_, meaning)| *meaning)
    }
}

fn misfit_of(deployed: &ModelMetadata, batched: bool, served: &Description) -> Option<String> {
    if let Some(problem) = misfit(&deployed.into(), &(&served.metadata).into(), &served.model.name) {
        return Some(problem.to_string());
    }
    let own = takes_batches(&served.metadata, served.config.as_ref());
    (batched && !own).then(|| {
        format!(
            "model '{}' does not support batches, but the model that it stands in for does",
            served.model.name
        )
    })
}

impl Judging {
    /// Approximate number of bytes read.
    pub(super) fn bytes(&self) -> usize {
        bytes_of_a_row(&self.outputs)
    }

    /// Whether the answer is usable, and its confidence: that of the least confident output.
    pub(super) fn judge(&self) -> Judgement {
        let wanted = &self.inputs.outputs;
        let mut least = None::<f32>;
        for declared in &self.pool.metadata.outputs {
            if !wanted.is_empty() && !wanted.iter().any(|output| output.name == declared.name) {
                continue;
            }
            let Some(tensor) = row(&self.outputs, &declared.name, self.output.row, self.pool.batched) else {
                return Judgement::Unfit;
            };
            if !equality::is_float(tensor.datatype()) {
                continue;
            }
            let Some(values) =
                equality::floats(&tensor).filter(|values| values.iter().all(|v| v.is_finite()))
            else {
                return Judgement::Unfit;
            };
            let classes = tensor.shape().last().copied().unwrap_or(1);
            let sure = self
                .stand_in
                .meaning(&declared.name)
                .and_then(|meaning| self.stand_in.calibration.confidence(&values, classes, meaning));
            least = match (least, sure) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        if least.is_some_and(|least| least < self.stand_in.calibration.threshold) {
            return Judgement::Unfit;
        }
        Judgement::Fit(least)
    }
}

impl Checking {
    /// Approximate number of bytes read.
    pub(super) fn bytes(&self) -> usize {
        self.twins.iter().map(|twin| 2 * bytes_of_a_row(&twin.answer)).sum()
    }

    /// Whether each pair is equal.
    pub(super) fn check(&self) -> Vec<(Pair, Option<bool>)> {
        self.twins.iter().map(|twin| (twin.pair, twin.agrees())).collect()
    }

    /// Verdicts without a comparison, if too much work waits.
    pub(super) fn unknown(&self) -> Vec<(Pair, Option<bool>)> {
        self.twins.iter().map(|twin| (twin.pair, None)).collect()
    }
}

impl Twin {
    /// Whether all outputs of both are equal, of those that are comparable.
    fn agrees(&self) -> Option<bool> {
        let mut agrees = None;
        for declared in &self.pool.metadata.outputs {
            let of = |outputs: &Outputs, at| row(outputs, &declared.name, at, self.pool.batched);
            let both =
                of(&self.prediction, self.pair.prediction.row).zip(of(&self.answer, self.pair.stand_in.row));
            let Some((prediction, answer)) = both else { continue };
            match equality::alike(&prediction, &answer, self.stand_in.meaning(&declared.name), TOLERANCE) {
                Some(false) => return Some(false),
                same => agrees = agrees.or(same),
            }
        }
        agrees
    }
}

/// Cost of a pool's stand-in from the times that instances with these models measured. An instance with both models is
/// preferred, because machines differ.
pub(crate) fn cost<'a, I: Iterator<Item = &'a [Description]>>(
    pool: &Pool,
    instances: impl Fn() -> I,
) -> Option<Cost> {
    let codes = pool.codes();
    codes.stand_in.as_ref()?;
    let times = |served: &Description| {
        served.config.as_ref().map(ModelConfig::run_times).filter(|times| !times.is_empty())
    };
    let deployed = |models: &[Description]| times(models.iter().find(|served| pool.is_of(served))?);
    let stand_in = |models: &[Description]| times(codes.stand_in_at(models)?.1);
    let of_one = instances().find_map(|models| deployed(models).zip(stand_in(models)));
    let (deployed, stand_in) =
        of_one.or_else(|| instances().find_map(deployed).zip(instances().find_map(stand_in)))?;
    Some(share(&stand_in, *deployed.first()?))
}

/// Times of 1, 2, 4 and 8 rows relative to a query's. An unmeasured one is twice the time of half the rows.
fn share(times: &[Duration], query: Duration) -> Cost {
    let query = query.as_secs_f64().max(1e-9);
    let mut rows = [0.0; 4];
    for at in 0..rows.len() {
        rows[at] = match times.get(at) {
            Some(time) => time.as_secs_f64() / query,
            None => 2.0 * rows[at - 1],
        };
    }
    Cost { rows }
}

/// One row of one output.
fn row(outputs: &Outputs, name: &str, row: u32, batched: bool) -> Option<Tensor> {
    let output = outputs.tensors.iter().find(|output| output.name == name)?;
    if !batched || output.tensor.rows() == 1 {
        return Some(output.tensor.clone());
    }
    output.tensor.slice_rows(row as usize, 1).ok()
}

fn bytes_of_a_row(outputs: &Outputs) -> usize {
    let all: usize = outputs.tensors.iter().map(|output| output.tensor.data().len()).sum();
    all / outputs.rows.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmeasured_cost_grows_with_rows() {
        let ms = |millis: &[u64]| millis.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
        let query = Duration::from_millis(20);
        assert_eq!(share(&ms(&[5, 8, 12, 20]), query).rows, [0.25, 0.4, 0.6, 1.0]);
        assert_eq!(share(&ms(&[5]), query).rows, [0.25, 0.5, 1.0, 2.0]);
    }
}
