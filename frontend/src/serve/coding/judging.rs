//! Stand-in of a pool: requirements on the model, and the quality of its answers.

use std::borrow::Cow;

use parm_parity_models::bundle::{Calibration, ClassScores, Meaning, TOLERANCE, floats, misfit};
use parm_protocol::{DataType, ModelMetadata, ModelRef, RequestedOutput, Tensor};
use parm_settings::Fraction;
use smallvec::SmallVec;

use super::codes;
use crate::serve::call::Output;
use crate::serve::outputs::{Outputs, is_wanted};
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
}

impl StandIn {
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
        let other = |digest: &String| codes::other_file("stand-in", &self.model.name, digest, served);
        self.digest.as_ref().and_then(other).or_else(|| Self::misfit(pool, served))
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
            if !is_wanted(wanted, &declared.name) {
                continue;
            }
            let tensor = outputs.row_named(&declared.name, at, pool.batched)?;
            if is_float(tensor.datatype()) {
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
            let of = |output: &Output| output.outputs.row_named(&declared.name, output.row, pool.batched);
            let Some((prediction, answer)) = of(prediction).zip(of(answer)) else { continue };
            match alike(&prediction, &answer, self.meaning(&declared.name), TOLERANCE) {
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
        return Some(problem);
    }
    let own = takes_batches(&served.metadata, served.config.as_ref());
    (batched && !own).then(|| {
        format!(
            "model '{}' does not support batches, but the model that it stands in for does",
            served.model.name
        )
    })
}

/// Whether two answers of one output are equal, as a client would judge it; `None` if they cannot be compared, for example with
/// different lengths.
///
/// The meaning of the values decides, as in the search for stand-ins. Integers, booleans and strings must be identical. For
/// floats without a stated meaning either comparison may succeed: a smaller
/// model has other scores for the same class, and close coordinates need not have the same largest one. This is
/// lenient, because a strict comparison would withhold good answers.
fn alike(a: &Tensor, b: &Tensor, meaning: Option<Meaning>, tolerance: f32) -> Option<bool> {
    if a.datatype() != b.datatype() || a.shape() != b.shape() {
        return None;
    }
    if !is_float(a.datatype()) {
        return Some(a.data() == b.data());
    }
    let columns = a.shape().last().copied().unwrap_or(1).max(1);
    let (a, b) = (floats(a)?, floats(b)?);
    let agree = |meaning: Meaning| meaning.agree(&a, &b, columns, tolerance);
    Some(match meaning {
        Some(meaning) => agree(meaning),
        None => agree(Meaning::Values) || agree(Meaning::Logits),
    })
}

/// Whether the type has values that are not numbers (NaN).
fn is_float(datatype: DataType) -> bool {
    matches!(datatype, DataType::Fp16 | DataType::Fp32 | DataType::Fp64 | DataType::Bf16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Tensor {
        Tensor::from_f32([1, values.len()].as_slice(), values).unwrap()
    }

    #[test]
    fn meaning_of_values_decides_equality() {
        let check = |a: &[f32], b: &[f32], meaning, same| {
            assert_eq!(alike(&floats(a), &floats(b), meaning, 0.1), Some(same), "{a:?} {b:?} {meaning:?}");
        };
        let (logits, values) = (Some(Meaning::Logits), Some(Meaning::Values));
        check(&[1.0, 9.0], &[0.1, 0.2], logits, true);
        check(&[1.0, 9.0], &[0.1, 0.2], values, false);
        check(&[1.0, 9.0], &[0.1, 0.2], None, true);
        check(&[9.0, 9.1], &[9.1, 9.0], Some(Meaning::Probabilities), false);
        check(&[9.0, 9.1], &[9.1, 9.0], values, true);
        check(&[9.0, 9.1], &[9.1, 9.0], None, true);
        check(&[9.0, 1.0], &[1.0, 9.0], None, false);
        check(&[3.0], &[7.0], None, false);
        check(&[0.1], &[0.9], Some(Meaning::Probabilities), false);
        check(&[0.6], &[0.9], Some(Meaning::Decision(0.5)), true);
        check(&[1.0, 2.0], &[2.0, 4.2], Some(Meaning::Embedding), true);
        check(&[1.0, 2.0], &[2.0, 1.0], Some(Meaning::Embedding), false);
        check(&[f32::NAN, 1.0], &[1.0, 1.0], values, false);
    }

    #[test]
    fn integers_must_be_equal_and_shapes_must_match() {
        let ints = |value: i64| {
            Tensor::new(DataType::Int64, [1].as_slice(), value.to_le_bytes().to_vec().into()).unwrap()
        };
        assert_eq!(alike(&ints(3), &ints(3), None, 0.1), Some(true));
        assert_eq!(alike(&ints(3), &ints(4), None, 0.9), Some(false));
        assert_eq!(alike(&floats(&[1.0]), &floats(&[1.0, 2.0]), None, 0.1), None);
        assert_eq!(alike(&floats(&[1.0]), &ints(1), None, 0.1), None);
    }
}
