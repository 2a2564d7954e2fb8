//! A code and the models that it needs, as a bundle describes them.

use parm_encoder::CodeSpec;
use serde::{Deserialize, Serialize};

use super::{Accuracy, Calibration, Training};

/// A code, its parity models, and what is known of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parity {
    /// The code.
    pub code: CodeSpec,
    /// The parity models, one for each of the r parities. None for codes whose coded queries the deployed model runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelFile>,
    /// Encoder and decoder of a learned code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
    /// How it was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
    /// What was measured on held-out data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// How sure a reconstruction is and must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

/// A model of the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Its name in the repository.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// SHA-256 of its model file, in hexadecimal.
    pub sha256: String,
}

/// The models of a learned code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// k queries to r coded queries.
    pub encoder: ModelFile,
    /// k + r outputs, the lost ones zero, to k predictions.
    pub decoder: ModelFile,
}

impl Parity {
    /// How many parity models the code wants beside the deployed one.
    pub fn models_wanted(&self) -> usize {
        if self.code.kind.has_parity_models() { self.code.r } else { 0 }
    }

    /// Every model of the repository that it names.
    pub fn files(&self) -> impl Iterator<Item = &ModelFile> {
        let learned = self.learned.iter().flat_map(|learned| [&learned.encoder, &learned.decoder]);
        self.models.iter().chain(learned)
    }
}
