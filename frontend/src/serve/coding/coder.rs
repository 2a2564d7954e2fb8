//! A code with its models, for groups of k queries.

use std::sync::Arc;

use parm_encoder::Code;
use parm_parity_models::bundle::{Calibration, Meaning, Signature, fits};
use parm_protocol::ModelRef;

use crate::serve::pool::Description;

/// A code, ready for use.
#[derive(Debug)]
pub(crate) struct Coder {
    pub(crate) code: Arc<dyn Code>,
    /// Parity models in order; empty if the deployed model runs the parity queries.
    pub(crate) models: Vec<ModelRef>,
    /// SHA-256 of their files, in the same order.
    pub(super) digests: Vec<String>,
    pub(super) calibration: Calibration,
    /// Meanings of outputs, by name; empty without a bundle, and answers then have no confidence.
    pub(super) meanings: Vec<(String, Meaning)>,
    /// The deployed model's tensors as the bundle states them.
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

    /// Why an instance's parity model at this index is not the expected one. A model that was retrained under the same
    /// version number looks the same and answers differently; its digest shows this if the server reports one.
    pub(super) fn misfit(&self, place: usize, served: &Description) -> Option<String> {
        let (model, digest) = (self.models.get(place)?, self.digests.get(place)?);
        let actual = served.config.as_ref().and_then(|config| config.digest());
        if let Some(actual) = actual.filter(|actual| !actual.eq_ignore_ascii_case(digest)) {
            return Some(format!(
                "parity model '{}' has sha256 {actual}, the bundle has {digest}: deploy the same files everywhere",
                model.name
            ));
        }
        let deployed = self.deployed.as_ref()?;
        let problems = fits(&*self.code, deployed, &Signature::from(&served.metadata), &model.name);
        problems.first().map(ToString::to_string)
    }
}
