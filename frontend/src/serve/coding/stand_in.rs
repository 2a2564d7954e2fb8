//! A cheaper model that stands in for late predictions: what must hold of it, and what its answers are worth.

use std::sync::Arc;
use std::time::Duration;

use parm_dispatch::{Cost, Judgement, Output, Pair, QueryId};
use parm_parity_models::bundle::{Calibration, Meaning, misfit};
use parm_protocol::{ModelConfig, ModelMetadata, ModelRef, Tensor};
use smallvec::SmallVec;

use super::alike;
use crate::serve::inputs::Inputs;
use crate::serve::outputs::Outputs;
use crate::serve::pool::{Description, Pool, takes_batches};

/// Numbers agree that are closer than this share of what they are.
const TOLERANCE: f32 = 0.1;

/// A pool's stand-in.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) model: ModelRef,
    /// SHA-256 of its file, where a bundle chose it.
    pub(super) digest: Option<String>,
    pub(super) calibration: Calibration,
    /// What the outputs mean, by name; empty where no bundle says it, and then nothing is said of confidence.
    pub(super) meanings: Vec<(String, Meaning)>,
}

/// An answer of a stand-in that a client may be given.
pub(crate) struct Judging {
    pub(crate) query: QueryId,
    pub(crate) output: Output,
    pub(crate) pool: Arc<Pool>,
    pub(crate) stand_in: Arc<StandIn>,
    pub(crate) outputs: Arc<Outputs>,
    /// The query's request, which says what it wants.
    pub(crate) inputs: Arc<Inputs>,
}

/// Predictions to be compared with their stand-ins' answers.
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
    /// A model of which nothing is known but its name.
    pub(super) fn named(model: ModelRef) -> Self {
        Self { model, digest: None, calibration: Calibration::default(), meanings: Vec::new() }
    }

    /// What keeps a model, as it is served, from standing in for the pool's.
    pub(crate) fn misfit(pool: &Pool, served: &Description) -> Option<String> {
        misfit_of(&pool.metadata, pool.batched, served)
    }

    /// What is wrong with it as an instance serves it: one that was made again under the same number looks the same, and
    /// agrees less or more often than the bundle says.
    pub(crate) fn problem(&self, pool: &Pool, served: &Description) -> Option<String> {
        let actual = served.config.as_ref().and_then(|config| config.digest());
        match (actual, &self.digest) {
            (Some(actual), Some(digest)) if !actual.eq_ignore_ascii_case(digest) => Some(format!(
                "its stand-in '{}' has sha256 {actual}, the bundle says {digest}: put the same files everywhere",
                self.model.name
            )),
            _ => Self::misfit(pool, served),
        }
    }

    /// Whether its answers have a confidence: a bundle says of an output that it is of classes.
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
        format!("model '{}' takes no batches, the model that it should stand in for does", served.model.name)
    })
}

impl Judging {
    /// Bytes that are read, about.
    pub(super) fn bytes(&self) -> usize {
        bytes_of_a_row(&self.outputs)
    }

    /// Whether the answer may be given, and how sure it is: the least sure output speaks for all.
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
            if !alike::is_float(tensor.datatype()) {
                continue;
            }
            let Some(values) = alike::floats(&tensor).filter(|values| values.iter().all(|v| v.is_finite()))
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
    /// Bytes that are read, about.
    pub(super) fn bytes(&self) -> usize {
        self.twins.iter().map(|twin| 2 * bytes_of_a_row(&twin.answer)).sum()
    }

    /// Whether each pair says the same.
    pub(super) fn check(&self) -> Vec<(Pair, Option<bool>)> {
        self.twins.iter().map(|twin| (twin.pair, twin.agrees())).collect()
    }

    /// What is said where nobody has time to look.
    pub(super) fn unknown(&self) -> Vec<(Pair, Option<bool>)> {
        self.twins.iter().map(|twin| (twin.pair, None)).collect()
    }
}

impl Twin {
    /// Whether every output that both have says the same, of those that can be compared.
    fn agrees(&self) -> Option<bool> {
        let mut agrees = None;
        for declared in &self.pool.metadata.outputs {
            let of = |outputs: &Outputs, at| row(outputs, &declared.name, at, self.pool.batched);
            let both =
                of(&self.prediction, self.pair.prediction.row).zip(of(&self.answer, self.pair.stand_in.row));
            let Some((prediction, answer)) = both else { continue };
            match alike::alike(&prediction, &answer, self.stand_in.meaning(&declared.name), TOLERANCE) {
                Some(false) => return Some(false),
                same => agrees = agrees.or(same),
            }
        }
        agrees
    }
}

/// What a pool's stand-in costs, as instances with these models measured both: of one instance if it has both, for machines
/// differ.
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

/// Runs of 1, 2, 4 and 8 rows as shares of a query's; those that were not measured take twice as long as half of them.
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
    fn costs_that_were_not_measured_grow_with_the_rows() {
        let ms = |millis: &[u64]| millis.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
        let query = Duration::from_millis(20);
        assert_eq!(share(&ms(&[5, 8, 12, 20]), query).rows, [0.25, 0.4, 0.6, 1.0]);
        assert_eq!(share(&ms(&[5]), query).rows, [0.25, 0.5, 1.0, 2.0]);
    }
}
