//! Stand-in of a pool: requirements on the model, and the quality of its answers.

use std::borrow::Cow;
use std::time::Duration;

use parm_parity_models::bundle::{
    Calibration, ClassScores, Meaning, MeasuredCost, TOLERANCE, floats, misfit,
};
use parm_protocol::{ModelConfig, ModelMetadata, ModelRef, RequestedOutput, Tensor};
use parm_settings::{Cost, Fraction};
use smallvec::SmallVec;

use super::equality;
use crate::serve::call::Output;
use crate::serve::outputs::Outputs;
use crate::serve::pool::{Description, Pool, takes_batches};

/// A pool's stand-in.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) model: ModelRef,
    /// SHA-256 of its file, if a bundle chose it.
    pub(super) digest: Option<String>,
    /// Maps scores to the probability of being right or of agreeing; `None` if none was fitted, and answers then have no
    /// confidence.
    pub(super) calibration: Option<Calibration>,
    /// Meanings of outputs, by name; empty without a bundle, and answers then have no confidence.
    pub(super) meanings: Vec<(String, Meaning)>,
    /// The confidence that the settings require of its answers.
    pub(super) min_confidence: Fraction,
    /// Its costs in the bundle.
    pub(super) costs: Vec<MeasuredCost>,
}

/// The costs of a stand-in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    /// The cost in the bundle, if it was measured with an instance's engine, file and processor.
    pub(crate) bundled: Option<Cost>,
    /// The cost that instances measured.
    pub(crate) measured: Option<Cost>,
}

impl Costs {
    /// The cost to use. A search measures both models in turns, whereas a worker that starts measures one after the other
    /// for a second.
    pub(crate) fn used(&self) -> Option<Cost> {
        self.bundled.or(self.measured)
    }
}

impl StandIn {
    /// A model of which only the name is known.
    pub(super) fn named(model: ModelRef) -> Self {
        Self {
            model,
            digest: None,
            calibration: None,
            meanings: Vec::new(),
            min_confidence: Fraction::default(),
            costs: Vec::new(),
        }
    }

    /// SHA-256 of its file, if a bundle chose it.
    pub(crate) fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
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

    /// The bundle's cost for an instance with the same engine, file and processor.
    fn bundled(&self, served: &Description) -> Option<Cost> {
        let config = served.config.as_ref()?;
        let engine = match &*served.metadata.platform {
            "onnx_onnxruntime" => "ort",
            "onnx_tract" => "tract",
            _ => return None,
        };
        let is_same = self.digest.as_deref().is_some_and(|own| config.digest() == Some(own));
        let fits = |cost: &&MeasuredCost| {
            is_same
                && cost.engine == engine
                && cost.processor.as_deref() == config.processor()
                && cost.processor.is_some()
        };
        self.costs.iter().find(fits).map(|cost| Cost { rows: rising(cost.rows) })
    }

    /// Whether its answers have a confidence: the bundle has its calibration, and declares an output as classes.
    pub(crate) fn has_confidence(&self) -> bool {
        self.calibration.is_some() && self.meanings.iter().any(|(_, meaning)| meaning.has_classes())
    }

    /// Whether a client may get an answer: `None` if not, otherwise its confidence, that of the least confident position in
    /// any output.
    pub(crate) fn judge(
        &self,
        pool: &Pool,
        outputs: &Outputs,
        at: usize,
        wanted: &[RequestedOutput],
    ) -> Option<Option<f32>> {
        let mut read: SmallVec<[(Tensor, Option<Meaning>); 4]> = SmallVec::new();
        for declared in &pool.metadata.outputs {
            if !wanted.is_empty() && !wanted.iter().any(|output| output.name == declared.name) {
                continue;
            }
            let tensor = row(outputs, &declared.name, at, pool.batched)?;
            if equality::is_float(tensor.datatype()) {
                read.push((tensor, self.meaning(&declared.name)));
            }
        }
        let is_finite = |values: &Cow<'_, [f32]>| values.iter().all(|value| value.is_finite());
        let values = read.iter().map(|(tensor, _)| floats(tensor).filter(is_finite));
        let values = values.collect::<Option<SmallVec<[_; 4]>>>()?;
        let scores = read.iter().zip(&values).filter_map(|((tensor, meaning), values)| {
            ClassScores::new(values, tensor.shape().last().copied().unwrap_or(1), (*meaning)?)
        });
        let sure = self.calibration.and_then(|fitted| fitted.confidence(scores));
        let is_held = |sure: f32| self.calibration.is_some_and(|fitted| sure < fitted.threshold);
        // Without a confidence it is given only if none is required.
        let is_unsure = f64::from(sure.unwrap_or(0.0)) < self.min_confidence.get();
        (!is_unsure && !sure.is_some_and(is_held)).then_some(sure)
    }

