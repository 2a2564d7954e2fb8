//! The model of the demonstration, and what else must be loaded to code its queries or to stand in for it.

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
    /// The cheapest stand-in of its bundle, which is the one that is used.
    pub stand_in: Option<String>,
    /// The code, where there is no bundle to choose one: then the model has to be linear, and computes its own parities.
    pub code: Option<Kind>,
}

impl Served {
    /// Looks for a bundle beside the model.
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

    /// The models that an instance loads, the deployed one first.
    pub fn load(&self, policy: Policy) -> Vec<String> {
        let parities = self.parities.iter().filter(|_| policy.is_coded());
        let stand_in = self.stand_in.iter().filter(|_| policy == Policy::StandIn);
        std::iter::once(&self.model).chain(parities).chain(stand_in).cloned().collect()
    }

    /// Where bundles are, if one is used.
    pub fn bundles(&self) -> Option<PathBuf> {
        self.code.is_none().then(|| self.repository.clone())
    }
}
