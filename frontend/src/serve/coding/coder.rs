//! One code with its models: what a group of k is encoded and decoded with.

use std::sync::Arc;

use parm_encoder::{Code, Needs};
use parm_parity_models::bundle::{Calibration, Meaning, Signature, fits};
use parm_protocol::ModelRef;

use crate::dispatch;
use crate::serve::pool::Description;

/// A code, ready for use.
#[derive(Debug)]
pub(crate) struct Coder {
    pub(crate) code: Arc<dyn Code>,
    /// The parity models in order; none where the deployed model runs the parity queries.
    pub(crate) models: Vec<ModelRef>,
    /// SHA-256 of their files, in the same order.
    pub(super) digests: Vec<String>,
    pub(super) calibration: Calibration,
    /// What the outputs mean, by name; empty where no bundle says it, and then nothing is said of confidence.
    pub(super) meanings: Vec<(String, Meaning)>,
    /// The deployed model's tensors as the bundle has them.
    pub(super) deployed: Option<Signature>,
}

impl Coder {
    /// A code whose parity queries the deployed model runs.
    pub(super) fn plain(code: Arc<dyn Code>) -> Self {
        Self {
            code,
            models: Vec::new(),
            digests: Vec::new(),
            calibration: Calibration::default(),
            meanings: Vec::new(),
            deployed: None,
        }
    }

    /// What the dispatcher is to know of its decoder; `None` for a code that cannot be served.
    pub(crate) fn needs(&self) -> Option<dispatch::Needs> {
        match self.code.recovery().needs {
            Needs::AsManyAsMissing => Some(dispatch::Needs::AnyK),
            Needs::OneParity => Some(dispatch::Needs::OneParity),
            Needs::OwnCopy | Needs::AnyOutputs(_) => None,
        }
    }

    /// Values agree that are closer than this share of what they are. Where the deployed model runs the parity queries it
    /// is linear, and what is decoded is exact but for rounding.
    pub(super) fn tolerance(&self) -> f32 {
        if self.models.is_empty() { 1e-3 } else { 0.1 }
    }

    /// What is wrong with the parity model at this place as an instance serves it. One that was trained again under the
    /// same number looks the same, and answers otherwise: its file is told by its digest, where the server says it.
    pub(super) fn misfit(&self, place: usize, served: &Description) -> Option<String> {
        let (model, digest) = (self.models.get(place)?, self.digests.get(place)?);
        let actual = served.config.as_ref().and_then(|config| config.digest());
        if let Some(actual) = actual.filter(|actual| !actual.eq_ignore_ascii_case(digest)) {
            return Some(format!(
                "its parity model '{}' has sha256 {actual}, the bundle says {digest}: put the same files everywhere",
                model.name
            ));
        }
        let deployed = self.deployed.as_ref()?;
        let problems = fits(&*self.code, deployed, &Signature::from(&served.metadata), &model.name);
        problems.first().map(ToString::to_string)
    }
}