    /// Whether all outputs of a prediction and of an answer are equal, of those that are comparable.
    pub(in crate::serve) fn agrees(&self, pool: &Pool, prediction: &Output, answer: &Output) -> Option<bool> {
        let mut agrees = None;
        for declared in &pool.metadata.outputs {
            let of = |output: &Output| row(&output.outputs, &declared.name, output.row, pool.batched);
            let Some((prediction, answer)) = of(prediction).zip(of(answer)) else { continue };
            match equality::alike(&prediction, &answer, self.meaning(&declared.name), TOLERANCE) {
                Some(false) => return Some(false),
                same => agrees = agrees.or(same),
            }
        }
        agrees
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

/// Costs of a pool's stand-in from its bundle and from the times that instances with these models measured. An instance
/// with both models is preferred, because machines differ.
pub(crate) fn costs<'a, I: Iterator<Item = &'a [Description]>>(
    pool: &Pool,
    instances: impl Fn() -> I,
) -> Costs {
    let codes = pool.codes();
    let Some(own) = codes.stand_in.as_ref() else { return Costs { bundled: None, measured: None } };
    let bundled = instances().find_map(|models| own.bundled(codes.stand_in_at(models)?.1));
    let times = |served: &Description| {
        served.config.as_ref().map(ModelConfig::run_times).filter(|times| !times.is_empty())
    };
    let deployed = |models: &[Description]| times(models.iter().find(|served| pool.is_of(served))?);
    let stand_in = |models: &[Description]| times(codes.stand_in_at(models)?.1);
    let of_one = instances().find_map(|models| deployed(models).zip(stand_in(models)));
    let both = of_one.or_else(|| instances().find_map(deployed).zip(instances().find_map(stand_in)));
    let measured = both.and_then(|(deployed, stand_in)| Some(share(&stand_in, *deployed.first()?)));
    Costs { bundled, measured }
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
    Cost { rows: rising(rows) }
}

/// More rows never cost less: a measured fall is noise.
fn rising(mut rows: [f64; 4]) -> [f64; 4] {
    for at in 1..rows.len() {
        rows[at] = rows[at].max(rows[at - 1]);
    }
    rows
}

/// One row of one output.
fn row(outputs: &Outputs, name: &str, row: usize, batched: bool) -> Option<Tensor> {
    let output = outputs.tensors.iter().find(|output| output.name == name)?;
    if !batched || output.tensor.rows() == 1 {
        return Some(output.tensor.clone());
    }
    outputs.row_of(output, row).ok()
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
        assert_eq!(share(&ms(&[5, 8, 6, 20]), query).rows, [0.25, 0.4, 0.4, 1.0], "noise");
    }

    #[test]
    fn bundled_cost_is_used_where_engine_file_and_processor_fit() {
        let cost = |engine: &str, processor: Option<&str>| MeasuredCost {
            engine: engine.into(),
            processor: processor.map(Into::into),
            rows: [0.2, 0.4, 0.3, 0.9],
        };
        let served = |platform: &str, digest: &str, processor: Option<&str>| {
            let mut config = ModelConfig::default().with_digest(digest);
            processor.into_iter().for_each(|processor| config.set_processor(processor));
            let metadata = ModelMetadata { platform: platform.into(), ..ModelMetadata::default() };
            Description { model: ModelRef::latest("m"), metadata, config: Some(config) }
        };
        let costs = vec![cost("tract", Some("X7")), cost("ort", None)];
        let own = StandIn { digest: Some("ab".into()), costs, ..StandIn::named(ModelRef::latest("m")) };
        let found = own.bundled(&served("onnx_tract", "ab", Some("X7"))).unwrap();
        assert_eq!(found.rows, [0.2, 0.4, 0.4, 0.9]);
        for other in [
            served("onnx_onnxruntime", "ab", Some("X7")),
            served("onnx_tract", "cd", Some("X7")),
            served("onnx_tract", "ab", Some("X8")),
            served("onnx_tract", "ab", None),
            served("onnx_onnxruntime", "ab", None),
        ] {
            assert!(own.bundled(&other).is_none(), "{other:?}");
        }
    }
}
