//! Fallbacks of a pool: codes by group size, a backup model, a stand-in and a default answer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parm_encoder::{Code, Nets};
use parm_parity_models::bundle::{Calibration, Deployed, Meaning, ModelFile, Parity, Signature, fits};
use parm_protocol::{DataType, ModelRef, NamedTensor, Tensor};

use super::{Guards, StandIn};
use crate::serve::outputs::Outputs;
use crate::serve::pool::Description;

/// Codes and other fallbacks of a pool.
#[derive(Default)]
pub(crate) struct Codes {
    /// Number of these codes among those of the pool, starting at 1.
    pub(crate) turn: u64,
    pub(super) coders: BTreeMap<usize, Arc<Coder>>,
    /// Checks of queries; `None` if nothing is mixed.
    pub(crate) guards: Option<Guards>,
    pub(crate) backup: Option<ModelRef>,
    /// The stand-in for late predictions.
    pub(crate) stand_in: Option<Arc<StandIn>>,
    pub(crate) default_answer: Option<Arc<Outputs>>,
}

impl Codes {
    /// The code for groups of `k`.
    pub(crate) fn coder(&self, k: usize) -> Option<&Arc<Coder>> {
        self.coders.get(&k)
    }

    /// Number of codes.
    pub(crate) fn len(&self) -> usize {
        self.coders.len()
    }

    /// Whether an instance with these models can run every parity; `deployed` states whether it has the deployed model.
    pub(crate) fn parity_at(&self, models: &[Description], deployed: bool) -> Result<bool, String> {
        if self.coders.is_empty() {
            return Ok(false);
        }
        for coder in self.coders.values() {
            if coder.files().is_empty() && !deployed {
                return Ok(false);
            }
            for file in coder.files() {
                let wanted = reference(file);
                let Some(served) = models.iter().find(|served| is(&wanted, served)) else { return Ok(false) };
                if let Some(problem) = coder.misfit(file, served) {
                    return Err(problem);
                }
            }
        }
        Ok(true)
    }

    /// Whether an instance with these models can run the backup model.
    pub(crate) fn backup_at(&self, models: &[Description]) -> bool {
        self.backup.as_ref().is_some_and(|wanted| models.iter().any(|served| is(wanted, served)))
    }

    /// The pool's stand-in, if it is among these models.
    pub(crate) fn stand_in_at<'a>(&self, models: &'a [Description]) -> Option<(&StandIn, &'a Description)> {
        let stand_in = self.stand_in.as_deref()?;
        Some((stand_in, models.iter().find(|served| is(&stand_in.model, served))?))
    }
}

/// A server without versions has the expected one.
fn is(wanted: &ModelRef, served: &Description) -> bool {
    wanted.name == served.model.name
        && (wanted.version.is_none()
            || served.model.version.is_none()
            || wanted.version == served.model.version)
}

/// The problem of a model whose server states another file than the bundle has.
pub(super) fn other_file(what: &str, name: &str, sha256: &str, served: &Description) -> Option<String> {
    let actual = served.config.as_ref()?.digest().filter(|actual| !actual.eq_ignore_ascii_case(sha256))?;
    Some(format!(
        "{what} '{name}' has sha256 {actual}, the bundle has {sha256}: deploy the same files everywhere"
    ))
}

pub(super) fn reference(file: &ModelFile) -> ModelRef {
    ModelRef { name: file.name.clone(), version: Some(file.version.to_string()) }
}

/// A code, ready for use.
#[derive(Debug)]
pub(crate) struct Coder {
    pub(crate) code: Arc<dyn Code>,
    /// What the bundle says about the code and the deployed model. Without a bundle the deployed model runs the parity queries, and
    /// answers have no confidence.
    pub(super) trained: Option<(Parity, Deployed)>,
}

impl Coder {
    /// The files of its parity models in order; none if the deployed model runs the parity queries.
    fn files(&self) -> &[ModelFile] {
        self.trained.as_ref().map_or(&[], |(parity, _)| &parity.models)
    }

    /// The parity model at this index.
    pub(crate) fn model(&self, place: usize) -> Option<ModelRef> {
        self.files().get(place).map(reference)
    }

    pub(super) fn calibration(&self) -> Calibration {
        self.trained.as_ref().and_then(|(parity, _)| parity.calibration).unwrap_or_default()
    }

    /// The meaning of an output.
    pub(super) fn meaning(&self, name: &str) -> Meaning {
        let mut outputs = self.trained.iter().flat_map(|(_, deployed)| &deployed.outputs);
        outputs.find(|output| output.name == name).map_or(Meaning::Values, |output| output.meaning)
    }

    /// Why an instance's parity model is not the expected one. A model that was retrained under the same version number looks
    /// the same and answers differently; its digest shows this if the server reports one.
    fn misfit(&self, file: &ModelFile, served: &Description) -> Option<String> {
        if let Some(problem) = other_file("parity model", &file.name, &file.sha256, served) {
            return Some(problem);
        }
        let (_, deployed) = self.trained.as_ref()?;
        let served = Signature::from(&served.metadata);
        fits(&*self.code, &Signature::from(deployed), &served, &file.name).into_iter().next()
    }
}

/// The default answer of a bundle, with one row of each output; `None` unless every output has one.
pub(super) fn default_answer(deployed: &Deployed, batched: bool) -> Option<Arc<Outputs>> {
    let tensor = |output: &parm_parity_models::bundle::Output| {
        let values = output.default_answer.as_ref().filter(|_| output.datatype == DataType::Fp32)?;
        let row = output.shape.iter().skip(usize::from(batched));
        let row: Option<Vec<usize>> = row.map(|&dim| usize::try_from(dim).ok()).collect();
        let shape: Vec<usize> = batched.then_some(1).into_iter().chain(row?).collect();
        Some(NamedTensor::new(output.name.clone(), Tensor::from_f32(shape, values).ok()?))
    };
    let tensors: Vec<NamedTensor> = deployed.outputs.iter().map(tensor).collect::<Option<_>>()?;
    (!tensors.is_empty()).then(|| Arc::new(Outputs::row(tensors)))
}

/// Loads the nets of learned codes.
pub trait LoadNets: Send + Sync + 'static {
    /// Loads the encoder and the decoder from these files.
    fn load(&self, encoder: &Path, decoder: &Path) -> Result<Box<dyn Nets>, String>;
}
