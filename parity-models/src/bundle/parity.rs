//! A code and its models, as described by a bundle.

use parm_encoder::CodeSpec;
use serde::{Deserialize, Serialize};

use super::{Accuracy, Calibration, Training};

/// A code, its parity models, and their measured properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parity {
    /// The code.
    pub code: CodeSpec,
    /// One parity model for each of the r parities. None if the deployed model serves the parities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelFile>,
    /// Encoder and decoder of a learned code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
    /// Its training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
    /// Its accuracy on held-out data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// The calibration of its reconstructions.
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
    /// Encodes k queries into r coded queries.
    pub encoder: ModelFile,
    /// Decodes k + r outputs, with zeros for lost ones, into k predictions.
    pub decoder: ModelFile,
}

impl Parity {
    /// The number of parity models that the code needs in addition to the deployed one.
    pub fn models_wanted(&self) -> usize {
        if self.code.kind.has_parity_models() { self.code.r } else { 0 }
    }

    /// All models of the repository that it names.
    pub fn files(&self) -> impl Iterator<Item = &ModelFile> {
        let learned = self.learned.iter().flat_map(|learned| [&learned.encoder, &learned.decoder]);
        self.models.iter().chain(learned)
    }
}
