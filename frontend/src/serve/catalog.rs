//! The models that are served, by name and version.
//!
//! A model appears with the first instance that serves it, and that instance's description holds for all. It stays
//! while its instances are merely gone, so that clients hear "no instance" and not "unknown model"; it goes when it was
//! unloaded from the last instance that had it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use parm_dispatch::PoolId;
use parm_protocol::{Error, ModelRef, TensorMetadata};

use super::instance::Instance;
use super::pool::{Description, Pool};
use crate::error;

/// The pools, by model and version.
#[derive(Default)]
pub(crate) struct Catalog {
    models: RwLock<BTreeMap<String, BTreeMap<Version, Arc<Pool>>>>,
    next: AtomicU32,
}

/// Versions in order: numbers by value, before them anything else by its letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(Option<u64>, String);

impl Catalog {
    /// The pool that a request is for: the version asked for, else the newest that is served, else the newest.
    pub(crate) fn find(&self, model: &ModelRef) -> Result<Arc<Pool>, Error> {
        let models = self.models.read();
        let versions =
            models.get(&model.name).ok_or_else(|| Error::UnknownModel { name: model.name.clone() })?;
        let found = match &model.version {
            Some(version) => versions.get(&Version::read(version)),
            None => {
                let newest = || versions.values().next_back();
                versions.values().rev().find(|pool| pool.is_served()).or_else(newest)
            }
        };
        found.cloned().ok_or_else(|| Error::UnknownVersion {
            name: model.name.clone(),
            version: model.version.clone().unwrap_or_default(),
            available: versions.keys().map(|version| version.1.clone()).collect(),
        })
    }

    /// Every pool, in order of names and versions.
    pub(crate) fn all(&self) -> Vec<Arc<Pool>> {
        self.models.read().values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// All versions of a model.
    pub(crate) fn versions(&self, name: &str) -> Vec<Arc<Pool>> {
        self.models.read().get(name).map(|versions| versions.values().cloned().collect()).unwrap_or_default()
    }

    /// The pool that an instance's model belongs to, made by `make` if it is the first. Returns whether it was made,
    /// and the pool that it replaces: one that nobody else serves does not bind newcomers.
    pub(crate) fn admit(
        &self,
        description: Description,
        instance: &Instance,
        make: impl FnOnce(PoolId, Description) -> Pool,
    ) -> Result<Admitted, error::Error> {
        let mut models = self.models.write();
        let version = Version::read(description.model.version.as_deref().unwrap_or_default());
        let versions = models.entry(description.model.name.clone()).or_default();
        let mut replaced = None;
        if let Some(known) = versions.get(&version) {
            match disagreement(known, &description, &instance.name) {
                None => return Ok(Admitted { pool: known.clone(), is_new: false, replaced: None }),
                Some(error) if known.is_served_by_others(instance.id) => return Err(error),
                Some(_) => replaced = Some(known.clone()),
            }
        }
        let id = PoolId(self.next.fetch_add(1, Ordering::Relaxed));
        let pool = Arc::new(make(id, description));
        versions.insert(version, pool.clone());
        Ok(Admitted { pool, is_new: true, replaced })
    }

    /// Takes a pool out, if nobody serves it.
    pub(crate) fn remove_unserved(&self, pool: &Pool) -> bool {
        let mut models = self.models.write();
        let Some(versions) = models.get_mut(&pool.model.name) else { return false };
        let version = Version::read(&pool.version);
        if versions.get(&version).is_none_or(|known| known.id != pool.id || known.is_served()) {
            return false;
        }
        versions.remove(&version);
        if versions.is_empty() {
            models.remove(&pool.model.name);
        }
        true
    }
}

/// A place in a pool.
pub(crate) struct Admitted {
    pub(crate) pool: Arc<Pool>,
    pub(crate) is_new: bool,
    pub(crate) replaced: Option<Arc<Pool>>,
}

impl Version {
    fn read(text: &str) -> Self {
        Self(text.parse().ok(), text.to_owned())
    }
}

/// What an instance's model has otherwise than the others'. The order of tensors is no matter: they go by name.
fn disagreement(pool: &Pool, description: &Description, instance: &str) -> Option<error::Error> {
    let sides = [
        ("inputs", &pool.metadata.inputs, &description.metadata.inputs),
        ("outputs", &pool.metadata.outputs, &description.metadata.outputs),
    ];
    sides.into_iter().find_map(|(what, expected, actual)| {
        let (expected, actual) = (listed(expected), listed(actual));
        (expected != actual).then(|| error::Error::Disagreement {
            model: pool.model.name.clone(),
            instance: instance.to_owned(),
            what,
            expected,
            actual,
        })
    })
}

fn listed(tensors: &[TensorMetadata]) -> String {
    let mut all: Vec<String> = tensors
        .iter()
        .map(|tensor| format!("{} {}{:?}", tensor.name, tensor.datatype, tensor.shape))
        .collect();
    all.sort();
    all.join(", ")
}
