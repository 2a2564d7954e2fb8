//! Finds the model of the demo, with its parity models and its stand-in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parm_encoder::Kind;
use parm_parity_models::bundle::Manifest;

use super::policy::Policy;

/// A deployed model with or without a bundle of parity models and stand-ins.
#[derive(Clone, Debug)]
pub struct Served {
    pub model: String,
    pub repository: PathBuf,
    /// The parity models of its bundle.
    parities: BTreeSet<String>,
    /// The cheapest stand-in of its bundle, which is used.
    pub stand_in: Option<String>,
    /// The code for a model without a bundle: it must be linear, and computes its own parities.
    pub code: Option<Kind>,
}

impl Served {
    /// Reads the model's bundle, if it has one.
    pub fn read(repository: &Path, model: &str) -> anyhow::Result<Self> {
        let manifest = repository.join(model).join("parm.toml");
        let (mut parities, mut stand_in) = (BTreeSet::new(), None);
        let mut code = Some(Kind::Mds);
        if manifest.is_file() {
            let bundle = Manifest::read(&manifest)?;
            parities.extend(
                bundle.parities.iter().flat_map(|parity| parity.files()).map(|file| file.name.clone()),
            );
            stand_in = bundle.cheapest().map(|stand_in| stand_in.model.name.clone());
            code = None;
        }
        Ok(Self { model: model.to_owned(), repository: repository.to_owned(), parities, stand_in, code })
    }

    /// Returns the models that an instance loads, the deployed one first.
    pub fn load(&self, policy: Policy) -> Vec<String> {
        let parities = self.parities.iter().filter(|_| policy.is_coded());
        let stand_in = self.stand_in.iter().filter(|_| policy == Policy::StandIn);
        std::iter::once(&self.model).chain(parities).chain(stand_in).cloned().collect()
    }

    /// Returns the folder of bundles, if one is used.
    pub fn bundles(&self) -> Option<PathBuf> {
        self.code.is_none().then(|| self.repository.clone())
    }
}
