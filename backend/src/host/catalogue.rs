//! The table of models, with their versions and states.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use parm_protocol::{Error, ModelIndex, ModelRef};

use super::Loaded;

/// Versions by model and number.
#[derive(Default)]
pub(crate) struct Catalogue {
    models: RwLock<BTreeMap<String, BTreeMap<u64, Slot>>>,
}

/// One version. During and after a failed reload of a served version the old one stays in service.
#[derive(Default)]
struct Slot {
    ready: Option<Arc<Loaded>>,
    loading: bool,
    reason: String,
}

impl Catalogue {
    /// The version for a request: the named one, otherwise the highest ready one.
    pub(crate) fn find(&self, model: &ModelRef) -> Result<Arc<Loaded>, Error> {
        let models = self.models.read();
        let unknown = || Error::UnknownModel { name: model.name.clone() };
        let versions = models.get(&model.name).ok_or_else(unknown)?;
        let Some(version) = &model.version else {
            let newest = versions.values().rev().find_map(|slot| slot.ready.clone());
            let slot = versions.values().next_back();
            return newest.ok_or_else(|| not_loaded(&model.name, slot.map_or("", |slot| &slot.reason)));
        };
        let slot = version.parse().ok().and_then(|number: u64| versions.get(&number));
        let slot = slot.ok_or_else(|| Error::UnknownVersion {
            name: model.name.clone(),
            version: version.clone(),
            available: ready(versions),
        })?;
        slot.ready.clone().ok_or_else(|| not_loaded(&model.name, &slot.reason))
    }

    /// All ready versions, of one model or of all.
    pub(crate) fn all_ready(&self, name: Option<&str>) -> Result<Vec<Arc<Loaded>>, Error> {
        let models = self.models.read();
        if let Some(name) = name
            && !models.contains_key(name)
        {
            return Err(Error::UnknownModel { name: name.into() });
        }
        let wanted = models.iter().filter(|(model, _)| name.is_none_or(|name| name == *model));
        Ok(wanted.flat_map(|(_, versions)| versions.values()).filter_map(|slot| slot.ready.clone()).collect())
    }

    /// Ready versions of a model.
    pub(crate) fn versions(&self, name: &str) -> Vec<String> {
        self.models.read().get(name).map(ready).unwrap_or_default()
    }

    pub(crate) fn any_ready(&self) -> bool {
        let models = self.models.read();
        models.values().flat_map(BTreeMap::values).any(|slot| slot.ready.is_some())
    }

    /// The index in the protocol's form.
    pub(crate) fn index(&self, ready_only: bool) -> Vec<ModelIndex> {
        let models = self.models.read();
        let slots = models.iter().flat_map(|(name, versions)| {
            versions.iter().map(move |(version, slot)| ModelIndex {
                name: name.clone(),
                version: version.to_string(),
                state: slot.state().into(),
                reason: slot.reason.clone(),
            })
        });
        slots.filter(|index| !ready_only || index.state == "READY").collect()
    }

    /// Versions that are not ready.
    pub(crate) fn absent(&self) -> Vec<ModelIndex> {
        self.index(false).into_iter().filter(|index| index.state != "READY").collect()
    }

    /// Numbers of all known versions of a model, ready or not.
    pub(super) fn known(&self, name: &str) -> Vec<u64> {
        self.models.read().get(name).map(|versions| versions.keys().copied().collect()).unwrap_or_default()
    }

    pub(super) fn is_ready(&self, name: &str, version: u64) -> bool {
        let models = self.models.read();
        models.get(name).and_then(|versions| versions.get(&version)).is_some_and(|slot| slot.ready.is_some())
    }

    pub(super) fn loading(&self, name: &str, version: u64) {
        let mut models = self.models.write();
        models.entry(name.into()).or_default().entry(version).or_default().loading = true;
    }

    /// Stores the result of a load; returns the version that it replaces.
    pub(super) fn put(
        &self,
        name: &str,
        version: u64,
        outcome: Result<Arc<Loaded>, crate::Error>,
    ) -> Option<Arc<Loaded>> {
        let mut models = self.models.write();
        let slot = models.entry(name.into()).or_default().entry(version).or_default();
        slot.loading = false;
        match outcome {
            Ok(loaded) => {
                slot.reason.clear();
                slot.ready.replace(loaded)
            }
            Err(error) => {
                slot.reason = error.to_string();
                None
            }
        }
    }

    /// Takes a version out of service; it stays in the index, with the reason.
    pub(super) fn unload(&self, name: &str, version: u64, reason: &str) -> Option<Arc<Loaded>> {
        let mut models = self.models.write();
        let slot = models.get_mut(name)?.get_mut(&version)?;
        slot.reason = reason.into();
        slot.ready.take()
    }

    /// Removes a version that is no longer in the repository.
    pub(super) fn forget(&self, name: &str, version: u64) -> Option<Arc<Loaded>> {
        let mut models = self.models.write();
        let versions = models.get_mut(name)?;
        let slot = versions.remove(&version);
        if versions.is_empty() {
            models.remove(name);
        }
        slot?.ready
    }
}

impl Slot {
    fn state(&self) -> &'static str {
        match (&self.ready, self.loading) {
            (Some(_), _) => "READY",
            (None, true) => "LOADING",
            (None, false) => "UNAVAILABLE",
        }
    }
}

fn not_loaded(model: &str, reason: &str) -> Error {
    match reason {
        "" => Error::NoInstance { model: model.into() },
        reason => Error::Unavailable { message: format!("model '{model}' is not loaded: {reason}") },
    }
}

fn ready(versions: &BTreeMap<u64, Slot>) -> Vec<String> {
    let ready = versions.iter().filter(|(_, slot)| slot.ready.is_some());
    ready.map(|(number, _)| number.to_string()).collect()
}
