//! One code with its models: what a group of k is encoded and decoded with.

use std::sync::Arc;

use parm_encoder::Code;
use parm_parity_models::bundle::{Calibration, Meaning, Signature, fits};
use parm_protocol::{ModelMetadata, ModelRef};

/// A code, ready for use.
#[derive(Debug)]
pub(crate) struct Coder {
    pub(crate) code: Arc<dyn Code>,
    /// The parity models in order; none where the deployed model runs the parity queries.
    pub(crate) models: Vec<ModelRef>,
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
            calibration: Calibration::default(),
            meanings: Vec::new(),
            deployed: None,
        }
    }

    /// Values agree that are closer than this share of what they are. Where the deployed model runs the parity queries it
    /// is linear, and what is decoded is exact but for rounding.
    pub(super) fn tolerance(&self) -> f32 {
        if self.models.is_empty() { 1e-3 } else { 0.1 }
    }

    /// What is wrong with a parity model as an instance serves it.
    pub(super) fn misfit(&self, model: &ModelRef, served: &ModelMetadata) -> Option<String> {
        let deployed = self.deployed.as_ref()?;
        let problems = fits(&*self.code, deployed, &Signature::from(served), &model.name);
        problems.first().map(ToString::to_string)
    }
}
